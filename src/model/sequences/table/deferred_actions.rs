//! The actions to carry out after a model's lock is released.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{EndReason, Instance, LoadId, Observed, Refusal, Req, Seq, Time};

use crate::executor::{AnswerBatch, ExecutorHandle};
use crate::model::load::LoadedModel;
use crate::model::sequences::ensembles::{MemberSequences, Reservation, SequenceHolder};
use crate::model::sequences::jobs::{Job, LentRequest, PostTask};
use crate::model::sequences::offloaded::{Forgotten, StoreTask};
use crate::recording::Recorder;
use crate::scheduling::Decider;

use super::batch::SealAction;

/// What happened to a sequence, for the metrics.
#[derive(Debug)]
pub(in crate::model::sequences) enum SequenceChange {
    Started,
    Ended(EndReason),
    Slotted(Duration),
}

/// News for the plug-in that decides for a load, or a count of what became of its answers.
#[derive(Debug)]
pub(in crate::model::sequences) enum PolicyNotice {
    /// What happened, from this serial number on, and whether some before it were dropped.
    News(u64, Vec<Observed>, bool),
    Fallback,
    Stale(u32),
}

/// DeferredActions to carry out after the lock is released.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct DeferredActions {
    /// And whether the request's sequence ended with it.
    pub(in crate::model) refused: Vec<(Box<Job>, Refusal, bool)>,
    #[allow(clippy::vec_box, reason = "they are boxed already, and moved as they are")]
    pub(in crate::model::sequences) released: Vec<Box<Job>>,
    /// The instances to wake, each with the plug-in that decides for its load.
    pub(in crate::model) wake: Vec<(Instance, Option<Decider>)>,
    pub(in crate::model) sequences: Vec<(Arc<LoadedModel>, SequenceChange)>,
    /// Notices, each with the plug-in that decided for the load when it came up.
    pub(in crate::model) policies: Vec<(LoadId, Option<Decider>, PolicyNotice)>,
    /// Batches whose states are to be made durable.
    pub(in crate::model::sequences) seals: Vec<SealAction>,
    /// Requests that the store does something for before their turn.
    pub(in crate::model::sequences) store: Vec<StoreTask>,
    /// Sequences that the store is to forget.
    pub(in crate::model::sequences) forgotten: Vec<Forgotten>,
    /// Whether a request waits for state memory.
    pub(in crate::model::sequences) wants_memory: bool,
    /// Requests for processors to prepare and to finish.
    pub(in crate::model::sequences) prepare: Vec<LentRequest>,
    pub(in crate::model::sequences) post: Vec<PostTask>,
    /// Requests of an ensemble whose turn has come.
    pub(in crate::model::sequences) flows: Vec<(Req, LoadId)>,
    /// STARTs that ensembles sent and that have their slots.
    pub(in crate::model::sequences) granted: Vec<(Reservation, Req, Seq)>,
    /// What ended sequences of an ensemble hold in its members.
    pub(in crate::model::sequences) departed: Vec<(Arc<MemberSequences>, EndReason)>,
    /// Ensembles whose member has ended a sequence by itself.
    pub(in crate::model::sequences) bereaved: Vec<(SequenceHolder, EndReason)>,
    /// When something is due next.
    pub(in crate::model) due: Option<Time>,
}

impl DeferredActions {
    /// Sends the answers and refusals, and counts what became of sequences. The answers of a batch wake their connections together. Steps of other
    /// models that follow may be left to `thread`.
    pub(in crate::model::sequences) fn send_answers(
        &mut self,
        now: Time,
        recorder: Option<&Recorder>,
        thread: Option<&ExecutorHandle>,
    ) {
        let mut batch = AnswerBatch::default();
        if self.released.len() > 1 {
            self.released.iter_mut().filter_map(|job| job.connection.take()).for_each(|held| batch.hold(held));
        }
        for job in self.released.drain(..) {
            job.release(now, recorder, thread);
        }
        drop(batch);
        for (job, refusal, ended) in self.refused.drain(..) {
            job.refuse(refusal, ended, now, recorder, thread);
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
