//! The table from failures to Triton's codes and sentences. KServe's surface and the paths for operators use it; other surfaces fall back
//! to it.
//!
//! If Triton has a sentence, it comes first, byte for byte, because clients match on it. Our reason follows in brackets.
//! `tests/cases/refusals.toml` holds every sentence.

mod invalid;

use sequor_core::{EndReason, Id, Refusal, Tombstone};

use super::refusal::{RETRY_AFTER, deadline, limit, member, no_version, processor, reason, rejection, retry, span};
use super::{Code, Status};
use crate::config::units::human;
use crate::error::{ControlFailure, EndedBy, Failure, NoVersionReason, NotCopied, NotServed, Refused, SourceFault};
use invalid::invalid;

/// Converts a failure to the status that a client of Triton gets.
pub fn status(failure: &Failure) -> Status {
    let (code, text) = match failure {
        Failure::Limit(exceeded) => return limit(exceeded),
        Failure::Deadline { allowed } => return deadline(*allowed),
        Failure::NotServed(what) => not_served(what),
        Failure::Invalid { model, id, what } => invalid(model, id, what),
        Failure::Refused(refused) => self::refused(refused),
        Failure::StateMemory { model, id, wanted, used, limit } => {
            let [wanted, used, limit] = [*wanted, *used, *limit].map(human);
            let text = format!(
                "sequence {id} of model '{model}' needs {wanted} of state; {used} of {limit} (limits.state) are in use; \
                 live sequences are not affected"
            );
            (Code::Unavailable, text)
        }
        Failure::DeviceMemory { model, id, place, wanted } => {
            let wanted = human(*wanted);
            let text = format!(
                "sequence {id} of model '{model}' needs {wanted} of state, and {place} has no room for it; \
                 live sequences are not affected"
            );
            (Code::Unavailable, text)
        }
        Failure::NotCopied { model, id, from, why } => not_copied(model, id, from, *why),
        Failure::NotResumed { model, id, why } => {
            (Code::InvalidArgument, start_needed(model, id, &format!("its stored state cannot be resumed: {why}")))
        }
        Failure::Store { model, id, why } => {
            let text = format!(
                "the stored state of sequence {id} of model '{model}' is out of reach: {why}; retry after {}",
                span(RETRY_AFTER)
            );
            (Code::Unavailable, text)
        }
        Failure::NotStored { model, id, start, goes_on, why, .. } => {
            (Code::Unavailable, not_stored(model, id, (*start, *goes_on), why))
        }
        Failure::PeerSequences { model, id, limit } => {
            let text = format!(
                "sequence {id} of model '{model}' cannot start: this client has {limit} live sequences, the maximum of one client \
                 (limits.sequences_per_peer); retry after {}",
                span(RETRY_AFTER)
            );
            (Code::Unavailable, text)
        }
        Failure::StateNotFinite { id, state, is_nan, step, .. } => {
            let became = if *is_nan { "NaN" } else { "infinite" };
            let text = format!("state \"{state}\" of sequence {id} became {became} at step {step}; send START");
            (Code::Internal, text)
        }
        Failure::Processor(failure) => return processor(failure),
        Failure::Member { .. } => return member(failure, status),
        Failure::Control(what) => control(what),
        Failure::Run(text) | Failure::Internal(text) => (Code::Internal, text.clone()),
    };
    Status { retry: retry(failure), ..Status::new(code, reason(failure), text) }
}

fn not_copied(model: &str, id: &Id, from: &Id, why: NotCopied) -> (Code, String) {
    let retry = span(RETRY_AFTER);
    let (code, why) = match why {
        NotCopied::Unknown => (
            Code::FailedPrecondition,
            format!("no such sequence lives in this server; START sequence {from}, or leave sequence_from out"),
        ),
        NotCopied::Stored => {
            (Code::FailedPrecondition, format!("it waits in the store; send a step of sequence {from} first"))
        }
        NotCopied::OtherLoad => {
            let what =
                "it lives on an earlier load of the model, or on another version; name one that was started since";
            (Code::FailedPrecondition, what.to_owned())
        }
        NotCopied::NotYet => (Code::Unavailable, format!("no step of it has been committed yet; retry after {retry}")),
        NotCopied::Gone => {
            let what = format!("it has just ended, or one of its requests has run in part; retry after {retry}");
            (Code::Unavailable, what)
        }
    };
    (code, format!("sequence {id} of model '{model}' cannot begin with a copy of sequence {from}: {why}"))
}

