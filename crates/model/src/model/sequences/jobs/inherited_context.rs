//! The context that plug-ins' calls to other models inherit from a request, and the request's deadline.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use sequor_core::Time;

use crate::error::{Failure, ProcessorFailure};
use crate::model::request::{InferRequest, Parameter};
use crate::model::runtime::{Clock, Tick, Timer};
use crate::processing::outgoing::{CallOrigin, code};

use super::owner::RequestOrigin;

/// The context that calls inherit from the request that they are made for.
#[derive(Debug)]
pub(in crate::model) struct InheritedContext {
    /// The client's own request id.
    pub(in crate::model) mark: String,
    pub(in crate::model) priority: u32,
    /// The time at which its parameter `timeout` expires. `patience`: its client's deadline.
    pub(in crate::model) timeout: Option<Time>,
    pub(in crate::model) patience: Option<Time>,
    pub(in crate::model) parameters: Vec<(String, Parameter)>,
    pub(in crate::model) headers: Vec<(String, String)>,
    deadline: RequestDeadline,
}

/// The deadline of a request. The timer is armed once, when the first call waits.
#[derive(Debug)]
struct RequestDeadline {
    at: Option<Time>,
    clock: Clock,
    timer: Timer,
    me: Weak<InheritedContext>,
    is_armed: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

/// The failure of a request to a model that already waits for it. As a step of an ensemble, a plug-in's call can lead back to its own
/// model.
pub(in crate::model::sequences) fn circle(callers: &[String], model: &str, request: &InferRequest) -> Failure {
    let path = callers.join(" → ");
    Failure::Processor(Box::new(ProcessorFailure {
        world: "processor",
        model: model.to_owned(),
        id: request.sequence.id.clone(),
        plugin: model.to_owned(),
        code: Some(code::DENIED),
        text: format!("model '{model}' waits for this call itself: {path} → {model}"),
        retry: None,
        ended: false,
        may_retry: false,
        unavailable: false,
    }))
}

impl InheritedContext {
    pub(in crate::model::sequences) fn new(
        request: &InferRequest,
        origin: RequestOrigin<'_>,
        now: Time,
        clock: &Clock,
        timer: &Timer,
    ) -> Arc<InheritedContext> {
        let (timeout, patience) = (request.timeout.map(|t| now + t), origin.patience.map(|t| now + t));
        Arc::new_cyclic(|me| InheritedContext {
            mark: request.id.clone(),
            priority: request.priority,
            timeout,
            patience,
            parameters: request.parameters.clone(),
            headers: origin.headers.to_vec(),
            deadline: RequestDeadline {
                at: timeout.into_iter().chain(patience).min(),
                clock: clock.clone(),
                timer: timer.clone(),
                me: me.clone(),
                is_armed: AtomicBool::new(false),
                waiting: Mutex::default(),
            },
        })
    }
}

impl CallOrigin for InheritedContext {
    fn poll_deadline(&self, cx: &mut Context<'_>) -> Poll<()> {
        let RequestDeadline { at, clock, timer, me, is_armed, waiting } = &self.deadline;
        let Some(at) = *at else { return Poll::Pending };
        if clock.now() >= at {
            return Poll::Ready(());
        }
        *waiting.lock() = Some(cx.waker().clone());
        if !is_armed.swap(true, Ordering::AcqRel) {
            timer.arm(at, me.clone());
        }
        Poll::Pending
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Tick for InheritedContext {
    fn tick(self: Arc<Self>) {
        let waiting = self.deadline.waiting.lock().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}
