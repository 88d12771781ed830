//! Every failure against its line of `tests/cases/refusals.toml`.

use std::collections::BTreeMap;
use std::time::Duration;

use sequor_core::{DataType, Dims, Shape, Time};

use super::*;
use crate::api::kserve::refused_region::{RegionFault, region};
use crate::api::refusal::unsent;
use crate::api::{Retry, access};
use crate::config::server::access::WireProtocol;
use crate::error::{
    EndedBy, ExceededLimit, Invalid, ProcessorFailure, RefusedModel, RejectionReason, RejectionStatus, SourceFault,
    StoreFault, WrongSource,
};

#[derive(Debug, PartialEq, serde::Deserialize)]
struct Case {
    code: String,
    http: u16,
    reason: String,
    text: String,
}

fn invalid_cases() -> Vec<(&'static str, Invalid)> {
    let input = || "INPUT".to_owned();
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    vec![
        ("unknown-input", Invalid::UnknownInput { input: "FOO".to_owned(), known: vec!["INPUT".to_owned()] }),
        ("unknown-output", Invalid::UnknownOutput { output: "NOPE".to_owned(), known: vec!["OUTPUT".to_owned()] }),
        ("missing-input", Invalid::InputCount { required: 1, all: 1, got: vec![], missing: names(&["INPUT"]) }),
        ("extra-input", Invalid::InputCount { required: 1, all: 1, got: names(&["FOO", "INPUT"]), missing: vec![] }),
        ("optional-input", Invalid::InputCount { required: 1, all: 2, got: vec![], missing: names(&["INPUT"]) }),
        ("duplicate-input", Invalid::DuplicateInput { input: input() }),
        ("data-type", Invalid::DataType { input: input(), got: DataType::Int32, want: DataType::Fp32 }),
        (
            "unknown-data-type",
            Invalid::UnknownDataType { input: input(), got: "FLOAT".to_owned(), want: DataType::Fp32 },
        ),
        ("shape", shape(true)),
        ("shape-unbatched", shape(false)),
        ("negative-dim", Invalid::NegativeDim { input: input(), got: vec![-1, 2] }),
        ("no-batch-dim", Invalid::NoBatchDim { input: input() }),
        ("batch-sizes", Invalid::BatchSizes { input: input() }),
        ("batch-too-large", Invalid::BatchTooLarge { max: 32 }),
        ("sequence-batch", Invalid::SequenceBatch),
        ("byte-size", Invalid::ByteSize { input: input(), want: 4, got: 0 }),
        ("string-length", Invalid::StringLength { input: input() }),
        ("string-data", Invalid::StringData { input: input(), want: 9, left: 3 }),
        ("too-few-strings", Invalid::StringCount { input: input(), want: 2, got: 1 }),
        ("too-many-strings", Invalid::StringCount { input: input(), want: 2, got: 3 }),
        ("id-type", Invalid::IdType { control: "CORRID".to_owned(), got: DataType::Bytes, want: DataType::Uint64 }),
        ("id-too-long", Invalid::IdTooLong { limit: 128 }),
        ("no-data", Invalid::NoData { input: input() }),
        ("state-input", Invalid::StateInput { input: "INPUT_STATE".to_owned() }),
        ("copy-not-allowed", Invalid::CopySource(WrongSource::NotAllowed)),
        ("copy-of-ensemble", Invalid::CopySource(WrongSource::Ensemble)),
        ("copy-not-at-start", Invalid::CopySource(WrongSource::NotAtStart)),
        ("copy-of-itself", Invalid::CopySource(WrongSource::Itself)),
        (
            "malformed",
            Invalid::Malformed("failed to parse the request JSON buffer: expected value at line 1 column 1".to_owned()),
        ),
    ]
}

fn shape(batching: bool) -> Invalid {
    let (want, got) = (Dims::from_wire(&[-1, 1]), Shape::new(&[1, 2]));
    Invalid::Shape { input: "INPUT".to_owned(), want, got, batching }
}

