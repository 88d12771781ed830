//! Describes a state: the names of its tensors, its type and dimensions, how it is kept, and its value at START.

use std::sync::Arc;

use sequor_core::{DataType, Dims, Padding, Shape};

use crate::device::{Convert, StridedLayout};

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
    /// The type it is kept in: `dtype`, or FP16 or BF16 for an FP32 state.
    pub storage: DataType,
    pub initial: InitialValue,
    /// Keep one copy, at any cost (`use_same_buffer_for_input_output`).
    pub same_buffer: bool,
    /// How values of different lengths are padded to one, if rows with such values run together.
    pub padding: Option<Padding>,
}

/// What a state is at START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialValue {
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
    /// From how it is kept to how the graph has it, and back.
    pub(super) widen: Convert,
    pub(super) narrow: Convert,
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

    /// Rows on their way from how they are kept into a batch of so many.
    pub(super) fn gather(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, kept, widen: convert, .. } = self;
        StridedLayout { from_stride: kept, to_stride: inner * count, outer, inner: kept, convert }
    }

    /// Rows of a batch of so many on their way to how they are kept.
    pub(super) fn scatter(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, kept, narrow: convert, .. } = self;
        StridedLayout { from_stride: inner * count, to_stride: kept, outer, inner, convert }
    }

    /// Rows of a batch of so many, as the graph has them, on their way to where each lies in one piece.
    pub(super) fn rows_first(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, .. } = self;
        StridedLayout { from_stride: inner * count, to_stride: inner, outer, inner, convert: Convert::No }
    }

    /// Rows as they are kept, from one place to another.
    pub(super) fn as_kept(self) -> StridedLayout {
        StridedLayout::whole(self.kept_row())
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
        let (widen, narrow) = match self.storage {
            _ if self.storage == self.dtype => (Convert::No, Convert::No),
            DataType::Bf16 => (Convert::Bf16ToFp32, Convert::Fp32ToBf16),
            _ => (Convert::Fp16ToFp32, Convert::Fp32ToFp16),
        };
        Some(Layout { outer, inner: elements.checked_mul(size)?, kept: elements.checked_mul(kept)?, widen, narrow })
    }

    /// Whether the state's size changes from step to step.
    pub fn grows(&self) -> bool {
        self.layout().is_none()
    }

    /// Bytes a sequence holds for this state; for one whose size changes, what it holds at START.
    pub fn bytes(&self) -> u64 {
        let elements = self.dims.fixed().as_ref().unwrap_or(&self.initial.shape).elements().unwrap_or(u64::MAX);
        elements.saturating_mul(self.storage.zero_size() as u64)
    }

    /// The class of a value's shape, for a state whose size changes: values of one class run together.
    pub(super) fn class(&self, shape: &Shape, seed: u64) -> u64 {
        match &self.padding {
            Some(padding) => shape.without(padding.axis).class(seed),
            None => shape.class(seed),
        }
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