fn not_served(what: &NotServed) -> (Code, String) {
    match what {
        NotServed::UnknownModel { model } => {
            (Code::NotFound, format!("Request for unknown model: '{model}' is not found"))
        }
        NotServed::UnknownVersion { model, version } => {
            (Code::NotFound, format!("Request for unknown model: '{model}' version {version} is not found"))
        }
        NotServed::NoVersion { model, why } => {
            // Triton has NOT_FOUND here. A model that is being loaded is worth a retry, which clients do by the code.
            let code = if *why == NoVersionReason::Loading { Code::Unavailable } else { Code::NotFound };
            let why = no_version(*why);
            (code, format!("Request for unknown model: '{model}' has no available versions ({why})"))
        }
        NotServed::NotReady { model, version } => {
            let why = no_version(NoVersionReason::Loading);
            let text = format!("Request for unknown model: '{model}' version {version} is not at ready state ({why})");
            (Code::Unavailable, text)
        }
        NotServed::NegativeVersion { version } => {
            let text = format!("invalid model version specified '{version}' , version should be an integral value > 0");
            (Code::InvalidArgument, text)
        }
        NotServed::BadVersion { version } => {
            let text = format!(
                "failed to get model version from specified version string '{version}' (details: stol), \
                 version should be an integral value > 0"
            );
            (Code::InvalidArgument, text)
        }
    }
}

fn control(what: &ControlFailure) -> (Code, String) {
    match what {
        ControlFailure::NotExplicit => {
            let text = "explicit model load / unload is not allowed if polling is enabled \
                        (model.control_mode of this server is not \"explicit\"; start it with --model-control-mode=explicit)";
            (Code::Unavailable, text.to_owned())
        }
        ControlFailure::NotReloaded => {
            let text = "models are not loaded again by request: model.control_mode of this server is \"none\"; start it \
                        with --model-control-mode=poll or explicit";
            (Code::Unavailable, text.to_owned())
        }
        ControlFailure::Source(SourceFault::Unreadable(why)) => {
            (Code::Internal, format!("Config file not found or cannot open. ({why})"))
        }
        ControlFailure::Source(SourceFault::Invalid(why)) => (
            Code::FailedPrecondition,
            format!("Reloading config file failed. Check server logs for more info. ({why})"),
        ),
        ControlFailure::Source(SourceFault::Models(refused)) => {
            let why = refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            (Code::Internal, format!("Reloading models versions failed. Check server logs for more info. ({why})"))
        }
        ControlFailure::Absent { model, directories } => {
            let directories: Vec<String> = directories.iter().map(|of| of.display().to_string()).collect();
            let why = match directories.is_empty() {
                true => String::new(),
                false => format!(" (no folder {model} in {})", directories.join(", ")),
            };
            (Code::Internal, format!("failed to load '{model}', failed to poll from model repository{why}"))
        }
        ControlFailure::Failed { model, why } => {
            (Code::Internal, format!("failed to load '{model}', {}", why.join("; ")))
        }
    }
}

