//! What the other rooms of `model/` run on: locks and threads, the clock, the timer's thread. In tests of interleavings the model checker's
//! stand in their place.
//!
//! This room knows of no model: the timer sees a [`Tick`], and the upkeep sees unused memory.

mod clock;
mod start_gate;
pub(in crate::model) mod sync;
mod timer;
mod upkeep;

pub use clock::Clock;

pub(in crate::model) use start_gate::StartGate;
pub(in crate::model) use sync::{AtomicU64, JoinHandle, Mutex, Thread};
pub(in crate::model) use timer::{Tick, Timer};
pub(in crate::model) use upkeep::Upkeep;
