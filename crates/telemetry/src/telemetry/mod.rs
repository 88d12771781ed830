//! Observability of the server: metrics, logs, traces of requests.
//!
//! # Layout
//!
//! - `names`: the names of all metrics · `labels`: their labels ([`Surface`]: of a request's surface) · [`metrics`]: all metrics of a server · [`gpu`]: metrics of a GPU.
//! - [`handles`]: the counters of the hot paths, resolved in advance · [`plugins`]: counters of plug-ins ([`Meter`]: of one plug-in at its
//!   place) · [`RequestCounters`]: of answered requests · [`RoomFigures`]: of the room for plug-ins · [`KeptMetrics`]: of kept states · [`CacheUsage`]: of the response cache · `store`: of the store of sequences ·
//!   `server_gauges`: of the whole server · [`SpanCounters`]: of exported spans · [`ReloadMetrics`]: of reloads of the configuration.
//! - [`ConnectionClosed`]: why the server closes connections · [`TlsFailure`]: why TLS handshakes fail · [`PeerLimit`]: the limits of one client.
//! - [`kinds`]: counters, gauges and histograms as we expose them · [`GaugePart`]: one holder's part of a gauge.
//! - [`RunLog`]: lines about the runs of one model · [`QuietLine`]: a line that is written once in ten seconds.
//! - [`log`]: the log and its levels.

mod cached;
mod config_reloads;
mod connection_closed;
mod gauge_part;
pub mod gpu;
pub mod handles;
mod kept;
pub mod kinds;
mod labels;
pub mod log;
mod meter;
pub mod metrics;
mod names;
mod peer_limit;
mod plugin_room;
pub mod plugins;
mod quiet_line;
mod request_counters;
mod run_log;
mod server_gauges;
mod spans;
mod store;
mod surface;
mod tls_failures;

pub use cached::CacheUsage;
pub use config_reloads::{ReloadMetrics, ReloadOutcome};
pub use connection_closed::ConnectionClosed;
pub use gauge_part::GaugePart;
pub use gpu::{GpuMetrics, GpuReading};
pub use handles::{
    BatchCost, BatchTimes, FailureReason, ModelMetrics, RequestPhase, Statistics, StepPath, Timed, ended_reason,
    refusal_reason,
};
pub use kept::KeptMetrics;
pub use meter::Meter;
pub use metrics::Metrics;
pub use peer_limit::PeerLimit;
pub use plugin_room::RoomFigures;
pub use plugins::{Hook, PluginMetrics};
pub use quiet_line::QuietLine;
pub use request_counters::{RefusedByModel, RequestCounters};
pub use run_log::RunLog;
pub use spans::{SpanCounters, SpanLoss};
pub use store::SharedFigures;
pub use surface::Surface;
pub use tls_failures::{TlsFailure, TlsListener};
