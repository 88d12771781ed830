//! The tensors of a settled configuration: clients' inputs and outputs, inputs that the server fills, and warm-up samples.

use std::path::PathBuf;

use sequor_core::{DataType, Dim, Dims, Shape};

pub use sequor_core::{Padding, PaddingSide};

/// A tensor that clients send. If the model batches, `dims` exclude the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// The graph's dims for the same data, if they differ from `dims`; see [`reshaped`].
    pub reshape: Option<Dims>,
    pub optional: bool,
    /// An index in `dims`: the dimension that is 1 in every request and is the batch dimension in the graph. `None` if that is the first
    /// dimension.
    pub batch_dim: Option<usize>,
    /// The batching of requests with different shapes, if they share a batch.
    pub ragged: Option<RaggedInput>,
}

/// The batching of requests with different shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaggedInput {
    /// All elements are joined in one list.
    Joined,
    /// Every item is padded to the same length.
    Padded(Padding),
}

impl RaggedInput {
    pub fn padding(&self) -> Option<&Padding> {
        match self {
            RaggedInput::Joined => None,
            RaggedInput::Padded(padding) => Some(padding),
        }
    }
}

impl Input {
    /// The graph's shape of an item that has this shape for clients.
    pub fn graph_shape(&self, shape: &Shape) -> Shape {
        self.reshape.as_ref().and_then(|to| reshaped(&self.dims, to, shape)).unwrap_or_else(|| shape.clone())
    }
}

/// `batch_input`: a tensor that the server computes from all requests of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInput {
    /// The graph's inputs for this tensor.
    pub targets: Vec<String>,
    pub kind: BatchInputKind,
    /// INT32 or FP32.
    pub dtype: DataType,
    pub source: BatchSource,
}

/// The source whose shapes a batch input describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchSource {
    /// An input, by its index in `ModelSettings::inputs`.
    Input(usize),
    /// One or more padded states with equal lengths in each row, by their indices in `SequenceSettings::states`. A mask may also cover the
    /// new steps along an axis of an input (its index in `ModelSettings::inputs`).
    States { states: Vec<usize>, new_steps: Option<(usize, usize)> },
}

/// The values of a batch input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchInputKind {
    /// Number of elements of each request.
    ElementCount,
    /// The offset of the end of each request.
    AccumulatedElementCount,
    /// The offset of the beginning of each request, and of the end of the last one.
    AccumulatedElementCountWithZero,
    /// As many elements as the longest request has; their values are meaningless.
    MaxElementCountAsShape,
    /// The shape of each item, one row an item.
    ItemShape,
    /// The shapes of all items as one list.
    ItemShapeFlatten,
    /// The length of each item before padding.
    Lengths,
    /// 1 for an element, 0 for padding.
    Mask,
}

/// A tensor that clients get. If the model batches, `dims` exclude the batch dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// The graph's dims for the same data, if they differ from `dims`; see [`reshaped`].
    pub reshape: Option<Dims>,
    /// As for [`Input::batch_dim`].
    pub batch_dim: Option<usize>,
    /// One label a line, for the classification extension.
    pub labels: Option<PathBuf>,
    /// `batch_output`: the index in `ModelSettings::inputs` of the input whose shapes divide the flat output.
    pub cut_like: Option<usize>,
    /// The crop that removes padding.
    pub crop: Option<Crop>,
}

/// The part of an output that is not padding. Axes are those of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crop {
    /// The length of an input (its index in `ModelSettings::inputs`, and its axis) times a ratio, rounded up.
    Like { axis: usize, source: (usize, usize), ratio: (u64, u64) },
    /// The length in another output, by its index in `ModelSettings::outputs`.
    Lengths { axis: usize, output: usize },
}

/// Converts a shape that matches `from` to one that matches `to`, without the batch dimension. The k-th open dimension of `to` gets the
/// size of the k-th open dimension of `from`. `None` if the shape does not match `from`, or the numbers of open dimensions differ.
pub fn reshaped(from: &Dims, to: &Dims, shape: &Shape) -> Option<Shape> {
    if !from.matches(shape) {
        return None;
    }
    let mut open = from.0.iter().zip(&shape.0).filter(|(d, _)| **d == Dim::Any).map(|(_, n)| *n);
    let dims: Option<Vec<u64>> = to.0.iter().map(|d| d.fixed().or_else(|| open.next())).collect();
    let dims = dims?;
    open.next().is_none().then_some(Shape(dims))
}

/// An input of the graph with one value for all runs. It has no batch dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    pub input: String,
    pub dtype: DataType,
    pub shape: Shape,
    /// Row-major, little-endian; BYTES as 4-byte length and bytes.
    pub data: Vec<u8>,
}

/// One sample of `model_warmup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmupSample {
    /// Its index in the configuration.
    pub index: usize,
    pub name: String,
    /// Number of items that run together; a sample with 0 is skipped.
    pub batch_size: u32,
    /// Number of runs; 0 means one.
    pub count: u32,
    pub inputs: Vec<WarmupInput>,
}

impl WarmupSample {
    pub fn input(&self, name: &str) -> Option<&WarmupInput> {
        self.inputs.iter().find(|input| input.name == name)
    }
}

/// One input of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmupInput {
    pub name: String,
    pub dtype: DataType,
    /// The shape of one item.
    pub shape: Shape,
    pub data: WarmupData,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmupData {
    Zero,
    Random,
    /// The first bytes of this file.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_dimensions_carry_over_in_their_order() {
        let dims = Dims::from_wire;
        let map = |from: &[i64], to: &[i64], shape: &[u64]| reshaped(&dims(from), &dims(to), &Shape::new(shape));
        assert_eq!(map(&[2, 4, -1, 6], &[8, -1, 1, 6], &[2, 4, 9, 6]), Some(Shape::new(&[8, 9, 1, 6])));
        assert_eq!(map(&[1], &[], &[1]), Some(Shape::new(&[])));
        assert_eq!(map(&[], &[1], &[]), Some(Shape::new(&[1])));
        assert_eq!(map(&[-1], &[1, -1], &[0]), Some(Shape::new(&[1, 0])));
        assert_eq!(map(&[-1], &[1, -1], &[3, 3]), None);
        assert_eq!(map(&[-1, -1], &[-1], &[3, 3]), None);
    }
}
