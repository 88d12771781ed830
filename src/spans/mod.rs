//! Spans of inference requests, in the terms of OpenTelemetry: how long a request took, where its time went, and who caused it. Finished
//! spans go to a collector in the background. No request waits for that, and none fails because of it.
//!
//! # Layout
//!
//! - [`TraceParent`]: the caller's span, from the header `traceparent`.
//! - [`Tracer`]: decides which requests are traced, and begins their spans · `ids`: ids of traces and spans.
//! - [`RequestSpan`]: the span of one request · [`ModelSpan`]: the part of it that the model knows.
//! - `encode`: finished spans as messages of OTLP.
//! - [`Exporter`]: sends them in the background · `collector`: the connection to the collector.

mod collector;
mod encode;
mod exporter;
mod ids;
mod model_span;
mod request_span;
mod trace_parent;
mod tracer;

pub use exporter::Exporter;
pub use model_span::{ModelSpan, ModelTimes};
pub use request_span::{RequestSpan, SpanEnd, TracedStep};
pub use trace_parent::TraceParent;
pub use tracer::Tracer;
