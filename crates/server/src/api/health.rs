//! `grpc.health.v1`: whether the server is ready. Like Triton, it gives the same answer for every service name.

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

#[derive(Debug, Clone)]
pub struct Readiness {
    api: Api,
}

pub fn service(api: &Api) -> HealthServer<Readiness> {
    HealthServer::new(Readiness { api: api.clone() })
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
