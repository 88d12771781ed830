//! The common part of refusals on every surface: the reason, the retry, and the sentences for the server's own limits. Each surface has its
//! own table of codes and sentences.

use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal};

use super::{Code, Retry, Status};
use crate::config::units::human;
use crate::error::{
    ControlFailure, ExceededLimit, Failure, NoVersionReason, NotCopied, NotServed, ProcessorFailure, Refused,
    RejectionReason, RejectionStatus,
};
use crate::telemetry::{ended_reason, refusal_reason};

/// The delay after which a client may retry a request that a full server refused.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) const BAD_INPUT: &str = "bad_input";

/// The reason of a request that ran but whose answer cannot be sent.
pub(crate) const ANSWER_UNSENT: &str = "answer_unsent";

/// The advice for such a request. A retry without a step number would count its step twice.
const HAS_RUN: &str = "the request has run: if it is a step of a sequence, go on with the next one, or send it again with its sequence_step";

/// The reason of a request for a model or version that does not exist or is not ready.
pub(crate) const NOT_SERVED: &str = "not_served";

/// The reason of a request beyond a limit of one client.
pub(crate) const PEER_LIMIT: &str = "peer_limit";
pub(crate) const QUEUE_FULL: &str = "queue_full";

/// The reason of a failure, for metrics and clients' programs.
pub(crate) fn reason(failure: &Failure) -> &'static str {
    match failure {
        Failure::NotServed(NotServed::BadVersion { .. } | NotServed::NegativeVersion { .. })
        | Failure::Invalid { .. }
        | Failure::Limit(
            ExceededLimit::RequestBytes { .. } | ExceededLimit::MessageBytes { .. } | ExceededLimit::Parts { .. },
        ) => BAD_INPUT,
        Failure::NotServed(_) | Failure::Control(ControlFailure::Absent { .. }) => NOT_SERVED,
        Failure::Refused(refused) => refusal_reason(&refused.refusal),
        Failure::StateMemory { .. } | Failure::DeviceMemory { .. } => "state_memory",
        Failure::StateNotFinite { .. } => ended_reason(EndReason::NotFinite),
        Failure::NotCopied { .. } => "not_copied",
        Failure::NotResumed { .. } => "not_resumed",
        Failure::Store { .. } | Failure::NotStored { .. } => "store_failed",
        Failure::Limit(
            ExceededLimit::InFlight { .. } | ExceededLimit::QueuedBytes { .. } | ExceededLimit::AnswerBytes { .. },
        ) => QUEUE_FULL,
        Failure::PeerSequences { .. }
        | Failure::Limit(ExceededLimit::PeerInFlight { .. } | ExceededLimit::PeerQueuedBytes { .. }) => PEER_LIMIT,
        Failure::Deadline { .. } => "deadline",
        Failure::Processor(failure) if failure.code.is_some() => "plugin_rejected",
        Failure::Processor(_) => "plugin_failed",
        Failure::Member { why, .. } => reason(why),
        Failure::Control(ControlFailure::NotExplicit | ControlFailure::NotReloaded) => "not_explicit",
        Failure::Control(ControlFailure::Failed { .. } | ControlFailure::Source(_)) => "load_failed",
        Failure::Run(_) => "run_failed",
        Failure::Internal(_) => "internal",
    }
}

/// The refusal of a request that ran, but whose answer cannot be written because of `why`.
pub(crate) fn unsent(why: Status) -> Status {
    let Status { code, message, reason, .. } = why;
    let reason = if reason == BAD_INPUT { ANSWER_UNSENT } else { reason };
    Status::new(code, reason, format!("{message} ({HAS_RUN})"))
}

/// Whether and when a client may send the request again.
pub(crate) fn retry(failure: &Failure) -> Retry {
    match failure {
        Failure::Refused(refused) => of_refused(refused),
        Failure::Limit(exceeded) => limit(exceeded).retry,
        Failure::Processor(failure) => processor(failure).retry,
        Failure::StateMemory { .. }
        | Failure::DeviceMemory { .. }
        | Failure::Store { .. }
        | Failure::NotStored { start: true, .. }
        | Failure::NotStored { goes_on: true, .. }
        | Failure::PeerSequences { .. } => Retry::After(RETRY_AFTER),
        // The sequence has ended: the same step would find none.
        Failure::NotStored { .. } => Retry::Never,
        Failure::NotCopied { why: NotCopied::NotYet | NotCopied::Gone, .. } => Retry::After(RETRY_AFTER),
        Failure::Member { may_retry, why, .. } => match retry(why) {
            Retry::After(_) if !may_retry => Retry::Never,
            message => message,
        },
        Failure::NotServed(NotServed::NotReady { .. } | NotServed::NoVersion { why: NoVersionReason::Loading, .. }) => {
            Retry::After(RETRY_AFTER)
        }
        Failure::NotServed(_)
        | Failure::StateNotFinite { .. }
        | Failure::NotCopied { .. }
        | Failure::NotResumed { .. }
        | Failure::Invalid { .. }
        | Failure::Deadline { .. }
        | Failure::Control(_)
        | Failure::Run(_)
        | Failure::Internal(_) => Retry::Unsaid,
    }
}

