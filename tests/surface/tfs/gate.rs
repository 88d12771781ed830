//! Holds runs of the stand-in backend, so that a test can look at what goes on meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

/// Holds runs while it is closed.
#[derive(Default)]
pub(super) struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    /// The thread of a run waits here.
    pub(super) fn pass(&self) {
        let mut closed = self.closed.lock();
        if *closed {
            self.held.fetch_add(1, Ordering::Release);
            self.opened.wait_while(&mut closed, |closed| *closed);
            self.held.fetch_sub(1, Ordering::Release);
        }
    }

    pub(super) fn close(&self) {
        *self.closed.lock() = true;
    }

    pub(super) fn open(&self) {
        *self.closed.lock() = false;
        self.opened.notify_all();
    }

    /// Runs that wait here.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }
}
