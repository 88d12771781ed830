//! Locks, atomics and threads for code under the model checker; see [`sequor_sync`]. Tests may limit the number of threads that start.

pub mod planted;

pub use sequor_sync::{
    AtomicBool, AtomicU64, Condvar, JoinHandle, Mutex, MutexGuard, Thread, is_current, is_over, park, wait, wait_until,
};

#[cfg(any(test, feature = "testing"))]
std::thread_local! {
    /// Number of threads that this thread may still start; `None` means no limit.
    pub static SPAWNS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

#[cfg(any(test, feature = "testing"))]
fn refuse_spawn() -> bool {
    let left = SPAWNS_LEFT.get();
    SPAWNS_LEFT.set(left.map(|left| left.saturating_sub(1)));
    left == Some(0)
}

/// Starts a thread of this name.
pub fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    #[cfg(any(test, feature = "testing"))]
    if refuse_spawn() {
        return Err(std::io::Error::other("a test wants no more threads"));
    }
    sequor_sync::spawn(name, run)
}
