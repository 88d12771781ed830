//! Holds runs of the mock backend, so that a test can observe the server meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

/// Holds runs while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    /// Blocks the thread of a run while the gate is closed.
    pub(crate) fn pass(&self) {
        let mut closed = self.closed.lock();
        if *closed {
            self.held.fetch_add(1, Ordering::Release);
            self.opened.wait_while(&mut closed, |closed| *closed);
            self.held.fetch_sub(1, Ordering::Release);
        }
    }

    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
    }

    pub(crate) fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    /// Number of held runs.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }
}
