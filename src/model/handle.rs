//! How others reach an instance: its thread, to be woken, and where that may be, a step done in its place.

use std::fmt::Debug;
use std::sync::Weak;

use super::sync::Thread;

/// An instance whose next step any thread may do while its own is at rest.
pub(super) trait InlineStep: Debug + Send + Sync {
    /// Does one step. Whether nothing is left for the instance's own thread.
    fn try_step(&self) -> bool;
}

#[derive(Debug)]
pub(super) struct Handle {
    pub(super) thread: Thread,
    /// None where only its own thread may be the instance.
    pub(super) inline: Option<Weak<dyn InlineStep>>,
}
