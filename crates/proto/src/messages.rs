//! Made from `proto/` by `UPDATE_GENERATED=1 cargo test -p sequor-proto`. Not to be edited.
// @generated

/// Resources an instance must hold before it may run.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelRateLimiter {
    #[prost(message, repeated, tag = "1")]
    pub resources: ::prost::alloc::vec::Vec<model_rate_limiter::Resource>,
    /// A weight; 0 is 1, and 2 gets half the turns of 1.
    #[prost(uint32, tag = "2")]
    pub priority: u32,
}
/// Nested message and enum types in `ModelRateLimiter`.
pub mod model_rate_limiter {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Resource {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        /// One count for the server, not one for each device.
        #[prost(bool, tag = "2")]
        pub global: bool,
        #[prost(uint32, tag = "3")]
        pub count: u32,
    }
}
/// Instances: each runs one batch at a time and has its own sequence slots.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInstanceGroup {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// Instances for each device that is listed.
    #[prost(int32, tag = "2")]
    pub count: i32,
    #[prost(int32, repeated, tag = "3")]
    pub gpus: ::prost::alloc::vec::Vec<i32>,
    #[prost(enumeration = "model_instance_group::Kind", tag = "4")]
    pub kind: i32,
    #[prost(string, repeated, tag = "5")]
    pub profile: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(message, optional, tag = "6")]
    pub rate_limiter: ::core::option::Option<ModelRateLimiter>,
    /// Made, but never given work.
    #[prost(bool, tag = "7")]
    pub passive: bool,
    #[prost(message, repeated, tag = "8")]
    pub secondary_devices: ::prost::alloc::vec::Vec<
        model_instance_group::SecondaryDevice,
    >,
    #[prost(string, tag = "9")]
    pub host_policy: ::prost::alloc::string::String,
}
/// Nested message and enum types in `ModelInstanceGroup`.
pub mod model_instance_group {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SecondaryDevice {
        #[prost(enumeration = "secondary_device::SecondaryDeviceKind", tag = "1")]
        pub kind: i32,
        #[prost(int64, tag = "2")]
        pub device_id: i64,
    }
    /// Nested message and enum types in `SecondaryDevice`.
    pub mod secondary_device {
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            Hash,
            PartialOrd,
            Ord,
            ::prost::Enumeration
        )]
        #[repr(i32)]
        pub enum SecondaryDeviceKind {
            KindNvdla = 0,
        }
        impl SecondaryDeviceKind {
            /// String value of the enum field names used in the ProtoBuf definition.
            ///
            /// The values are not transformed in any way and thus are considered stable
            /// (if the ProtoBuf definition does not change) and safe for programmatic use.
            pub fn as_str_name(&self) -> &'static str {
                match self {
                    Self::KindNvdla => "KIND_NVDLA",
                }
            }
            /// Creates an enum from field names used in the ProtoBuf definition.
            pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                match value {
                    "KIND_NVDLA" => Some(Self::KindNvdla),
                    _ => None,
                }
            }
        }
    }
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        Auto = 0,
        Gpu = 1,
        Cpu = 2,
        Model = 3,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Auto => "KIND_AUTO",
                Self::Gpu => "KIND_GPU",
                Self::Cpu => "KIND_CPU",
                Self::Model => "KIND_MODEL",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "KIND_AUTO" => Some(Self::Auto),
                "KIND_GPU" => Some(Self::Gpu),
                "KIND_CPU" => Some(Self::Cpu),
                "KIND_MODEL" => Some(Self::Model),
                _ => None,
            }
        }
    }
}
/// The shape on the model's side of a tensor whose dims are the client's. Without the batch dimension.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelTensorReshape {
    #[prost(int64, repeated, tag = "1")]
    pub shape: ::prost::alloc::vec::Vec<i64>,
}
/// A tensor that clients send. dims leave the batch dimension out if max_batch_size is above 0; -1 is any size.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelInput {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    #[prost(enumeration = "model_input::Format", tag = "3")]
    pub format: i32,
    #[prost(int64, repeated, tag = "4")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
    #[prost(message, optional, tag = "5")]
    pub reshape: ::core::option::Option<ModelTensorReshape>,
    /// The values are shapes, and there is no batch dimension.
    #[prost(bool, tag = "6")]
    pub is_shape_tensor: bool,
    /// Requests of one batch may differ in shape: they are laid end to end.
    #[prost(bool, tag = "7")]
    pub allow_ragged_batch: bool,
    /// A request may leave it out.
    #[prost(bool, tag = "8")]
    pub optional: bool,
    #[prost(bool, tag = "9")]
    pub is_non_linear_format_io: bool,
}
/// Nested message and enum types in `ModelInput`.
pub mod model_input {
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Format {
        None = 0,
        Nhwc = 1,
        Nchw = 2,
    }
    impl Format {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::None => "FORMAT_NONE",
                Self::Nhwc => "FORMAT_NHWC",
                Self::Nchw => "FORMAT_NCHW",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "FORMAT_NONE" => Some(Self::None),
                "FORMAT_NHWC" => Some(Self::Nhwc),
                "FORMAT_NCHW" => Some(Self::Nchw),
                _ => None,
            }
        }
    }
}
/// A tensor that clients get.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelOutput {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub dims: ::prost::alloc::vec::Vec<i64>,
    /// One label a line, for the classification extension; relative to the model's directory.
    #[prost(string, tag = "4")]
    pub label_filename: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "5")]
    pub reshape: ::core::option::Option<ModelTensorReshape>,
    #[prost(bool, tag = "6")]
    pub is_shape_tensor: bool,
    #[prost(bool, tag = "7")]
    pub is_non_linear_format_io: bool,
}
/// A model input that the server computes from a batch, not any request.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct BatchInput {
    #[prost(enumeration = "batch_input::Kind", tag = "1")]
    pub kind: i32,
    #[prost(string, repeated, tag = "2")]
    pub target_name: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(enumeration = "DataType", tag = "3")]
    pub data_type: i32,
    #[prost(string, repeated, tag = "4")]
    pub source_input: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Nested message and enum types in `BatchInput`.
