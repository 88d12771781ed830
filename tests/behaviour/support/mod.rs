//! What the behaviour tests are written with: a repository in this process over the real runtime, models of a few lines, sequences played
//! step by step, and a look at what each run of a graph was fed. No sockets, and no test here waits for time to pass.
//!
//! # Layout
//!
//! - [`server`]: a model directory written and loaded; what became of it.
//! - [`play`]: requests of a sequence, sent and awaited.
//! - [`values`]: numbers and texts ↔ tensors.
//! - [`over`]: graphs that run on a stand-in for an accelerator.
//! - [`watch`]: every run seen, and held where a test wants a queue to build up.

pub mod over;
pub mod play;
pub mod server;
pub mod values;
pub mod watch;

pub use play::{Ask, Seq};
pub use server::{Server, Spec, both, model, sum};
