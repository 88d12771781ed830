//! A model's configuration, settled: what config.pbtxt, sequor.toml, the defaults and the graph's signature say together, in the host's terms.
//! A [`ModelSettings`] is complete: no file is needed after it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{DataType, Dialect, Dim, Dims, LoadLimits, Shape};
use sequor_proto as proto;

use crate::config::fault::Fault;
use crate::error::At;

/// Everything about a model but its weights.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    pub name: String,
    /// The model's directory, which holds the version directories.
    pub directory: PathBuf,
    pub backend: BackendKind,
    /// The file (in a version directory) that holds the graph.
    pub file_name: String,
    pub versions: VersionPolicy,
    /// Rows of a batch; 0 means that the first dimension is no batch dimension.
    pub max_batch_size: u32,
    /// What clients send, in the order of the configuration.
    pub inputs: Vec<Input>,
    /// What clients get, in the order of the configuration.
    pub outputs: Vec<Output>,
    /// Inputs of the graph that are the same in every run; no client sends them.
    pub constants: Vec<Constant>,
    /// Inputs of the graph that describe a batch; no client sends them.
    pub batch_inputs: Vec<BatchInput>,
    pub scheduling: Scheduling,
    /// What a scheduler may see of a request, in the order of the file.
    pub features: Vec<Feature>,
    /// The plug-in that decides which requests run together, if the model names one.
    pub scheduler: Option<SchedulerPlugin>,
    /// The processors that stand in front of the graph, the first first.
    pub processor_plugins: Vec<ProcessorPlugin>,
    /// The plug-in that makes the first states of sequences, if the model names one.
    pub initializer: Option<InitializerPlugin>,
    /// How many instances there are (the sum of the groups' counts); at least 1.
    pub instances: u16,
    /// Where each of them runs.
    pub processors: Vec<Processor>,
    /// The normalised configuration, as the config endpoints show it.
    pub proto: Arc<proto::ModelConfig>,
    /// Fields of the configuration that have no effect, and why.
    pub notes: Vec<Fault>,
}

/// How ONNX Runtime loads and runs the graph. `None` leaves it to the server's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionTuning {
    pub level: GraphLevel,
    /// Threads for one operator; 0 is one for each core.
    pub intra_threads: Option<u16>,
    /// Threads for operators that run at the same time; 0 is one for each core.
    pub inter_threads: Option<u16>,
    /// Whether independent operators run at the same time.
    pub parallel: Option<bool>,
    pub memory_pattern: Option<bool>,
    /// ONNX Runtime's own arena (true) or no arena (false), instead of the memory that all models share.
    pub arena: Option<bool>,
    /// Entries of the session's options, by ONNX Runtime's names.
    pub entries: Vec<(String, String)>,
    /// Options of the OpenVINO provider, if the graph is to run on it.
    pub openvino: Option<Vec<(String, String)>>,
}

/// Which optimizations of the graph ONNX Runtime makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GraphLevel {
    None,
    Basic,
    Extended,
    #[default]
    All,
}

/// What an instance runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    Cpu,
    /// A GPU, by the number that its driver gives it.
    Gpu(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    OnnxRuntime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    Latest(u32),
    All,
    Specific(Vec<u64>),
}

/// A value of every request that a scheduler may see.
#[derive(Debug, Clone, PartialEq)]
pub struct Feature {
    pub name: String,
    pub from: FeatureFrom,
    pub kind: FeatureKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeatureFrom {
    /// A parameter of the request.
    Parameter(String),
    /// The first element of this input, by its place in [`ModelSettings::inputs`].
    Input(usize),
    /// An HTTP header or gRPC metadata of this name, in lower case.
    Header(String),
}

/// What a request that does not say it has.
#[derive(Debug, Clone, PartialEq)]
pub enum FeatureKind {
    /// A text, hashed.
    Key {
        default: Option<String>,
    },
    Number {
        default: f64,
    },
}

impl ModelSettings {
    /// Names of the numeric features and of the key features, in the order of their columns.
    pub fn feature_names(&self) -> (Vec<String>, Vec<String>) {
        let is_key = |feature: &&Feature| matches!(feature.kind, FeatureKind::Key { .. });
        let names = |keys: bool| self.features.iter().filter(|f| is_key(f) == keys).map(|f| f.name.clone()).collect();
        (names(false), names(true))
    }

    /// The headers that features come from.
    pub fn feature_headers(&self) -> impl Iterator<Item = &str> {
        self.features.iter().filter_map(|feature| match &feature.from {
            FeatureFrom::Header(name) => Some(name.as_str()),
            FeatureFrom::Parameter(_) | FeatureFrom::Input(_) => None,
        })
    }
}

/// `[plugins.scheduler]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerPlugin {
    pub name: String,
    /// Of the file, in hex, if it must be that one.
    pub sha256: Option<String>,
    /// CPU time of a call, in place of the server's.
    pub time: Option<Duration>,
    /// Bytes of its memory, in place of the server's.
    pub memory: Option<u64>,
    /// How long it may pass a ready request over, in place of the default.
    pub max_wait: Option<Duration>,
    /// JSON, a table.
    pub config: String,
    /// Where the file names it.
    pub at: At,
}

