//! What a state looks like: its tensors' names, type and dimensions, how it is kept, and what it is at START.

use std::sync::Arc;

use sequor_core::{DataType, Dims, Shape};

/// One state of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSpec {
    /// The graph's input and output; also the state's name for people (`input`).
    pub input: String,
    pub output: String,
    pub dtype: DataType,
    /// Without the batch dimension.
    pub dims: Dims,
    /// Where the batch dimension stands in the graph's tensor; `None` if the model does not batch.
    pub batch_axis: Option<usize>,
    /// The type it is kept in: `dtype`, or FP16 for an FP32 state.
    pub storage: DataType,
    pub initial: Initial,
    /// One copy is to be enough, whatever that costs (`use_same_buffer_for_input_output`).
    pub same_buffer: bool,
}

/// What a state is at START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initial {
    /// Without the batch dimension.
    pub shape: Shape,
    /// In the state's own type, BYTES in wire form; `None` is zeros, or empty texts.
    pub data: Option<Arc<[u8]>>,
}

/// The sizes of a state whose dimensions are fixed, seen as [outer, batch, inner].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Pieces a row lies in: the product of the dimensions before the batch dimension.
    pub(super) outer: usize,
    /// Bytes of a piece, as the graph has it.
    pub(super) inner: usize,
    /// Bytes of a piece, as it is kept.
    pub(super) kept: usize,
}

impl Layout {
    /// Bytes of a row, as the graph has it.
    pub(super) fn row(self) -> usize {
        self.outer * self.inner
    }

    /// Bytes of a row, as it is kept.
    pub(super) fn kept_row(self) -> usize {
        self.outer * self.kept
    }
}

impl StateSpec {
    /// The layout, if the state's size is fixed.
    pub(super) fn layout(&self) -> Option<Layout> {
        let shape = self.dims.fixed()?;
        let (size, kept) = (self.dtype.size()?, self.storage.size()?);
        let axis = self.batch_axis.unwrap_or(0);
        let product = |dims: &[u64]| Shape::of(dims).elements().and_then(|n| usize::try_from(n).ok());
        let (before, after) = shape.0.split_at_checked(axis)?;
        let (outer, elements) = (product(before)?, product(after)?);
        Some(Layout { outer, inner: elements.checked_mul(size)?, kept: elements.checked_mul(kept)? })
    }

    /// Bytes a sequence holds for this state; for one whose size changes, what it holds at START.
    pub fn bytes(&self) -> u64 {
        let elements = self.dims.fixed().as_ref().unwrap_or(&self.initial.shape).elements().unwrap_or(u64::MAX);
        elements.saturating_mul(self.storage.zero_size() as u64)
    }

    /// The graph's shape for a row of this shape, in a batch of so many rows.
    pub(super) fn batched(&self, row: &Shape, rows: u64) -> Shape {
        match self.batch_axis {
            Some(axis) => row.with(axis, rows),
            None => row.clone(),
        }
    }

    /// The shape of one row, if `shape` is a batch of so many rows that fits the declaration.
    pub(super) fn row_of(&self, shape: &Shape, rows: u64) -> Option<Shape> {
        let row = match self.batch_axis {
            Some(axis) if shape.0.get(axis) == Some(&rows) => shape.without(axis),
            Some(_) => return None,
            None => shape.clone(),
        };
        self.dims.matches(&row).then_some(row)
    }
}
