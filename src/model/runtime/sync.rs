//! What the driver of a core locks, wakes and waits with: the operating system's means, or those of a scheduler that tries interleavings.

#[cfg(not(feature = "shuttle"))]
pub(in crate::model) use real::{AtomicU64, JoinHandle, Mutex, Thread, is_over, park, spawn, thread_local};

#[cfg(feature = "shuttle")]
pub(in crate::model) use tried::{AtomicU64, JoinHandle, Mutex, Thread, is_over, park, spawn, thread_local};

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
std::thread_local! {
    /// How many threads this thread may still start; `None` is any number.
    pub(in crate::model) static SPAWNS_LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
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
    pub(in crate::model) use std::sync::atomic::AtomicU64;
    pub(in crate::model) use std::thread::{JoinHandle, Thread};
    pub(in crate::model) use std::thread_local;
    use std::time::Duration;

    pub(in crate::model) use parking_lot::Mutex;

    pub(in crate::model) fn spawn(
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        #[cfg(test)]
        if super::refuse_spawn() {
            return Err(std::io::Error::other("a test wants no more threads"));
        }
        std::thread::Builder::new().name(name).spawn(run)
    }

    /// Whether a thread has ended, so that no thread need wait for it.
    pub(in crate::model) fn is_over(thread: &JoinHandle<()>) -> bool {
        thread.is_finished()
    }

    /// Sleeps until it is woken, or for this long.
    pub(in crate::model) fn park(span: Option<Duration>) {
        match span {
            Some(span) => std::thread::park_timeout(span),
            None => std::thread::park(),
        }
    }
}

#[cfg(feature = "shuttle")]
mod tried {
    use std::time::Duration;

    pub(in crate::model) use shuttle::sync::atomic::AtomicU64;
    pub(in crate::model) use shuttle::thread::{JoinHandle, Thread};
    pub(in crate::model) use shuttle::thread_local;

    /// With the interface of the real one.
    #[derive(Debug, Default)]
    pub(in crate::model) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::model) fn new(inner: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(inner))
        }

        pub(in crate::model) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub(in crate::model) fn try_lock(&self) -> Option<shuttle::sync::MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub(in crate::model) fn spawn(
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        shuttle::thread::Builder::new().name(name).spawn(run)
    }

    /// It cannot be told: every thread is waited for.
    pub(in crate::model) fn is_over(_: &JoinHandle<()>) -> bool {
        false
    }

    /// Time stands still where every interleaving is tried: to wait for a while is to let the others go first.
    pub(in crate::model) fn park(span: Option<Duration>) {
        match span {
            Some(_) => shuttle::thread::yield_now(),
            None => shuttle::thread::park(),
        }
    }
}