fn store_cases() -> Vec<(&'static str, Failure)> {
    let (model, id) = (|| "acc".to_owned(), Id::from(7));
    let why = |why: &str| why.to_owned();
    vec![
        (
            "not-resumed",
            Failure::NotResumed {
                model: model(),
                id: id.clone(),
                why: why("the files of version 1 have changed since"),
            },
        ),
        (
            "store-failed",
            Failure::Store {
                model: model(),
                id: id.clone(),
                why: why("state/sequences.redb: no space left on device"),
            },
        ),
        ("not-stored-at-start", not_stored(&id, true, false)),
        ("not-stored", not_stored(&id, false, true)),
        ("not-stored-ended", not_stored(&id, false, false)),
    ]
}

fn not_stored(id: &Id, start: bool, goes_on: bool) -> Failure {
    let (model, why) = ("acc".to_owned(), "state/sequences.redb: No space left on device".to_owned());
    Failure::NotStored { model, id: id.clone(), start, goes_on, fault: StoreFault::Disk, why }
}

fn refusal_cases() -> Vec<(&'static str, Refusal)> {
    let tomb = |why| Refusal::Unknown(Some(Tombstone { why, at: Time::ZERO, step: 402, idle: None }));
    let waited = Duration::from_secs(1);
    vec![
        ("never-started", Refusal::Unknown(None)),
        ("ended", tomb(EndReason::End)),
        ("expired", tomb(EndReason::Idle)),
        ("restarted", tomb(EndReason::Restarted)),
        ("cancelled-sequence", tomb(EndReason::Cancelled)),
        ("evicted", tomb(EndReason::Evicted)),
        ("retired", tomb(EndReason::Drained)),
        ("fenced-away", tomb(EndReason::Fenced)),
        ("unsealed", tomb(EndReason::Unsealed)),
        ("dropped", tomb(EndReason::Admin)),
        ("rejected", tomb(EndReason::Rejected)),
        ("failed-start", tomb(EndReason::Failed)),
        ("broken", tomb(EndReason::Broken)),
        ("not-finite", tomb(EndReason::NotFinite)),
        ("device-lost", tomb(EndReason::DeviceLost)),
        ("no-slot", tomb(EndReason::NoSlot)),
        ("member-failed", tomb(EndReason::Member)),
        ("ended-while-waiting", Refusal::Ended(EndReason::Idle)),
        ("fenced-while-waiting", Refusal::Ended(EndReason::Fenced)),
        ("retired-at-start", Refusal::Ended(EndReason::Drained)),
        ("no-id", Refusal::NoId),
        ("live", Refusal::Live),
        ("ending", Refusal::Ending),
        ("no-version", Refusal::NoVersion),
        ("cancelled", Refusal::Cancelled),
        ("step-gap", Refusal::StepGap { want: 403 }),
        ("step-gone", Refusal::StepGone { want: 403 }),
        ("step-busy", Refusal::StepBusy { step: 403 }),
        ("unprepared", Refusal::Failed(3)),
        ("live-limit", Refusal::TooMany { limit: 4096 }),
        ("store-full", Refusal::StoreFull { limit: 7011 }),
        ("backlog-full", Refusal::BacklogFull { sequences: 2000, bytes: 8192 }),
        ("stopping", Refusal::Stopping),
        ("backlog-timeout", Refusal::BacklogTimeout { waited, ahead: 156 }),
        ("step-timeout", Refusal::QueueTimeout { waited, ahead: 2 }),
        ("queue-full", Refusal::QueueFull { limit: 4096 }),
        ("elsewhere", Refusal::Elsewhere),
        ("policy", Refusal::Policy(7)),
    ]
}

/// Refusals of later steps that ended their sequence.
fn lost_cases() -> Vec<(&'static str, Refusal)> {
    let waited = Duration::from_secs(1);
    vec![
        ("backlog-timeout-ended", Refusal::BacklogTimeout { waited, ahead: 156 }),
        ("step-timeout-ended", Refusal::QueueTimeout { waited, ahead: 2 }),
        ("policy-ended", Refusal::Policy(7)),
        ("retired-while-waiting", Refusal::Ended(EndReason::Drained)),
    ]
}

fn refused_with(refusal: Refusal, id: Id, may_retry: bool) -> Failure {
    let (ended_ago, idle) = (Some(Duration::from_millis(1200)), Some(Duration::from_secs(5)));
    let model = "acc".to_owned();
    Failure::Refused(Box::new(Refused {
        refusal,
        model,
        id,
        ended_ago,
        idle,
        may_retry,
        rejection: None,
        member: None,
        ended_by: None,
    }))
}

