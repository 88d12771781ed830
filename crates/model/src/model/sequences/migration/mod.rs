//! Moves live sequences: to the load that replaces theirs, and across a restart of the server.
//!
//! - `carry`: from a replaced load to the next one. `restart`: into the store when the server stops, and back when it has started.
//! - `waiting_starts`: STARTs that wait for a slot, from a replaced load to the next one. `alike`: which loads can follow each other.
//! - `handover`: to and from other servers that share the store.
//! - `timer_tick`: the timer's work for a model, which includes sequences that wait to move.
//!
//! The thread of an instance copies the state. This module posts the request and takes the copy.

mod alike;
pub(in crate::model) mod carry;
pub(in crate::model) mod handover;
pub(in crate::model) mod restart;
mod timer_tick;
mod waiting_starts;
