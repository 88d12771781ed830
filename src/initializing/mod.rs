//! Plug-ins that make the first state of a sequence, and the states that are kept for later sequences. This room knows tensors, guests and names. It
//! knows no model, no slot and no client: the room of models gives it STARTs and takes what their sequences begin with.
//!
//! Handles of tensors, files and threads are those of `processing`.
//!
//! # Layout
//!
//! - [`initializer`]: the initializer of one load: what it answers, its limits, its failures · `version`: its guests, in one version ·
//!   `initializer_place`: where its versions serve · `calls`: one call into a guest · `ports`: the tensors that it sees.
//! - [`kept`]: the states that are kept by name, and who waits for them.
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
#[cfg(test)]
mod wat;
#[cfg(test)]
pub(crate) mod wat_fixture;
pub mod world;

pub use initializer::{FirstAnswer, Initializer, InitializerSource, KeptName};
pub use initializer_place::InitializerRegistry;
pub use kept::{KeepPermit, KeptLookup, KeptStates, Waiting};
pub use ports::InitializerPorts;
pub use version::InitializerOptions;
pub use world::{InitializerComponent, InitializerGuest, InitializerWorld};
