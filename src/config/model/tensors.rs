//! The tensors of a settled configuration: what clients send and get, what the server feeds besides, and the samples of a warm-up.

use std::path::PathBuf;

use sequor_core::{DataType, Dim, Dims, Shape};

pub use sequor_core::{Padding, PaddingSide};

/// A tensor a client sends. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// What the graph takes in place of `dims`, if that differs: the same data under another shape, see [`reshaped`].
    pub reshape: Option<Dims>,
    pub optional: bool,
    /// The dimension (its place in `dims`) that is 1 in every request and the batch dimension in the graph, if clients send one besides the first.
    pub batch_dim: Option<usize>,
    /// How requests of different shapes run together, if they do.
    pub ragged: Option<RaggedInput>,
}

/// How requests of different shapes run together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaggedInput {
    /// All elements are joined to one list.
    Joined,
    /// Every item is padded to one length.
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
    /// The shape in the graph of an item that has this shape for clients.
    pub fn graph_shape(&self, shape: &Shape) -> Shape {
        self.reshape.as_ref().and_then(|to| reshaped(&self.dims, to, shape)).unwrap_or_else(|| shape.clone())
    }
}

/// `batch_input`: a tensor that the server makes of all requests of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInput {
    /// The graph's inputs that get it.
    pub targets: Vec<String>,
    pub kind: BatchInputKind,
    /// INT32 or FP32.
    pub dtype: DataType,
    pub source: BatchSource,
}

/// Whose shapes a batch input describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchSource {
    /// An input, by its place in `ModelSettings::inputs`.
    Input(usize),
    /// Padded states that are equally long in each row, by their places in `SequenceSettings::states`. At least one. A mask may cover the new
    /// steps too: those along an axis of an input (its place in `ModelSettings::inputs`).
    States { states: Vec<usize>, new_steps: Option<(usize, usize)> },
}

/// What a batch input says of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchInputKind {
    /// Elements of each request.
    ElementCount,
    /// Where each request ends.
    AccumulatedElementCount,
    /// Where each request begins, and where the last ends.
    AccumulatedElementCountWithZero,
    /// As many elements as the longest request has; their values mean nothing.
    MaxElementCountAsShape,
    /// The shape of each item, a row each.
    ItemShape,
    /// The same as one list.
    ItemShapeFlatten,
    /// The length of each item before it was padded.
    Lengths,
    /// 1 where an item has an element, 0 where it is padded.
    Mask,
}

/// A tensor a client gets. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// What the graph gives in place of `dims`, if that differs: the same data under another shape, see [`reshaped`].
    pub reshape: Option<Dims>,
    /// As for [`Input::batch_dim`].
    pub batch_dim: Option<usize>,
    /// One label a line, for the classification extension.
    pub labels: Option<PathBuf>,
    /// `batch_output`: the input (by its place in `ModelSettings::inputs`) whose shapes say how the flat output is cut.
    pub cut_like: Option<usize>,
    /// How padding is taken off it.
    pub crop: Option<Crop>,
}

/// Which part of an output is no padding. Axes are those of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crop {
    /// The length of an input (its place in `ModelSettings::inputs`, and its axis) times a ratio, rounded up.
    Like { axis: usize, source: (usize, usize), ratio: (u64, u64) },
    /// The length that another output gives, by its place in `ModelSettings::outputs`.
    Lengths { axis: usize, output: usize },
}

/// The shape in `to`'s terms of a tensor that has `shape` in `from`'s: its k-th open dimension is the k-th open one there, the others are as
/// `to` says. Without the batch dimension. `None` if the shape is not one of `from`, or the two do not go together.
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
    /// Its place in the configuration.
    pub index: usize,
    pub name: String,
    /// Items that run together; a sample of 0 is skipped.
    pub batch_size: u32,
    /// How often it runs; 0 is once.
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
    /// Of one item.
    pub shape: Shape,
    pub data: WarmupData,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmupData {
    Zero,
    Random,
    /// This file's first bytes.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_dimensions_carry_over_in_their_order() {
        let dims = Dims::from_wire;
        let map = |from: &[i64], to: &[i64], shape: &[u64]| reshaped(&dims(from), &dims(to), &Shape::of(shape));
        assert_eq!(map(&[2, 4, -1, 6], &[8, -1, 1, 6], &[2, 4, 9, 6]), Some(Shape::of(&[8, 9, 1, 6])));
        assert_eq!(map(&[1], &[], &[1]), Some(Shape::of(&[])));
        assert_eq!(map(&[], &[1], &[]), Some(Shape::of(&[1])));
        assert_eq!(map(&[-1], &[1, -1], &[0]), Some(Shape::of(&[1, 0])));
        assert_eq!(map(&[-1], &[1, -1], &[3, 3]), None);
        assert_eq!(map(&[-1, -1], &[-1], &[3, 3]), None);
    }
}
