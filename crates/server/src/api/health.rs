//! `grpc.health.v1`: whether the server is ready. Like Triton, it gives the same answer for every service name.
//!
//! The metrics listener serves `Check` only, with short messages: it has no keys and counts no bytes, and few connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{Api, ServerPhase};

/// How often a watch checks whether the models are ready. A change of the server's phase is sent at once.
const LOOK: Duration = Duration::from_millis(500);

/// The refusal of `Watch` at the metrics listener.
const NO_WATCH: &str = "Watch is not served on the metrics port. Call Check, or Watch on a port for clients";

/// Maximum bytes of a message to [`probes`]. It has the name of a service.
pub const LONGEST_PROBE: usize = 1 << 10;

#[derive(Debug, Clone)]
pub struct Readiness {
    api: Api,
    /// Whether `Watch` is served.
    watches: bool,
}

/// The service for clients.
pub fn service(api: &Api) -> HealthServer<Readiness> {
    HealthServer::new(Readiness { api: api.clone(), watches: true })
}

/// The service for probes at the metrics listener.
pub fn probes(api: &Api) -> HealthServer<Readiness> {
    let probes = HealthServer::new(Readiness { api: api.clone(), watches: false });
    probes.max_decoding_message_size(LONGEST_PROBE)
}

impl Readiness {
    fn status(&self) -> ServingStatus {
        if self.api.ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Readiness {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(answer(self.status())))
    }

    type WatchStream = std::pin::Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        if !self.watches {
            return Err(super::Status::unimplemented(NO_WATCH).into());
        }
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(send_changes(self.clone(), self.api.phases(), sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Sends the status, then every change of it, until the client has gone or the server closes.
async fn send_changes(
    readiness: Readiness,
    mut phases: watch::Receiver<ServerPhase>,
    sender: tokio::sync::mpsc::Sender<Result<HealthCheckResponse, Status>>,
) {
    let mut sent = None;
    loop {
        let status = readiness.status();
        if sent != Some(status) && sender.send(Ok(answer(status))).await.is_err() {
            return;
        }
        sent = Some(status);
        // A stream that does not end would keep its connection open until the server's exit timeout.
        if *phases.borrow() == ServerPhase::Closing {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            changed = phases.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}
