//! Holds new threads until it is known whether all of them could be started.

use std::sync::Arc;

use crate::sync::{self, Mutex};

/// Clones share one gate.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct StartGate(Arc<Mutex<Option<bool>>>);

impl StartGate {
    /// Waits until the gate is decided. Returns whether the thread may work.
    pub(in crate::model) fn wait(&self) -> bool {
        loop {
            if let Some(open) = *self.0.lock() {
                return open;
            }
            sync::park(None);
        }
    }

    /// Lets the threads work, or end. The caller unparks them.
    pub(in crate::model) fn decide(&self, open: bool) {
        *self.0.lock() = Some(open);
    }
}