/// A rejection with a code that the plug-in's `plugin.toml` names.
fn rejected(status: RejectionStatus, retry_after: Option<Duration>, may_retry: bool) -> Failure {
    let mut failure = refused_with(Refusal::Policy(7), Id::Int(7), may_retry);
    if let Failure::Refused(refused) = &mut failure {
        let text = "this tenant is over its quota".to_owned();
        refused.rejection = Some(RejectionReason { text, status, retry_after });
    }
    failure
}

fn invalid_of_acc(id: &str, what: Invalid) -> Failure {
    Failure::Invalid { model: "acc".to_owned(), id: id.to_owned(), what: Box::new(what) }
}

fn all() -> BTreeMap<&'static str, Failure> {
    let model = || "acc".to_owned();
    let mut all: BTreeMap<&'static str, Failure> = BTreeMap::new();
    all.extend(invalid_cases().into_iter().map(|(name, what)| (name, invalid_of_acc("", what))));
    all.extend(refusal_cases().into_iter().map(|(name, refusal)| (name, refused_with(refusal, Id::Int(7), true))));
    all.extend(lost_cases().into_iter().map(|(name, refusal)| (name, refused_with(refusal, Id::Int(7), false))));
    let (quota, after) = (RejectionStatus::ResourceExhausted, Some(Duration::from_secs(2)));
    all.insert("policy-named", rejected(quota, after, true));
    all.insert("policy-named-ended", rejected(quota, after, false));
    all.insert("policy-named-unavailable", rejected(RejectionStatus::Unavailable, None, true));
    all.insert("policy-named-late", rejected(RejectionStatus::DeadlineExceeded, None, true));
    all.extend(store_cases());
    let timeout = Refusal::QueueTimeout { waited: Duration::from_millis(20), ahead: 156 };
    all.insert("queue-timeout", refused_with(timeout, Id::None, true));
    all.insert("unknown-model", Failure::NotServed(NotServed::UnknownModel { model: "nope".to_owned() }));
    all.insert("unknown-version", Failure::NotServed(NotServed::UnknownVersion { model: model(), version: 7 }));
    for (name, why) in [
        ("no-versions", NoVersionReason::Unloaded),
        ("no-versions-loading", NoVersionReason::Loading),
        ("no-versions-failed", NoVersionReason::Failed),
        ("no-versions-member", NoVersionReason::MemberUnloaded),
    ] {
        all.insert(name, Failure::NotServed(NotServed::NoVersion { model: model(), why }));
    }
    all.insert("not-ready", Failure::NotServed(NotServed::NotReady { model: model(), version: 1 }));
    all.insert("bad-version", Failure::NotServed(NotServed::BadVersion { version: "abc".to_owned() }));
    all.insert("negative-version", Failure::NotServed(NotServed::NegativeVersion { version: "-1".to_owned() }));
    all.insert("not-explicit", Failure::Control(ControlFailure::NotExplicit));
    all.insert("not-reloaded", Failure::Control(ControlFailure::NotReloaded));
    let why = || "m: no version".to_owned();
    let refused_model = RefusedModel { model: "m".to_owned(), what: "no version".to_owned() };
    for (name, fault) in [
        ("source-unreadable", SourceFault::Unreadable(why())),
        ("source-invalid", SourceFault::Invalid(why())),
        ("source-models", SourceFault::Models(vec![refused_model])),
    ] {
        all.insert(name, Failure::Control(ControlFailure::Source(fault)));
    }
    all.insert(
        "absent",
        Failure::Control(ControlFailure::Absent { model: "nope".to_owned(), directories: vec!["models".into()] }),
    );
    let why = vec!["acc/config.pbtxt:1:1: bad".to_owned(), "worse".to_owned()];
    all.insert("load-failed", Failure::Control(ControlFailure::Failed { model: model(), why }));
    let of_member = |ended: bool, why: Failure| {
        let (ensemble, member, id, may_retry) = ("asr".to_owned(), "encoder".to_owned(), Id::Int(7), !ended);
        Failure::Member { ensemble, member, id, ended, may_retry, why: Box::new(why) }
    };
    all.insert("member", of_member(false, invalid_of_acc("", Invalid::SequenceBatch)));
    all.insert("member-run-ended", of_member(true, Failure::Run("onnx runtime error 1: bad".to_owned())));
    let full = refused_with(Refusal::BacklogFull { sequences: 2000, bytes: 8192 }, Id::Int(7), true);
    all.insert("member-full", of_member(false, full));
    all.insert("run", Failure::Run("onnx runtime error 1: bad".to_owned()));
    for (name, why) in [
        ("copy-unknown", NotCopied::Unknown),
        ("copy-stored", NotCopied::Stored),
        ("copy-other-load", NotCopied::OtherLoad),
        ("copy-not-yet", NotCopied::NotYet),
        ("copy-gone", NotCopied::Gone),
    ] {
        all.insert(name, Failure::NotCopied { model: model(), id: Id::Int(8), from: Id::Int(7), why });
    }
    for (name, is_nan) in [("state-nan", true), ("state-infinite", false)] {
        let (model, id, state) = (model(), Id::Int(7), "h".to_owned());
        all.insert(name, Failure::StateNotFinite { model, id, state, is_nan, step: 402 });
    }
    let (id, place) = (Id::Int(7), "GPU 0".to_owned());
    all.insert("device-memory", Failure::DeviceMemory { model: model(), id, place, wanted: 16 << 20 });
    all.insert("client-deadline", Failure::Deadline { allowed: Duration::from_millis(1500) });
    let gib = |n: u64| n << 30;
    let queued = ExceededLimit::QueuedBytes { needed: gib(2), used: gib(3), limit: gib(4) };
    all.insert("in-flight-limit", ExceededLimit::InFlight { limit: 65_536 }.into());
    all.insert("queued-bytes-limit", queued.into());
    all.insert(
        "message-bytes-limit",
        ExceededLimit::MessageBytes { bytes: 65, limit: 64, limited_by: "limits.request" }.into(),
    );
    all.insert("request-bytes-limit", ExceededLimit::RequestBytes { limit: 64 }.into());
    let parts = ExceededLimit::Parts { what: "inputs", limit: 3, setting: "limits.inputs" };
    all.insert("parts-limit", parts.into());
    all.insert("internal", Failure::Internal("a batch came back without an answer for one of its requests".to_owned()));
    let by_processor = |code, ended: bool, retry| {
        let (plugin, text) = ("redact".to_owned(), "no consent".to_owned());
        let (id, may_retry) = (Id::Int(7), !ended);
        let failure = ProcessorFailure {
            world: "processor",
            model: model(),
            id,
            plugin,
            code,
            text,
            retry,
            ended,
            may_retry,
            unavailable: false,
        };
        Failure::Processor(Box::new(failure))
    };
    let named = |plugin: &str, world, why| {
        let tomb = Refusal::Unknown(Some(Tombstone { why, at: Time::ZERO, step: 402, idle: None }));
        let mut failure = refused_with(tomb, Id::Int(7), true);
        if let Failure::Refused(refused) = &mut failure {
            refused.ended_by = Some(EndedBy { plugin: plugin.to_owned(), world });
        }
        failure
    };
    all.insert("rejected-by-processor", named("redact", "processor", EndReason::Rejected));
    all.insert("failed-start-by-initializer", named("fork", "initializer", EndReason::Failed));
    all.insert("broken-by-processor", named("redact", "processor", EndReason::Broken));
    all.insert("evicted-by-scheduler", named("lru-evict", "scheduler", EndReason::Evicted));
    all.insert("processor-rejected", by_processor(Some(5), false, Some(Duration::from_secs(2))));
    all.insert("processor-failed", by_processor(None, false, None));
    let parked = ProcessorFailure {
        world: "processor",
        model: model(),
        id: Id::Int(7),
        plugin: "redact".to_owned(),
        code: None,
        text: "redact is parked".to_owned(),
        retry: None,
        ended: false,
        may_retry: true,
        unavailable: true,
    };
    all.insert("processor-parked", Failure::Processor(Box::new(parked)));
    all.insert("processor-failed-ended", by_processor(None, true, None));
    all.insert("peer-sequences", Failure::PeerSequences { model: model(), id: Id::Int(7), limit: 100 });
    let queued = ExceededLimit::PeerQueuedBytes { needed: gib(2), used: gib(3), limit: gib(4) };
    all.insert("peer-in-flight", ExceededLimit::PeerInFlight { limit: 8 }.into());
    all.insert("peer-queued-bytes", queued.into());
    all
}

