//! Locks, atomics and threads for code under the model checker: the system's own, or with the feature `shuttle` the checker's. Nothing else
//! belongs here, and no other crate names the checker's lock types itself.

#[cfg(not(feature = "shuttle"))]
mod real;
#[cfg(feature = "shuttle")]
mod tried;

#[cfg(not(feature = "shuttle"))]
pub use real::{
    AtomicBool, AtomicU64, Condvar, JoinHandle, Mutex, MutexGuard, Thread, is_current, is_over, park, sleep, spawn,
    wait, wait_until,
};
#[cfg(feature = "shuttle")]
pub use tried::{
    AtomicBool, AtomicU64, Condvar, JoinHandle, Mutex, MutexGuard, Thread, is_current, is_over, park, sleep, spawn,
    wait, wait_until,
};
