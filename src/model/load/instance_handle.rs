//! How others reach an instance: its thread, to be woken, and where that may be, a step done in its place.

use std::fmt::Debug;
use std::sync::Weak;

use crate::executor::ExecutorHandle;
use crate::sync::Thread;

/// An instance whose next step any thread may do while its own is at rest.
pub(in crate::model) trait InlineStep: Debug + Send + Sync {
    /// Does one step. Whether nothing is left for the instance's own thread. Steps of other models that follow may be left to `thread`.
    fn try_step(&self, thread: &ExecutorHandle) -> bool;
}

#[derive(Debug)]
pub(in crate::model) struct Handle {
    pub(in crate::model) thread: Thread,
    /// None where only its own thread may be the instance.
    pub(in crate::model) inline: Option<Weak<dyn InlineStep>>,
}
