//! Which models the server has, and how they come and go.
//!
//! - `facade`: [`Repository`], what the rest of the server asks.
//! - `loading`: loads a model. `placing`: finds the devices of its instances. `lifecycle`: loads and unloads by request and by polling.
//! - `control`: where models lie. `index`, `overview`, `sequences`: what clients and operators see.

mod control;
mod facade;
mod index;
mod lifecycle;
mod loading;
mod overview;
mod placing;
mod sequences;

pub use control::Control;
pub use facade::{Availability, ModelStatus, Options, ReadyVersion, Repository, Served};
pub use index::IndexRow;
pub use overview::{Counted, VersionOverview};
pub use sequences::{EndedSequence, LiveSequence};

pub(in crate::model) use facade::{Entry, Shared};
