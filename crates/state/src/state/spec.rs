//! Describes a state: the names of its tensors, its type and dimensions, its storage, and its value at START.

use std::sync::Arc;

use sequor_core::{DataType, Dims, Padding, Shape};

use crate::device::{Convert, StridedLayout};

/// One state of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSpec {
    /// The graph's input; also the state's name in messages. `output`: the graph's output.
    pub input: String,
    pub output: String,
    pub dtype: DataType,
    /// Without the batch dimension.
    pub dims: Dims,
    /// The place of the batch dimension in the graph's tensor; `None` if the model does not batch.
    pub batch_axis: Option<usize>,
    /// The stored type: `dtype`, or FP16 or BF16 for an FP32 state.
    pub storage: DataType,
    pub initial: InitialValue,
    /// Whether only one copy may be kept, at any cost (`use_same_buffer_for_input_output`).
    pub same_buffer: bool,
    /// How values of different lengths are padded to one length, if their rows run together.
    pub padding: Option<Padding>,
}

/// The value of a state at START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialValue {
    /// Without the batch dimension.
    pub shape: Shape,
    /// In the state's own type, BYTES in wire form; `None` is zeros, or empty texts.
    pub data: Option<Arc<[u8]>>,
}

/// The sizes of a state with fixed dimensions, as [outer, batch, inner].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of pieces of a row: the product of the dimensions before the batch dimension.
    pub(super) outer: usize,
    /// Bytes of a piece in the graph's type.
    pub(super) inner: usize,
    /// Bytes of a piece in the stored type.
    pub(super) kept: usize,
    /// The conversion from the stored type to the graph's. `narrow`: the reverse.
    pub(super) widen: Convert,
    pub(super) narrow: Convert,
}

impl Layout {
    /// Bytes of a row in the graph's type.
    pub(super) fn row(self) -> usize {
        self.outer * self.inner
    }

    /// Bytes of a row in the stored type.
    pub(super) fn kept_row(self) -> usize {
        self.outer * self.kept
    }

    /// The layout of moves from stored rows into a batch of `count`.
    pub(super) fn gather(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, kept, widen: convert, .. } = self;
        StridedLayout { from_stride: kept, to_stride: inner * count, outer, inner: kept, convert }
    }

    /// The layout of moves from a batch of `count` to stored rows.
    pub(super) fn scatter(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, kept, narrow: convert, .. } = self;
        StridedLayout { from_stride: inner * count, to_stride: kept, outer, inner, convert }
    }

    /// The layout of moves from a batch of `count` to rows in one piece each, in the graph's type.
    pub(super) fn rows_first(self, count: usize) -> StridedLayout {
        let Layout { outer, inner, .. } = self;
        StridedLayout { from_stride: inner * count, to_stride: inner, outer, inner, convert: Convert::No }
    }

    /// The layout of moves of stored rows from one place to another.
    pub(super) fn as_kept(self) -> StridedLayout {
        StridedLayout::whole(self.kept_row())
    }
}

/// How many copies of each state of a fixed size a slot has. If the rows of a batch are slots, a run reads one side and writes the other,
/// unless a state must be the same memory for input and output.
pub fn sides(specs: &[StateSpec], fixed_rows: bool) -> u8 {
    if fixed_rows && !specs.iter().any(|spec| spec.same_buffer) { 2 } else { 1 }
}

impl StateSpec {
    /// The layout, if the state's size is fixed.
    pub(super) fn layout(&self) -> Option<Layout> {
        let shape = self.dims.fixed()?;
        let (size, kept) = (self.dtype.size()?, self.storage.size()?);
        let axis = self.batch_axis.unwrap_or(0);
        let product = |dims: &[u64]| Shape::new(dims).elements().and_then(|n| usize::try_from(n).ok());
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

    /// Bytes of a sequence for this state. If the state's size changes, its bytes at START.
    pub fn bytes(&self) -> u64 {
        let elements = self.dims.fixed().as_ref().unwrap_or(&self.initial.shape).elements().unwrap_or(u64::MAX);
        elements.saturating_mul(self.storage.zero_size() as u64)
    }

    /// The class of a value's shape, for a state whose size changes. Values of one class can run together.
    pub(super) fn class(&self, shape: &Shape, seed: u64) -> u64 {
        match &self.padding {
            Some(padding) => shape.without(padding.axis).class(seed),
            None => shape.class(seed),
        }
    }

    /// The graph's shape for rows of this shape, in a batch of `rows`.
    pub(super) fn batched(&self, row: &Shape, rows: u64) -> Shape {
        match self.batch_axis {
            Some(axis) => row.with(axis, rows),
            None => row.clone(),
        }
    }

    /// The shape of one row, if `shape` is a batch of `rows` that fits the declaration.
    pub(super) fn row_of(&self, shape: &Shape, rows: u64) -> Option<Shape> {
        let row = match self.batch_axis {
            Some(axis) if shape.0.get(axis) == Some(&rows) => shape.without(axis),
            Some(_) => return None,
            None => shape.clone(),
        };
        self.dims.matches(&row).then_some(row)
    }
}
