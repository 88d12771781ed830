//! Locks, atomics and threads for code that the model checker tries: the system's own, or with the feature `shuttle` the checker's.

#[cfg(not(feature = "shuttle"))]
pub(crate) use real::{AtomicBool, AtomicU64, JoinHandle, Mutex, Thread, is_over, park, spawn};

#[cfg(feature = "shuttle")]
pub(crate) use tried::{AtomicBool, AtomicU64, JoinHandle, Mutex, Thread, is_over, park, spawn};

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
std::thread_local! {
    /// How many threads this thread may still start; `None` is any number.
    pub(crate) static SPAWNS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
fn refuse_spawn() -> bool {
    let left = SPAWNS_LEFT.get();
    SPAWNS_LEFT.set(left.map(|left| left.saturating_sub(1)));
    left == Some(0)
}

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::thread::{JoinHandle, Thread};
    use std::time::Duration;

    pub(crate) use parking_lot::Mutex;

    pub(crate) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        #[cfg(test)]
        if super::refuse_spawn() {
            return Err(std::io::Error::other("a test wants no more threads"));
        }
        std::thread::Builder::new().name(name).spawn(run)
    }

    /// Whether a thread has ended, so that no thread need wait for it.
    pub(crate) fn is_over(thread: &JoinHandle<()>) -> bool {
        thread.is_finished()
    }

    /// Sleeps until it is woken, or for this long.
    pub(crate) fn park(span: Option<Duration>) {
        match span {
            Some(span) => std::thread::park_timeout(span),
            None => std::thread::park(),
        }
    }
}

#[cfg(feature = "shuttle")]
mod tried {
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use shuttle::thread::{JoinHandle, Thread};

    /// With the interface of the real one.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(inner: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(inner))
        }

        pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(crate) fn try_lock(&self) -> Option<shuttle::sync::MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub(crate) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        shuttle::thread::Builder::new().name(name).spawn(run)
    }

    /// It cannot be told: every thread is waited for.
    pub(crate) fn is_over(_: &JoinHandle<()>) -> bool {
        false
    }

    /// Time stands still where every interleaving is tried: to wait for a while is to let the others go first.
    pub(crate) fn park(span: Option<Duration>) {
        match span {
            Some(_) => shuttle::thread::yield_now(),
            None => shuttle::thread::park(),
        }
    }
}
