//! What every surface shares: a decoded request's way to the models and back, how many may be on it, and what is counted of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sequor_core::{Id, Refusal};
use tokio::sync::watch;

use super::kserve::refusal;
use super::kserve::settings::Traces;
use super::kserve::shared_memory::Regions;
use super::peers::{Peer, PeerLimits, PeerRequest, Peers};
use super::queued::{QueuedBytes, QueuedBytesPermit};
use super::{Code, Deadline, Status};
use crate::config::server::settings::SharedMemory;
use crate::error::{Failure, Refused};
use crate::executor::ExecutorHandle;
use crate::model::{InferAnswer, InferRequest, Pending, Repository, RequestOrigin, Served, VersionStatistics};
use crate::telemetry::Metrics;
use crate::telemetry::kinds::Gauge;
use crate::telemetry::metrics::Surface;

/// What clients may ask for at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request.
    pub request: usize,
    /// Requests received and not answered yet.
    pub in_flight: usize,
    /// Bytes of their inputs.
    pub queued: u64,
    /// Bytes of answers that the client of one stream has not read yet.
    pub stream_unread: usize,
    /// Inputs of one request, its outputs, and its parameters with those of its inputs and outputs.
    pub inputs: usize,
    pub outputs: usize,
    pub parameters: usize,
    /// What one client may hold.
    pub per_peer: PeerLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request: 64 << 20,
            in_flight: 65_536,
            queued: 4 << 30,
            stream_unread: 8 << 20,
            inputs: 1000,
            outputs: 1000,
            parameters: 1000,
            per_peer: PeerLimits::default(),
        }
    }
}

/// How far the server is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Phase {
    #[default]
    Serving,
    /// Says that it is not ready, so that proxies turn away, and takes everything that still comes.
    Announcing,
    /// Takes no new sequences; those that live go on.
    Finishing,
    /// Takes nothing any more; what was taken is answered.
    Closing,
}

/// Everything a surface needs. Cheap to clone; all clones are the same server.
#[derive(Debug, Clone)]
pub struct Api(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    repository: Repository,
    metrics: Metrics,
    limits: Limits,
    queued: QueuedBytes,
    peers: Peers,
    phase: watch::Sender<Phase>,
    traces: Traces,
    regions: Regions,
}

impl Api {
    /// Clients may register any system shared memory; see [`Api::with_shared_memory`].
    pub fn new(repository: Repository, metrics: Metrics, limits: Limits) -> Api {
        Api::with_shared_memory(repository, metrics, limits, SharedMemory::On)
    }

    pub fn with_shared_memory(repository: Repository, metrics: Metrics, limits: Limits, allowed: SharedMemory) -> Api {
        let (phase, traces) = (watch::Sender::new(Phase::Serving), Traces::default());
        let (queued, regions) =
            (QueuedBytes::new(limits.queued, metrics.queued().clone()), Regions::new(limits.request, allowed));
        let peers = Peers::new(limits.per_peer, &metrics);
        Api(Arc::new(Shared { repository, metrics, limits, queued, peers, phase, traces, regions }))
    }

    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    pub fn repository(&self) -> &Repository {
        &self.0.repository
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The bytes of requests that wait, or have not arrived in whole.
    pub(crate) fn queued(&self) -> &QueuedBytes {
        &self.0.queued
    }

    /// What each client holds.
    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.0.regions
    }

    pub(crate) fn traces(&self) -> &Traces {
        &self.0.traces
    }

    pub fn set_phase(&self, phase: Phase) {
        self.0.phase.send_replace(phase);
    }

