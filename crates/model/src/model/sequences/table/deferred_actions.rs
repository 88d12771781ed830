//! The actions to carry out after a model's lock is released.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{EndReason, Id, Instance, LoadId, Observed, Refusal, Req, Seq, Time};

use crate::executor::{AnswerBatch, ExecutorHandle};
use crate::model::load::{LoadedModel, StateTier};
use crate::model::sequences::ensembles::{MemberSequences, Reservation, SequenceHolder, StepOfFlow};
use crate::model::sequences::jobs::{Job, LentRequest, PostTask, RecentRefusals};
use crate::model::sequences::offloaded::{Forgotten, LookTask, StoreTask};
use crate::recording::Recorder;
use crate::scheduling::Decider;
use crate::state::budget::Unneeded;
use crate::state::tier::ClosedTask;

use super::batch::SealAction;

/// A change of a sequence, for the metrics.
#[derive(Debug)]
pub(in crate::model::sequences) enum SequenceChange {
    Started,
    Ended(EndReason),
    Slotted(Duration),
}

/// A notice for the plug-in that decides for a load: events, or a count of answers that were not used.
#[derive(Debug)]
pub(in crate::model::sequences) enum PolicyNotice {
    /// The events from this serial number on, and whether some before it were dropped.
    News(u64, Vec<Observed>, bool),
    Fallback,
    Stale(u32),
}

/// Work for the store.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart soon")]
pub(in crate::model::sequences) enum StoreAction {
    /// Makes states durable.
    Seal(SealAction),
    /// Reads the state for a request before its turn.
    Take(StoreTask),
    /// Removes the state of a sequence that has ended.
    Forget(Forgotten),
    /// Finds out which state the store has after a failed write.
    Look(LookTask),
}

/// The actions to carry out after the lock is released.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct DeferredActions {
    /// Refused requests. The flag is true if the request's sequence ended with it.
    pub(in crate::model) refused: Vec<(Box<Job>, Refusal, bool)>,
    #[allow(clippy::vec_box, reason = "they are boxed already, and moved as they are")]
    pub(in crate::model::sequences) released: Vec<Box<Job>>,
    /// The instances to wake, each with the plug-in that decides for its load.
    pub(in crate::model) wake: Vec<(Instance, Option<Decider>)>,
    pub(in crate::model) sequences: Vec<(Arc<LoadedModel>, SequenceChange)>,
    /// Values that are not needed any more.
    pub(in crate::model::sequences) unneeded: Vec<Unneeded>,
    /// The next deadline of the core.
    pub(in crate::model) due: Option<Time>,
    /// The actions that most requests do not cause. Boxed, because each request moves the other actions out of the table.
    pub(in crate::model::sequences) rare: Option<Box<RareActions>>,
}

/// Actions of models with plug-ins, a store, ensembles or shared sequences, or of a model that is short of memory.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct RareActions {
    /// Notices, each with the plug-in that decided for the load at that time.
    pub(in crate::model) policies: Vec<(LoadId, Option<Decider>, PolicyNotice)>,
    /// Work for the store, in the order in which the table made it. It is queued before the lock is released.
    pub(in crate::model::sequences) to_store: Vec<StoreAction>,
    /// Tiers with queued work.
    pub(in crate::model::sequences) tiers: Vec<Arc<dyn StateTier>>,
    /// Work for a closed store.
    pub(in crate::model::sequences) closed: Vec<ClosedTask>,
    /// Ids whose sequences have ended, if several servers share them.
    pub(in crate::model::sequences) unused: Vec<Id>,
    /// Whether a request waits for state memory.
    pub(in crate::model::sequences) wants_memory: bool,
    /// Requests for processors to prepare and to finish.
    pub(in crate::model::sequences) prepare: Vec<LentRequest>,
    pub(in crate::model::sequences) post: Vec<PostTask>,
    /// Requests of an ensemble whose turn has come.
    pub(in crate::model::sequences) flows: Vec<(Req, LoadId)>,
    /// STARTs of ensembles that have their slots.
    pub(in crate::model::sequences) granted: Vec<(Reservation, Req, Seq)>,
    /// The members' sequences of ensembles' sequences that have ended.
    pub(in crate::model::sequences) ended_ensembles: Vec<(Arc<MemberSequences>, EndReason)>,
    /// Sequences of ensembles for which a member has ended its own sequence.
    pub(in crate::model::sequences) lost_members: Vec<(SequenceHolder, EndReason)>,
    /// Steps of ensembles whose requests were lost in a panic.
    pub(in crate::model::sequences) lost_steps: Vec<StepOfFlow>,
}

impl DeferredActions {
    /// The rare actions, to add to them.
    pub(in crate::model::sequences) fn rare(&mut self) -> &mut RareActions {
        self.rare.get_or_insert_default()
    }

    /// Sends the answers and refusals, and counts the changes of sequences. The answers of a batch wake their connections together. Steps of
    /// other models that follow may be left to `thread`.
    pub(in crate::model::sequences) fn send_answers(
        &mut self,
        now: Time,
        (recorder, refusals): (Option<&Recorder>, &RecentRefusals),
        thread: Option<&ExecutorHandle>,
    ) {
        let mut batch = AnswerBatch::default();
        if self.released.len() > 1 {
            self.released.iter_mut().filter_map(|job| job.connection.take()).for_each(|held| batch.hold(held));
        }
        for job in self.released.drain(..) {
            job.release(now, (recorder, refusals), thread);
        }
        drop(batch);
        for (job, refusal, ended) in self.refused.drain(..) {
            job.refuse(refusal, ended, now, (recorder, refusals), thread);
        }
        for (load, change) in self.sequences.drain(..) {
            match change {
                SequenceChange::Started => load.metrics.sequence_started(),
                SequenceChange::Ended(why) => load.metrics.sequence_left(why),
                SequenceChange::Slotted(waited) => load.metrics.slotted(waited),
            }
        }
    }
}
