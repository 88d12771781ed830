//! Observability: metrics, logs, spans, recorded requests, and tables for terminals. No other part depends on their values.
//!
//! # Layout
//!
//! - [`telemetry`]: metrics and logs.
//! - [`spans`]: spans of requests, and their export to a collector.
//! - [`recording`]: records requests for the simulator.
//! - [`text`]: formats tables and numbers for terminals.

pub mod recording;
pub mod spans;
pub mod telemetry;
pub mod text;

use sequor_config::config;
