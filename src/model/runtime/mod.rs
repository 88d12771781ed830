//! What the other rooms of `model/` run on: the clock, the timer's thread, and the gate at which new threads wait.
//!
//! This room knows of no model: the timer sees a [`Tick`], and the upkeep sees unused memory.

mod clock;
mod start_gate;
mod timer;
mod upkeep;

pub use clock::Clock;

pub(in crate::model) use start_gate::StartGate;
pub(in crate::model) use timer::{Tick, Timer};
pub(in crate::model) use upkeep::Upkeep;