fn region_cases() -> Vec<(&'static str, Status)> {
    let of = |fault: RegionFault<'_>| region("r", &fault);
    vec![
        ("region-exists", of(RegionFault::Exists)),
        ("region-empty", of(RegionFault::Empty)),
        ("region-long-name", of(RegionFault::LongName { what: "name", bytes: 1025, limit: 1024 })),
        ("region-too-many", of(RegionFault::TooMany(1024))),
        ("region-too-many-of-a-peer", of(RegionFault::TooManyOfAPeer(256))),
        ("region-off", of(RegionFault::Off)),
        ("region-other-prefix", of(RegionFault::OtherPrefix { key: "/k", prefix: "triton-" })),
        ("region-not-opened", of(RegionFault::NotOpened { key: "/k", why: "no such file" })),
        ("region-does-not-fit", of(RegionFault::DoesNotFit { key: "/k", offset: 8, size: 64, there: 32 })),
        ("region-not-registered", of(RegionFault::NotRegistered)),
        ("region-not-registered-cuda", of(RegionFault::NotRegisteredCuda)),
        ("region-unknown", of(RegionFault::Unknown)),
        ("region-bad-offset", of(RegionFault::BadOffset)),
        ("region-bad-size", of(RegionFault::BadSize)),
        ("region-too-large", of(RegionFault::TooLarge { size: 65, limit: 64 })),
        ("region-too-large-in-all", of(RegionFault::TooLargeInAll { size: 65, limit: 64 })),
        ("region-too-small", of(RegionFault::TooSmall { output: "OUTPUT", size: 4, needed: 64 })),
        ("answer-unsent", unsent(of(RegionFault::TooSmall { output: "OUTPUT", size: 4, needed: 64 }))),
        ("region-broken", of(RegionFault::Broken { why: "failed to fill whole buffer" })),
        ("region-cuda", of(RegionFault::NoCuda)),
    ]
}

