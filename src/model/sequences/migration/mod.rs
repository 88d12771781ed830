//! Moves live sequences: to the load that replaces theirs, and over a restart of the server.
//!
//! - `carry`: from a replaced load to the next one. `restart`: into the store when the server stops, and back when it has started.
//! - `timer_tick`: the work of the timer, which includes sequences that wait to move.
//!
//! The thread of an instance copies the state; this room posts the request and takes the copy.

pub(in crate::model) mod carry;
pub(in crate::model) mod restart;
mod timer_tick;
