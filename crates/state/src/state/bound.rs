//! A batch between [`Store::bind`](super::Store::bind) and the commit: its plan, and the memory of its outputs.

use sequor_core::Shape;

use crate::device::{MemorySpanMut, Owned};

use super::bind_plan::BindPlan;

/// A bound batch, to be passed to [`Store::commit`](super::Store::commit).
#[derive(Debug)]
pub struct Bound {
    pub(super) rows: Vec<Option<u32>>,
    pub(super) plan: BindPlan,
}

/// The memory for a state's output.
#[derive(Debug)]
pub enum StateOut<'a> {
    Into {
        shape: &'a Shape,
        data: MemorySpanMut<'a>,
    },
    /// The backend allocates.
    New,
}

/// A state's output in the backend's own memory.
#[derive(Debug)]
pub struct Fresh {
    pub shape: Shape,
    pub data: Owned,
    /// For a padded state: the length of each row, if the model or a snapshot contains it.
    pub lengths: Option<Vec<i64>>,
}
