//! Finished spans as messages of OTLP. A request has a span of its own and, once its model has answered, one for its wait and one for its
//! run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sequor_proto::opentelemetry::collector::trace::v1::ExportTraceServiceRequest;
use sequor_proto::opentelemetry::common::v1::any_value::Value;
use sequor_proto::opentelemetry::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use sequor_proto::opentelemetry::resource::v1::Resource;
use sequor_proto::opentelemetry::trace::v1::span::SpanKind;
use sequor_proto::opentelemetry::trace::v1::status::StatusCode;
use sequor_proto::opentelemetry::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

use super::model_span::ModelTimes;
use super::request_span::{FinishedSpan, SpanEnd};

/// The flag of a span that was sampled, and the flag that says whether its parent is of another process.
const SAMPLED: u32 = 1;
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

/// The attributes of this server, encoded once.
pub(super) fn resource(attributes: &[(String, String)]) -> Resource {
    let attributes = attributes.iter().map(|(name, value)| text(name, value.clone())).collect();
    Resource { attributes, ..Resource::default() }
}

/// One export with the spans of these requests.
pub(super) fn export(resource: Resource, requests: &[FinishedSpan]) -> ExportTraceServiceRequest {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let scope = InstrumentationScope { name: "sequor".to_owned(), version, ..InstrumentationScope::default() };
    let spans = requests.iter().flat_map(spans).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }
}

fn spans(of: &FinishedSpan) -> Vec<Span> {
    let mut all = vec![root(of)];
    let Some((times, [queue, run])) = of.at_model else { return all };
    let ended = of.until(times.answered);
    let taken = ended.saturating_sub(times.run);
    all.push(Span {
        attributes: at_queue(&times),
        ..child(of, queue, "queue", (taken.saturating_sub(times.queue), taken))
    });
    if !times.run.is_zero() {
        all.push(Span { attributes: at_run(&times), ..child(of, run, "run", (taken, ended)) });
    }
    all
}

fn root(of: &FinishedSpan) -> Span {
    let status = match of.outcome {
        SpanEnd::Answered => None,
        SpanEnd::Refused { .. } => Some(Status { code: StatusCode::Error.into(), message: String::new() }),
    };
    let remote = if of.parent.is_some() { PARENT_REMOTE } else { 0 };
    Span {
        parent_span_id: of.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: format!("infer {}", of.model).trim_end().to_owned(),
        kind: SpanKind::Server.into(),
        attributes: of_request(of),
        status,
        flags: SAMPLED | PARENT_KNOWN | remote,
        ..span(of, of.span, (Duration::ZERO, of.took))
    }
}

fn child(of: &FinishedSpan, id: u64, name: &str, times: (Duration, Duration)) -> Span {
    Span {
        parent_span_id: of.span.to_be_bytes().to_vec(),
        name: name.to_owned(),
        kind: SpanKind::Internal.into(),
        flags: SAMPLED | PARENT_KNOWN,
        ..span(of, id, times)
    }
}

/// A span from one time to another, both since the request's arrival.
fn span(of: &FinishedSpan, id: u64, (from, to): (Duration, Duration)) -> Span {
    Span {
        trace_id: of.trace.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        start_time_unix_nano: unix_nanos(of.began, from),
        end_time_unix_nano: unix_nanos(of.began, to),
        ..Span::default()
    }
}

fn unix_nanos(began: SystemTime, since: Duration) -> u64 {
    let unix = began.duration_since(UNIX_EPOCH).unwrap_or_default() + since;
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)
}

// === attributes ===

fn of_request(of: &FinishedSpan) -> Vec<KeyValue> {
    let mut all = vec![text("sequor.api", of.surface.to_owned())];
    let not_empty = |value: &String| !value.is_empty();
    all.extend(Some(&of.model).filter(|value| not_empty(value)).map(|model| text("sequor.model", model.clone())));
    all.extend(Some(&of.request).filter(|value| not_empty(value)).map(|id| text("sequor.request.id", id.clone())));
    if let Some((times, _)) = &of.at_model {
        all.push(number("sequor.version", times.version));
        all.extend((times.batch > 0).then(|| number("sequor.batch_size", times.batch.into())));
    }
    if let Some(sequence) = &of.sequence {
        all.push(text("sequor.sequence.id", sequence.clone()));
        all.push(truth("sequor.sequence.start", of.start));
        all.push(truth("sequor.sequence.end", of.end));
        all.extend(of.step.map(|step| number("sequor.sequence.step", step)));
    }
    match of.outcome {
        SpanEnd::Answered => all.push(text("sequor.code", "OK".to_owned())),
        SpanEnd::Refused { code, reason } => {
            all.push(text("sequor.code", code.to_owned()));
            all.push(text("error.type", reason.to_owned()));
        }
    }
    all
}

fn at_queue(times: &ModelTimes) -> Vec<KeyValue> {
    vec![number("sequor.version", times.version)]
}

fn at_run(times: &ModelTimes) -> Vec<KeyValue> {
    let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    let [state_in, run, state_out] = times.parts.map(micros);
    let mut all = vec![
        number("sequor.version", times.version),
        number("sequor.state_in_us", state_in),
        number("sequor.run_us", run),
        number("sequor.state_out_us", state_out),
    ];
    all.extend((times.batch > 0).then(|| number("sequor.batch_size", times.batch.into())));
    all
}

fn attribute(name: &str, value: Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(name: &str, value: String) -> KeyValue {
    attribute(name, Value::StringValue(value))
}

fn number(name: &str, value: u64) -> KeyValue {
    attribute(name, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn truth(name: &str, value: bool) -> KeyValue {
    attribute(name, Value::BoolValue(value))
}
