//! The tables of plug-ins and of the features that plug-ins see.

use super::checks;
use super::declare::{choice, section};
use crate::config::model::settings::FeatureKind;
use crate::config::units::{Size, Span};

section! {
    /// What a scheduler may see of a request.
    pub struct FeatureSection("feature", "`[[feature]]`: values of a request that plug-ins see", "Schedulers, processors and state initializers see these values. Each table defines one feature.") {
        /// Name by which plug-ins look the feature up. Names are unique. A model has at most four features of each type.
        pub name: String, default "required", example "name = \"tenant\"";
        /// Where the value comes from.
        pub from: From, default "required", example "from = \"parameter\"";
        /// Name of the request parameter, model input, or HTTP header and gRPC metadata entry.
        pub key: String, default "required", example "key = \"tenant\"", check checks::not_empty;
        /// `key`: text, of which the plug-in sees a 64-bit hash. `number`: a 64-bit float; of an input, its first element.
        pub r#type: FeatureType, default "required", example "type = \"key\"";
        /// Value for requests that do not carry one. It must match `type`.
        pub default: Option<toml::Value> as "string or number",
            default "empty text, or 0", example "default = \"anonymous\"";
    }
}

choice! {
    pub enum From {
        Parameter = "parameter",
        Input = "input",
        Header = "header",
    }
}

choice! {
    pub enum FeatureType {
        Key = "key",
        Number = "number",
    }
}

impl FeatureSection {
    /// The kind of a feature with its default; `None` if the default has another type.
    pub fn kind(&self) -> Option<FeatureKind> {
        match (self.r#type, &self.default) {
            (FeatureType::Number, None) => Some(FeatureKind::Number { default: 0.0 }),
            (FeatureType::Number, Some(toml::Value::Integer(n))) => Some(FeatureKind::Number { default: *n as f64 }),
            (FeatureType::Number, Some(toml::Value::Float(n))) => Some(FeatureKind::Number { default: *n }),
            (FeatureType::Key, None) => Some(FeatureKind::Key { default: None }),
            (FeatureType::Key, Some(toml::Value::String(text))) => {
                Some(FeatureKind::Key { default: Some(text.clone()) })
            }
            _ => None,
        }
    }
}

section! {
    #[derive(Default)]
    pub struct Plugins("plugins", "`[plugins]`") {
    }
    tables {
        pub scheduler: Option<SchedulerKeys>;
        pub initializer: Option<InitializerKeys>;
        pub processor: Vec<ProcessorKeys>;
    }
}

section! {
    /// A scheduler and its settings.
    pub struct SchedulerKeys("plugins.scheduler", "`[plugins.scheduler]`: the plug-in that decides", "Without this table the strategy of `config.pbtxt` decides.") {
        /// Name of the scheduler plug-in that decides for this model: the file `NAME.wasm` in `plugins.dir`.
        pub r#use: String, default "required", example "use = \"fair-share\"", check checks::plugin_name;
        /// Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.
        pub sha256: Option<String> as "64 hexadecimal digits",
            default "none", example "sha256 = \"3f2a…6e\"", check checks::hash;
        /// Maximum CPU time of one call. A call that exceeds it is a strike, and the built-in policy decides that round.
        pub time: Option<Span> as "duration above 0",
            default "`plugins.time` of the server", example "time = \"1ms\"", check checks::above_zero;
        /// Maximum memory of one instance of the plug-in. Exceeding it is a strike.
        pub memory: Option<Size>, default "`plugins.memory` of the server", example "memory = \"16MiB\"";
        /// How long the plug-in may pass a ready request over, or leave a free slot unused. After that the built-in policy runs the
        /// request. Maximum: `plugins.max_wait` of the server.
        pub max_wait: Option<Span>, default "1s", example "max_wait = \"5s\"", check checks::above_zero;
        /// Settings of the plug-in. Its `configure` function receives them as JSON.
        pub config: Option<toml::Table>, default "empty", example "config = { burst = 4 }";
    }
}

