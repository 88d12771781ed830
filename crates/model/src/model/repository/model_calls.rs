//! Calls of plug-ins to other models. Each is a request like a client's, and uses that model's queue and batches.

use std::sync::{Arc, Weak};

use sequor_core::{Dialect, Refusal, Time};

use crate::error::{Failure, Invalid, ProcessorFailure, RejectionStatus};
use crate::executor::ExecutorHandle;
use crate::model::catalog::Catalog;
use crate::model::request::{InferRequest, SequenceStep};
use crate::model::runtime::Clock;
use crate::model::sequences::{InheritedContext, Pending, RequestOrigin};
use crate::processing::outgoing::{CallingRequest, InferFailure, InferFuture, ModelCaller, code};
use crate::telemetry::refusal_reason;
use crate::tensor::NamedTensor;

/// The models of this server, for calls of plug-ins.
#[derive(Debug)]
pub(super) struct ModelCalls {
    catalog: Weak<Catalog>,
    clock: Clock,
    /// The plug-in threads, on which all calls are made.
    threads: ExecutorHandle,
}

impl ModelCalls {
    pub(super) fn new(catalog: &Arc<Catalog>, clock: &Clock, threads: ExecutorHandle) -> ModelCalls {
        ModelCalls { catalog: Arc::downgrade(catalog), clock: clock.clone(), threads }
    }

    fn submit(&self, of: &CallingRequest, model: &str, inputs: Vec<NamedTensor>) -> Result<Pending, InferFailure> {
        let gone = || InferFailure::new(code::UNAVAILABLE, "the server is stopping");
        let catalog = self.catalog.upgrade().ok_or_else(gone)?;
        let failed = |failure| to_infer_failure(model, failure);
        let handle = catalog.find(model, "").map_err(failed)?;
        let (now, inherited) = (self.clock.now(), of.origin.as_any().downcast_ref::<InheritedContext>());
        let left = |until: Option<Time>| until.map(|until| until - now);
        let request = InferRequest {
            model: model.to_owned(),
            version: String::new(),
            id: inherited.map(|of| of.mark.clone()).unwrap_or_default(),
            sequence: SequenceStep::default(),
            priority: inherited.map_or(0, |of| of.priority),
            timeout: left(inherited.and_then(|of| of.timeout)),
            inputs,
            outputs: Vec::new(),
            parameters: inherited.map(|of| of.parameters.clone()).unwrap_or_default(),
            dialect: Dialect::TRITON,
        };
        let origin = RequestOrigin {
            callers: Some(&of.path),
            connection: Some(&self.threads),
            patience: left(inherited.and_then(|of| of.patience)),
            headers: inherited.map_or(&[], |of| &of.headers),
            ..RequestOrigin::default()
        };
        handle.submit_from(origin, request).map_err(failed)
    }
}

impl ModelCaller for ModelCalls {
    fn call(&self, request: &CallingRequest, model: &str, inputs: Vec<NamedTensor>) -> InferFuture {
        let (pending, model) = (self.submit(request, model, inputs), model.to_owned());
        Box::pin(async move {
            let answer = pending?.await;
            answer.map(|answer| answer.outputs).map_err(|failure| to_infer_failure(&model, failure))
        })
    }
}

/// Converts a failure to a code of the contract, with a text.
fn to_infer_failure(model: &str, failure: Failure) -> InferFailure {
    let of = |code: u32, what: &str| InferFailure::new(code, format!("model '{model}': {what}"));
    match failure {
        Failure::NotServed(_) => of(code::ABSENT, "the server has no such model, or it is not ready"),
        Failure::Invalid { what, .. } => of(code::INVALID, &misfit(&what)),
        Failure::Refused(refused) => {
            let code = match &refused.refusal {
                Refusal::QueueTimeout { .. } | Refusal::BacklogTimeout { .. } => code::DEADLINE,
                Refusal::NoId | Refusal::Unknown(_) => code::PRECONDITION,
                Refusal::NoVersion => code::ABSENT,
                Refusal::Failed(_) | Refusal::Ended(_) => code::FAILED,
                Refusal::Policy(_) => refused.rejection.as_ref().map_or(code::QUOTA, |reason| by_status(reason.status)),
                _ => code::UNAVAILABLE,
            };
            let why = match &refused.refusal {
                Refusal::NoId => "it keeps state by sequence, and calls of plug-ins belong to none",
                refusal => refusal_reason(refusal),
            };
            let retry = refused.rejection.and_then(|reason| reason.retry_after);
            InferFailure { retry, ..of(code, why) }
        }
        Failure::StateMemory { .. } | Failure::DeviceMemory { .. } => of(code::UNAVAILABLE, "no memory for its state"),
        Failure::PeerSequences { .. } => of(code::QUOTA, "too many live sequences of one client"),
        Failure::Limit(limit) => of(code::UNAVAILABLE, &limit.to_string()),
        Failure::Deadline { .. } => of(code::DEADLINE, "the deadline has passed"),
        Failure::Processor(by) => {
            let ProcessorFailure { plugin, code: own, text, retry, unavailable, .. } = *by;
            let code = match own {
                Some(own) if (code::INVALID..=code::PRECONDITION).contains(&own) => own,
                Some(_) => code::INVALID,
                None if unavailable => code::UNAVAILABLE,
                None => code::FAILED,
            };
            InferFailure { retry, ..of(code, &format!("{plugin}: {text}")) }
        }
        Failure::NotResumed { .. } | Failure::Store { .. } => {
            of(code::UNAVAILABLE, "its stored state cannot be read now")
        }
        Failure::NotStored { why, .. } => of(code::UNAVAILABLE, &format!("its state could not be stored: {why}")),
        Failure::Member { why, .. } => to_infer_failure(model, *why),
        Failure::Control(_) => of(code::FAILED, "not served"),
        Failure::NotCopied { .. } => of(code::PRECONDITION, "the sequence that it is to copy has no state here"),
        Failure::StateNotFinite { state, .. } => {
            of(code::FAILED, &format!("its state {state:?} became NaN or infinite"))
        }
        Failure::Run(what) | Failure::Internal(what) => of(code::FAILED, &what),
    }
}

fn by_status(status: RejectionStatus) -> u32 {
    match status {
        RejectionStatus::InvalidArgument => code::INVALID,
        RejectionStatus::Unavailable => code::UNAVAILABLE,
        RejectionStatus::PermissionDenied => code::DENIED,
        RejectionStatus::NotFound => code::ABSENT,
        RejectionStatus::ResourceExhausted => code::QUOTA,
        RejectionStatus::FailedPrecondition => code::PRECONDITION,
        RejectionStatus::DeadlineExceeded => code::DEADLINE,
    }
}

/// Why inputs do not fit a model.
fn misfit(what: &Invalid) -> String {
    match what {
        Invalid::UnknownInput { input, .. } => format!("it has no input \"{input}\""),
        Invalid::InputCount { missing, .. } if !missing.is_empty() => format!("without {}", missing.join(", ")),
        Invalid::DuplicateInput { input } => format!("input \"{input}\" is given twice"),
        Invalid::DataType { input, got, want } => format!("input \"{input}\" is {want}, not {got}"),
        Invalid::Shape { input, want, got, .. } => format!("input \"{input}\" is {want}, not {got}"),
        Invalid::ByteSize { input, want, got } => format!("input \"{input}\" has {got} bytes instead of {want}"),
        Invalid::BatchTooLarge { max } => format!("more than {max} rows"),
        other => format!("{other:?}"),
    }
}
