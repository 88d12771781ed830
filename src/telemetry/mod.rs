//! What the server tells of itself: metrics and logs.
//!
//! # Layout
//!
//! - [`metrics`]: the one file that names metrics.
//! - [`handles`]: what the hot paths count with, resolved beforehand.
//! - [`kinds`]: counters, gauges and histograms as we expose them.
//! - [`log`]: where log lines go, and how they look.

pub mod handles;
pub mod kinds;
pub mod log;
pub mod metrics;

pub use handles::{BatchCost, BatchTimes, FailureReason, ModelMetrics, Phase, Statistics, Timed, ended_reason};
pub use metrics::Metrics;
