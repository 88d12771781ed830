//! What goes to an instance and comes back: a batch with its requests. How it runs is the business of the instance.

use sequor_core::{Batch, Req, RowEnd};

use super::job::Job;

/// A batch as it was taken, with the requests it runs.
#[derive(Debug)]
pub(in crate::model) struct TakenBatch {
    pub(in crate::model) batch: Batch,
    /// One for each row; `None` is padding.
    pub(in crate::model) jobs: Vec<Option<(Req, Box<Job>)>>,
}

/// A batch whose run is over: its requests, and how each of its rows ended.
#[derive(Debug)]
pub(in crate::model) struct FinishedBatch {
    pub(in crate::model) batch: Batch,
    pub(in crate::model) jobs: Vec<(Req, Box<Job>)>,
    /// In the order of the batch's real rows.
    pub(in crate::model) rows: Vec<RowEnd>,
}
