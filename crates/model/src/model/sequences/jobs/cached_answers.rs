//! Answers requests of models without sequences from the response cache, and keeps new answers there.

use crate::error::Failure;
use crate::model::load::{CacheLookup, CacheMiss, LoadedModel};
use crate::model::request::{Accepted, InferAnswer, InferRequest};
use crate::tensor::{NamedTensor, Tensor};

/// The result of the cache lookup for an accepted request.
#[derive(Debug)]
pub(in crate::model::sequences) enum Looked {
    Answered(InferAnswer),
    /// The request runs. If it was looked up, its answer is kept.
    Runs(Option<CacheMiss>),
}

pub(in crate::model::sequences) fn look_up(load: &LoadedModel, request: &InferRequest, accepted: &Accepted) -> Looked {
    // A scheduler plug-in may refuse the request, so an answer from the cache would bypass it.
    let cache = load.cache.as_ref().filter(|_| load.port.get().is_none());
    match cache.and_then(|cache| cache.look_up(&accepted.inputs)) {
        None => Looked::Runs(None),
        Some(CacheLookup::Miss(miss, took)) => {
            load.metrics.cache_missed(took);
            Looked::Runs(Some(miss))
        }
        Some(CacheLookup::Hit(mut outputs, took)) => {
            load.metrics.cache_hit(took);
            Looked::Answered(InferAnswer {
                model: load.settings.name.clone(),
                version: load.version,
                id: request.id.clone(),
                outputs: wanted(load, &accepted.outputs, &mut outputs),
                parameters: Vec::new(),
                held: None,
            })
        }
    }
}

/// Keeps the answer to a request that the cache did not have.
pub(in crate::model::sequences) fn keep(
    load: &LoadedModel,
    miss: &CacheMiss,
    answer: Option<&Result<Vec<Option<Tensor>>, Failure>>,
) {
    if let (Some(cache), Some(Ok(outputs))) = (&load.cache, answer) {
        load.metrics.cache_kept(cache.keep(miss, outputs));
    }
}

/// The outputs that a request asked for, by their places, with their names.
pub(in crate::model::sequences) fn wanted(
    load: &LoadedModel,
    places: &[usize],
    outputs: &mut [Option<Tensor>],
) -> Vec<NamedTensor> {
    let mut named = Vec::with_capacity(places.len());
    for place in places {
        let tensor = outputs.get_mut(*place).and_then(Option::take);
        let name = load.client.outputs.get(*place).map(|output| output.name.clone());
        named.extend(name.zip(tensor).map(|(name, tensor)| NamedTensor { name, tensor }));
    }
    named
}