pub mod batch_input {
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        /// Elements of each request.
        BatchElementCount = 0,
        /// Their running sums.
        BatchAccumulatedElementCount = 1,
        /// A 0, then the running sums.
        BatchAccumulatedElementCountWithZero = 2,
        /// The most elements of any request; the shape says it, the values say nothing.
        BatchMaxElementCountAsShape = 3,
        /// The shape of every item, a row each.
        BatchItemShape = 4,
        /// The same numbers in one row.
        BatchItemShapeFlatten = 5,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::BatchElementCount => "BATCH_ELEMENT_COUNT",
                Self::BatchAccumulatedElementCount => "BATCH_ACCUMULATED_ELEMENT_COUNT",
                Self::BatchAccumulatedElementCountWithZero => {
                    "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO"
                }
                Self::BatchMaxElementCountAsShape => "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE",
                Self::BatchItemShape => "BATCH_ITEM_SHAPE",
                Self::BatchItemShapeFlatten => "BATCH_ITEM_SHAPE_FLATTEN",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "BATCH_ELEMENT_COUNT" => Some(Self::BatchElementCount),
                "BATCH_ACCUMULATED_ELEMENT_COUNT" => {
                    Some(Self::BatchAccumulatedElementCount)
                }
                "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO" => {
                    Some(Self::BatchAccumulatedElementCountWithZero)
                }
                "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE" => {
                    Some(Self::BatchMaxElementCountAsShape)
                }
                "BATCH_ITEM_SHAPE" => Some(Self::BatchItemShape),
                "BATCH_ITEM_SHAPE_FLATTEN" => Some(Self::BatchItemShapeFlatten),
                _ => None,
            }
        }
    }
}
/// A model output that is dealt out to the requests by the shapes of an input.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct BatchOutput {
    #[prost(string, repeated, tag = "1")]
    pub target_name: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(enumeration = "batch_output::Kind", tag = "2")]
    pub kind: i32,
    #[prost(string, repeated, tag = "3")]
    pub source_input: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
