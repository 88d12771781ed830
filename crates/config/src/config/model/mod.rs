//! One model's configuration, from config.pbtxt, its `sequor.toml`, the defaults and the graph's signature.
//!
//! There are two steps, and the graph is loaded between them: [`read`] returns a [`Draft`], and [`Draft::resolve`] returns the
//! [`settings::ModelSettings`].
//!
//! # Layout
//!
//! - [`text`], [`json`], [`locate`]: config.pbtxt, its JSON form, and the places of its fields · `descriptor`: the message type for the
//!   first two.
//! - [`sequor_toml`]: settings that config.pbtxt cannot express.
//! - [`versions`]: version directories · `features`: the values that plug-ins see, and the model's plug-ins.
//! - [`fields`]: how each field of config.pbtxt is handled · `tuning`: options for loading the graph · `metric_tags`.
//! - [`signature`]: a graph's inputs and outputs.
//! - `names` → `refuse` → `complete` → `normalise` → `validate` → `fit` → `resolve`: the chain, run by [`draft`].
//! - `padding`, `state_padding`: inputs and states of different lengths in one batch · `padding_advice`: offers them · `state_pairs`: what
//!   looks like a state and is none.
//! - [`stateful`]: translates configurations of Triton's stateful backend.
//! - `graphless`: models without a graph, instead of `complete` and `fit`.
//! - [`place`]: assigns instances to GPUs · `cpu_only`: moves all instances to the CPU · `rates`: the resources that an instance needs for
//!   a run.
//! - [`settings`]: the result · [`LoadFacts`]: the facts for plug-ins.

mod complete;
mod constant;
pub mod cpu_only;
mod descriptor;
pub mod draft;
mod dtype;
mod features;
pub mod fields;
mod fit;
mod fit_ragged;
mod graphless;
pub mod json;
mod load_facts;
pub mod locate;
mod metric_tags;
mod names;
mod normalise;
mod padding;
mod padding_advice;
pub mod place;
mod rates;
mod refuse;
mod report;
mod resolve;
mod scan;
pub mod sequor_toml;
pub mod settings;
pub mod signature;
mod state_padding;
mod state_pairs;
pub mod stateful;
mod tensors;
pub mod text;
mod tuning;
mod validate;
pub mod versions;
mod warmup;

#[cfg(test)]
mod sentences;
#[cfg(test)]
mod tests;

pub use draft::{ConfigSource, Draft, Options, Sources, read};
pub use load_facts::LoadFacts;
pub use sequor_toml::is_plugin_name;
pub use signature::{Port, Signature};
