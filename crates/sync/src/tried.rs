//! The model checker's types, with the interface of the real ones. The checker has no time: a wait for a while only lets the other threads
//! run first.

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

pub use shuttle::sync::atomic::{AtomicBool, AtomicU64};
pub use shuttle::sync::{Condvar, MutexGuard};
pub use shuttle::thread::{JoinHandle, Thread};

#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(inner: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(inner))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// The lock, if it is free after the other threads have run.
    pub fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
        shuttle::thread::yield_now();
        self.try_lock()
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }
}

/// Starts a thread with this name.
///
/// # Errors
///
/// Never; the real one may.
pub fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    shuttle::thread::Builder::new().name(name).spawn(run)
}

/// The checker does not know, so every thread is waited for.
pub fn is_over(_: &JoinHandle<()>) -> bool {
    false
}

/// Whether this is the calling thread.
pub fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == shuttle::thread::current().id()
}

pub fn park(span: Option<Duration>) {
    match span {
        Some(_) => shuttle::thread::yield_now(),
        None => shuttle::thread::park(),
    }
}

pub fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}

/// Waits for a notification.
pub fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// If nothing is due, waits only for a notification, so that a missing notification hangs the schedule.
pub fn wait_until<T>(changed: &Condvar, guard: MutexGuard<'_, T>, due: Option<Instant>, _: Duration) {
    if due.is_some() {
        drop(guard);
        shuttle::thread::yield_now();
    } else {
        drop(changed.wait(guard));
    }
}
