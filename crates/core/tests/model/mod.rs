//! The proof of the core: a slow reference model, random workloads that drive both, and witnesses that check only the output.
//!
//! # Layout
//!
//! - [`rng`]: the workload is a function of a seed.
//! - [`refer`]: the reference model. It shares no code with the core, only the types of its interface (events, effects, limits). It uses
//!   vectors and full scans, no lists, no lazy deadlines.
//! - [`workload`], [`policy`]: random loads, requests and policies.
//! - [`world`], [`steps`], [`threads`], [`ending`]: the driver: virtual time, sockets that cancel, stages that answer late, instance threads
//!   that sleep until woken.
//! - [`news`]: the events that policies get, compared with what happened.
//! - [`store`]: the state store, which applies slot operations as an instance thread does · [`crash`]: the store on disk, and its content
//!   after a crash.
//! - [`witness`]: properties that hold independently of the model: order, owners, answers, batches.
//! - [`outcome`]: counts, and the table of transitions.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "two test binaries share it, each in part"
)]
#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "a test may panic")]

pub mod crash;
pub mod ending;
pub mod news;
pub mod outcome;
pub mod policy;
pub mod refer;
pub mod rng;
pub mod steps;
pub mod store;
pub mod threads;
pub mod witness;
pub mod workload;
pub mod world;

/// A property that did not hold, with the details.
#[derive(Debug, Clone)]
pub struct Broken {
    pub property: &'static str,
    pub what: String,
}

pub type Checked = Result<(), Broken>;

pub fn broken<T>(property: &'static str, what: String) -> Result<T, Broken> {
    Err(Broken { property, what })
}

/// Fails with `property` unless `holds`. The text is made only then.
#[macro_export]
macro_rules! hold {
    ($holds:expr, $property:expr, $($text:tt)+) => {
        if !$holds {
            return $crate::model::broken($property, format!($($text)+));
        }
    };
}
