//! What operators can read about one sequence: its last steps with their batches, and its last refused requests.

use std::time::Duration;

use sequor_core::{Id, Time};

use crate::error::Failure;
use crate::model::load::{LoadedModel, strategy_name};
use crate::model::sequences::jobs::ChosenBy;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::StepRecord;

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
    let steps = model.table.lock().recent.of(id);
    let refusals = model.refusals.of(id).into_iter().take(REFUSALS);
    SequenceHistory {
        steps: steps.into_iter().map(|step| past(model, id, step, now)).collect(),
        refusals: refusals.map(|of| PastRefusal { ago: now.since(of.at), failure: of.failure }).collect(),
        policy: model.load_for(None).map_or("", |load| policy_of(&load)),
    }
}

fn policy_of(load: &LoadedModel) -> &'static str {
    if load.ensemble.is_some() { "ensemble" } else { strategy_name(&load.spec().strategy) }
}

/// Looks up the other sequences of a step's batch, in a lock section of its own, so that the model is not held up for long.
fn past(model: &ModelScheduler, id: &Id, step: StepRecord, now: Time) -> PastStep {
    let mates = step.batch.id.filter(|_| step.size > 1);
    let mates = mates.map(|batch| model.table.lock().recent.in_batch(batch, MATES + 1)).unwrap_or_default();
    let us = |us: u32| Duration::from_micros(u64::from(us));
    PastStep {
        step: step.batch.step,
        ago: now.since(step.answered),
        waited: us(step.waited_us),
        ran: us(step.ran_us),
        batch: step.size,
        mates: mates.into_iter().filter(|mate| mate != id).take(MATES).collect(),
        chosen_by: step.batch.chosen_by,
        failed: step.failed,
    }
}
