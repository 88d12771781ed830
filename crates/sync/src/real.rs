//! The system's locks, atomics and threads.

use std::io;
pub use std::sync::atomic::{AtomicBool, AtomicU64};
pub use std::thread::{JoinHandle, Thread, sleep};
use std::time::{Duration, Instant};

pub use parking_lot::{Condvar, Mutex, MutexGuard};

/// Starts a thread with this name.
///
/// # Errors
///
/// If the system starts no more threads.
pub fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run)
}

/// Whether a thread has ended, so that it need not be waited for.
pub fn is_over(thread: &JoinHandle<()>) -> bool {
    thread.is_finished()
}

/// Whether this is the calling thread.
pub fn is_current(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == std::thread::current().id()
}

/// Sleeps until the thread is woken, or for this long.
pub fn park(span: Option<Duration>) {
    match span {
        Some(span) => std::thread::park_timeout(span),
        None => std::thread::park(),
    }
}

/// Waits for a notification.
pub fn wait<'a, T>(changed: &Condvar, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(&mut guard);
    guard
}

/// Waits for a notification, until `due` if it is known, and at most for `longest`.
pub fn wait_until<T>(changed: &Condvar, mut guard: MutexGuard<'_, T>, due: Option<Instant>, longest: Duration) {
    let latest = Instant::now() + longest;
    changed.wait_until(&mut guard, due.map_or(latest, |due| due.min(latest)));
}
