//! How work gets a thread: the tasks of one connection, short model steps on its thread, and locks and threads that a test can schedule.
//! Knows no model and no protocol.
//!
//! # Layout
//!
//! - [`sync`]: locks, atomics and threads; faults that tests plant.
//! - [`executor`]: the tasks of one connection, and the short model steps on its thread.

#![cfg_attr(feature = "shuttle", allow(dead_code, reason = "what is above uses it"))]

pub mod executor;
pub mod sync;
