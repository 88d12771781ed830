//! The entry for decoded requests of every surface. It checks the server's limits, and passes a request to its model and the answer back.
//!
//! A surface decodes requests and passes them to `Api::begin`. It words each [`Failure`] and counts what it sends (`Api::count`).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::HeaderMap;
use sequor_core::Refusal;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use super::audit::Changes;
use super::order::Turn;
use super::peers::{PeerRequest, Peers};
use super::queued::{AnswerPermit, QueuedBytes, QueuedBytesPermit};
use super::request_count::RequestCount;
use super::{Deadline, LiveLimits, RequestContext};
use crate::config::server::file::ServerLimits;
use crate::error::{ExceededLimit, Failure, Refused};
use crate::model::{InferAnswer, InferRequest, ModelHandle, Pending, Repository, RequestOrigin, VersionStatistics};
use crate::spans::{TracedCall, TracedStep, Tracer};
use crate::telemetry::kinds::Gauge;
use crate::telemetry::{Metrics, Surface};

/// A body up to this size counts against `limits.queued` only while its request waits for its turn.
const SMALL_BODY: usize = 64 << 10;

/// The phase of the server on its way to the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ServerPhase {
    #[default]
    Serving,
    /// Reports not ready, so that proxies send requests elsewhere, and still takes every request.
    Announcing,
    /// Takes no new sequences. Live ones continue.
    Finishing,
    /// Takes no requests. Requests taken before are answered.
    Closing,
}

/// The state that all surfaces share. Cheap to clone; all clones are the same server.
#[derive(Debug, Clone)]
pub struct Api(Arc<ApiState>);

#[derive(Debug)]
struct ApiState {
    repository: Repository,
    metrics: Metrics,
    limits: LiveLimits,
    queued: QueuedBytes,
    peers: Peers,
    phase: watch::Sender<ServerPhase>,
    changes: Changes,
    /// `None`: requests are not traced.
    tracer: Option<Tracer>,
}

impl Api {
    pub fn new(repository: Repository, metrics: Metrics, limits: ServerLimits) -> Api {
        Api::traced(repository, metrics, limits, None)
    }

    /// The same, with spans of its requests.
    pub fn traced(repository: Repository, metrics: Metrics, limits: ServerLimits, tracer: Option<Tracer>) -> Api {
        let phase = watch::Sender::new(ServerPhase::Serving);
        let queued = QueuedBytes::new(limits.queued.0, metrics.queued().clone());
        repository.limit_answers(Arc::new(queued.clone()));
        let limits = LiveLimits::new(limits);
        let peers = Peers::new(limits.clone(), &metrics);
        let changes = Changes::default();
        Api(Arc::new(ApiState { repository, metrics, limits, queued, peers, phase, changes, tracer }))
    }

    pub fn limits(&self) -> &LiveLimits {
        &self.0.limits
    }

    /// Applies new limits to requests and states from now on. Limits that only a restart changes stay.
    pub fn set_limits(&self, limits: &ServerLimits) {
        self.0.limits.set(limits);
        self.0.queued.set_limit(limits.queued.0);
        self.0.repository.set_state_limit(limits.state.map_or(u64::MAX, |size| size.0));
    }

    /// Traces this share of requests, if requests are traced.
    pub fn sample(&self, share: f64) {
        if let Some(tracer) = &self.0.tracer {
            tracer.sample(share);
        }
    }

