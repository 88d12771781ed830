//! Calls of guests to other models: the rights of a plug-in, the origin of a call, and the limits. The `model` module makes the calls.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::telemetry::kinds::Gauge;
use crate::tensor::NamedTensor;

/// Maximum length of a chain of models that wait for each other.
pub const DEPTH: usize = 8;

/// Failure codes of the `models` interface (`models.wit`).
pub mod code {
    pub const INVALID: u32 = 1;
    pub const UNAVAILABLE: u32 = 2;
    pub const DENIED: u32 = 3;
    pub const ABSENT: u32 = 4;
    pub const QUOTA: u32 = 5;
    pub const PRECONDITION: u32 = 6;
    pub const DEADLINE: u32 = 7;
    pub const FAILED: u32 = 8;
}

/// Why a call returned no outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferFailure {
    pub code: u32,
    pub text: String,
    pub retry: Option<Duration>,
}

impl InferFailure {
    pub fn new(code: u32, text: impl Into<String>) -> InferFailure {
        InferFailure { code, text: text.into(), retry: None }
    }
}

/// The outputs of a call.
pub type CallOutcome = Result<Vec<NamedTensor>, InferFailure>;
/// A call in progress. Dropping it cancels the call.
pub type InferFuture = Pin<Box<dyn Future<Output = CallOutcome> + Send>>;

/// Access to the models for guests.
pub trait ModelCaller: Send + Sync + fmt::Debug {
    fn call(&self, request: &CallingRequest, model: &str, inputs: Vec<NamedTensor>) -> InferFuture;
}

/// The request for which a guest calls other models.
pub trait CallOrigin: Send + Sync + fmt::Debug {
    /// Returns `Ready` once the request's deadline has passed.
    fn poll_deadline(&self, cx: &mut Context<'_>) -> Poll<()>;

    fn as_any(&self) -> &dyn std::any::Any;
}

/// A request that is being prepared or finished, with the chain of models that wait for it.
#[derive(Debug, Clone)]
pub struct CallingRequest {
    /// The models that wait for each other. The first is the model that the client called. The last is the request's own model.
    pub path: Arc<[String]>,
    pub origin: Arc<dyn CallOrigin>,
}

/// The models that the guests of a plug-in may call at one model.
#[derive(Debug, Clone)]
pub struct CallRights {
    pub models: Arc<[String]>,
    pub caller: Arc<dyn ModelCaller>,
    /// Number of calls in progress.
    pub waiting: Gauge,
}

/// The rights and the request of one guest call that may call other models.
#[derive(Debug, Clone)]
pub struct OutgoingCalls {
    pub(super) rights: CallRights,
    pub(super) request: CallingRequest,
}

/// Counts a call while it waits for its answer.
struct WaitingCall<'a>(&'a Gauge);

impl<'a> WaitingCall<'a> {
    fn new(gauge: &'a Gauge) -> WaitingCall<'a> {
        gauge.add(1);
        WaitingCall(gauge)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl OutgoingCalls {
    /// Checks whether the plug-in may call this model now.
    pub(super) fn check(&self, model: &str) -> Result<(), InferFailure> {
        let denied = |text: String| Err(InferFailure::new(code::DENIED, text));
        let path = &self.request.path;
        if !self.rights.models.iter().any(|granted| granted == model) {
            return denied(format!("no grant names model '{model}' (plugins.grants = [\"NAME=model:{model}\"])"));
        }
        if path.iter().any(|waiting| waiting == model) {
            return denied(format!("model '{model}' waits for this call itself: {} → {model}", path.join(" → ")));
        }
        if path.len() >= DEPTH {
            return denied(format!("{} models wait for each other, the maximum: {}", path.len(), path.join(" → ")));
        }
        Ok(())
    }

    /// Calls a model and waits for its outputs.
    pub(super) async fn call(self, model: &str, inputs: Vec<NamedTensor>) -> CallOutcome {
        let OutgoingCalls { rights, request } = &self;
        let late = || Err(InferFailure::new(code::DEADLINE, "the deadline of the request has passed"));
        if poll_fn(|cx| Poll::Ready(request.origin.poll_deadline(cx).is_ready())).await {
            return late();
        }
        self.check(model)?;
        let _waiting = WaitingCall::new(&rights.waiting);
        let mut call: Option<InferFuture> = None;
        let mut inputs = Some(inputs);
        poll_fn(move |cx| {
            if request.origin.poll_deadline(cx).is_ready() {
                return Poll::Ready(late());
            }
            let call =
                call.get_or_insert_with(|| rights.caller.call(request, model, inputs.take().unwrap_or_default()));
            call.as_mut().poll(cx)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl ModelCaller for Nothing {
        fn call(&self, _: &CallingRequest, _: &str, _: Vec<NamedTensor>) -> InferFuture {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    impl CallOrigin for Nothing {
        fn poll_deadline(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    fn calls(path: &[&str]) -> OutgoingCalls {
        let models = ["scorer", "decoder", "joiner"].map(str::to_owned).into();
        let rights = CallRights { models, caller: Arc::new(Nothing), waiting: Gauge::default() };
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        OutgoingCalls { rights, request: CallingRequest { path, origin: Arc::new(Nothing) } }
    }

    #[test]
    fn a_call_without_a_grant_in_a_circle_or_too_deep_is_denied() {
        assert_eq!(calls(&["scorer"]).check("decoder"), Ok(()));
        let denied = |path: &[&str], model: &str| {
            let failure = calls(path).check(model).unwrap_err();
            assert_eq!(failure.code, code::DENIED);
            failure.text
        };
        assert!(denied(&["scorer"], "encoder").starts_with("no grant names model 'encoder'"));
        let text = denied(&["scorer"], "scorer");
        assert_eq!(text, "model 'scorer' waits for this call itself: scorer → scorer");
        let text = denied(&["scorer", "decoder"], "scorer");
        assert_eq!(text, "model 'scorer' waits for this call itself: scorer → decoder → scorer");
        let deep = ["a", "b", "c", "d", "e", "f", "g", "h"];
        assert!(denied(&deep, "joiner").starts_with("8 models wait for each other"));
        assert_eq!(calls(&deep[1..]).check("joiner"), Ok(()));
    }
}
