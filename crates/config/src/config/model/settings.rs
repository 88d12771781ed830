//! A model's settled configuration, from config.pbtxt, sequor.toml, the defaults and the graph's signature, in the server's own types. A
//! [`ModelSettings`] is complete: no configuration file is needed afterwards.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{DataType, Dialect, Dims, LoadLimits, Shape};
use sequor_proto as proto;

use crate::config::fault::Fault;
use crate::error::At;

pub use super::rates::{InstanceRate, ResourceNeed};
pub use super::stateful::settings::{LineLevel, RunLogSettings, StateChunks, StatefulSettings};
pub use super::tensors::{
    BatchInput, BatchInputKind, BatchSource, Constant, Crop, Input, Output, Padding, PaddingSide, RaggedInput,
    WarmupData, WarmupInput, WarmupSample, reshaped,
};

/// All settings of a model. They do not include its weights.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    pub name: String,
    /// The model's directory, which holds the version directories.
    pub directory: PathBuf,
    pub backend: BackendKind,
    /// The name of the graph's file within a version directory.
    pub file_name: String,
    pub versions: VersionPolicy,
    /// Maximum rows of a batch; 0 means that the first dimension is not a batch dimension.
    pub max_batch_size: u32,
    /// The inputs that clients send, in the order of the configuration.
    pub inputs: Vec<Input>,
    /// The outputs that clients get, in the order of the configuration.
    pub outputs: Vec<Output>,
    /// Inputs of the graph with a constant value; clients do not send them.
    pub constants: Vec<Constant>,
    /// Inputs of the graph that describe a batch; clients do not send them.
    pub batch_inputs: Vec<BatchInput>,
    pub scheduling: Scheduling,
    /// When states are written to the store.
    pub durability: DurabilityWhen,
    /// The handling of live sequences when this version replaces another one.
    pub reload: ReloadSettings,
    /// The request values that a scheduler may see, in the order of the file.
    pub features: Vec<Feature>,
    /// The scheduler plug-in, if the model names one.
    pub scheduler: Option<SchedulerPlugin>,
    /// The processors in front of the graph, in order.
    pub processor_plugins: Vec<ProcessorPlugin>,
    /// The state initializer, if the model names one.
    pub initializer: Option<InitializerPlugin>,
    /// Further settings of a model of Triton's stateful backend.
    pub stateful: Option<StatefulSettings>,
    /// Number of instances (the sum of the groups' counts); at least 1.
    pub instances: u16,
    /// The processor of each instance.
    pub processors: Vec<Processor>,
    /// The resources that each instance needs for a run; empty if no instance needs any.
    pub rates: Vec<Option<InstanceRate>>,
    /// The normalised configuration for the config endpoints.
    pub proto: Arc<proto::ModelConfig>,
    /// The samples that every instance runs before the model is ready.
    pub warmup: Vec<WarmupSample>,
    /// Notes about fields without effect.
    pub notes: Vec<Fault>,
    /// The steps of an ensemble, which has no graph.
    pub ensemble: Option<Arc<EnsembleSettings>>,
}

/// `ensemble_scheduling`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnsembleSettings {
    pub steps: Vec<EnsembleStep>,
    /// Maximum requests in flight of each step.
    pub max_in_flight: Option<u32>,
}

/// One step of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnsembleStep {
    pub model: String,
    /// `None` means the latest version.
    pub version: Option<u64>,
    /// Each input of the model, with the ensemble's tensor for it, sorted by name.
    pub inputs: Vec<(String, String)>,
    /// Each output of the model, with the ensemble's tensor that it becomes.
    pub outputs: Vec<(String, String)>,
}

/// Options with which ONNX Runtime loads and runs the graph. `None` leaves an option to the server's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionTuning {
    pub level: GraphLevel,
    /// Threads for one operator; 0 means one for each core.
    pub intra_threads: Option<u16>,
    /// Threads for operators that run at the same time; 0 means one for each core.
    pub inter_threads: Option<u16>,
    /// Whether independent operators run at the same time.
    pub parallel: Option<bool>,
    pub memory_pattern: Option<bool>,
    /// `true`: ONNX Runtime's own arena. `false`: no arena. `None`: the memory that all models share.
    pub arena: Option<bool>,
    /// Entries of the session's options, by ONNX Runtime's names.
    pub entries: Vec<(String, String)>,
    /// Options of the OpenVINO provider, if the graph runs on it.
    pub openvino: Option<Vec<(String, String)>>,
}

