//! The data that passes between the table and an instance: the next step, and a batch with its requests. How a batch runs is decided by the
//! instance.

use std::sync::Arc;

use sequor_core::{Batch, BatchId, Req, Round, RowEnd, Seq, SlotOp, Time};

use crate::model::execute::AdoptedState;
use crate::model::load::{BatchToSeal, StateTier};
use crate::model::sequences::jobs::Job;
use crate::model::sequences::offloaded::{RefusedGrowth, RowToSeal};
use crate::scheduling::Decider;

/// The next step of an instance.
#[derive(Debug)]
pub(in crate::model) enum Step {
    Run(TakenBatch),
    /// A question, and the plug-in that answers it.
    Ask(Box<Round>, Option<Decider>),
    Tidy(Vec<SlotOp>),
    Sleep(Option<Time>),
    Gone,
}

/// A batch as it was taken, with its requests.
#[derive(Debug)]
pub(in crate::model) struct TakenBatch {
    pub(in crate::model) batch: Batch,
    /// One for each row; `None` is padding.
    pub(in crate::model) jobs: Vec<Option<(Req, Box<Job>)>>,
    /// The states that slots will get, by the requests that brought them.
    pub(in crate::model) adopted: Vec<(Req, AdoptedState)>,
}

/// A batch whose run is over: its requests, and the outcome of each row.
#[derive(Debug)]
pub(in crate::model) struct FinishedBatch {
    pub(in crate::model) batch: Batch,
    pub(in crate::model) jobs: Vec<(Req, Box<Job>)>,
    /// In the order of the batch's real rows.
    pub(in crate::model) rows: Vec<RowEnd>,
    /// The rows whose states must be made durable.
    pub(in crate::model) sealing: Vec<RowToSeal>,
    /// Growth that was refused because the states would have exceeded the limit over all models.
    pub(in crate::model) refused_growth: Option<RefusedGrowth>,
}

/// A batch on its way to a tier.
#[derive(Debug)]
pub(in crate::model::sequences) struct SealAction {
    pub(in crate::model::sequences) tier: Arc<dyn StateTier>,
    pub(in crate::model::sequences) waiting: SealWaiting,
    /// The sequences of these states, in the same order.
    pub(in crate::model::sequences) rows: Vec<SealingRow>,
    pub(in crate::model::sequences) batch: BatchToSeal,
}

/// The answers that wait until a batch is durable.
#[derive(Debug)]
pub(in crate::model::sequences) enum SealWaiting {
    Nothing,
    /// The answers of a batch.
    Batch(BatchId),
    /// A request whose processors are done.
    Posted(Req),
    /// A request that is done without a run.
    Reply(Req),
    /// A START that failed.
    FailedStart(Box<Job>),
}

/// A state on its way to a tier: its request and its sequence.
#[derive(Debug, Clone, Copy)]
pub(in crate::model::sequences) struct SealingRow {
    pub(in crate::model::sequences) req: Req,
    pub(in crate::model::sequences) seq: Seq,
    pub(in crate::model::sequences) incarnation: u64,
    pub(in crate::model::sequences) step: u64,
    /// The number of this write among those of its sequence.
    pub(in crate::model::sequences) write: u64,
}

/// States to hand to tiers before the lock is released.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct PendingSeals {
    pub(in crate::model::sequences) batches: Vec<(BatchId, Vec<RowToSeal>)>,
    /// Requests whose processors are done.
    pub(in crate::model::sequences) posted: Vec<Req>,
    /// Requests that are done without a run.
    pub(in crate::model::sequences) replies: Vec<Req>,
    /// STARTs that failed on live sequences with older states in the store.
    #[allow(clippy::vec_box, reason = "they are boxed already, and moved as they are")]
    pub(in crate::model::sequences) failed_starts: Vec<Box<Job>>,
}

impl PendingSeals {
    pub(in crate::model::sequences) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.posted.is_empty() && self.replies.is_empty() && self.failed_starts.is_empty()
    }
}
