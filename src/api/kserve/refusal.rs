//! The one table from what went wrong to what a client reads: code, sentence, reason. Triton's sentence comes first, byte for byte, where
//! Triton has one, for clients match on it; our why follows in brackets. `tests/cases/refusals.toml` holds every sentence.

use std::fmt::Display;
use std::time::Duration;

use sequor_core::{DataType, Id, Refusal, Tombstone, Why};

use super::LONGEST_ID;
pub(crate) use super::refused_region::{RegionFault, region};
use crate::api::{Code, Status};
use crate::config::units::human;
use crate::error::{Control, Failure, Invalid, NotServed, Refused};
use crate::telemetry::ended_reason;

/// When to come back to a house that is full.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The reason of a request that a maximum of one client refuses.
pub(crate) const PEER_LIMIT: &str = "peer_limit";

pub(super) const BAD_INPUT: &str = "bad_input";

/// The reason of a request for a model or version that is not there, or not ready.
pub(super) const NOT_SERVED: &str = "not_served";

/// What a client reads of a failure. `mark` is the request's own id, which stands in front of what is wrong with a request.
pub fn status(failure: &Failure, mark: &str) -> Status {
    match failure {
        Failure::NotServed(what) => not_served(what),
        Failure::Invalid { model, what } => invalid(model, what, mark),
        Failure::Refused(refused) => self::refused(refused),
        Failure::StateMemory { model, id, wanted, used, limit } => {
            let [wanted, used, limit] = [*wanted, *used, *limit].map(human);
            let text = format!(
                "sequence {id} of model '{model}' needs {wanted} of state; {used} of {limit} (limits.state) are in use; \
                 live sequences are not affected"
            );
            Status::new(Code::Unavailable, "state_memory", text).retry_after(RETRY_AFTER)
        }
        Failure::DeviceMemory { model, id, place, wanted } => {
            let wanted = human(*wanted);
            let text = format!(
                "sequence {id} of model '{model}' needs {wanted} of state, and {place} has no room for it; \
                 live sequences are not affected"
            );
            Status::new(Code::Unavailable, "state_memory", text).retry_after(RETRY_AFTER)
        }
        Failure::PeerSequences { model, id, limit } => {
            let text = format!(
                "sequence {id} of model '{model}' cannot start: this client has {limit} live sequences, the maximum of one client \
                 (limits.sequences_per_peer); retry after {}",
                span(RETRY_AFTER)
            );
            Status::new(Code::Unavailable, PEER_LIMIT, text).retry_after(RETRY_AFTER)
        }
        Failure::Control(what) => control(what),
        Failure::Run(text) => Status::new(Code::Internal, "run_failed", text),
        Failure::Internal(text) => Status::new(Code::Internal, "internal", text),
    }
}

fn not_served(what: &NotServed) -> Status {
    let (code, text) = match what {
        NotServed::UnknownModel { model } => {
            (Code::NotFound, format!("Request for unknown model: '{model}' is not found"))
        }
        NotServed::UnknownVersion { model, version } => {
            (Code::NotFound, format!("Request for unknown model: '{model}' version {version} is not found"))
        }
        NotServed::NoVersion { model } => {
            (Code::NotFound, format!("Request for unknown model: '{model}' has no available versions"))
        }
        NotServed::NotReady { model, version } => {
            (Code::Unavailable, format!("Request for unknown model: '{model}' version {version} is not at ready state"))
        }
        NotServed::NegativeVersion { version } => {
            let text = format!("invalid model version specified '{version}' , version should be an integral value > 0");
            return Status::new(Code::InvalidArgument, BAD_INPUT, text);
        }
        NotServed::BadVersion { version } => {
            let text = format!(
                "failed to get model version from specified version string '{version}' (details: stol), \
                 version should be an integral value > 0"
            );
            return Status::new(Code::InvalidArgument, BAD_INPUT, text);
        }
    };
    Status::new(code, NOT_SERVED, text)
}

fn control(what: &Control) -> Status {
    match what {
        Control::NotExplicit => {
            let text = "explicit model load / unload is not allowed if polling is enabled \
                        (model.control_mode of this server is not \"explicit\"; start it with --model-control-mode=explicit)";
            Status::new(Code::Unavailable, "not_explicit", text)
        }
        Control::Absent { model } => Status::new(
            Code::Internal,
            "not_served",
            format!("failed to load '{model}', failed to poll from model repository"),
        ),
        Control::Failed { model, why } => {
            Status::new(Code::Internal, "load_failed", format!("failed to load '{model}', {}", why.join("; ")))
        }
    }
}

