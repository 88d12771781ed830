//! What the server tells of itself: metrics, logs, traces of its requests.
//!
//! # Layout
//!
//! - [`metrics`]: the one file that names metrics.
//! - [`handles`]: what the hot paths count with, resolved beforehand · [`plugins`]: what is counted of plug-ins.
//! - [`kinds`]: counters, gauges and histograms as we expose them.
//! - [`log`]: where log lines go, and how they look.
//! - [`trace`]: the lines of a recorded trace · [`record`]: how they get into a file.

pub mod handles;
pub mod kinds;
pub mod log;
pub mod metrics;
pub mod plugins;
pub mod record;
pub mod trace;

pub use handles::{BatchCost, BatchTimes, FailureReason, ModelMetrics, Phase, Statistics, Timed, ended_reason};
pub use metrics::{GpuMetrics, GpuReading, Metrics};
pub use plugins::{Hook, PluginMetrics};
pub use record::Recorder;
