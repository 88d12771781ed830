//! Atomics and threads of the epoch's clock: the system's own, or with the feature `shuttle` those of the model checker.

#[cfg(not(feature = "shuttle"))]
pub(crate) use real::{AtomicBool, AtomicU64, Thread, park, sleep, spawn};

#[cfg(feature = "shuttle")]
pub(crate) use tried::{AtomicBool, AtomicU64, Thread, park, sleep, spawn};

#[cfg(not(feature = "shuttle"))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::thread::JoinHandle;
    pub(crate) use std::thread::{Thread, sleep};

    pub(crate) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name).spawn(run)
    }

    /// Sleeps until it is woken.
    pub(crate) fn park() {
        std::thread::park();
    }
}

#[cfg(feature = "shuttle")]
mod tried {
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64};
    use shuttle::thread::JoinHandle;
    pub(crate) use shuttle::thread::{Thread, park};

    pub(crate) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        shuttle::thread::Builder::new().name(name).spawn(run)
    }

    /// Lets the others go first.
    pub(crate) fn sleep(_: Duration) {
        shuttle::thread::yield_now();
    }
}