    /// Tells of phases as they change.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    pub fn ready(&self) -> bool {
        *self.0.phase.borrow() == Phase::Serving && self.0.repository.ready()
    }

    /// What was counted; see [`Repository::statistics`].
    pub fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Status> {
        self.0.repository.statistics(model, version).map_err(|failure| refusal::status(&failure, ""))
    }

    /// Finds a model, or says in Triton's words why it cannot be addressed.
    pub fn find(&self, model: &str, version: &str) -> Result<Served, Status> {
        self.0.repository.find(model, version).map_err(|failure| refusal::status(&failure, ""))
    }

    /// The headers that the models' features come from, of those that `get` finds.
    pub(crate) fn headers<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> Vec<(String, String)> {
        let names = self.0.repository.headers();
        names.iter().filter_map(|name| Some((name.clone(), get(name)?.to_owned()))).collect()
    }

    /// Admits a request of this peer now, in the order of the calls; the answer is to be awaited. It also carries what the client got wrong.
    pub(crate) fn begin(&self, peer: &Peer, call: Call, request: Result<Decoded, Status>) -> Underway {
        let flight = Flight::of(&self.0.metrics);
        let admitted = request.and_then(|decoded| self.admit(peer, decoded));
        let (pending, held, refused) = match admitted {
            Ok((pending, held)) => (Some(pending), Some(held), None),
            Err(status) => (None, None, Some(status)),
        };
        Underway { api: self.clone(), call, pending, refused, held, flight }
    }

    /// A permit of no bytes yet, against `limits.queued` and the peer's own maximum.
    pub(crate) fn queued_permit(&self, peer: &Peer) -> QueuedBytesPermit {
        self.0.queued.permit(peer)
    }

    fn admit(&self, peer: &Peer, decoded: Decoded) -> Result<(Pending, Held), Status> {
        let Decoded { model, request, mut permit, connection } = decoded;
        self.check_room(&request)?;
        let in_flight = peer.request()?;
        permit.resize(request.inputs.iter().map(|input| input.tensor.data.len() as u64).sum())?;
        let mark = request.id.clone();
        let owner = peer.owner();
        let origin = RequestOrigin { owner: owner.as_ref(), connection: connection.as_ref() };
        let pending = model.submit_from(origin, request).map_err(|failure| refusal::status(&failure, &mark))?;
        Ok((pending, (permit, in_flight)))
    }

    fn check_room(&self, request: &InferRequest) -> Result<(), Status> {
        let limit = self.0.limits.in_flight;
        if usize::try_from(self.0.metrics.in_flight().get()).is_ok_and(|n| n > limit) {
            let text = format!("{limit} requests are in flight, as many as may be (limits.in_flight); retry after 1 s");
            return Err(Status::new(Code::Unavailable, "queue_full", text).retry_after(refusal::RETRY_AFTER));
        }
        let starts = request.sequence.start && request.sequence.id != Id::None;
        if starts && *self.0.phase.borrow() >= Phase::Finishing {
            return Err(refusal::status(&stopping(request), &request.id));
        }
        Ok(())
    }

    fn count_failure(&self, call: &Call, status: &Status) {
        // Only what is served becomes a label, lest clients make them up.
        let served = self.0.repository.find(&call.model, &call.version).is_ok();
        let model = if served { &call.model } else { "" };
        self.0.metrics.request_failed(model, call.surface, status.code.name(), status.reason);
    }
}

/// A request that was decoded, on its way to its model.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) model: Served,
    pub(crate) request: InferRequest,
    /// What decoding counts against `limits.queued`. From its admission on, the request counts the bytes of its inputs.
    pub(crate) permit: QueuedBytesPermit,
    /// The connection that polls the request, if that is one with tasks of its own.
    pub(crate) connection: Option<ExecutorHandle>,
}

impl Decoded {
    /// The same request on its connection.
    pub(crate) fn on(self, connection: Option<ExecutorHandle>) -> Decoded {
        Decoded { connection, ..self }
    }
}

/// What a request counts, until it is answered.
type Held = (QueuedBytesPermit, PeerRequest);

/// The surface, model and mark of a request, also of one that could not be decoded.
#[derive(Debug, Clone)]
pub struct Call {
    pub surface: Surface,
    pub model: String,
    pub version: String,
    /// The client's own mark.
    pub mark: String,
}

/// A request that was admitted, or refused, and whose answer is to be awaited. Dropping it cancels the request.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct Underway {
    api: Api,
    pub(crate) call: Call,
    pending: Option<Pending>,
    refused: Option<Status>,
    #[allow(dead_code, reason = "only its drop matters")]
    held: Option<Held>,
    #[allow(dead_code, reason = "only its drop matters")]
    flight: Flight,
}

impl Underway {
    /// Awaits the answer until the deadline.
    pub(crate) async fn until(mut self, deadline: Option<Deadline>) -> Result<InferAnswer, Status> {
        let Some(deadline) = deadline else { return self.await };
        if let Ok(outcome) = tokio::time::timeout_at(deadline.at, &mut self).await {
            return outcome;
        }
        let text = format!("no answer within the client's deadline of {}", refusal::span(deadline.allowed));
        Err(self.failed(Status::new(Code::DeadlineExceeded, "deadline", text)))
    }

    /// Counts a failure.
    fn failed(&self, status: Status) -> Status {
        self.api.count_failure(&self.call, &status);
        status
    }
}

impl Future for Underway {
    type Output = Result<InferAnswer, Status>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.pending else {
            let refused = self.refused.take().unwrap_or_else(polled_again);
            return Poll::Ready(Err(self.failed(refused)));
        };
        let outcome = std::task::ready!(Pin::new(pending).poll(cx));
        self.pending = None;
        Poll::Ready(match outcome {
            Ok(answer) => {
                self.api.0.metrics.request_succeeded(&answer.model, self.call.surface);
                Ok(answer)
            }
            Err(failure) => Err(self.failed(refusal::status(&failure, &self.call.mark))),
        })
    }
}

fn polled_again() -> Status {
    Status::new(Code::Internal, "internal", "an answer was asked for twice")
}

fn stopping(request: &InferRequest) -> Failure {
    Failure::Refused(Box::new(Refused {
        refusal: Refusal::Stopping,
        model: request.model.clone(),
        id: request.sequence.id.clone(),
        ended_ago: None,
        idle: None,
        may_retry: true,
    }))
}

/// A request on its way, counted as long as this lives: also when it is dropped without an answer.
#[derive(Debug)]
struct Flight(Gauge);

impl Flight {
    fn of(metrics: &Metrics) -> Flight {
        metrics.in_flight().add(1);
        Flight(metrics.in_flight().clone())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