/// `[[plugins.processor]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorPlugin {
    pub name: String,
    /// Of the file, in hex, if it must be that one.
    pub sha256: Option<String>,
    /// CPU time of a call without tensors, in place of the default.
    pub time: Option<Duration>,
    /// Bytes of its memory, in place of the server's.
    pub memory: Option<u64>,
    /// JSON, a table.
    pub config: String,
    /// Whether a request goes on without it if it fails.
    pub bypass: bool,
    /// Paths, relative to the model's directory.
    pub files: Vec<String>,
    /// Where the file names it.
    pub at: At,
}

/// `[plugins.initializer]`.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializerPlugin {
    pub name: String,
    /// Of the file, in hex, if it must be that one.
    pub sha256: Option<String>,
    /// CPU time of a call without tensors, in place of the default.
    pub time: Option<Duration>,
    /// Bytes of its memory, in place of the server's.
    pub memory: Option<u64>,
    /// JSON, a table.
    pub config: String,
    /// Paths, relative to the model's directory.
    pub files: Vec<String>,
    /// Maximum bytes of kept states.
    pub keep: u64,
    /// Key features that must be equal before a sequence's state is copied. Without any, none is copied.
    pub copy_if_same: Vec<String>,
    /// Where the file names it.
    pub at: At,
}

/// A tensor a client sends. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// What the graph takes in place of `dims`, if that differs: the same data under another shape, see [`reshaped`].
    pub reshape: Option<Dims>,
    pub optional: bool,
    /// Whether requests of different shapes run together, joined to one list of elements.
    pub ragged: bool,
}

/// `batch_input`: a tensor that the server makes of all requests of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInput {
    /// The graph's inputs that get it.
    pub targets: Vec<String>,
    pub kind: BatchInputKind,
    /// INT32 or FP32.
    pub dtype: DataType,
    /// The input that it describes, by its place in [`ModelSettings::inputs`].
    pub source: usize,
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
}

/// A tensor a client gets. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    /// What the graph gives in place of `dims`, if that differs: the same data under another shape, see [`reshaped`].
    pub reshape: Option<Dims>,
    /// One label a line, for the classification extension.
    pub labels: Option<PathBuf>,
    /// `batch_output`: the input (by its place in [`ModelSettings::inputs`]) whose shapes say how the flat output is cut.
    pub cut_like: Option<usize>,
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

#[derive(Debug, Clone, PartialEq)]
pub enum Scheduling {
    /// Every request by itself.
    Each,
    /// `dynamic_batching`.
    Dynamic { preferred: Vec<u32>, delay: Duration, in_order: bool },
    /// `sequence_batching`.
    Sequence(Box<SequenceSettings>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct SequenceSettings {
    pub strategy: SequenceStrategy,
    /// Whose rules its sequences follow, if the model says so; else each surface's own.
    pub dialect: Option<Dialect>,
    /// `None` is never.
    pub idle: Option<Duration>,
    pub idle_soft: Option<Duration>,
    pub idle_longest: Option<Duration>,
    /// Instead of `idle`: idle sequences are looked for so often, and end at the second look.
    pub idle_scan: Option<Duration>,
    pub cancel_ends: bool,
    pub limits: LoadLimits,
    /// How long a START may wait for a slot, if the model says so.
    pub backlog_timeout: Option<Duration>,
    /// Whether a step older than its `timeout` is refused.
    pub reject_expired: bool,
    pub end_without_inputs: bool,
    pub controls: Vec<Control>,
    pub states: Vec<StateSettings>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SequenceStrategy {
    Direct { compact: bool, delay: Duration, min_use: f32 },
    Oldest { slots: u32, preferred: Vec<u32>, delay: Duration, in_order: bool },
}

/// A model input that the server fills for every row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The model's input.
    pub input: String,
    pub kind: ControlKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlKind {
    Start(FalseTrue),
    Ready(FalseTrue),
    End(FalseTrue),
    /// The correlation id, as one of UINT64, INT64, UINT32, INT32, BYTES.
    CorrelationId(DataType),
}

/// The two values of a control, as little-endian elements of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FalseTrue {
    /// BOOL, INT32 or FP32.
    pub dtype: DataType,
    pub no: Vec<u8>,
    pub yes: Vec<u8>,
}

/// One state of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSettings {
    pub input: String,
    pub output: String,
    pub dtype: DataType,
    /// Without the batch dimension.
    pub dims: Dims,
    /// Where the batch dimension stands in the model's tensor.
    pub batch_axis: usize,
    /// The type it is kept in, if not `dtype`: FP16 for an FP32 state.
    pub storage: DataType,
    pub initial: Initial,
    /// `use_same_buffer_for_input_output`.
    pub same_buffer: bool,
}

/// What a state is at the START of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initial {
    /// Without the batch dimension; open dimensions are settled: by `initial_state.dims`, else 1.
    pub shape: Shape,
    pub data: InitialData,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialData {
    /// Zeros; empty texts.
    Zero,
    /// This file's contents, of at least the state's size.
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