/// The optimizations of the graph that ONNX Runtime applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GraphLevel {
    None,
    Basic,
    Extended,
    #[default]
    All,
}

/// When the state of a sequence is written to the store, so that it outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DurabilityWhen {
    #[default]
    Never,
    /// When the server stops.
    Drain,
    /// After every step, before its answer is sent.
    Step,
    /// After this many steps of a sequence, and when the server stops. Answers do not wait for the write.
    Every(NonZeroU32),
}

/// The handling of live sequences of a version that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadSettings {
    /// Maximum time that they stay.
    pub drain: Duration,
    /// Whether the remaining ones then move to the new version; otherwise they end.
    pub carries: bool,
}

impl Default for ReloadSettings {
    fn default() -> Self {
        ReloadSettings { drain: Duration::from_secs(600), carries: false }
    }
}

/// The processor of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    Cpu,
    /// A GPU, by its driver's number.
    Gpu(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    OnnxRuntime,
    /// A processor plug-in answers every request; there is no graph.
    Plugin,
    /// An ensemble: its steps are requests to other models; there is no graph.
    Ensemble,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionPolicy {
    Latest(u32),
    All,
    Specific(Vec<u64>),
}

/// A request value that a scheduler may see.
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
    /// The first element of this input, by its index in [`ModelSettings::inputs`].
    Input(usize),
    /// The HTTP header or gRPC metadata entry with this name, in lower case.
    Header(String),
}

/// The type of a feature, with the value for requests without one.
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
    /// Names of the number features and of the key features, in the order of their columns.
    pub fn feature_names(&self) -> (Vec<String>, Vec<String>) {
        let is_key = |feature: &&Feature| matches!(feature.kind, FeatureKind::Key { .. });
        let names = |keys: bool| self.features.iter().filter(|f| is_key(f) == keys).map(|f| f.name.clone()).collect();
        (names(false), names(true))
    }

    /// The headers from which features are taken.
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
    /// Required SHA-256 of the file, in hex, if any.
    pub sha256: Option<String>,
    /// CPU time of a call; overrides the server's setting.
    pub time: Option<Duration>,
    /// Bytes of its memory; overrides the server's setting.
    pub memory: Option<u64>,
    /// Maximum time that it may pass over a ready request; overrides the default.
    pub max_wait: Option<Duration>,
    /// A JSON object.
    pub config: String,
    /// The plug-in's place in the file.
    pub at: At,
}

/// `[[plugins.processor]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorPlugin {
    pub name: String,
    /// Required SHA-256 of the file, in hex, if any.
    pub sha256: Option<String>,
    /// CPU time of a call without tensors; overrides the default.
    pub time: Option<Duration>,
    /// Bytes of its memory; overrides the server's setting.
    pub memory: Option<u64>,
    /// A JSON object.
    pub config: String,
    /// Whether a request continues without the processor if it fails.
    pub bypass: bool,
    /// Paths, relative to the model's directory.
    pub files: Vec<String>,
    /// Whether it is the model itself, with no graph behind it.
    pub is_model: bool,
    /// Parameters of config.pbtxt, by name, for settings that `config` lacks.
    pub parameters: Vec<(String, String)>,
    /// The plug-in's place in the file.
    pub at: At,
}

/// `[plugins.initializer]`.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializerPlugin {
    pub name: String,
    /// Required SHA-256 of the file, in hex, if any.
    pub sha256: Option<String>,
    /// CPU time of a call without tensors; overrides the default.
    pub time: Option<Duration>,
    /// Bytes of its memory; overrides the server's setting.
    pub memory: Option<u64>,
    /// A JSON object.
    pub config: String,
    /// Paths, relative to the model's directory.
    pub files: Vec<String>,
    /// Maximum bytes of kept states.
    pub keep: u64,
    /// Key features that must be equal before a sequence's state is copied. If empty, no state is copied.
    pub copy_if_same: Vec<String>,
    /// The plug-in's place in the file.
    pub at: At,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scheduling {
    /// No batching: every request runs alone.
    Each,
    /// `dynamic_batching`.
    Dynamic { preferred: Vec<u32>, delay: Duration, in_order: bool, queue: QueueLevels },
    /// `sequence_batching`.
    Sequence(Box<SequenceSettings>),
}

