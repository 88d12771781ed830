//! State initializers: plug-ins that make the first state of a sequence, and the kept states. This module knows tensors, guests and names.
//! It knows no model, slot or client: the `model` module passes STARTs to it and uses the first states that it returns.
//!
//! Handles of tensors, files and threads come from `processing`.
//!
//! # Layout
//!
//! - [`initializer`]: the initializer of one load: its answers, limits and failures · `version`: the guests of one version ·
//!   `initializer_place`: where its versions serve · `calls`: one call into a guest · `ports`: the tensors that it sees.
//! - [`kept`]: the kept states by name, and the STARTs that wait for them.
//! - [`world`]: initializers as a world of `wasm` · `contract`: its interface · [`manifest`]: its fields of `plugin.toml`.

mod calls;
mod contract;
pub mod initializer;
mod initializer_place;
pub mod kept;
pub mod manifest;
mod ports;
#[cfg(test)]
mod tests;
mod version;
#[cfg(any(test, feature = "testing"))]
pub mod wat;
#[cfg(any(test, feature = "testing"))]
pub mod wat_fixture;
pub mod world;

pub use initializer::{FirstAnswer, Initializer, InitializerSource, KeptName};
pub use initializer_place::InitializerRegistry;
pub use kept::{KeepPermit, KeptLookup, KeptStates, Waiting};
pub use ports::InitializerPorts;
pub use version::InitializerOptions;
pub use world::{InitializerComponent, InitializerGuest, InitializerWorld};
