//! What operators are told, in the messages of `proto/sequor/v1`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sequor_core::Id;

use super::generated as v1;
use super::sequences::{Ended, Live, Row, Sequences, Sort, Wanted};
use super::status::Version;
use super::{plugins, refused};
use crate::api::Status;
use crate::config::units::Span;
use crate::plugin::report::{Attached, LogLine, Summary};

/// Where a component comes from.
pub(super) fn source(source: Option<v1::component::Source>) -> plugins::Source {
    match source {
        Some(v1::component::Source::Component(bytes)) => plugins::Source::Bytes(bytes),
        Some(v1::component::Source::From(file)) => plugins::Source::File(file),
        None => plugins::Source::Bytes(bytes::Bytes::new()),
    }
}

fn millis(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl From<Summary> for v1::Plugin {
    fn from(of: Summary) -> v1::Plugin {
        let Summary { name, version, sha256, world, attached } = of;
        v1::Plugin { name, version, sha256, world, attached: attached.into_iter().map(Into::into).collect() }
    }
}

impl From<Attached> for v1::Attachment {
    fn from(of: Attached) -> v1::Attachment {
        let state = format!("{:?}", of.state).to_lowercase();
        let fault = |f: crate::plugin::report::LastFault| v1::Fault { kind: f.kind, what: f.what, at_ms: millis(f.at) };
        v1::Attachment {
            model: of.model,
            model_version: of.version,
            state,
            from_file: of.from_file,
            calls: of.calls,
            calls_per_second: of.calls_per_second,
            p50_us: of.p50_us,
            p99_us: of.p99_us,
            fallbacks: of.fallbacks,
            stale: of.stale,
            strikes: of.strikes,
            last_fault: of.last_fault.map(fault),
            differing_rounds: of.differs.map(|(differing, _)| differing),
            compared_rounds: of.differs.map(|(_, all)| all),
            memory_bytes: of.memory,
            memory_limit_bytes: of.memory_limit,
            time_us: of.time_us,
            config: of.config,
        }
    }
}

impl From<LogLine> for v1::PluginLogLine {
    fn from(of: LogLine) -> v1::PluginLogLine {
        let LogLine { serial, at, level, message } = of;
        v1::PluginLogLine { serial, at_ms: millis(at), level, message }
    }
}

impl From<Version> for v1::ModelVersion {
    fn from(of: Version) -> v1::ModelVersion {
        v1::ModelVersion {
            model: of.model,
            version: of.version.unwrap_or_default(),
            state: of.state.to_owned(),
            reason: of.reason,
            strategy: of.strategy.unwrap_or_default().to_owned(),
            instances: of.instances.into(),
            slots: of.slots,
            slots_used: of.slots_used,
            live: of.live,
            backlog: of.backlog,
            sequence_bytes: of.sequence_bytes,
            state_bytes: of.state_bytes,
            requests: of.requests,
            failures: of.failures,
            batches: of.batches,
            rows: of.rows,
        }
    }
}

// === sequences ===

impl From<Sequences> for v1::ListSequencesResponse {
    fn from(of: Sequences) -> Self {
        let Sequences { sequences, all, in_slots, in_backlog } = of;
        let sequences = sequences.into_iter().map(Into::into).collect();
        let [all, in_slots, in_backlog] = [all, in_slots, in_backlog].map(|n| n as u64);
        v1::ListSequencesResponse { sequences, all, in_slots, in_backlog }
    }
}

impl From<Row> for v1::Sequence {
    fn from(of: Row) -> v1::Sequence {
        use v1::sequence::Id;
        let hash = of.id_hash.map(Id::TextHash);
        let shown =
            of.id.and_then(|id| id.as_u64().map(Id::Number).or(id.as_str().map(|text| Id::Text(text.to_owned()))));
        let (live, ended) = (of.live.map(Into::into), of.ended.map(Into::into));
        v1::Sequence { id: shown.or(hash), state: of.state.to_owned(), step: of.step, live, ended }
    }
}

impl From<Live> for v1::LiveSequence {
    fn from(of: Live) -> v1::LiveSequence {
        v1::LiveSequence {
            model_version: of.version,
            instance: of.instance.map(Into::into),
            slot: of.slot,
            queued: of.queued,
            queued_bytes: of.queued_bytes,
            state_bytes: of.state_bytes,
            ending: of.ending,
            age_seconds: of.age_seconds,
            idle_seconds: of.idle_seconds,
            left_seconds: of.left_seconds,
        }
    }
}

impl From<Ended> for v1::EndedSequence {
    fn from(Ended { reason, ago_seconds }: Ended) -> v1::EndedSequence {
        v1::EndedSequence { reason: reason.to_owned(), ago_seconds }
    }
}

/// The model, and what is wanted of its sequences.
pub(super) fn wanted(of: v1::ListSequencesRequest) -> Result<(String, Wanted), Status> {
    let sort = match of.sort.as_str() {
        "" | "age" => Sort::Age,
        "idle" => Sort::Idle,
        "step" => Sort::Step,
        "queued" => Sort::Queued,
        "bytes" => Sort::Bytes,
        other => return Err(refused::bad_input(format!("\"{other}\" is none of age, idle, step, queued, bytes"))),
    };
    let wanted = Wanted {
        limit: usize::try_from(of.limit).ok().filter(|limit| *limit > 0),
        sort,
        ended: of.ended,
        reason: Some(of.reason).filter(|reason| !reason.is_empty()),
        since: (of.since_ms > 0).then(|| Span(Duration::from_millis(of.since_ms))),
    };
    Ok((of.model, wanted))
}

/// The model, and the id.
pub(super) fn sequence(name: Option<v1::SequenceName>) -> Result<(String, Id), Status> {
    let name = name.unwrap_or_default();
    let id = match name.id {
        Some(v1::sequence_name::Id::Number(number)) => Id::from(number),
        Some(v1::sequence_name::Id::Text(text)) => Id::from(text.as_str()),
        None => Id::None,
    };
    if id == Id::None { Err(refused::bad_input("the request names no sequence")) } else { Ok((name.model, id)) }
}
