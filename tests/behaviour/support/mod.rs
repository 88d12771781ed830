//! Support for the behaviour tests: a repository in this process over the real runtime. Tests define models in a few lines, run sequences
//! step by step, and see the inputs of each run. It uses no sockets, and no test waits for a fixed time.
//!
//! # Layout
//!
//! - [`server`]: writes and loads a model directory, and reports the result.
//! - [`play`]: sends requests of a sequence and awaits them.
//! - [`values`]: converts between values and tensors.
//! - [`over`]: runs graphs on a stand-in for an accelerator.
//! - [`watch`]: records every run, and holds runs so that a queue builds up.

pub mod over;
pub mod play;
pub mod server;
pub mod values;
pub mod watch;

pub use play::{Ask, Seq};
pub use server::{Server, Spec, both, model, sum};
