//! A model's configuration, settled: what config.pbtxt, sequor.toml, the defaults and the graph's signature say together, in the host's terms.
//! A [`ModelSettings`] is complete: no file is needed after it.

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
    /// When the states of its sequences are written to the server's store.
    pub durability: DurabilityWhen,
    /// What happens to live sequences of a version that this one replaces.
    pub reload: ReloadSettings,
    /// What a scheduler may see of a request, in the order of the file.
    pub features: Vec<Feature>,
    /// The plug-in that decides which requests run together, if the model names one.
    pub scheduler: Option<SchedulerPlugin>,
    /// The processors that stand in front of the graph, the first first.
    pub processor_plugins: Vec<ProcessorPlugin>,
    /// The plug-in that makes the first states of sequences, if the model names one.
    pub initializer: Option<InitializerPlugin>,
    /// What a model of Triton's stateful backend asks for besides, if it is one.
    pub stateful: Option<StatefulSettings>,
    /// How many instances there are (the sum of the groups' counts); at least 1.
    pub instances: u16,
    /// Where each of them runs.
    pub processors: Vec<Processor>,
    /// What each of them needs for a run, if one of them needs anything; otherwise empty.
    pub rates: Vec<Option<InstanceRate>>,
    /// The normalised configuration, as the config endpoints show it.
    pub proto: Arc<proto::ModelConfig>,
    /// What every instance runs before the model is ready.
    pub warmup: Vec<WarmupSample>,
    /// Fields of the configuration that have no effect, and why.
    pub notes: Vec<Fault>,
    /// The steps, if it is an ensemble. It has no graph then.
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
    /// `None` is the latest.
    pub version: Option<u64>,
    /// An input of the model, and the ensemble's tensor that it gets. In the order of the names.
    pub inputs: Vec<(String, String)>,
    /// An output of the model, and the ensemble's tensor that it becomes.
    pub outputs: Vec<(String, String)>,
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

/// When the state of a sequence is written to the server's store, so that it outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DurabilityWhen {
    #[default]
    Never,
    /// When the server stops.
    Drain,
    /// After every step, before its answer leaves.
    Step,
    /// After so many steps of a sequence, and when the server stops. Answers do not wait for it.
    Every(NonZeroU32),
}

/// What happens to live sequences of a version that this one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadSettings {
    /// How long they may stay.
    pub drain: Duration,
    /// Whether those that live longer move to the new version. If not, they end.
    pub carries: bool,
}

impl Default for ReloadSettings {
    fn default() -> Self {
        ReloadSettings { drain: Duration::from_secs(600), carries: false }
    }
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
    /// A processor plug-in answers every request, and there is no graph.
    Plugin,
    /// No graph: its steps are requests to other models.
    Ensemble,
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
    /// Whether it is the model, so that nothing stands behind it.
    pub is_model: bool,
    /// Settings that `config` leaves out may be here, by their names.
    pub parameters: Vec<(String, String)>,
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

#[derive(Debug, Clone, PartialEq)]
pub enum Scheduling {
    /// Every request by itself.
    Each,
    /// `dynamic_batching`.
    Dynamic { preferred: Vec<u32>, delay: Duration, in_order: bool, queue: QueueLevels },
    /// `sequence_batching`.
    Sequence(Box<SequenceSettings>),
}

/// The levels of a queue and their policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueLevels {
    /// Priority levels, 1 first; 0 is one queue.
    pub count: u32,
    /// The level of a request that names none.
    pub default_level: u32,
    /// The policy of a level without its own.
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
    /// Maximum number of requests that wait.
    pub max_size: Option<u32>,
    /// How long a request may wait.
    pub timeout: Option<Duration>,
    /// Whether a request may ask for a shorter time.
    pub may_override: bool,
    /// Whether a request that waited for too long waits on behind the others of its level, instead of being refused.
    pub delays: bool,
}

impl QueueSettings {
    /// How long a request may wait that asks for this.
    pub fn timeout_of(&self, asked: Option<Duration>) -> Option<Duration> {
        let asked = asked.filter(|asked| self.may_override && !asked.is_zero());
        self.timeout.into_iter().chain(asked).min()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SequenceSettings {
    pub strategy: SequenceStrategy,
    /// Whose rules its sequences follow, if the model says so; else each surface's own.
    pub dialect: Option<Dialect>,
    /// Whether a request without an id is a sequence of its own, from START to END.
    pub iterative: bool,
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
    /// Priority levels of STARTs that wait for a slot, 1 first; 0 is one.
    pub backlog_levels: u32,
    /// Whether a step older than its `timeout` is refused.
    pub reject_expired: bool,
    pub end_without_inputs: bool,
    /// Whether a START may bring states, or name a sequence to begin with a copy of.
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
    /// BOOL: true at START and for padding. Behind the batch it has so many dimensions of 1.
    Reset {
        ones: usize,
    },
    /// The correlation id, as one of UINT64, INT64, UINT32, INT32, BYTES.
    CorrelationId(DataType),
}

impl ControlKind {
    /// Dimensions of 1 behind the batch dimension of its tensor.
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
    /// Without the batch dimension.
    pub dims: Dims,
    /// Where the batch dimension stands in the model's tensor.
    pub batch_axis: usize,
    /// The type it is kept in, if not `dtype`: FP16 for an FP32 state.
    pub storage: DataType,
    pub initial: Initial,
    /// `use_same_buffer_for_input_output`.
    pub same_buffer: bool,
    /// How rows of different lengths run together, if they do.
    pub pad: Option<StatePad>,
}

/// `[state.X] pad`. The lengths and the mask for the model are batch inputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePad {
    pub padding: Padding,
    /// The model's output that says how long each row is after a run.
    pub new_lengths: Option<String>,
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
