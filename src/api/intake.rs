//! What every surface shares: a decoded request's way to the models and back, how many may be on it, and what is counted of it.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Id, Refusal};
use tokio::sync::watch;

use super::kserve::refusal;
use super::{Code, Status};
use crate::error::{Failure, Refused};
use crate::model::{InferAnswer, InferRequest, Repository, Served};
use crate::telemetry::Metrics;
use crate::telemetry::metrics::Surface;

/// What clients may ask for at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one request.
    pub request: usize,
    /// Requests received and not answered yet.
    pub in_flight: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { request: 64 << 20, in_flight: 65_536 }
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
    phase: watch::Sender<Phase>,
}

impl Api {
    pub fn new(repository: Repository, metrics: Metrics, limits: Limits) -> Api {
        Api(Arc::new(Shared { repository, metrics, limits, phase: watch::Sender::new(Phase::Serving) }))
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

    /// Finds a model, or says in Triton's words why it cannot be addressed.
    pub fn find(&self, model: &str, version: &str) -> Result<Served, Status> {
        self.0.repository.find(model, version).map_err(|failure| refusal::status(&failure, ""))
    }

    /// Admits a request, awaits its answer and counts it. Dropping the future cancels the request; so does `wait` when it has passed.
    pub async fn infer(&self, call: Call<'_>, request: Result<InferRequest, Status>) -> Result<InferAnswer, Status> {
        let _flight = Flight::of(&self.0.metrics);
        let outcome = match request {
            // What a client got wrong matters only where there is such a model.
            Err(status) => Err(self.find(call.model, call.version).err().unwrap_or(status)),
            Ok(request) => self.run(request, call.wait).await,
        };
        match &outcome {
            Ok(answer) => self.0.metrics.request_succeeded(&answer.model, call.surface),
            Err(status) => self.count_failure(&call, status),
        }
        outcome
    }

    async fn run(&self, request: InferRequest, wait: Option<Duration>) -> Result<InferAnswer, Status> {
        self.check_room(&request)?;
        let mark = request.id.clone();
        let pending = self.0.repository.submit(request).map_err(|failure| refusal::status(&failure, &mark))?;
        let outcome = match wait {
            None => pending.await,
            Some(wait) => tokio::time::timeout(wait, pending).await.map_err(|_| {
                let waited = refusal::span(wait);
                Status::new(
                    Code::DeadlineExceeded,
                    "deadline",
                    format!("no answer within the client's deadline of {waited}"),
                )
            })?,
        };
        outcome.map_err(|failure| refusal::status(&failure, &mark))
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

    fn count_failure(&self, call: &Call<'_>, status: &Status) {
        // Only what is served becomes a label, lest clients make them up.
        let served = self.0.repository.find(call.model, call.version).is_ok();
        let model = if served { call.model } else { "" };
        self.0.metrics.request_failed(model, call.surface, status.code.name(), status.reason);
    }
}

/// What is known of a request whether or not it could be decoded.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub surface: Surface,
    pub model: &'a str,
    pub version: &'a str,
    /// How long the client waits, if it says so.
    pub wait: Option<Duration>,
}

fn stopping(request: &InferRequest) -> Failure {
    Failure::Refused(Box::new(Refused {
        refusal: Refusal::Stopping,
        model: request.model.clone(),
        id: request.sequence.id.clone(),
        ended_ago: None,
        idle: None,
    }))
}

/// A request on its way, counted as long as this lives: also when its future is dropped.
#[derive(Debug)]
struct Flight<'a>(&'a Metrics);

impl Flight<'_> {
    fn of(metrics: &Metrics) -> Flight<'_> {
        metrics.in_flight().add(1);
        Flight(metrics)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.in_flight().add(-1);
    }
}