    pub fn repository(&self) -> &Repository {
        &self.0.repository
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Counts the bytes of requests that wait or have not arrived whole.
    pub(crate) fn queued(&self) -> &QueuedBytes {
        &self.0.queued
    }

    /// Counts these bytes of an answer that waits for the client.
    pub(crate) fn answer_permit(&self, context: &RequestContext, bytes: usize) -> AnswerPermit {
        self.0.queued.answer(&context.peer, bytes as u64)
    }

    /// The requests, bytes and sequences that each client holds.
    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// The last changes of the server, on every listener.
    pub(crate) fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub fn set_phase(&self, phase: ServerPhase) {
        self.0.phase.send_replace(phase);
    }

    /// Watches the phase of the server.
    pub fn phases(&self) -> watch::Receiver<ServerPhase> {
        self.0.phase.subscribe()
    }

    pub fn ready(&self) -> bool {
        *self.0.phase.borrow() == ServerPhase::Serving && self.0.repository.ready()
    }

    /// Updates the gauges of the whole server before they are shown.
    pub(crate) fn observe(&self) {
        let (_, state_limit) = self.0.repository.state_bytes();
        let state_limit = (state_limit != u64::MAX).then_some(state_limit);
        self.0.metrics.set_server(self.ready(), state_limit, self.0.queued.limit());
        self.0.metrics.set_answers(self.0.queued.answer_bytes());
    }

    /// The counts of versions; see [`Repository::statistics`].
    pub fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Failure> {
        self.0.repository.statistics(model, version)
    }

    /// Finds a model; `version` is as the client wrote it.
    pub fn find(&self, model: &str, version: &str) -> Result<ModelHandle, Failure> {
        self.0.repository.find(model, version)
    }

    /// Takes the headers that features need from the headers of a request.
    pub(crate) fn feature_headers(&self, headers: &HeaderMap) -> Arc<[(String, String)]> {
        let names = self.0.repository.headers();
        if names.is_empty() {
            return Arc::default();
        }
        let value = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        names.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
    }

    /// Admits a request now, in the order of the calls, or refuses it. The answer is to be awaited. `count` is that of [`Api::count`].
    pub(crate) fn begin(
        &self,
        context: &RequestContext,
        decoded: Decoded,
        count: &mut RequestCount,
    ) -> Result<Underway, Failure> {
        let flight = InFlightRequest::new(&self.0.metrics);
        let Decoded { model, request, mut permit } = decoded;
        let RequestContext { deadline, headers, connection, peer, .. } = context;
        if let Some(span) = count.span() {
            let step = &request.sequence;
            span.describe(TracedStep { sequence: &step.id, start: step.start, end: step.end, request: &request.id });
        }
        self.check_room(&request, &model)?;
        let peer_request = peer.request()?;
        permit.resize(request.inputs.iter().map(|input| input.tensor.data.len() as u64).sum())?;
        let owner = peer.owner();
        let patience = deadline.map(|deadline| deadline.at.saturating_duration_since(Instant::now()));
        let origin = RequestOrigin {
            owner: owner.as_ref(),
            connection: connection.as_ref(),
            patience,
            headers,
            span: count.span().map(|span| span.model()),
            ..RequestOrigin::default()
        };
        let pending = Some(model.submit_from(origin, request)?);
        Ok(Underway { deadline: *deadline, pending, permit, peer_request, flight })
    }

    /// An empty permit against `limits.queued` and the client's own maximum.
    pub(crate) fn queued_permit(&self, context: &RequestContext) -> QueuedBytesPermit {
        self.0.queued.permit(&context.peer)
    }

    /// A permit for a body that has arrived whole and is to be decoded now. Small bodies do not count.
    pub(crate) fn body_permit(&self, context: &RequestContext, body: usize) -> Result<QueuedBytesPermit, Failure> {
        let mut permit = self.queued_permit(context);
        if body > SMALL_BODY {
            permit.grow(body as u64)?;
        }
        Ok(permit)
    }

    /// Waits for the turn of a request whose body has arrived whole. The body counts meanwhile. The permit is that of [`Api::body_permit`].
    pub(crate) async fn turn(
        &self,
        context: &RequestContext,
        body: usize,
    ) -> Result<(Turn, QueuedBytesPermit), Failure> {
        let mut permit = self.body_permit(context, body)?;
        if let Some(turn) = context.order.try_turn() {
            return Ok((turn, permit));
        }
        permit.resize(body as u64)?;
        let turn = context.order.turn().await;
        if body <= SMALL_BODY {
            permit.resize(0)?;
        }
        Ok((turn, permit))
    }

    fn check_room(&self, request: &InferRequest, model: &ModelHandle) -> Result<(), Failure> {
        let limit = self.0.limits.in_flight();
        if usize::try_from(self.0.metrics.in_flight().get()).is_ok_and(|n| n > limit) {
            return Err(ExceededLimit::InFlight { limit }.into());
        }
        // A START without an id asks for one. A model without sequences ignores it.
        let starts = request.sequence.start && model.is_stateful();
        if starts && *self.0.phase.borrow() >= ServerPhase::Finishing {
            return Err(stopping(request));
        }
        Ok(())
    }

    /// The count of a request, with its span if it is traced: of its model if that is known, otherwise of the model of this name and version,
    /// if that is served.
    pub(crate) fn count(
        &self,
        context: &RequestContext,
        surface: Surface,
        (model, version): (&str, &str),
        known: Option<&ModelHandle>,
    ) -> RequestCount {
        let found = || self.0.repository.find(model, version).ok().map(|found| found.request_counters());
        let counters = known.map(ModelHandle::request_counters).or_else(found);
        let span = self.0.tracer.as_ref().and_then(|tracer| {
            let parent = context.trace_parent.as_ref().and_then(|value| value.to_str().ok());
            // Clients cannot make names of spans, so a model that is not served has none.
            let client = Some(context.caller.address.ip());
            let call = TracedCall { surface, is_stream: context.is_stream, client };
            tracer.begin(parent, call, if counters.is_some() { model } else { "" })
        });
        RequestCount::new(counters.unwrap_or_else(|| self.0.metrics.unserved().clone()), surface, span)
    }
}

/// A request that was decoded, on its way to its model.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) model: ModelHandle,
    pub(crate) request: InferRequest,
    /// What decoding counts against `limits.queued`. From its admission on, the request counts the bytes of its inputs.
    pub(crate) permit: QueuedBytesPermit,
}