fn of_refused(refused: &Refused) -> Retry {
    if let Some(reason) = &refused.rejection {
        return of_rejection(reason, refused.may_retry);
    }
    match refused.refusal {
        Refusal::Policy(_) if !refused.may_retry => Retry::Unsaid,
        Refusal::TooMany { .. }
        | Refusal::StoreFull { .. }
        | Refusal::BacklogFull { .. }
        | Refusal::Stopping
        | Refusal::QueueTimeout { .. }
        | Refusal::BacklogTimeout { .. }
        | Refusal::QueueFull { .. }
        | Refusal::Elsewhere
        | Refusal::Policy(_) => {
            if refused.may_retry {
                Retry::After(RETRY_AFTER)
            } else {
                Retry::Never
            }
        }
        // If a START is retried, it goes to the version that takes new sequences then.
        Refusal::Ended(EndReason::Drained) if refused.may_retry => Retry::After(RETRY_AFTER),
        // The step goes on from what is stored, on this server or on the other one.
        Refusal::Ended(EndReason::Fenced) => Retry::After(RETRY_AFTER),
        Refusal::Unknown(_)
        | Refusal::Ended(_)
        | Refusal::NoId
        | Refusal::Live
        | Refusal::Ending
        | Refusal::NoVersion
        | Refusal::Cancelled
        | Refusal::StepGap { .. }
        | Refusal::StepGone { .. }
        | Refusal::StepBusy { .. }
        | Refusal::Failed(_) => Retry::Unsaid,
    }
}

/// The retry after a rejection, with the delay from the plug-in's author. Clients retry UNAVAILABLE automatically, so that status always
/// has a delay or forbids the retry.
fn of_rejection(reason: &RejectionReason, may_retry: bool) -> Retry {
    let unavailable = reason.status == RejectionStatus::Unavailable;
    match (may_retry, reason.retry_after) {
        (true, Some(after)) => Retry::After(after),
        (true, None) if unavailable => Retry::After(RETRY_AFTER),
        (false, _) if unavailable => Retry::Never,
        _ => Retry::Unsaid,
    }
}

/// Why no version of a model is ready, and what to do.
pub(crate) fn no_version(why: NoVersionReason) -> String {
    match why {
        NoVersionReason::Loading => format!("it is being loaded; retry after {}", span(RETRY_AFTER)),
        NoVersionReason::Failed => "its last load failed; the repository index and the server's log say why".to_owned(),
        NoVersionReason::MemberUnloaded => {
            "it was unloaded with one of its members; the repository index says which".to_owned()
        }
        NoVersionReason::Unloaded => "it is not loaded".to_owned(),
    }
}

/// The code and sentence for a scheduler's rejection whose code its plugin.toml names.
pub(crate) fn rejection(refused: &Refused) -> Option<(Code, String)> {
    let Refused { refusal: Refusal::Policy(code), model, id, may_retry, rejection: Some(reason), .. } = refused else {
        return None;
    };
    let status = match reason.status {
        RejectionStatus::InvalidArgument => Code::InvalidArgument,
        RejectionStatus::Unavailable => Code::Unavailable,
        RejectionStatus::PermissionDenied => Code::Denied,
        RejectionStatus::NotFound => Code::NotFound,
        RejectionStatus::ResourceExhausted => Code::Exhausted,
        RejectionStatus::FailedPrecondition => Code::FailedPrecondition,
        RejectionStatus::DeadlineExceeded => Code::DeadlineExceeded,
    };
    let next = match of_rejection(reason, *may_retry) {
        Retry::After(after) => format!("; retry after {}", span(after)),
        _ if !may_retry => format!("; sequence {id} has ended, send START"),
        _ => String::new(),
    };
    Some((status, format!("{} (scheduler of model '{model}', code {code}){next}", reason.text)))
}