// === requests that do not fit their model ===

fn invalid(model: &str, what: &Invalid, mark: &str) -> Status {
    let text = sentence(model, what);
    match what {
        Invalid::IdTooLong { .. } => Status::new(Code::Unimplemented, BAD_INPUT, text),
        what if has_mark(what) => {
            let mark = if mark.is_empty() { "<id_unknown>" } else { mark };
            Status::new(Code::InvalidArgument, BAD_INPUT, format!("[request id: {mark}] {text}"))
        }
        _ => Status::new(Code::InvalidArgument, BAD_INPUT, text),
    }
}

/// Whether Triton puts the request's id in front of the sentence.
fn has_mark(what: &Invalid) -> bool {
    match what {
        Invalid::UnknownInput { .. }
        | Invalid::UnknownOutput { .. }
        | Invalid::SequenceBatch
        | Invalid::IdType { .. }
        | Invalid::IdTooLong { .. }
        | Invalid::NoData { .. }
        | Invalid::Malformed(_) => false,
        Invalid::InputCount { .. }
        | Invalid::DuplicateInput { .. }
        | Invalid::DataType { .. }
        | Invalid::UnknownDataType { .. }
        | Invalid::Shape { .. }
        | Invalid::NegativeDim { .. }
        | Invalid::NoBatchDim { .. }
        | Invalid::BatchSizes { .. }
        | Invalid::BatchTooLarge { .. }
        | Invalid::ByteSize { .. }
        | Invalid::StringLength { .. }
        | Invalid::StringData { .. }
        | Invalid::StringCount { .. } => true,
    }
}

fn sentence(model: &str, what: &Invalid) -> String {
    match what {
        Invalid::UnknownInput { input } => format!("unexpected inference input '{input}' for model '{model}'"),
        Invalid::UnknownOutput { output } => format!("unexpected inference output '{output}' for model '{model}'"),
        Invalid::InputCount { required, all, got, missing } => input_count(model, (*required, *all), got, missing),
        Invalid::DuplicateInput { input } => format!("input '{input}' already exists in request"),
        Invalid::DataType { input, got, want } => {
            format!("inference input '{input}' data-type is '{got}', but model '{model}' expects '{want}'")
        }
        Invalid::UnknownDataType { input, got, want } => {
            let known = DataType::ALL.map(DataType::name).join(", ");
            format!(
                "inference input '{input}' data-type is '<invalid>', but model '{model}' expects '{want}' \
                 ('{got}' is none of {known})"
            )
        }
        Invalid::Shape { input, want, got, batching } => {
            let note = if *batching { BATCH_NOTE } else { "" };
            format!("unexpected shape for input '{input}' for model '{model}'. Expected {want}, got {got}.{note}")
        }
        Invalid::NegativeDim { input, got } => {
            let got = list(got);
            format!("All input dimensions should be specified for input '{input}' for model '{model}', got {got}")
        }
        Invalid::NoBatchDim { input } => {
            format!("input '{input}' has no shape but model requires batch dimension for '{model}'")
        }
        Invalid::BatchSizes { input } => {
            format!("input '{input}' batch size does not match other inputs for '{model}'")
        }
        Invalid::BatchTooLarge { max } => format!("inference request batch-size must be <= {max} for '{model}'"),
        Invalid::SequenceBatch => format!(
            "inference request to model '{model}' must specify batch-size 1 due to requirements of sequence batcher"
        ),
        Invalid::ByteSize { input, want, got } => {
            format!("input byte size mismatch for input '{input}' for model '{model}'. Expected {want}, got {got}")
        }
        Invalid::StringLength { .. } | Invalid::StringData { .. } | Invalid::StringCount { .. } => strings(model, what),
        Invalid::IdType { control, got, want } => {
            format!("sequence batching control '{control}' data-type is '{got}', but model '{model}' expects '{want}'")
        }
        Invalid::IdTooLong { limit } => format!("string correlation ID cannot be longer than {limit} characters"),
        Invalid::NoData { input } => {
            format!("unable to find data for input tensor '{input}' for model '{model}' in request.")
        }
        Invalid::Malformed(text) => text.clone(),
    }
}

const BATCH_NOTE: &str = " NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be \
    prepended to each input shape. If you want to specify the full shape including the batch dim in your input dims config, try \
    setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size.";

