//! A store that several servers share: one Redis (or Valkey) keeps the states of sequences, and which server each of them belongs to.
//!
//! - A sequence has a record: its owner, an epoch that grows with each change of the owner, and a pointer to its last state. Every change of a
//!   record is one script, so no other server sees half of it.
//! - A server is alive as long as its heartbeat is in Redis (`state.lease`). The record of a server without a heartbeat is free.
//! - A write names the server, the epoch and a number that grows with each write of the server. If the record has another owner or a larger
//!   number by then, nothing changes: the write is *fenced*. So a command may be sent twice, and may arrive late.
//! - A claim or a release without an answer leaves open who has the sequence. Then this server does not use it: it claims it again, or frees
//!   it if it turns out to be its own.
//!
//! # Layout
//!
//! - `keys`: the names of the records. `scripts`: the changes of a record, and what Redis answers.
//! - `link`: a connection that is made again after a failure.
//! - `lease`: until when this server may answer for its sequences, by its own clock.
//! - `held_records`: the sequences that this server owns. `known_successions`: which version continues from which.
//! - `shared_tier`: the store as a [`super::contract::Tier`]. It writes only sequences that this server owns. `planned_write`: how it writes.
//! - `commands`: what is sent to Redis. `rights`: what the user of Redis may do, checked at the start. `shared_store`: all of it, as the server uses it. `host`: the models, as the threads here use them.
//! - `claims`: takes sequences over, on a thread of its own. `heartbeat`: keeps the lease. `yields`: listens for servers that want a sequence.
//! - `listing`: the sequences that belong to no server, and one sequence of any server.
//!
//! No code here knows a model or a request: [`SharedHost`] does.

mod claims;
mod commands;
mod heartbeat;
mod held_records;
mod host;
mod keys;
mod known_successions;
mod lease;
mod link;
mod listing;
#[cfg(test)]
mod lossy_link;
#[cfg(test)]
mod lossy_tests;
#[cfg(any(test, feature = "testing"))]
mod own_redis;
mod planned_write;
mod rights;
mod scripts;
mod shared_store;
mod shared_tier;
#[cfg(test)]
mod tests;
mod yields;

pub use claims::{ClaimFailure, ClaimOutcome, ClaimTask};
pub use host::{HandoverState, SharedHost, SharedUsage};
pub use lease::LeaseClock;
pub use listing::{SharedSequence, UnownedSequence};
#[cfg(any(test, feature = "testing"))]
pub use own_redis::OwnRedis;
pub use shared_store::{SharedOptions, SharedStore};
pub use shared_tier::SharedTier;