/// The refusal of a request that exceeds a limit. No protocol has a sentence for these.
pub(crate) fn limit(exceeded: &ExceededLimit) -> Status {
    let retry = span(RETRY_AFTER);
    match exceeded {
        ExceededLimit::InFlight { limit } => {
            let text =
                format!("{limit} requests are in flight, as many as may be (limits.in_flight); retry after {retry}");
            Status::new(Code::Unavailable, QUEUE_FULL, text).retry_after(RETRY_AFTER)
        }
        ExceededLimit::QueuedBytes { needed, used, limit } => {
            let [needed, used, limit] = [*needed, *used, *limit].map(human);
            let text = format!(
                "queued bytes of requests and answers {used} of {limit} (limits.queued); this request needs {needed}; \
                 retry after {retry}"
            );
            Status::new(Code::Unavailable, QUEUE_FULL, text).retry_after(RETRY_AFTER)
        }
        ExceededLimit::AnswerBytes { used, limit } => {
            let [used, limit] = [*used, *limit].map(human);
            let text = format!(
                "answers that clients have not taken and queued requests have {used} of {limit} (limits.queued); retry after {retry}"
            );
            Status::new(Code::Unavailable, QUEUE_FULL, text).retry_after(RETRY_AFTER)
        }
        ExceededLimit::PeerInFlight { limit } => {
            let text = format!(
                "this client has {limit} requests in flight, the maximum of one client (limits.in_flight_per_peer); \
                 retry after {retry}"
            );
            Status::new(Code::Unavailable, PEER_LIMIT, text).retry_after(RETRY_AFTER)
        }
        ExceededLimit::PeerQueuedBytes { needed, used, limit } => {
            let [needed, used, limit] = [*needed, *used, *limit].map(human);
            let text = format!(
                "queued bytes of this client's requests and answers {used} of {limit} (limits.queued_per_peer); this request \
                 needs {needed}; \
                 retry after {retry}"
            );
            Status::new(Code::Unavailable, PEER_LIMIT, text).retry_after(RETRY_AFTER)
        }
        ExceededLimit::RequestBytes { limit } => {
            let text = format!("the request is larger than {limit} bytes (limits.request)");
            Status::new(Code::TooLarge, BAD_INPUT, text)
        }
        ExceededLimit::MessageBytes { bytes, limit, limited_by } => {
            // The sentence of gRPC's own server, which Triton and OVMS send.
            let text = format!("Received message larger than max ({bytes} vs. {limit}) ({limited_by})");
            Status::new(Code::TooLarge, BAD_INPUT, text)
        }
        ExceededLimit::Parts { what, limit, setting } => {
            let text = format!("the request has more than {limit} {what} ({setting})");
            Status::new(Code::InvalidArgument, BAD_INPUT, text)
        }
    }
}

/// The refusal of a processor. The codes are those of `wit/0.1.0/calls.wit`.
pub(crate) fn processor(failure: &ProcessorFailure) -> Status {
    let ProcessorFailure { world, model, id, plugin, code, text, retry, ended, may_retry, unavailable } = failure;
    let sequence = match (id, ended) {
        (Id::None, _) => String::new(),
        (id, true) => format!("; sequence {id} has ended"),
        (id, false) => format!("; sequence {id} lives on, and its state is as before"),
    };
    let Some(code) = code else {
        let text = format!("{world} '{plugin}' of model '{model}' failed: {text}{sequence}");
        let kind = if *unavailable { Code::Unavailable } else { Code::Internal };
        let status = Status::new(kind, "plugin_failed", text);
        return if *unavailable { status.retry_after(RETRY_AFTER) } else { status };
    };
    let kind = match code {
        2 => Code::Unavailable,
        3 => Code::Denied,
        4 => Code::NotFound,
        5 => Code::Exhausted,
        6 => Code::FailedPrecondition,
        _ => Code::InvalidArgument,
    };
    let text = format!("{text} ({world} '{plugin}' of model '{model}', code {code})");
    let status = Status::new(kind, "plugin_rejected", text);
    match retry {
        Some(retry) if *may_retry => status.retry_after(*retry),
        _ if !may_retry && kind == Code::Unavailable => status.never_retry(),
        _ => status,
    }
}

/// The refusal of a member for the client of the ensemble. `status` gives the refusal that a client of the member would get.
pub(crate) fn member(failure: &Failure, status: impl FnOnce(&Failure) -> Status) -> Status {
    let Failure::Member { ensemble, member, id, ended, why, .. } = failure else { return status(failure) };
    let of_member = status(why);
    let ends = match ended {
        true => format!(" (member '{member}'; sequence {id} has ended in all members, send START)"),
        false => format!(" (member '{member}')"),
    };
    let text = format!("in ensemble '{ensemble}', {}{ends}", of_member.message);
    Status { message: text, retry: retry(failure), ..of_member }
}

/// The refusal of a request whose client no longer waits.
pub(crate) fn deadline(allowed: Duration) -> Status {
    let text = format!("no answer within the client's deadline of {}", span(allowed));
    Status::new(Code::DeadlineExceeded, "deadline", text)
}

/// Formats a time for people: `800 ms`, `1.2 s`, `5 s`.
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
mod tests {
    use super::*;

    #[test]
    fn durations_are_rendered_in_readable_units() {
        let written = [0, 800, 1000, 1200, 59_999, 61_000].map(|ms| span(Duration::from_millis(ms)));
        assert_eq!(written, ["0 ms", "800 ms", "1 s", "1.2 s", "59.9 s", "1 min 1 s"]);
    }
}
