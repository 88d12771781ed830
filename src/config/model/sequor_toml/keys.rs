//! The schema of a model's `sequor.toml`, whole: what is not served yet is checked here too, before it is refused.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::units::{Size, Span, SpanOrNever};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keys {
    pub schema: Option<u32>,
    pub sequence: SequenceSection,
    pub backlog: Backlog,
    pub queue: Queue,
    /// By `input_name`.
    pub state: BTreeMap<String, State>,
    /// By the model's input.
    pub input: BTreeMap<String, InputSection>,
    pub output: BTreeMap<String, OutputSection>,
    pub durability: Option<Durability>,
    pub(super) reload: Option<Reload>,
    pub feature: Vec<FeatureSection>,
    pub plugins: Plugins,
    pub(super) model: Option<Model>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SequenceSection {
    pub rules: Option<Rules>,
    pub rows: Option<Rows>,
    pub idle: Option<SpanOrNever>,
    pub idle_soft: Option<Span>,
    pub idle_longest: Option<Span>,
    pub idle_scan: Option<Span>,
    pub max_live: Option<u32>,
    pub max_queued: Option<u32>,
    pub on_cancel: Option<OnCancel>,
    pub end_without_inputs: Option<bool>,
    pub(super) client_state: bool,
    pub tombstones: Option<Span>,
    pub(super) watch: Option<String>,
}

/// Whose rules a START on a live id, a missing id and a full house follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rules {
    Triton,
    Ovms,
}

/// What the batches of a `direct` model consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// The row of a sequence is its slot. Slots below the highest ready one that have no request are padding rows.
    Fixed,
    /// Rows are the ready sequences, without padding rows.
    Compact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCancel {
    End,
    Keep,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backlog {
    pub max: Option<u32>,
    pub timeout: Option<Span>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    pub expire: Option<WhenExpired>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenExpired {
    Reject,
    Run,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    pub batch_axis: Option<u8>,
    pub storage: Option<Storage>,
    pub(super) pad: Option<toml::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Storage {
    Declared,
    Fp16,
    Bf16,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InputSection {
    /// The value of an input that clients do not send, the same for every row: a number, a truth value, a text or a list.
    pub constant: Option<toml::Value>,
    pub ragged: Option<RaggedMode>,
    /// What padding consists of.
    pub value: Option<f64>,
    pub multiple_of: Option<u32>,
    pub buckets: Option<Vec<u64>>,
    /// The graph's input that gets the lengths.
    pub lengths: Option<String>,
    pub mask: Option<String>,
}

impl InputSection {
    /// Whether each of the keys that padding has is there.
    pub fn padding_keys(&self) -> [(&'static str, bool); 5] {
        [
            ("value", self.value.is_some()),
            ("multiple_of", self.multiple_of.is_some()),
            ("buckets", self.buckets.is_some()),
            ("lengths", self.lengths.is_some()),
            ("mask", self.mask.is_some()),
        ]
    }

    pub fn has_ragged_keys(&self) -> bool {
        self.ragged.is_some() || self.padding_keys().iter().any(|(_, there)| *there)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RaggedMode {
    Concat,
    Pad,
    Bucket,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutputSection {
    pub crop: Option<CropKeys>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CropKeys {
    pub like: Option<String>,
    pub ratio: Option<String>,
    pub lengths: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durability {
    pub when: Option<When>,
    pub(super) every: Option<u32>,
    pub(super) tier: Option<TierName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    Never,
    Drain,
    Step,
    Every,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TierName {
    Memory,
    Disk,
    Redis,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(super) struct Reload {
    pub(super) drain: Option<Span>,
    pub(super) then: Option<Then>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Then {
    End,
    Carry,
}

/// What a scheduler may see of a request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureSection {
    pub name: String,
    pub from: From,
    pub key: String,
    pub r#type: FeatureType,
    pub default: Option<toml::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    Parameter,
    Input,
    Header,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureType {
    Key,
    Number,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plugins {
    pub scheduler: Option<SchedulerKeys>,
    pub initializer: Option<InitializerKeys>,
    pub processor: Vec<ProcessorKeys>,
}

/// A scheduler and its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerKeys {
    pub r#use: String,
    pub sha256: Option<String>,
    pub time: Option<Span>,
    pub memory: Option<Size>,
    pub max_wait: Option<Span>,
    pub config: Option<toml::Table>,
}

/// A processor and its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorKeys {
    pub r#use: String,
    pub sha256: Option<String>,
    pub time: Option<Span>,
    pub memory: Option<Size>,
    pub config: Option<toml::Table>,
    #[serde(default)]
    pub on_failure: WhenProcessorFails,
    /// Paths, relative to the model's directory.
    #[serde(default)]
    pub files: Vec<String>,
}

/// A state initializer and its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InitializerKeys {
    pub r#use: String,
    pub sha256: Option<String>,
    pub time: Option<Span>,
    pub memory: Option<Size>,
    pub config: Option<toml::Table>,
    /// Paths, relative to the model's directory.
    #[serde(default)]
    pub files: Vec<String>,
    /// Maximum bytes of kept states.
    pub keep: Option<Size>,
    /// Names of key features.
    #[serde(default)]
    pub copy_if_same: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenProcessorFails {
    #[default]
    Fail,
    Bypass,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
pub(super) struct Model {
    pub(super) plugin: Option<String>,
}