/// Nested message and enum types in `BatchOutput`.
pub mod batch_output {
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum Kind {
        BatchScatterWithInputShape = 0,
    }
    impl Kind {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::BatchScatterWithInputShape => "BATCH_SCATTER_WITH_INPUT_SHAPE",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "BATCH_SCATTER_WITH_INPUT_SHAPE" => {
                    Some(Self::BatchScatterWithInputShape)
                }
                _ => None,
            }
        }
    }
}
/// Which of the version directories are served. Without a choice: the latest one.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelVersionPolicy {
    #[prost(oneof = "model_version_policy::PolicyChoice", tags = "1, 2, 3")]
    pub policy_choice: ::core::option::Option<model_version_policy::PolicyChoice>,
}
/// Nested message and enum types in `ModelVersionPolicy`.
pub mod model_version_policy {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Latest {
        #[prost(uint32, tag = "1")]
        pub num_versions: u32,
    }
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct All {}
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Specific {
        #[prost(int64, repeated, tag = "1")]
        pub versions: ::prost::alloc::vec::Vec<i64>,
    }
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum PolicyChoice {
        #[prost(message, tag = "1")]
        Latest(Latest),
        #[prost(message, tag = "2")]
        All(All),
        #[prost(message, tag = "3")]
        Specific(Specific),
    }
}
/// Hints for backends.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelOptimizationPolicy {
    #[prost(message, optional, tag = "1")]
    pub graph: ::core::option::Option<model_optimization_policy::Graph>,
    #[prost(enumeration = "model_optimization_policy::ModelPriority", tag = "2")]
    pub priority: i32,
    #[prost(message, optional, tag = "3")]
    pub cuda: ::core::option::Option<model_optimization_policy::Cuda>,
    #[prost(message, optional, tag = "4")]
    pub execution_accelerators: ::core::option::Option<
        model_optimization_policy::ExecutionAccelerators,
    >,
    #[prost(message, optional, tag = "5")]
    pub input_pinned_memory: ::core::option::Option<
        model_optimization_policy::PinnedMemoryBuffer,
    >,
    #[prost(message, optional, tag = "6")]
    pub output_pinned_memory: ::core::option::Option<
        model_optimization_policy::PinnedMemoryBuffer,
    >,
    #[prost(uint32, tag = "7")]
    pub gather_kernel_buffer_threshold: u32,
    #[prost(bool, tag = "8")]
    pub eager_batching: bool,
}
/// Nested message and enum types in `ModelOptimizationPolicy`.
pub mod model_optimization_policy {
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Graph {
        #[prost(int32, tag = "1")]
        pub level: i32,
    }
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Cuda {
        #[prost(bool, tag = "1")]
        pub graphs: bool,
        #[prost(bool, tag = "2")]
        pub busy_wait_events: bool,
        #[prost(message, repeated, tag = "3")]
        pub graph_spec: ::prost::alloc::vec::Vec<cuda::GraphSpec>,
        #[prost(bool, tag = "4")]
        pub output_copy_stream: bool,
    }
    /// Nested message and enum types in `Cuda`.
    pub mod cuda {
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct GraphSpec {
            #[prost(int32, tag = "1")]
            pub batch_size: i32,
            #[prost(btree_map = "string, message", tag = "2")]
            pub input: ::prost::alloc::collections::BTreeMap<
                ::prost::alloc::string::String,
                graph_spec::Shape,
            >,
            #[prost(message, optional, tag = "3")]
            pub graph_lower_bound: ::core::option::Option<graph_spec::LowerBound>,
        }
        /// Nested message and enum types in `GraphSpec`.
        pub mod graph_spec {
            #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
            pub struct Shape {
                #[prost(int64, repeated, tag = "1")]
                pub dim: ::prost::alloc::vec::Vec<i64>,
            }
            #[derive(Clone, PartialEq, ::prost::Message)]
            pub struct LowerBound {
                #[prost(int32, tag = "1")]
                pub batch_size: i32,
                #[prost(btree_map = "string, message", tag = "2")]
                pub input: ::prost::alloc::collections::BTreeMap<
                    ::prost::alloc::string::String,
                    Shape,
                >,
            }
        }
    }
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct ExecutionAccelerators {
        #[prost(message, repeated, tag = "1")]
        pub gpu_execution_accelerator: ::prost::alloc::vec::Vec<
            execution_accelerators::Accelerator,
        >,
        #[prost(message, repeated, tag = "2")]
        pub cpu_execution_accelerator: ::prost::alloc::vec::Vec<
            execution_accelerators::Accelerator,
        >,
    }
    /// Nested message and enum types in `ExecutionAccelerators`.
    pub mod execution_accelerators {
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct Accelerator {
            #[prost(string, tag = "1")]
            pub name: ::prost::alloc::string::String,
            #[prost(btree_map = "string, string", tag = "2")]
            pub parameters: ::prost::alloc::collections::BTreeMap<
                ::prost::alloc::string::String,
                ::prost::alloc::string::String,
            >,
        }
    }
    #[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct PinnedMemoryBuffer {
        #[prost(bool, tag = "1")]
        pub enable: bool,
    }
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum ModelPriority {
        PriorityDefault = 0,
        PriorityMax = 1,
        PriorityMin = 2,
    }
    impl ModelPriority {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::PriorityDefault => "PRIORITY_DEFAULT",
                Self::PriorityMax => "PRIORITY_MAX",
                Self::PriorityMin => "PRIORITY_MIN",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "PRIORITY_DEFAULT" => Some(Self::PriorityDefault),
                "PRIORITY_MAX" => Some(Self::PriorityMax),
                "PRIORITY_MIN" => Some(Self::PriorityMin),
                _ => None,
            }
        }
    }
}
/// How long a request may wait and how many may.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelQueuePolicy {
    #[prost(enumeration = "model_queue_policy::TimeoutAction", tag = "1")]
    pub timeout_action: i32,
    /// 0 is none.
    #[prost(uint64, tag = "2")]
    pub default_timeout_microseconds: u64,
    #[prost(bool, tag = "3")]
    pub allow_timeout_override: bool,
    /// 0 is no limit.
    #[prost(uint32, tag = "4")]
    pub max_queue_size: u32,
}
/// Nested message and enum types in `ModelQueuePolicy`.
pub mod model_queue_policy {
    #[derive(
        Clone,
        Copy,
        Debug,
        PartialEq,
        Eq,
        Hash,
        PartialOrd,
        Ord,
        ::prost::Enumeration
    )]
    #[repr(i32)]
    pub enum TimeoutAction {
        Reject = 0,
        Delay = 1,
    }
    impl TimeoutAction {
        /// String value of the enum field names used in the ProtoBuf definition.
        ///
        /// The values are not transformed in any way and thus are considered stable
        /// (if the ProtoBuf definition does not change) and safe for programmatic use.
        pub fn as_str_name(&self) -> &'static str {
            match self {
                Self::Reject => "REJECT",
                Self::Delay => "DELAY",
            }
        }
        /// Creates an enum from field names used in the ProtoBuf definition.
        pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
            match value {
                "REJECT" => Some(Self::Reject),
                "DELAY" => Some(Self::Delay),
                _ => None,
            }
        }
    }
}
/// Requests that have nothing to do with each other run together.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelDynamicBatching {
    #[prost(int32, repeated, tag = "1")]
    pub preferred_batch_size: ::prost::alloc::vec::Vec<i32>,
    #[prost(uint64, tag = "2")]
    pub max_queue_delay_microseconds: u64,
    #[prost(bool, tag = "3")]
    pub preserve_ordering: bool,
    /// 0 is one queue; 1 is the most urgent level.
    #[prost(uint64, tag = "4")]
    pub priority_levels: u64,
    #[prost(uint64, tag = "5")]
    pub default_priority_level: u64,
    #[prost(message, optional, tag = "6")]
    pub default_queue_policy: ::core::option::Option<ModelQueuePolicy>,
    #[prost(btree_map = "uint64, message", tag = "7")]
    pub priority_queue_policy: ::prost::alloc::collections::BTreeMap<
        u64,
        ModelQueuePolicy,
    >,
}
/// Requests belong to sequences, and a sequence stays with one instance.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelSequenceBatching {
    /// 0 is one second.
    #[prost(uint64, tag = "1")]
    pub max_sequence_idle_microseconds: u64,
    #[prost(message, repeated, tag = "2")]
    pub control_input: ::prost::alloc::vec::Vec<model_sequence_batching::ControlInput>,
    #[prost(message, repeated, tag = "5")]
    pub state: ::prost::alloc::vec::Vec<model_sequence_batching::State>,
    /// The model itself asks for its next step.
    #[prost(bool, tag = "6")]
    pub iterative_sequence: bool,
    /// Without a choice: direct.
    #[prost(oneof = "model_sequence_batching::StrategyChoice", tags = "3, 4")]
    pub strategy_choice: ::core::option::Option<model_sequence_batching::StrategyChoice>,
}
/// Nested message and enum types in `ModelSequenceBatching`.
pub mod model_sequence_batching {
    /// What one control input tells the model. A flag names the values for false and true in exactly one of the lists.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Control {
        #[prost(enumeration = "control::Kind", tag = "1")]
        pub kind: i32,
        #[prost(int32, repeated, tag = "2")]
        pub int32_false_true: ::prost::alloc::vec::Vec<i32>,
        #[prost(float, repeated, tag = "3")]
        pub fp32_false_true: ::prost::alloc::vec::Vec<f32>,
        /// Of CONTROL_SEQUENCE_CORRID alone.
        #[prost(enumeration = "super::DataType", tag = "4")]
        pub data_type: i32,
        #[prost(bool, repeated, tag = "5")]
        pub bool_false_true: ::prost::alloc::vec::Vec<bool>,
    }
    /// Nested message and enum types in `Control`.
    pub mod control {
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            Hash,
            PartialOrd,
            Ord,
            ::prost::Enumeration
        )]
        #[repr(i32)]
        pub enum Kind {
            ControlSequenceStart = 0,
            /// Whether this row of the batch is a request (and not padding).
            ControlSequenceReady = 1,
            ControlSequenceEnd = 2,
            /// The correlation id.
            ControlSequenceCorrid = 3,
        }
        impl Kind {
            /// String value of the enum field names used in the ProtoBuf definition.
            ///
            /// The values are not transformed in any way and thus are considered stable
            /// (if the ProtoBuf definition does not change) and safe for programmatic use.
            pub fn as_str_name(&self) -> &'static str {
                match self {
                    Self::ControlSequenceStart => "CONTROL_SEQUENCE_START",
                    Self::ControlSequenceReady => "CONTROL_SEQUENCE_READY",
                    Self::ControlSequenceEnd => "CONTROL_SEQUENCE_END",
                    Self::ControlSequenceCorrid => "CONTROL_SEQUENCE_CORRID",
                }
            }
            /// Creates an enum from field names used in the ProtoBuf definition.
            pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
                match value {
                    "CONTROL_SEQUENCE_START" => Some(Self::ControlSequenceStart),
                    "CONTROL_SEQUENCE_READY" => Some(Self::ControlSequenceReady),
                    "CONTROL_SEQUENCE_END" => Some(Self::ControlSequenceEnd),
                    "CONTROL_SEQUENCE_CORRID" => Some(Self::ControlSequenceCorrid),
                    _ => None,
                }
            }
        }
    }
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct ControlInput {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(message, repeated, tag = "2")]
        pub control: ::prost::alloc::vec::Vec<Control>,
    }
    /// What a state is at the start of a sequence.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct InitialState {
        #[prost(enumeration = "super::DataType", tag = "1")]
        pub data_type: i32,
        #[prost(int64, repeated, tag = "2")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(string, tag = "5")]
        pub name: ::prost::alloc::string::String,
        #[prost(oneof = "initial_state::StateData", tags = "3, 4")]
        pub state_data: ::core::option::Option<initial_state::StateData>,
    }
    /// Nested message and enum types in `InitialState`.
    pub mod initial_state {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum StateData {
            /// Present means zeros, with any value.
            #[prost(bool, tag = "3")]
            ZeroData(bool),
            /// Raw little-endian data, in the folder initial_state of the model's directory.
            #[prost(string, tag = "4")]
            DataFile(::prost::alloc::string::String),
        }
    }
    /// A tensor the server keeps between the requests of a sequence: the model's output becomes its next input.
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct State {
        #[prost(string, tag = "1")]
        pub input_name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub output_name: ::prost::alloc::string::String,
        #[prost(enumeration = "super::DataType", tag = "3")]
        pub data_type: i32,
        #[prost(int64, repeated, tag = "4")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(message, repeated, tag = "5")]
        pub initial_state: ::prost::alloc::vec::Vec<InitialState>,
        #[prost(bool, tag = "6")]
        pub use_same_buffer_for_input_output: bool,
        #[prost(bool, tag = "7")]
        pub use_growable_memory: bool,
    }
    /// A sequence owns one row of the batch for its whole life.
    #[derive(Clone, Copy, PartialEq, ::prost::Message)]
    pub struct StrategyDirect {
        #[prost(uint64, tag = "1")]
        pub max_queue_delay_microseconds: u64,
        #[prost(float, tag = "2")]
        pub minimum_slot_utilization: f32,
    }
    /// Batches are made of the requests that have waited longest.
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct StrategyOldest {
        /// Slots of an instance; 0 is max_batch_size.
        #[prost(int32, tag = "1")]
        pub max_candidate_sequences: i32,
        #[prost(int32, repeated, tag = "2")]
        pub preferred_batch_size: ::prost::alloc::vec::Vec<i32>,
        #[prost(uint64, tag = "3")]
        pub max_queue_delay_microseconds: u64,
        #[prost(bool, tag = "4")]
        pub preserve_ordering: bool,
    }
    /// Without a choice: direct.
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum StrategyChoice {
        #[prost(message, tag = "3")]
        Direct(StrategyDirect),
        #[prost(message, tag = "4")]
        Oldest(StrategyOldest),
    }
}
/// Models wired together; the data flow gives the order.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelEnsembling {
    #[prost(message, repeated, tag = "1")]
    pub step: ::prost::alloc::vec::Vec<model_ensembling::Step>,
    /// Requests a step may have running; 0 is no limit.
    #[prost(uint32, tag = "2")]
    pub max_inflight_requests: u32,
}
/// Nested message and enum types in `ModelEnsembling`.
pub mod model_ensembling {
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Step {
        #[prost(string, tag = "1")]
        pub model_name: ::prost::alloc::string::String,
        /// -1 is the latest.
        #[prost(int64, tag = "2")]
        pub model_version: i64,
        /// The member's input, and the ensemble's tensor it takes.
        #[prost(btree_map = "string, string", tag = "3")]
        pub input_map: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
        /// The member's output, and the ensemble's tensor it makes.
        #[prost(btree_map = "string, string", tag = "4")]
        pub output_map: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
        #[prost(string, tag = "5")]
        pub model_namespace: ::prost::alloc::string::String,
    }
}
/// Text for a backend.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelParameter {
    #[prost(string, tag = "1")]
    pub string_value: ::prost::alloc::string::String,
}
/// Requests that run before the model is ready.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelWarmup {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(uint32, tag = "2")]
    pub batch_size: u32,
    #[prost(btree_map = "string, message", tag = "3")]
    pub inputs: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        model_warmup::Input,
    >,
    /// 0 is 1.
    #[prost(uint32, tag = "4")]
    pub count: u32,
}
/// Nested message and enum types in `ModelWarmup`.
pub mod model_warmup {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct Input {
        #[prost(enumeration = "super::DataType", tag = "1")]
        pub data_type: i32,
        #[prost(int64, repeated, tag = "2")]
        pub dims: ::prost::alloc::vec::Vec<i64>,
        #[prost(oneof = "input::InputDataType", tags = "3, 4, 5")]
        pub input_data_type: ::core::option::Option<input::InputDataType>,
    }
    /// Nested message and enum types in `Input`.
    pub mod input {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum InputDataType {
            #[prost(bool, tag = "3")]
            ZeroData(bool),
            #[prost(bool, tag = "4")]
            RandomData(bool),
            #[prost(string, tag = "5")]
            InputDataFile(::prost::alloc::string::String),
        }
    }
}
/// Libraries of custom operators.
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelOperations {
    #[prost(string, repeated, tag = "1")]
    pub op_library_filename: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelTransactionPolicy {
    /// A request may have any number of answers.
    #[prost(bool, tag = "1")]
    pub decoupled: bool,
}
/// What looks at a model's files before they are loaded, in order.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelRepositoryAgents {
    #[prost(message, repeated, tag = "1")]
    pub agents: ::prost::alloc::vec::Vec<model_repository_agents::Agent>,
}
/// Nested message and enum types in `ModelRepositoryAgents`.
pub mod model_repository_agents {
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct Agent {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(btree_map = "string, string", tag = "2")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            ::prost::alloc::string::String,
        >,
    }
}
/// Equal requests are answered from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelResponseCache {
    #[prost(bool, tag = "1")]
    pub enable: bool,
}
/// Buckets of the histograms of this model.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelMetrics {
    #[prost(message, repeated, tag = "1")]
    pub metric_control: ::prost::alloc::vec::Vec<model_metrics::MetricControl>,
}
/// Nested message and enum types in `ModelMetrics`.
pub mod model_metrics {
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct MetricControl {
        #[prost(message, optional, tag = "1")]
        pub metric_identifier: ::core::option::Option<metric_control::MetricIdentifier>,
        #[prost(oneof = "metric_control::MetricOptions", tags = "2")]
        pub metric_options: ::core::option::Option<metric_control::MetricOptions>,
    }
    /// Nested message and enum types in `MetricControl`.
    pub mod metric_control {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
        pub struct MetricIdentifier {
            #[prost(string, tag = "1")]
            pub family: ::prost::alloc::string::String,
        }
        #[derive(Clone, PartialEq, ::prost::Message)]
        pub struct HistogramOptions {
            #[prost(double, repeated, tag = "1")]
            pub buckets: ::prost::alloc::vec::Vec<f64>,
        }
        #[derive(Clone, PartialEq, ::prost::Oneof)]
        pub enum MetricOptions {
            #[prost(message, tag = "2")]
            HistogramOptions(HistogramOptions),
        }
    }
}
/// Everything about a model but its weights.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfig {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub platform: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "3")]
    pub version_policy: ::core::option::Option<ModelVersionPolicy>,
    /// 0 means that the first dimension of the tensors is no batch dimension.
    #[prost(int32, tag = "4")]
    pub max_batch_size: i32,
    #[prost(message, repeated, tag = "5")]
    pub input: ::prost::alloc::vec::Vec<ModelInput>,
    #[prost(message, repeated, tag = "6")]
    pub output: ::prost::alloc::vec::Vec<ModelOutput>,
    #[prost(message, repeated, tag = "7")]
    pub instance_group: ::prost::alloc::vec::Vec<ModelInstanceGroup>,
    #[prost(string, tag = "8")]
    pub default_model_filename: ::prost::alloc::string::String,
    /// CUDA compute capability, and the file for it.
    #[prost(btree_map = "string, string", tag = "9")]
    pub cc_model_filenames: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ::prost::alloc::string::String,
    >,
    /// Labels for the metrics of this model.
    #[prost(btree_map = "string, string", tag = "10")]
    pub metric_tags: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ::prost::alloc::string::String,
    >,
    #[prost(message, optional, tag = "12")]
    pub optimization: ::core::option::Option<ModelOptimizationPolicy>,
    #[prost(btree_map = "string, message", tag = "14")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelParameter,
    >,
    #[prost(message, repeated, tag = "16")]
    pub model_warmup: ::prost::alloc::vec::Vec<ModelWarmup>,
    #[prost(string, tag = "17")]
    pub backend: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "18")]
    pub model_operations: ::core::option::Option<ModelOperations>,
    #[prost(message, optional, tag = "19")]
    pub model_transaction_policy: ::core::option::Option<ModelTransactionPolicy>,
    #[prost(message, repeated, tag = "20")]
    pub batch_input: ::prost::alloc::vec::Vec<BatchInput>,
    #[prost(message, repeated, tag = "21")]
    pub batch_output: ::prost::alloc::vec::Vec<BatchOutput>,
    #[prost(message, optional, tag = "23")]
    pub model_repository_agents: ::core::option::Option<ModelRepositoryAgents>,
    #[prost(message, optional, tag = "24")]
    pub response_cache: ::core::option::Option<ModelResponseCache>,
    #[prost(string, tag = "25")]
    pub runtime: ::prost::alloc::string::String,
    #[prost(message, optional, tag = "26")]
    pub model_metrics: ::core::option::Option<ModelMetrics>,
    /// Without a choice every request runs by itself.
    #[prost(oneof = "model_config::SchedulingChoice", tags = "11, 13, 15")]
    pub scheduling_choice: ::core::option::Option<model_config::SchedulingChoice>,
}
/// Nested message and enum types in `ModelConfig`.
pub mod model_config {
    /// Without a choice every request runs by itself.
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum SchedulingChoice {
        #[prost(message, tag = "11")]
        DynamicBatching(super::ModelDynamicBatching),
        #[prost(message, tag = "13")]
        SequenceBatching(super::ModelSequenceBatching),
        #[prost(message, tag = "15")]
        EnsembleScheduling(super::ModelEnsembling),
    }
}
/// Types of tensor elements. STRING is BYTES in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ::prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    TypeInvalid = 0,
    TypeBool = 1,
    TypeUint8 = 2,
    TypeUint16 = 3,
    TypeUint32 = 4,
    TypeUint64 = 5,
    TypeInt8 = 6,
    TypeInt16 = 7,
    TypeInt32 = 8,
    TypeInt64 = 9,
    TypeFp16 = 10,
    TypeFp32 = 11,
    TypeFp64 = 12,
    TypeString = 13,
    TypeBf16 = 14,
}
impl DataType {
    /// String value of the enum field names used in the ProtoBuf definition.
    ///
    /// The values are not transformed in any way and thus are considered stable
    /// (if the ProtoBuf definition does not change) and safe for programmatic use.
    pub fn as_str_name(&self) -> &'static str {
        match self {
            Self::TypeInvalid => "TYPE_INVALID",
            Self::TypeBool => "TYPE_BOOL",
            Self::TypeUint8 => "TYPE_UINT8",
            Self::TypeUint16 => "TYPE_UINT16",
            Self::TypeUint32 => "TYPE_UINT32",
            Self::TypeUint64 => "TYPE_UINT64",
            Self::TypeInt8 => "TYPE_INT8",
            Self::TypeInt16 => "TYPE_INT16",
            Self::TypeInt32 => "TYPE_INT32",
            Self::TypeInt64 => "TYPE_INT64",
            Self::TypeFp16 => "TYPE_FP16",
            Self::TypeFp32 => "TYPE_FP32",
            Self::TypeFp64 => "TYPE_FP64",
            Self::TypeString => "TYPE_STRING",
            Self::TypeBf16 => "TYPE_BF16",
        }
    }
    /// Creates an enum from field names used in the ProtoBuf definition.
    pub fn from_str_name(value: &str) -> ::core::option::Option<Self> {
        match value {
            "TYPE_INVALID" => Some(Self::TypeInvalid),
            "TYPE_BOOL" => Some(Self::TypeBool),
            "TYPE_UINT8" => Some(Self::TypeUint8),
            "TYPE_UINT16" => Some(Self::TypeUint16),
            "TYPE_UINT32" => Some(Self::TypeUint32),
            "TYPE_UINT64" => Some(Self::TypeUint64),
            "TYPE_INT8" => Some(Self::TypeInt8),
            "TYPE_INT16" => Some(Self::TypeInt16),
            "TYPE_INT32" => Some(Self::TypeInt32),
            "TYPE_INT64" => Some(Self::TypeInt64),
            "TYPE_FP16" => Some(Self::TypeFp16),
            "TYPE_FP32" => Some(Self::TypeFp32),
            "TYPE_FP64" => Some(Self::TypeFp64),
            "TYPE_STRING" => Some(Self::TypeString),
            "TYPE_BF16" => Some(Self::TypeBf16),
            _ => None,
        }
    }
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveRequest {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub live: bool,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyRequest {}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelReadyResponse {
    #[prost(bool, tag = "1")]
    pub ready: bool,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataRequest {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelMetadataRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, repeated, tag = "2")]
    pub versions: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    #[prost(string, tag = "3")]
    pub platform: ::prost::alloc::string::String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_metadata_response::TensorMetadata>,
}
/// Nested message and enum types in `ModelMetadataResponse`.
pub mod model_metadata_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct TensorMetadata {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
    }
}
/// A parameter of a request, of one of its tensors, or of an answer.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferParameter {
    #[prost(oneof = "infer_parameter::ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub parameter_choice: ::core::option::Option<infer_parameter::ParameterChoice>,
}
/// Nested message and enum types in `InferParameter`.
pub mod infer_parameter {
    #[derive(Clone, PartialEq, ::prost::Oneof)]
    pub enum ParameterChoice {
        #[prost(bool, tag = "1")]
        BoolParam(bool),
        #[prost(int64, tag = "2")]
        Int64Param(i64),
        #[prost(string, tag = "3")]
        StringParam(::prost::alloc::string::String),
        #[prost(double, tag = "4")]
        DoubleParam(f64),
        #[prost(uint64, tag = "5")]
        Uint64Param(u64),
    }
}
/// Typed tensor data, row-major, in the list that fits the type. FP16 and BF16 have none: they travel raw.
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub bool_contents: ::prost::alloc::vec::Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub int_contents: ::prost::alloc::vec::Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub int64_contents: ::prost::alloc::vec::Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub uint_contents: ::prost::alloc::vec::Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub uint64_contents: ::prost::alloc::vec::Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub fp32_contents: ::prost::alloc::vec::Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub fp64_contents: ::prost::alloc::vec::Vec<f64>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub bytes_contents: ::prost::alloc::vec::Vec<::prost::alloc::vec::Vec<u8>>,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    /// Echoed.
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub inputs: ::prost::alloc::vec::Vec<model_infer_request::InferInputTensor>,
    /// None means all.
    #[prost(message, repeated, tag = "6")]
    pub outputs: ::prost::alloc::vec::Vec<
        model_infer_request::InferRequestedOutputTensor,
    >,
    /// One entry for each input that is not in shared memory, in their order; then no input may have contents.
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub raw_input_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferRequest`.
pub mod model_infer_request {
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferInputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
        #[prost(message, optional, tag = "5")]
        pub contents: ::core::option::Option<super::InferTensorContents>,
    }
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferRequestedOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(btree_map = "string, message", tag = "2")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_version: ::prost::alloc::string::String,
    #[prost(string, tag = "3")]
    pub id: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "4")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferParameter,
    >,
    #[prost(message, repeated, tag = "5")]
    pub outputs: ::prost::alloc::vec::Vec<model_infer_response::InferOutputTensor>,
    /// One entry for each output; empty for those written to shared memory.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub raw_output_contents: ::prost::alloc::vec::Vec<::prost::bytes::Bytes>,
}
/// Nested message and enum types in `ModelInferResponse`.
pub mod model_infer_response {
    #[derive(Clone, PartialEq, ::prost::Message)]
    pub struct InferOutputTensor {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub datatype: ::prost::alloc::string::String,
        #[prost(int64, repeated, tag = "3")]
        pub shape: ::prost::alloc::vec::Vec<i64>,
        #[prost(btree_map = "string, message", tag = "4")]
        pub parameters: ::prost::alloc::collections::BTreeMap<
            ::prost::alloc::string::String,
            super::InferParameter,
        >,
        #[prost(message, optional, tag = "5")]
        pub contents: ::core::option::Option<super::InferTensorContents>,
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStreamInferResponse {
    /// Empty means success.
    #[prost(string, tag = "1")]
    pub error_message: ::prost::alloc::string::String,
    /// Carries the id of the request even if that failed.
    #[prost(message, optional, tag = "2")]
    pub infer_response: ::core::option::Option<ModelInferResponse>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelConfigRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub config: ::core::option::Option<ModelConfig>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelStatisticsRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
}
/// How often, and how long in sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct StatisticDuration {
    #[prost(uint64, tag = "1")]
    pub count: u64,
    #[prost(uint64, tag = "2")]
    pub ns: u64,
}
/// Where the time of requests went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferStatistics {
    #[prost(message, optional, tag = "1")]
    pub success: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub fail: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub queue: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "7")]
    pub cache_hit: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "8")]
    pub cache_miss: ::core::option::Option<StatisticDuration>,
}
/// The same for single answers of models that give many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferResponseStatistics {
    #[prost(message, optional, tag = "1")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "2")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub success: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub fail: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "5")]
    pub empty_response: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "6")]
    pub cancel: ::core::option::Option<StatisticDuration>,
}
/// The same for batches of one size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct InferBatchStatistics {
    #[prost(uint64, tag = "1")]
    pub batch_size: u64,
    #[prost(message, optional, tag = "2")]
    pub compute_input: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "3")]
    pub compute_infer: ::core::option::Option<StatisticDuration>,
    #[prost(message, optional, tag = "4")]
    pub compute_output: ::core::option::Option<StatisticDuration>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct MemoryUsage {
    #[prost(string, tag = "1")]
    pub r#type: ::prost::alloc::string::String,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(uint64, tag = "3")]
    pub byte_size: u64,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatistics {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub version: ::prost::alloc::string::String,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "3")]
    pub last_inference: u64,
    /// Items: a request of batch 3 counts three times.
    #[prost(uint64, tag = "4")]
    pub inference_count: u64,
    /// Batches.
    #[prost(uint64, tag = "5")]
    pub execution_count: u64,
    #[prost(message, optional, tag = "6")]
    pub inference_stats: ::core::option::Option<InferStatistics>,
    #[prost(message, repeated, tag = "7")]
    pub batch_stats: ::prost::alloc::vec::Vec<InferBatchStatistics>,
    #[prost(message, repeated, tag = "8")]
    pub memory_usage: ::prost::alloc::vec::Vec<MemoryUsage>,
    #[prost(btree_map = "string, message", tag = "9")]
    pub response_stats: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        InferResponseStatistics,
    >,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct ModelStatisticsResponse {
    #[prost(message, repeated, tag = "1")]
    pub model_stats: ::prost::alloc::vec::Vec<ModelStatistics>,
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct ModelRepositoryParameter {
    #[prost(oneof = "model_repository_parameter::ParameterChoice", tags = "1, 2, 3, 4")]
    pub parameter_choice: ::core::option::Option<
        model_repository_parameter::ParameterChoice,
    >,
}
/// Nested message and enum types in `ModelRepositoryParameter`.
pub mod model_repository_parameter {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
    pub enum ParameterChoice {
        #[prost(bool, tag = "1")]
        BoolParam(bool),
        #[prost(int64, tag = "2")]
        Int64Param(i64),
        #[prost(string, tag = "3")]
        StringParam(::prost::alloc::string::String),
        #[prost(bytes, tag = "4")]
        BytesParam(::prost::alloc::vec::Vec<u8>),
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryIndexRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    /// Only models that are ready.
    #[prost(bool, tag = "2")]
    pub ready: bool,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryIndexResponse {
    #[prost(message, repeated, tag = "1")]
    pub models: ::prost::alloc::vec::Vec<repository_index_response::ModelIndex>,
}
/// Nested message and enum types in `RepositoryIndexResponse`.
pub mod repository_index_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct ModelIndex {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub version: ::prost::alloc::string::String,
        #[prost(string, tag = "3")]
        pub state: ::prost::alloc::string::String,
        #[prost(string, tag = "4")]
        pub reason: ::prost::alloc::string::String,
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryModelLoadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelRepositoryParameter,
    >,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelLoadResponse {}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct RepositoryModelUnloadRequest {
    #[prost(string, tag = "1")]
    pub repository_name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub parameters: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        ModelRepositoryParameter,
    >,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct RepositoryModelUnloadResponse {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryStatusRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct SystemSharedMemoryStatusResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        system_shared_memory_status_response::RegionStatus,
    >,
}
/// Nested message and enum types in `SystemSharedMemoryStatusResponse`.
pub mod system_shared_memory_status_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RegionStatus {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(string, tag = "2")]
        pub key: ::prost::alloc::string::String,
        #[prost(uint64, tag = "3")]
        pub offset: u64,
        #[prost(uint64, tag = "4")]
        pub byte_size: u64,
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    #[prost(string, tag = "2")]
    pub key: ::prost::alloc::string::String,
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryRegisterResponse {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterRequest {
    /// Empty means all of this kind.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct SystemSharedMemoryUnregisterResponse {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryStatusRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct CudaSharedMemoryStatusResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub regions: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        cuda_shared_memory_status_response::RegionStatus,
    >,
}
/// Nested message and enum types in `CudaSharedMemoryStatusResponse`.
pub mod cuda_shared_memory_status_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct RegionStatus {
        #[prost(string, tag = "1")]
        pub name: ::prost::alloc::string::String,
        #[prost(uint64, tag = "2")]
        pub device_id: u64,
        #[prost(uint64, tag = "3")]
        pub byte_size: u64,
    }
}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryRegisterRequest {
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
    /// A cudaIpcMemHandle_t.
    #[prost(bytes = "vec", tag = "2")]
    pub raw_handle: ::prost::alloc::vec::Vec<u8>,
    #[prost(int64, tag = "3")]
    pub device_id: i64,
    #[prost(uint64, tag = "4")]
    pub byte_size: u64,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryRegisterResponse {}
#[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterRequest {
    /// Empty means all of this kind.
    #[prost(string, tag = "1")]
    pub name: ::prost::alloc::string::String,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, ::prost::Message)]
pub struct CudaSharedMemoryUnregisterResponse {}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TraceSettingRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        trace_setting_request::SettingValue,
    >,
    #[prost(string, tag = "2")]
    pub model_name: ::prost::alloc::string::String,
}
/// Nested message and enum types in `TraceSettingRequest`.
pub mod trace_setting_request {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(string, repeated, tag = "1")]
        pub value: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct TraceSettingResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        trace_setting_response::SettingValue,
    >,
}
/// Nested message and enum types in `TraceSettingResponse`.
pub mod trace_setting_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(string, repeated, tag = "1")]
        pub value: ::prost::alloc::vec::Vec<::prost::alloc::string::String>,
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct LogSettingsRequest {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        log_settings_request::SettingValue,
    >,
}
/// Nested message and enum types in `LogSettingsRequest`.
pub mod log_settings_request {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(oneof = "setting_value::ParameterChoice", tags = "1, 2, 3")]
        pub parameter_choice: ::core::option::Option<setting_value::ParameterChoice>,
    }
    /// Nested message and enum types in `SettingValue`.
    pub mod setting_value {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum ParameterChoice {
            #[prost(bool, tag = "1")]
            BoolParam(bool),
            #[prost(uint32, tag = "2")]
            Uint32Param(u32),
            #[prost(string, tag = "3")]
            StringParam(::prost::alloc::string::String),
        }
    }
}
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct LogSettingsResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    pub settings: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        log_settings_response::SettingValue,
    >,
}
/// Nested message and enum types in `LogSettingsResponse`.
pub mod log_settings_response {
    #[derive(Clone, PartialEq, Eq, Hash, ::prost::Message)]
    pub struct SettingValue {
        #[prost(oneof = "setting_value::ParameterChoice", tags = "1, 2, 3")]
        pub parameter_choice: ::core::option::Option<setting_value::ParameterChoice>,
    }
    /// Nested message and enum types in `SettingValue`.
    pub mod setting_value {
        #[derive(Clone, PartialEq, Eq, Hash, ::prost::Oneof)]
        pub enum ParameterChoice {
            #[prost(bool, tag = "1")]
            BoolParam(bool),
            #[prost(uint32, tag = "2")]
            Uint32Param(u32),
            #[prost(string, tag = "3")]
            StringParam(::prost::alloc::string::String),
        }
    }
}