fn access_cases() -> Vec<(&'static str, Status)> {
    vec![
        ("restricted-http", access::restricted(WireProtocol::Http, "admin-key")),
        ("restricted-grpc", access::restricted(WireProtocol::Grpc, "triton-grpc-protocol-admin-key")),
        ("key-missing", access::unauthenticated(false)),
        ("key-wrong", access::unauthenticated(true)),
    ]
}

#[test]
fn every_failure_matches_the_table_of_refusals() {
    let table: BTreeMap<String, Case> =
        toml::from_str(include_str!("../../../../tests/cases/refusals.toml")).expect("the table");
    let failures = all().into_iter().map(|(name, failure)| (name, status(&failure)));
    let shown: BTreeMap<String, Case> = failures
        .chain(region_cases())
        .chain(access_cases())
        .map(|(name, status)| {
            let Status { code, message, reason, .. } = status;
            let case =
                Case { code: code.name().to_owned(), http: code.http(), reason: reason.to_owned(), text: message };
            (name.to_owned(), case)
        })
        .collect();
    for (name, case) in &shown {
        assert_eq!(Some(case), table.get(name), "{name}");
    }
    assert_eq!(shown.len(), table.len(), "lines of the table that no failure stands behind");
}

#[test]
fn an_unavailable_status_carries_its_retry_delay() {
    for (name, failure) in all() {
        let status = status(&failure);
        let is_unavailable = status.code == Code::Unavailable && status.reason != "not_explicit";
        // A loading model is NOT_FOUND in Triton. A full store is INTERNAL in its stateful backend.
        let temporary = is_unavailable || ["store-full", "no-versions-loading"].contains(&name);
        let want = match (temporary, name.ends_with("-ended")) {
            // The plug-in sets the delay.
            _ if ["processor-rejected", "policy-named"].contains(&name) => Retry::After(Duration::from_secs(2)),
            (false, _) => Retry::Unsaid,
            (true, false) => Retry::After(RETRY_AFTER),
            (true, true) => Retry::Never,
        };
        assert_eq!(status.retry, want, "{name}");
    }
}

#[test]
fn an_error_message_starts_with_the_id_of_its_request() {
    let text = status(&invalid_of_acc("r-1", Invalid::BatchTooLarge { max: 32 })).message;
    assert_eq!(text, "[request id: r-1] inference request batch-size must be <= 32 for 'acc'");
}
