//! Sequor (Latin: I follow), an inference server for models that remember. This package has the commands and what only they use; the
//! packages in `crates/` have the server's parts, which stand here under the names of their modules. `main.rs` only calls [`cli`].
//!
//! # Layout
//!
//! - [`simulate`]: runs the core in virtual time.
//! - [`mod@bench`]: the load generator behind `sequor bench` and `benches/`.
//! - [`author`]: tools for authors of plug-ins, from sources to a component.
//! - [`cli`]: the commands, one file each.
//!
//! `ARCHITECTURE.md` lists the modules of all packages. `tests/imports.allow` says which may name which, and `tests/architecture.rs` checks it.

// The tests of interleavings are in the packages below.
#![cfg(not(feature = "shuttle"))]

pub mod author;
pub mod bench;
pub mod cli;
pub mod simulate;

pub use sequor_backend::{backend, batch};
pub use sequor_config::{config, error};
pub use sequor_executor::executor;
pub use sequor_model::model;
pub use sequor_plugins::{initializing, processing, scheduling};
pub use sequor_server::{api, server};
pub use sequor_state::{device, state, tensor};
pub use sequor_telemetry::{recording, spans, telemetry, text};