fn refused(refused: &Refused) -> (Code, String) {
    if let Some(rejected) = rejection(refused) {
        return rejected;
    }
    let Refused { refusal, model, id, .. } = refused;
    match refusal {
        Refusal::Unknown(tomb) => (Code::InvalidArgument, unknown(refused, *tomb)),
        Refusal::Ended(EndReason::Drained) if refused.may_retry => (Code::Unavailable, retired_at_start(model, id)),
        Refusal::Ended(EndReason::Fenced) => (Code::Unavailable, fenced(model, id)),
        Refusal::Ended(why) => {
            let because = format!("it {} while this request waited", ended_because(refused, *why));
            (Code::InvalidArgument, start_needed(model, id, &because))
        }
        Refusal::NoId => (
            Code::InvalidArgument,
            format!("inference request to model '{model}' must specify a non-zero or non-empty correlation ID"),
        ),
        Refusal::Live => {
            (Code::AlreadyExists, format!("sequence {id} of model '{model}' is live, and START may not restart it"))
        }
        Refusal::Ending => {
            (Code::AlreadyExists, format!("sequence {id} of model '{model}' is ending; START has to wait for that"))
        }
        Refusal::NoVersion => {
            not_served(&NotServed::NoVersion { model: model.clone(), why: NoVersionReason::Unloaded })
        }
        Refusal::Cancelled => (Code::Cancelled, format!("the request to model '{model}' was cancelled before it ran")),
        Refusal::StepGap { want } => {
            (Code::FailedPrecondition, format!("sequence {id} expects step {want}; resend from step {want} on"))
        }
        Refusal::StepGone { want } => (
            Code::FailedPrecondition,
            format!(
                "sequence {id} expects step {want}; this step was answered before, and its answer is no longer kept"
            ),
        ),
        Refusal::StepBusy { step } => (
            Code::FailedPrecondition,
            format!("step {step} of sequence {id} is on its way already; wait for its answer"),
        ),
        Refusal::Failed(code) => {
            (Code::Internal, format!("the request to model '{model}' could not be prepared (code {code})"))
        }
        Refusal::Policy(code) if !refused.may_retry => (Code::FailedPrecondition, ended_by_policy(refused, *code)),
        Refusal::Stopping => (Code::Unavailable, stopping(model)),
        Refusal::StoreFull { limit } => (Code::Internal, store_full(refused, *limit)),
        Refusal::TooMany { .. }
        | Refusal::BacklogFull { .. }
        | Refusal::QueueTimeout { .. }
        | Refusal::BacklogTimeout { .. }
        | Refusal::QueueFull { .. }
        | Refusal::Elsewhere
        | Refusal::Policy(_) => {
            let next = match refused.may_retry {
                true => format!("retry after {}", span(RETRY_AFTER)),
                false => "the sequence ended, send START".to_owned(),
            };
            (Code::Unavailable, format!("{}; {next}", unavailable(refused)))
        }
    }
}

/// `start`: the request is a START. `goes_on`: the sequence goes on from its last stored state.
fn not_stored(model: &str, id: &Id, (start, goes_on): (bool, bool), why: &str) -> String {
    let retry = || format!("retry after {}", span(RETRY_AFTER));
    let (what, next) = match (start, goes_on) {
        (_, true) => ("goes on from its last stored state", retry()),
        (true, false) => ("did not start", retry()),
        (false, false) => ("ended", "send START".to_owned()),
    };
    let state = if goes_on { "the state after this request" } else { "its state" };
    format!("sequence {id} of model '{model}' {what}: {state} could not be stored ({why}); {next}")
}

fn ended_by_policy(Refused { model, id, .. }: &Refused, code: u32) -> String {
    format!(
        "the scheduler of model '{model}' rejected a request of sequence {id} (code {code}), and with it the sequence \
         ended; send START"
    )
}

/// The sentence for a START that a reload interrupted. If it is sent again, it goes to the version that takes new sequences.
fn retired_at_start(model: &str, id: &Id) -> String {
    format!(
        "sequence {id} of model '{model}' did not start: the version that its START waited for was replaced or unloaded; \
         retry after {}",
        span(RETRY_AFTER)
    )
}

fn stopping(model: &str) -> String {
    format!(
        "Server is stopping, scheduler for model has stopped accepting new inference requests (model '{model}' takes no \
         new sequences: it is being drained; START with a new id, on another server)"
    )
}

fn store_full(Refused { model, id, .. }: &Refused, limit: u32) -> String {
    format!(
        "Too many simultaneous connections (sequence {id} of model '{model}' cannot start: {limit} sequences have \
         states, the maximum by max_candidate_sequence_use_ratio; live sequences are not affected; retry after {})",
        span(RETRY_AFTER)
    )
}

