//! What operators can read about one sequence: its last steps with their batches, and its last refused requests.

use std::collections::HashMap;
use std::time::Duration;

use sequor_core::{BatchId, Id, Time};

use crate::config::model::settings::DurabilityWhen;
use crate::error::Failure;
use crate::model::load::{LoadedModel, strategy_name};
use crate::model::sequences::jobs::ChosenBy;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::StepRecord;

/// Sequences whose steps are read under one lock.
const PORTION: usize = 256;
/// Maximum number of other sequences of a batch that are listed.
const MATES: usize = 8;
/// Maximum number of refusals that are listed.
const REFUSALS: usize = 5;

/// The past of a sequence, as far as it is remembered. The latest comes first.
#[derive(Debug, Clone, Default)]
pub struct SequenceHistory {
    pub steps: Vec<PastStep>,
    pub refusals: Vec<PastRefusal>,
    /// The built-in policy of the load that takes new sequences. A plug-in may decide in its place.
    pub policy: &'static str,
    /// When the states of that load are stored, if they are.
    pub durable: Option<DurabilityWhen>,
}

/// A step that was answered.
#[derive(Debug, Clone)]
pub struct PastStep {
    /// Its number; 0 if it was answered without a run.
    pub step: u64,
    pub ago: Duration,
    /// Time in the queue.
    pub waited: Duration,
    /// From the start of its batch to its answer.
    pub ran: Duration,
    /// Requests in its batch; 0 if it ran in none.
    pub batch: u32,
    /// Some of the other sequences in its batch.
    pub mates: Vec<Id>,
    pub chosen_by: ChosenBy,
    pub failed: bool,
}

/// A request that was refused or failed.
#[derive(Debug, Clone)]
pub struct PastRefusal {
    pub ago: Duration,
    /// `None`: the request did not fit the model.
    pub failure: Option<Failure>,
}

/// The history of the last sequence of an id.
pub(in crate::model) fn history(model: &ModelScheduler, id: &Id) -> SequenceHistory {
    let now = model.now();
    let steps = {
        let table = model.table.lock();
        table.recent.of(table.core.find(id, None), id)
    };
    let mates = mates(model, id, &steps);
    let past = |step: &StepRecord| past(step, mates.get(&step.batch.id), now);
    let refusals = model.refusals.of(id).into_iter().take(REFUSALS);
    let load = model.load_for(None);
    SequenceHistory {
        steps: steps.iter().map(past).collect(),
        refusals: refusals.map(|of| PastRefusal { ago: now.since(of.at), failure: of.failure }).collect(),
        policy: load.as_ref().map_or("", |load| policy_of(load)),
        durable: load.and_then(|load| Some(load.durable.as_ref()?.when)),
    }
}

fn policy_of(load: &LoadedModel) -> &'static str {
    if load.ensemble.is_some() { "ensemble" } else { strategy_name(&load.spec().strategy) }
}

/// Some of the other sequences in the batches of these steps. Looks for them in portions, so that the model is never held up for long.
fn mates(model: &ModelScheduler, id: &Id, steps: &[StepRecord]) -> HashMap<Option<BatchId>, Vec<Id>> {
    let batches: Vec<BatchId> =
        steps.iter().filter(|step| step.batch.size > 1).filter_map(|step| step.batch.id).collect();
    let (mut mates, mut from) = (HashMap::<_, Vec<Id>>::new(), Some(0).filter(|_| !batches.is_empty()));
    while let Some(place) = from {
        let (found, next) = model.table.lock().recent.in_batches(&batches, place, PORTION);
        for (batch, mate) in found.into_iter().filter(|(_, mate)| mate != id) {
            let mates = mates.entry(Some(batch)).or_default();
            if mates.len() < MATES {
                mates.push(mate);
            }
        }
        from = next;
    }
    mates
}

fn past(StepRecord { batch, arrived, taken, answered }: &StepRecord, mates: Option<&Vec<Id>>, now: Time) -> PastStep {
    PastStep {
        step: batch.step,
        ago: now.since(*answered),
        waited: taken.since(*arrived),
        ran: answered.since(*taken),
        batch: batch.size,
        mates: mates.cloned().unwrap_or_default(),
        chosen_by: batch.chosen_by,
        failed: batch.failed,
    }
}
