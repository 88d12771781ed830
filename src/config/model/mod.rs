//! One model's configuration: what config.pbtxt, its `sequor.toml`, the defaults and the graph's signature say together.
//!
//! Two steps, between which the graph is loaded: [`read`] gives a [`Draft`], [`Draft::settle`] the [`settings::ModelSettings`].
//!
//! # Layout
//!
//! - [`text`], [`json`], [`locate`]: config.pbtxt, its JSON form, and where its fields stand; `descriptor` is what the first two read by.
//! - [`sequor_toml`]: what config.pbtxt cannot say.
//! - [`versions`]: version directories · `features`: what schedulers see, and which one decides.
//! - [`fields`]: what becomes of each field of config.pbtxt · `tuning`: how ONNX Runtime is to load the graph · `metric_tags`.
//! - [`signature`]: what is known of a graph.
//! - `names` → `refuse` → `complete` → `normalise` → `validate` → `fit` → `settle`: the chain, run by [`draft`].
//! - `padding`, `state_padding`: inputs and states of different lengths in one batch.
//! - [`stateful`]: configurations of Triton's stateful backend, in these terms.
//! - `graphless`: a model without a graph, in place of `complete` and `fit`.
//! - [`place`]: which instances run on which GPU. `cpu_only`: none does · `rates`: what each of them needs for a run.
//! - [`settings`]: its result · [`LoadFacts`]: what plug-ins learn of it.

mod complete;
mod constant;
pub(crate) mod cpu_only;
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
pub mod place;
mod rates;
mod refuse;
mod report;
mod scan;
pub mod sequor_toml;
pub mod settings;
mod settle;
pub mod signature;
mod state_padding;
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