section! {
    /// A state initializer and its settings.
    pub struct InitializerKeys("plugins.initializer", "`[plugins.initializer]`: the first state of a sequence", "This table names the [state initializer](plugins/initializer.md).") {
        /// Name of the state initializer that makes the first state of each sequence: the file `NAME.wasm` in `plugins.dir`.
        pub r#use: String, default "required", example "use = \"tenant-state\"", check checks::plugin_name;
        /// Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.
        pub sha256: Option<String> as "64 hexadecimal digits",
            default "none", example "sha256 = \"3f2a…6e\"", check checks::hash;
        /// Maximum CPU time of one call, and 20 µs more for each KiB that the call is about. A call that exceeds it fails its START.
        pub time: Option<Span> as "duration above 0",
            default "`\"10ms\"`", example "time = \"10ms\"", check checks::above_zero;
        /// Maximum memory of one instance of the plug-in. A call that exceeds it fails its START.
        pub memory: Option<Size>, default "`plugins.memory` of the server", example "memory = \"16MiB\"";
        /// Settings of the plug-in. Its `configure` function receives them as JSON.
        pub config: Option<toml::Table>, default "empty", example "config = { state = \"h\" }";
        /// Files that the plug-in reads when it is configured, relative to the model's directory. A path out of that directory is refused.
        /// Maximum 256 MiB together.
        pub files: Vec<String> [default], default "none", example "files = [\"tenants.safetensors\"]";
        /// Maximum bytes of the states that Sequor keeps by name. They count towards `limits.state` of the server. At the limit, Sequor
        /// drops the states that were not used for the longest time. `"0B"` keeps none.
        pub keep: Option<Size>, default "`\"64MiB\"`", example "keep = \"64MiB\"";
        /// Key features that must be equal in the STARTs of both sequences, and not empty, before one sequence may begin with a copy of the
        /// other's state.
        pub copy_if_same: Vec<String> [default],
            default "none: no sequence is copied", example "copy_if_same = [\"tenant\"]";
    }
}

section! {
    /// A processor and its settings.
    pub struct ProcessorKeys("plugins.processor", "`[[plugins.processor]]`: plug-ins before and after the model", "Each table adds one [processor](plugins/processor.md).") {
        /// Name of a processor plug-in: the file `NAME.wasm` in `plugins.dir`. Write `[[plugins.processor]]` once for each, at most 8.
        /// `pre` runs from the first to the last, `post` from the last to the first.
        pub r#use: String, default "required", example "use = \"pcm-window\"", check checks::plugin_name;
        /// Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.
        pub sha256: Option<String> as "64 hexadecimal digits",
            default "none", example "sha256 = \"3f2a…6e\"", check checks::hash;
        /// Maximum CPU time of one call, and 20 µs more for each KiB that the call is about. A call that exceeds it fails its request.
        pub time: Option<Span> as "duration above 0",
            default "`\"10ms\"`", example "time = \"10ms\"", check checks::above_zero;
        /// Maximum memory of one instance of the plug-in. A call that exceeds it fails its request.
        pub memory: Option<Size>, default "`plugins.memory` of the server", example "memory = \"16MiB\"";
        /// Settings of the plug-in. Its `configure` function receives them as JSON.
        pub config: Option<toml::Table>, default "empty", example "config = { rate = 8000 }";
        /// If a call traps, reaches a limit or breaks a rule: refuse the request as `plugin_failed`, or go on as if the processor were not
        /// there. `"bypass"` needs a processor whose inputs and outputs have the names and types of those behind it.
        pub on_failure: WhenProcessorFails [default], default "`\"fail\"`", example "on_failure = \"fail\"";
        /// Files that the plug-in reads when it is configured, relative to the model's directory. A path out of that directory is refused.
        /// Maximum 256 MiB together.
        pub files: Vec<String> [default], default "none", example "files = [\"tokens.txt\"]";
    }
}

section! {
    /// A processor that is the model, and its settings.
    pub struct ModelPluginKeys("model", "`[model]`: a plug-in that is the model", "With this table the model has [no graph](plugins/models.md).") {
        /// Name of the processor plug-in that is the model: the file `NAME.wasm` in `plugins.dir`. Then the model has no graph;
        /// `config.pbtxt` gives its inputs, outputs, parameters and sequence batching.
        pub plugin: String, default "required", example "plugin = \"fbank\"", check checks::plugin_name;
        /// Hash of the component. If the file's hash differs, the model is refused. Required if `plugins.require_sha256` is set.
        pub sha256: Option<String> as "64 hexadecimal digits",
            default "none", example "sha256 = \"3f2a…6e\"", check checks::hash;
        /// Maximum CPU time of one call, and 20 µs more for each KiB that the call is about. A call that exceeds it fails its request.
        /// Time in which it waits for other models does not count.
        pub time: Option<Span> as "duration above 0",
            default "`\"10ms\"`", example "time = \"50ms\"", check checks::above_zero;
        /// Maximum memory of one instance of the plug-in. A call that exceeds it fails its request.
        pub memory: Option<Size>, default "`plugins.memory` of the server", example "memory = \"64MiB\"";
        /// Settings of the plug-in. Its `configure` function receives them as JSON. A setting that is missing here is taken from the
        /// `parameters` of `config.pbtxt`.
        pub config: Option<toml::Table>, default "`parameters` of `config.pbtxt`", example "config = { blank = 0 }";
        /// Files that the plug-in reads when it is configured, relative to the model's directory. A path out of that directory is refused.
        /// Maximum 256 MiB together.
        pub files: Vec<String> [default], default "none", example "files = [\"tokens.txt\"]";
    }
}

choice! {
    #[derive(Default)]
    pub enum WhenProcessorFails {
        #[default]
        Fail = "fail",
        Bypass = "bypass",
    }
}
