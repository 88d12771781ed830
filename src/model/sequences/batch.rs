//! What goes to an instance and comes back: its next step, and a batch with its requests. How it runs is the business of the instance.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{Batch, BatchId, Req, Round, RowEnd, SlotOp, Time};

use crate::model::load::{BatchToSeal, StateTier};
use crate::scheduling::Decider;
use crate::state::StateCopy;

use super::job::Job;

/// The next step of an instance.
#[derive(Debug)]
pub(in crate::model) enum Step {
    Run(TakenBatch),
    /// A question, and the plug-in that it was made for.
    Ask(Box<Round>, Option<Decider>),
    Tidy(Vec<SlotOp>),
    Sleep(Option<Time>),
    Gone,
}

/// A batch as it was taken, with the requests it runs.
#[derive(Debug)]
pub(in crate::model) struct TakenBatch {
    pub(in crate::model) batch: Batch,
    /// One for each row; `None` is padding.
    pub(in crate::model) jobs: Vec<Option<(Req, Box<Job>)>>,
    /// The states that slots are to be given, by the requests that brought them.
    pub(in crate::model) adopted: Vec<(Req, Bytes)>,
}

/// A batch whose run is over: its requests, and how each of its rows ended.
#[derive(Debug)]
pub(in crate::model) struct FinishedBatch {
    pub(in crate::model) batch: Batch,
    pub(in crate::model) jobs: Vec<(Req, Box<Job>)>,
    /// In the order of the batch's real rows.
    pub(in crate::model) rows: Vec<RowEnd>,
    /// The rows whose states are to be made durable.
    pub(in crate::model) sealing: Vec<RowToSeal>,
}

/// A row whose state is to be made durable before its answer leaves.
#[derive(Debug)]
pub(in crate::model) struct RowToSeal {
    pub(in crate::model) req: Req,
    pub(in crate::model) end: bool,
    /// A row that ran nothing has none: its state is as it was.
    pub(in crate::model) copy: Option<StateCopy>,
}

/// A batch on its way to a tier.
#[derive(Debug)]
pub(super) struct SealAction {
    pub(super) tier: Arc<dyn StateTier>,
    pub(super) id: BatchId,
    pub(super) batch: BatchToSeal,
}
