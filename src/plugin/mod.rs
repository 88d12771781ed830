//! Plug-ins: WebAssembly components of users that decide in the server's place. The one room that knows how they are run; what they decide
//! about (requests, slots, states) never comes here.
//!
//! # Layout
//!
//! - [`guest`]: what a running plug-in is to the rest of the house, whatever runs it: the traits, and the words they speak.
//! - [`report`]: what operators ask of plug-ins and what they are shown.
//!
//! WebAssembly, the one home of wasmtime; four lifetimes, each a type:
//!
//! - [`engine`]: one a process and mode. Its clock is `ticker`.
//! - [`component`]: one version of a plug-in, compiled and checked; `contract` is the WIT, `imports` what may be asked for, [`grants`] what
//!   operators add, [`manifest`] and `settings` what it says of itself, [`cache`] compiled code on disk.
//! - [`loader`]: files in, plug-ins out.
//! - [`instance`]: a running one. `host` is what it may call, `columns` what it sees.
//! - a call: `budget` is what it may use, `blame` what it died of.

mod blame;
mod budget;
pub mod cache;
mod columns;
pub mod component;
mod contract;
pub mod engine;
pub mod grants;
pub mod guest;
mod host;
mod imports;
pub mod instance;
pub mod loader;
pub mod manifest;
pub mod report;
mod settings;
#[cfg(test)]
pub(crate) mod stand_ins;
#[cfg(test)]
mod tests;
mod ticker;

pub use component::Component;
pub use contract::{VERSION, WORLD};
pub use engine::{Engine, Mode};
pub use grants::Grants;
pub use loader::Loader;
