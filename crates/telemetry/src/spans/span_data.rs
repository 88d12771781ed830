//! A finished request as the spans of OpenTelemetry's library. It has a span of its own and, once its model has answered, one for its wait
//! and one for its run.

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::finished_span::{FinishedSpan, SpanEnd, TracedCall};
use super::model_span::ModelTimes;
use crate::telemetry::Surface;

pub(super) fn spans(of: &FinishedSpan, scope: &InstrumentationScope) -> Vec<SpanData> {
    let mut all = vec![root(of, scope)];
    let Some((times, [queue, run])) = of.at_model else { return all };
    let ended = of.until(times.answered);
    let taken = ended.saturating_sub(times.run);
    all.push(SpanData {
        attributes: at_queue(&times),
        ..child(of, scope, (queue, "queue"), (taken.saturating_sub(times.queue), taken))
    });
    if !times.run.is_zero() {
        all.push(SpanData { attributes: at_run(&times), ..child(of, scope, (run, "run"), (taken, ended)) });
    }
    all
}

fn root(of: &FinishedSpan, scope: &InstrumentationScope) -> SpanData {
    let status = match of.outcome {
        SpanEnd::Answered => Status::Unset,
        SpanEnd::Refused { reason, .. } => Status::error(reason),
    };
    SpanData {
        parent_span_id: of.parent.map_or(SpanId::INVALID, SpanId::from),
        parent_span_is_remote: of.parent.is_some(),
        span_kind: SpanKind::Server,
        name: format!("infer {}", of.model).trim_end().to_owned().into(),
        attributes: of_request(of),
        status,
        ..span(of, scope, of.span, (Duration::ZERO, of.took))
    }
}

fn child(
    of: &FinishedSpan,
    scope: &InstrumentationScope,
    (id, name): (u64, &'static str),
    times: (Duration, Duration),
) -> SpanData {
    SpanData { parent_span_id: SpanId::from(of.span), name: name.into(), ..span(of, scope, id, times) }
}

/// A span from one time to another, both since the request's arrival.
fn span(of: &FinishedSpan, scope: &InstrumentationScope, id: u64, (from, to): (Duration, Duration)) -> SpanData {
    let at = |since: Duration| of.began.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH);
    let (trace, id) = (TraceId::from(of.trace), SpanId::from(id));
    SpanData {
        span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "".into(),
        start_time: at(from),
        end_time: at(to),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope.clone(),
    }
}

// === attributes ===

fn of_request(of: &FinishedSpan) -> Vec<KeyValue> {
    let mut all = of_call(&of.call, &of.outcome);
    let not_empty = |value: &String| !value.is_empty();
    all.extend(Some(&of.model).filter(|value| not_empty(value)).map(|model| text("sequor.model", model.clone())));
    all.extend(Some(&of.request).filter(|value| not_empty(value)).map(|id| text("sequor.request.id", id.clone())));
    if let Some((times, _)) = &of.at_model {
        all.push(number("sequor.version", times.version));
        all.extend((times.batch > 0).then(|| number("sequor.batch_size", times.batch.into())));
    }
    if let Some(sequence) = &of.sequence {
        all.push(text("sequor.sequence.id", sequence.clone()));
        all.push(KeyValue::new("sequor.sequence.start", of.start));
        all.push(KeyValue::new("sequor.sequence.end", of.end));
        all.extend(of.step.map(|step| number("sequor.sequence.step", step)));
    }
    all
}

/// The call in the terms of OpenTelemetry's conventions, and its outcome.
fn of_call(call: &TracedCall, outcome: &SpanEnd) -> Vec<KeyValue> {
    let mut all = vec![KeyValue::new("sequor.api", call.surface.name())];
    all.extend(call.client.map(|client| text("client.address", client.to_string())));
    let (code, grpc, http) = match *outcome {
        SpanEnd::Answered => ("OK", 0, Some(200)),
        SpanEnd::Refused { code, grpc, http, .. } => (code, grpc, http),
    };
    let rpc = |service: &'static str, method: &'static str| {
        [("rpc.system", "grpc"), ("rpc.service", service), ("rpc.method", method)]
            .map(|(name, value)| KeyValue::new(name, value))
    };
    match (call.surface, call.is_stream) {
        (Surface::KserveGrpc, false) => all.extend(rpc("inference.GRPCInferenceService", "ModelInfer")),
        (Surface::KserveGrpc, true) => all.extend(rpc("inference.GRPCInferenceService", "ModelStreamInfer")),
        (Surface::TfsGrpc, _) => all.extend(rpc("tensorflow.serving.PredictionService", "Predict")),
        (Surface::KserveHttp, true) => all.push(KeyValue::new("network.protocol.name", "websocket")),
        (Surface::KserveHttp | Surface::TfsHttp, _) => {
            all.push(KeyValue::new("http.request.method", "POST"));
            all.extend(http.map(|status| KeyValue::new("http.response.status_code", i64::from(status))));
        }
    }
    if matches!(call.surface, Surface::KserveGrpc | Surface::TfsGrpc) {
        all.push(KeyValue::new("rpc.grpc.status_code", i64::from(grpc)));
    }
    all.push(KeyValue::new("sequor.code", code));
    if let SpanEnd::Refused { reason, .. } = outcome {
        all.push(KeyValue::new("error.type", *reason));
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

fn text(name: &'static str, value: String) -> KeyValue {
    KeyValue::new(name, value)
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, Value::I64(i64::try_from(value).unwrap_or(i64::MAX)))
}