/// The levels of a queue and their policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueLevels {
    /// Number of priority levels, the first is 1; 0 means one queue.
    pub count: u32,
    /// The level of a request without a priority.
    pub default_level: u32,
    /// The policy of levels without their own.
    pub default: QueueSettings,
    pub policies: BTreeMap<u32, QueueSettings>,
}

impl QueueLevels {
    /// The level of a request with this priority.
    pub fn level_of(&self, priority: u32) -> u32 {
        match self.count {
            0 => 0,
            count if (1..=count).contains(&priority) => priority,
            _ => self.default_level,
        }
    }

    pub fn policy_of(&self, level: u32) -> &QueueSettings {
        self.policies.get(&level).unwrap_or(&self.default)
    }
}

/// `default_queue_policy`, or an entry of `priority_queue_policy`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSettings {
    /// Maximum number of waiting requests.
    pub max_size: Option<u32>,
    /// Maximum time that a request waits.
    pub timeout: Option<Duration>,
    /// Whether a request may set a shorter timeout.
    pub may_override: bool,
    /// Whether a request that waited too long moves behind the others of its level instead of being refused.
    pub delays: bool,
}

impl QueueSettings {
    /// The maximum wait of a request that asks for `asked`.
    pub fn timeout_of(&self, asked: Option<Duration>) -> Option<Duration> {
        let asked = asked.filter(|asked| self.may_override && !asked.is_zero());
        self.timeout.into_iter().chain(asked).min()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SequenceSettings {
    pub strategy: SequenceStrategy,
    /// The dialect of its sequences, if the model sets one; otherwise each surface's own.
    pub dialect: Option<Dialect>,
    /// Whether a request without an id is a separate sequence, from START to END.
    pub iterative: bool,
    /// `None` means never.
    pub idle: Option<Duration>,
    pub idle_soft: Option<Duration>,
    pub idle_longest: Option<Duration>,
    /// The interval of scans for idle sequences, which replaces `idle`. An idle sequence ends at the second scan.
    pub idle_scan: Option<Duration>,
    pub cancel_ends: bool,
    pub limits: LoadLimits,
    /// Maximum time that a START waits for a slot, if the model sets one.
    pub backlog_timeout: Option<Duration>,
    /// Number of priority levels of STARTs that wait for a slot, the first is 1; 0 means one level.
    pub backlog_levels: u32,
    /// Whether a step is refused if it waited longer than its `timeout`.
    pub reject_expired: bool,
    pub end_without_inputs: bool,
    /// Whether a START may bring states, or name a sequence whose state is copied.
    pub client_state: bool,
    /// Whether states are checked for NaN and infinity before they are kept.
    pub watch: bool,
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
    /// BOOL: true at START and for padding. The tensor has `ones` dimensions of 1 behind the batch dimension.
    Reset {
        ones: usize,
    },
    /// The correlation id in this type: UINT64, INT64, UINT32, INT32 or BYTES.
    CorrelationId(DataType),
}

impl ControlKind {
    /// Number of dimensions of 1 behind the batch dimension of its tensor.
    pub fn ones(&self) -> usize {
        match self {
            ControlKind::Reset { ones } => *ones,
            _ => 1,
        }
    }
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
    /// The dims without the batch dimension.
    pub dims: Dims,
    /// The axis of the batch dimension in the model's tensor.
    pub batch_axis: usize,
    /// The type in which it is stored: `dtype`, or FP16 for an FP32 state.
    pub storage: DataType,
    pub initial: Initial,
    /// `use_same_buffer_for_input_output`.
    pub same_buffer: bool,
    /// The padding of rows with different lengths, if they share a batch.
    pub pad: Option<StatePad>,
}

/// `[state.X] pad`. The model gets lengths and mask as batch inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePad {
    pub padding: Padding,
    /// The model's output with the length of each row after a run.
    pub new_lengths: Option<String>,
}

/// The initial state of a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Initial {
    /// The shape without the batch dimension. Open dimensions have the size from `initial_state.dims`, otherwise 1.
    pub shape: Shape,
    pub data: InitialData,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialData {
    /// Zeros, or empty BYTES elements.
    Zero,
    /// The contents of this file, which has at least the state's size.
    File(PathBuf),
}
