//! Access of other threads to an instance: waking its thread, or running a step inline in its place.

use std::fmt::Debug;
use std::sync::Weak;

use crate::executor::ExecutorHandle;
use crate::sync::Thread;

/// An instance whose next step any thread may run while the instance's own thread is idle.
pub(in crate::model) trait InlineStep: Debug + Send + Sync {
    /// Runs one step. Returns whether no work is left for the instance's own thread. Steps of other models that follow may be left to
    /// `thread`.
    fn try_step(&self, thread: &ExecutorHandle) -> bool;
}

#[derive(Debug)]
pub(in crate::model) struct Handle {
    pub(in crate::model) thread: Thread,
    /// `None` if only the instance's own thread may run its steps.
    pub(in crate::model) inline: Option<Weak<dyn InlineStep>>,
}