/// Triton leaves the last bracket open when nothing is missing; here it is closed.
fn input_count(model: &str, (required, all): (usize, usize), got: &[String], missing: &[String]) -> String {
    let expected = if required == all {
        format!("expected {all} inputs but got {} inputs", got.len())
    } else {
        format!("expected number of inputs between {required} and {all} but got {} inputs", got.len())
    };
    let quoted = |names: &[String]| list(names.iter().map(|n| format!("'{n}'")));
    format!(
        "{expected} for model '{model}'. Got input(s) {}, but missing required input(s) {}. \
         Please provide all required input(s).",
        quoted(got),
        quoted(missing)
    )
}

fn strings(model: &str, what: &Invalid) -> String {
    match what {
        Invalid::StringLength { input } => format!(
            "incomplete string length indicator for inference input '{input}' for model '{model}', \
             expecting 4 bytes but the data ends before"
        ),
        Invalid::StringData { input, want, left } => format!(
            "incomplete string data for inference input '{input}' for model '{model}', \
             expecting string of length {want} but only {left} bytes available"
        ),
        Invalid::StringCount { input, want, got } if got > want => format!(
            "unexpected number of string elements {got} for inference input '{input}' for model '{model}', \
             expecting {want}"
        ),
        Invalid::StringCount { input, want, got } => {
            format!("expected {want} string elements for inference input '{input}' for model '{model}', got {got}")
        }
        _ => String::new(),
    }
}

// === requests that fit, but not now ===

fn refused(refused: &Refused) -> Status {
    let Refused { refusal, model, id, .. } = refused;
    match refusal {
        Refusal::Unknown(tomb) => unknown(refused, *tomb),
        Refusal::Ended(why) => {
            let because = format!("it {} while this request waited", past(*why));
            start_needed(model, id, &because, ended_reason(*why))
        }
        Refusal::NoId => Status::new(
            Code::InvalidArgument,
            BAD_INPUT,
            format!("inference request to model '{model}' must specify a non-zero or non-empty correlation ID"),
        ),
        Refusal::Live => already(format!("sequence {id} of model '{model}' is live, and START may not restart it")),
        Refusal::Ending => already(format!("sequence {id} of model '{model}' is ending; START has to wait for that")),
        Refusal::NoVersion => not_served(&NotServed::NoVersion { model: model.clone() }),
        Refusal::Cancelled => Status::new(
            Code::Cancelled,
            "cancelled",
            format!("the request to model '{model}' was cancelled before it ran"),
        ),
        Refusal::StepGap { want } => Status::new(
            Code::FailedPrecondition,
            "step_gap",
            format!("sequence {id} expects step {want}; resend from step {want} on"),
        ),
        Refusal::StepGone { want } => Status::new(
            Code::FailedPrecondition,
            "step_repeat",
            format!(
                "sequence {id} expects step {want}; this step was answered before, and its answer is no longer kept"
            ),
        ),
        Refusal::StepBusy { step } => Status::new(
            Code::FailedPrecondition,
            "step_repeat",
            format!("step {step} of sequence {id} is on its way already; wait for its answer"),
        ),
        Refusal::Failed(code) => Status::new(
            Code::Internal,
            "plugin_failed",
            format!("the request to model '{model}' could not be prepared (code {code})"),
        ),
        Refusal::TooMany { .. }
        | Refusal::StoreFull { .. }
        | Refusal::BacklogFull { .. }
        | Refusal::Stopping
        | Refusal::QueueTimeout { .. }
        | Refusal::BacklogTimeout { .. }
        | Refusal::QueueFull { .. }
        | Refusal::Elsewhere
        | Refusal::Policy(_) => unavailable(refused),
    }
}

fn already(text: String) -> Status {
    Status::new(Code::AlreadyExists, "already_live", text)
}

