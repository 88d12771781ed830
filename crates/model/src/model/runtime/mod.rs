//! The parts that the other modules of `model/` run on: the clock, the timer's thread, the gate at which new threads wait, and the
//! resources that runs wait for (`rate_ledger`: the order of turns; `rate_limiter`: the waiting threads).
//!
//! This module knows no model: the timer sees a [`Tick`], and the upkeep sees unused memory.

mod clock;
mod rate_ledger;
mod rate_limiter;
mod start_gate;
mod timer;
mod upkeep;

pub use clock::Clock;

pub(in crate::model) use clock::Stopwatch;

pub(in crate::model) use rate_limiter::{LoadRates, RateLimiter, RunPermit};
pub(in crate::model) use start_gate::StartGate;
pub(in crate::model) use timer::{Tick, Timer};
pub(in crate::model) use upkeep::{KeepsUnused, UnusedOwners, Upkeep};
