//! Spans of inference requests, in the terms of OpenTelemetry: how long a request took, where its time went, and who caused it. Finished
//! spans go to a collector in the background. No request waits for that, and none fails because of it.
//!
//! # Layout
//!
//! - [`TraceParent`]: the caller's span, from the header `traceparent`.
//! - [`Tracer`]: decides which requests are traced, and begins their spans · `ids`: ids of traces and spans, and the share that is kept.
//! - [`RequestSpan`]: the span of one request · [`ModelSpan`]: the part of it that the model knows.
//! - `finished_span`: a request with all that its spans show · `span_queue`: the bounded queue of such requests · `span_data`: the same as
//!   spans of OpenTelemetry's library.
//! - [`Exporter`]: sends them in the background · `collector`: the library's exporter, as the settings ask for it.

mod collector;
mod exporter;
mod finished_span;
mod ids;
mod model_span;
mod request_span;
mod span_data;
mod span_queue;
mod trace_parent;
mod tracer;

pub use exporter::Exporter;
pub use finished_span::{SpanEnd, TracedCall};
pub use model_span::{ModelSpan, ModelTimes};
pub use request_span::{RequestSpan, TracedStep};
pub use trace_parent::TraceParent;
pub use tracer::Tracer;
