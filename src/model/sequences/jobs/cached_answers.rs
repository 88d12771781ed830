//! Answers requests of models without sequences from the response cache, and keeps new answers there.

use crate::error::Failure;
use crate::model::load::{CacheLookup, CacheMiss, LoadedModel};
use crate::model::request::{Accepted, InferAnswer, InferRequest};
use crate::tensor::{NamedTensor, Tensor};

/// What the cache says of a request that was accepted.
#[derive(Debug)]
pub(in crate::model::sequences) enum Looked {
    Answered(InferAnswer),
    /// The request runs. Its answer is kept, if it was looked up.
    Runs(Option<CacheMiss>),
}

pub(in crate::model::sequences) fn look_up(load: &LoadedModel, request: &InferRequest, accepted: &Accepted) -> Looked {
    // A plug-in that decides, or has decided, may refuse the request.
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
            })
        }
    }
}

/// Keeps the answer to a request that was looked up in vain.
pub(in crate::model::sequences) fn keep(
    load: &LoadedModel,
    miss: &CacheMiss,
    answer: Option<&Result<Vec<Option<Tensor>>, Failure>>,
) {
    if let (Some(cache), Some(Ok(outputs))) = (&load.cache, answer) {
        load.metrics.cache_kept(cache.keep(miss, outputs));
    }
}

/// The outputs that a request asked for, by their places, under their names.
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
