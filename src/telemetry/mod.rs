//! What the server tells of itself: metrics, logs, traces of its requests.
//!
//! # Layout
//!
//! - `names`: the one file that names metrics · [`metrics`]: all of a server's · [`gpu`]: what is set of a GPU.
//! - [`handles`]: what the hot paths count with, resolved beforehand · [`plugins`]: what is counted of plug-ins.
//! - [`kinds`]: counters, gauges and histograms as we expose them.
//! - [`MeanTime`]: how long something takes, lately.
//! - [`log`]: where log lines go, and how they look.
//! - [`trace`]: the lines of a recorded trace · [`record`]: how they get into a file.

pub mod gpu;
pub mod handles;
pub mod kinds;
pub mod log;
mod mean_time;
pub mod metrics;
mod names;
pub mod plugins;
pub mod record;
pub mod trace;

pub use gpu::{GpuMetrics, GpuReading};
pub use handles::{BatchCost, BatchTimes, FailureReason, ModelMetrics, Phase, Statistics, Timed, ended_reason};
pub use mean_time::MeanTime;
pub use metrics::Metrics;
pub use plugins::{Hook, PluginMetrics};
pub use record::Recorder;