/// The sentence of a refusal after which the client may retry the request or START again.
fn unavailable(refused: &Refused) -> String {
    let Refused { refusal, model, id, .. } = refused;
    match refusal {
        Refusal::TooMany { limit } => {
            format!("sequence {id} of model '{model}' cannot start: {limit} sequences live, as many as may")
        }
        Refusal::BacklogFull { sequences, bytes } => format!(
            "no slot for sequence {id} of model '{model}', and the backlog is full \
             ({sequences} sequences with {bytes} bytes wait)"
        ),
        Refusal::QueueTimeout { waited, ahead } if *id == Id::None => format!(
            "Request timeout expired (after {} in the queue of model '{model}'; {ahead} requests ahead)",
            span(*waited)
        ),
        Refusal::QueueTimeout { waited, ahead } => format!(
            "Request timeout expired (after {} in the queue of sequence {id} of model '{model}'; {ahead} requests ahead)",
            span(*waited)
        ),
        Refusal::BacklogTimeout { waited, ahead } => format!(
            "timeout of the corresponding sequence has been expired (no slot for sequence {id} of model '{model}' \
             within {}; {ahead} sequences ahead)",
            span(*waited)
        ),
        Refusal::QueueFull { limit } if *id == Id::None => {
            format!("Exceeds maximum queue size ({limit} requests of model '{model}' wait already)")
        }
        Refusal::QueueFull { limit } => {
            format!("Exceeds maximum queue size ({limit} requests of sequence {id} of model '{model}' wait already)")
        }
        Refusal::Elsewhere => format!("sequence {id} of model '{model}' is held by another node"),
        Refusal::Policy(code) => format!("the scheduler of model '{model}' rejected the request (code {code})"),
        other => format!("model '{model}' refused the request: {other:?}"),
    }
}

fn unknown(refused: &Refused, tomb: Option<Tombstone>) -> String {
    let Refused { model, id, ended_ago, idle, .. } = refused;
    let Some(Tombstone { why, step, .. }) = tomb else {
        return start_needed(model, id, "no START of this id is remembered");
    };
    let ago = ended_ago.map_or(String::new(), |ago| format!(" {} ago", span(ago)));
    let because = match (why, idle) {
        (EndReason::Idle, Some(idle)) => format!(
            "it expired{ago} after {} without a request; last step {step}. \
             Send START, or raise idle in {model}/sequor.toml",
            span(*idle)
        ),
        _ => format!("it {}{ago}; last step {step}", ended_because(refused, why)),
    };
    start_needed(model, id, &because)
}

/// The sentence by which clients recognise that they must START again.
fn start_needed(model: &str, id: &Id, because: &str) -> String {
    format!(
        "inference request for sequence {id} to model '{model}' must specify the START flag on the first request of \
         the sequence ({because})"
    )
}

/// Why a sequence ended, as the continuation of "sequence 7". Names the member of its ensemble or the plug-in that ended it.
pub(super) fn ended_because(refused: &Refused, why: EndReason) -> String {
    if let Some(member) = refused.member.as_ref().filter(|_| why == EndReason::Member) {
        return format!("was ended when member '{member}' of the ensemble failed");
    }
    let Some(EndedBy { plugin, world }) = &refused.ended_by else { return past(why).to_owned() };
    match why {
        EndReason::Rejected => format!("was ended by {world} '{plugin}', which rejected a step"),
        EndReason::Failed => format!("was refused at its START by {world} '{plugin}'"),
        EndReason::Broken => format!("was ended by a step that failed in {world} '{plugin}'"),
        _ => format!("{} by {world} '{plugin}'", past(why)),
    }
}

/// A request of a sequence that another server has taken over. That server, or this one, goes on from the last stored step.
fn fenced(model: &str, id: &Id) -> String {
    format!(
        "sequence {id} of model '{model}' was taken over by another node while this request waited; retry after {}",
        span(RETRY_AFTER)
    )
}

/// Why a sequence ended, as the continuation of "sequence 7".
fn past(why: EndReason) -> &'static str {
    match why {
        EndReason::End => "ended",
        EndReason::Idle => "expired",
        EndReason::Restarted => "was started anew",
        EndReason::Cancelled => "was ended by a cancelled request",
        EndReason::Evicted => "was evicted to make room",
        EndReason::Drained => "was retired with its version of the model",
        EndReason::Fenced => "was taken over by another node",
        EndReason::Unsealed => "was dropped, for its state could not be stored",
        EndReason::Spilled => "was moved to the store",
        EndReason::Admin => "was dropped by an administrator",
        EndReason::Rejected => "was ended by a plug-in, which rejected a step",
        EndReason::Failed => "failed to start",
        EndReason::Member => "was ended when a member of the ensemble failed",
        EndReason::Broken => "was ended by a failed step",
        EndReason::NotFinite => "was ended because its state became NaN or infinite",
        EndReason::DeviceLost => "was ended when the accelerator with its state failed",
        EndReason::NoSlot => "got no slot in time, and ended",
        EndReason::RolledBack => "went back to its last stored state",
    }
}

#[cfg(test)]
#[path = "triton_tests.rs"]
mod tests;