/// What may go well when it is tried again.
fn unavailable(refused: &Refused) -> Status {
    let Refused { refusal, model, id, .. } = refused;
    let (reason, text) = match refusal {
        Refusal::TooMany { limit } => (
            "live_limit",
            format!("sequence {id} of model '{model}' cannot start: {limit} sequences live, as many as may"),
        ),
        Refusal::StoreFull { limit } => (
            "state_memory",
            format!(
                "sequence {id} of model '{model}' cannot start: the states of {limit} sequences are held, as many as \
                 may; live sequences are not affected"
            ),
        ),
        Refusal::BacklogFull { sequences, bytes } => (
            "backlog_full",
            format!(
                "no slot for sequence {id} of model '{model}', and the backlog is full \
                 ({sequences} sequences with {bytes} bytes wait)"
            ),
        ),
        Refusal::Stopping => ("draining", format!("model '{model}' takes no new sequences: it is being drained")),
        Refusal::QueueTimeout { waited } if *id == Id::None => {
            ("deadline", format!("Request timeout expired (after {} in the queue of model '{model}')", span(*waited)))
        }
        Refusal::QueueTimeout { waited } => (
            "deadline",
            format!(
                "Request timeout expired (after {} in the queue of sequence {id} of model '{model}')",
                span(*waited)
            ),
        ),
        Refusal::BacklogTimeout { waited, ahead } => (
            "backlog_timeout",
            format!(
                "timeout of the corresponding sequence has been expired (no slot for sequence {id} of model '{model}' \
                 within {}; {ahead} sequences ahead)",
                span(*waited)
            ),
        ),
        Refusal::QueueFull { limit } if *id == Id::None => {
            ("queue_full", format!("Exceeds maximum queue size ({limit} requests of model '{model}' wait already)"))
        }
        Refusal::QueueFull { limit } => (
            "queue_full",
            format!("Exceeds maximum queue size ({limit} requests of sequence {id} of model '{model}' wait already)"),
        ),
        Refusal::Elsewhere => ("fenced", format!("sequence {id} of model '{model}' is held by another node")),
        Refusal::Policy(code) if !refused.may_retry => {
            let text = format!(
                "the scheduler of model '{model}' rejected a request of sequence {id} (code {code}), and with it the sequence \
                 ended; send START"
            );
            return Status::new(Code::FailedPrecondition, "plugin_rejected", text);
        }
        Refusal::Policy(code) => {
            ("plugin_rejected", format!("the scheduler of model '{model}' rejected the request (code {code})"))
        }
        other => ("internal", format!("model '{model}' refused the request: {other:?}")),
    };
    if !refused.may_retry {
        return Status::new(Code::Unavailable, reason, format!("{text}; the sequence ended, send START")).never_retry();
    }
    let text = format!("{text}; retry after {}", span(RETRY_AFTER));
    Status::new(Code::Unavailable, reason, text).retry_after(RETRY_AFTER)
}

fn unknown(refused: &Refused, tomb: Option<Tombstone>) -> Status {
    let Refused { model, id, ended_ago, idle, .. } = refused;
    let Some(Tombstone { why, step, .. }) = tomb else {
        return start_needed(model, id, "no START of this id is remembered", "never_started");
    };
    let ago = ended_ago.map_or(String::new(), |ago| format!(" {} ago", span(ago)));
    let because = match (why, idle) {
        (Why::Idle, Some(idle)) => format!(
            "it expired{ago} after {} without a request; last step {step}. \
             Send START, or raise idle in {model}/sequor.toml",
            span(*idle)
        ),
        _ => format!("it {}{ago}; last step {step}", past(why)),
    };
    start_needed(model, id, &because, ended_reason(why))
}

/// The sentence that clients look for to know that they have to START again.
fn start_needed(model: &str, id: &Id, because: &str, reason: &'static str) -> Status {
    let text = format!(
        "inference request for sequence {id} to model '{model}' must specify the START flag on the first request of \
         the sequence ({because})"
    );
    Status::new(Code::InvalidArgument, reason, text)
}

fn past(why: Why) -> &'static str {
    match why {
        Why::End => "ended",
        Why::Idle => "expired",
        Why::Restarted => "was started anew",
        Why::Cancelled => "was ended by a cancelled request",
        Why::Evicted => "was evicted to make room",
        Why::Drained => "was retired with its version of the model",
        Why::Fenced => "was taken over by another node",
        Why::Unsealed => "was dropped, for its state could not be stored",
        Why::Admin => "was dropped by an administrator",
        Why::Rejected => "was ended by its scheduler, which rejected a step",
        Why::Failed => "failed to start",
    }
}

/// What a text id is refused with.
pub(crate) fn id_too_long() -> Invalid {
    Invalid::IdTooLong { limit: LONGEST_ID }
}

/// `[a,b]`
fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    format!("[{}]", items.join(","))
}

/// A span of time as people say it: `800 ms`, `1.2 s`, `5 s`.
pub(crate) fn span(span: Duration) -> String {
    let millis = span.as_millis();
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 if millis % 1000 < 100 => format!("{} s", millis / 1000),
        1000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1000),
    }
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
