//! Runs the tasks of one connection within the connection's own task, and the short model steps deferred to its thread.
//!
//! - `tasks`: [`ConnectionExecutor`], which the connection's task owns and drives.
//! - `handle`: [`ExecutorHandle`], through which requests spawn tasks and defer model steps to the connection.
//! - `steps`: [`ThreadSteps`], the model steps deferred to a group of threads.
//! - `answers`: [`AnswerBatch`], which wakes the connections of a batch's answers together.
//! - [`InlineGate`]: whether work is short enough for a connection's thread · [`OwnTime`]: the time of work, without the time of other
//!   threads.
//! - `queue`: the state that all of these share, under one lock.
//!
//! This module does not know protocols and models. Model steps are a trait ([`ModelStep`]). It keeps nothing in thread-local variables.

mod answers;
mod handle;
mod inline_gate;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod own_time;
mod queue;
mod steps;
mod tasks;

pub use answers::AnswerBatch;
pub use inline_gate::InlineGate;
pub use own_time::OwnTime;
pub use queue::{ConnectionTask, ExecutorHandle, ModelStep};
pub use steps::ThreadSteps;
pub use tasks::{AfterTurn, ConnectionExecutor};
