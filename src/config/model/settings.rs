//! A model's configuration, settled: what config.pbtxt, sequor.toml, the defaults and the graph's signature say together, in the host's terms.
//! Whoever holds a [`ModelSettings`] need not look at any file again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{DataType, Dims, Limits, Shape};

use crate::config::proto;

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
    pub scheduling: Scheduling,
    /// Instances on the CPU (the sum of the groups' counts); at least 1.
    pub instances: u16,
    /// The normalised configuration, as the config endpoints show it.
    pub proto: Arc<proto::ModelConfig>,
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

/// A tensor a client sends. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
    pub optional: bool,
}

/// A tensor a client gets. `dims` leave the batch dimension out when the model batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub name: String,
    pub dtype: DataType,
    pub dims: Dims,
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
    /// `None` is never.
    pub idle: Option<Duration>,
    pub idle_soft: Option<Duration>,
    pub idle_longest: Option<Duration>,
    pub cancel_ends: bool,
    pub limits: Limits,
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