/// An admitted request, which resolves to its answer. Dropping it cancels the request.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct Underway {
    deadline: Option<Deadline>,
    pending: Option<Pending>,
    #[allow(dead_code, reason = "only its drop matters")]
    permit: QueuedBytesPermit,
    #[allow(dead_code, reason = "only its drop matters")]
    peer_request: PeerRequest,
    #[allow(dead_code, reason = "only its drop matters")]
    flight: InFlightRequest,
}

impl Underway {
    /// The answer until the client's deadline.
    pub(crate) fn by_deadline(self) -> ByDeadline {
        let until = self.deadline.map(|deadline| (Box::pin(sleep_until(deadline.at)), deadline.allowed));
        ByDeadline { underway: self, until }
    }
}

/// A request until its client's deadline. Dropping it cancels the request.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub(crate) struct ByDeadline {
    underway: Underway,
    /// The deadline, if there is one, and the time that the client allowed.
    until: Option<(Pin<Box<Sleep>>, Duration)>,
}

impl Future for ByDeadline {
    type Output = Result<InferAnswer, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.underway).poll(cx) {
            return Poll::Ready(outcome);
        }
        let Some((deadline, allowed)) = &mut self.until else { return Poll::Pending };
        let allowed = *allowed;
        deadline.as_mut().poll(cx).map(|()| Err(Failure::Deadline { allowed }))
    }
}

impl Future for Underway {
    type Output = Result<InferAnswer, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.pending else {
            return Poll::Ready(Err(Failure::Internal("an answer was asked for twice".to_owned())));
        };
        let outcome = std::task::ready!(Pin::new(pending).poll(cx));
        self.pending = None;
        Poll::Ready(outcome)
    }
}

fn stopping(request: &InferRequest) -> Failure {
    Failure::Refused(Box::new(Refused {
        refusal: Refusal::Stopping,
        model: request.model.clone(),
        id: request.sequence.id.clone(),
        ended_ago: None,
        idle: None,
        may_retry: true,
        rejection: None,
        member: None,
        ended_by: None,
    }))
}

/// Counts a request in flight until it is dropped, with or without an answer.
#[derive(Debug)]
struct InFlightRequest(Gauge);

impl InFlightRequest {
    fn new(metrics: &Metrics) -> InFlightRequest {
        metrics.in_flight().add(1);
        InFlightRequest(metrics.in_flight().clone())
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
