//! Runs WebAssembly components of users. The one room that knows wasmtime. It knows bytes, limits and calls; what a component is for stays outside.
//!
//! # Layout
//!
//! - [`engine`]: one per process and mode. `ticker` is its clock, `call_clock` notes when a tick meets a call, `clock_random` is the guest's own
//!   clock and random source.
//! - [`limits`]: CPU time and memory of a guest · `budget`: both enforced during a call · `urgency`: how the thread of a long call yields.
//! - `outline`: imports and exports of a component before it is compiled · [`cache`]: compiled code on disk · `settings`: the settings a
//!   `plugin.toml` declares · `component_store`: the bytes of a loaded component.
//! - [`journal`]: the last lines of a plug-in (`line_budget`: how many per second, `rfc3339`: its times) · `background`: work off the request path
//!   yields its core.

pub(crate) mod background;
pub(crate) mod budget;
pub mod cache;
mod call_clock;
pub(crate) mod clock_random;
pub(crate) mod component_store;
pub mod engine;
pub mod journal;
pub mod limits;
pub mod line_budget;
pub(crate) mod outline;
pub(crate) mod rfc3339;
pub(crate) mod settings;
mod ticker;
pub mod urgency;
