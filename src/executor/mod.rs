//! Runs the tasks of one connection within the connection's own task, and the short model steps that are left to its thread.
//!
//! - `tasks`: [`ConnectionExecutor`], which the connection's task owns and drives.
//! - `handle`: [`ExecutorHandle`], by which requests spawn tasks and leave model steps to the connection.
//! - `steps`: [`ThreadSteps`], the model steps that are left to a group of threads.
//! - `answers`: [`AnswerBatch`], which wakes the connections of a batch's answers together.
//! - `queue`: what all of these share, under one lock.
//!
//! This room knows no protocol and no model. Model steps are a trait ([`ModelStep`]). It keeps nothing in thread-local variables.

mod answers;
mod handle;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
mod queue;
mod steps;
mod tasks;

pub use answers::AnswerBatch;
pub use queue::{ConnectionTask, ExecutorHandle, ModelStep};
pub use steps::ThreadSteps;
pub use tasks::{AfterTurn, ConnectionExecutor};
