//! Tests that all requests pass the dispatcher: a check there applies to every surface of every listener.

use std::sync::Arc;

use parking_lot::Mutex;
use sequor::api::{Check, Code, RequestContext, RequestHead, Status};
use sequor::server::ServerOptions;
use sequor_proto as proto;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use crate::rig::{Answer, Rig, exchange, request};

/// Refuses every request, and records what it saw.
#[derive(Debug, Default)]
struct Refuse(Mutex<Vec<(String, RequestContext)>>);

impl Check for Refuse {
    fn check(&self, context: &mut RequestContext, head: &RequestHead<'_>) -> Result<(), Status> {
        self.0.lock().push((head.uri.path().to_owned(), context.clone()));
        Err(Status::new(Code::Denied, "denied", "not today"))
    }
}

fn refusing() -> (Rig, Arc<Refuse>) {
    let refuse = Arc::new(Refuse::default());
    let options = ServerOptions { checks: vec![Arc::<Refuse>::clone(&refuse)], ..ServerOptions::default() };
    (Rig::served(options), refuse)
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, tonic::Status>) {
    let status = answer.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::PermissionDenied, "not today"));
    assert_eq!(status.metadata().get("sequor-reason").unwrap(), "denied");
}

async fn channel(address: std::net::SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn a_check_holds_for_every_grpc_call_of_every_listener() {
    let (rig, refuse) = refusing();
    let [http, grpc, metrics, admin] = rig.all_addresses();
    for address in [http, grpc, metrics, admin] {
        let channel = channel(address).await;
        let mut kserve = GrpcInferenceServiceClient::new(channel.clone());
        is_refused(kserve.model_infer(request("same", "", &[1])).await);
        is_refused(kserve.model_stream_infer(tokio_stream::once(request("same", "", &[1]))).await);
        is_refused(kserve.server_live(proto::ServerLiveRequest {}).await);
        let mut health = HealthClient::new(channel.clone());
        is_refused(health.check(HealthCheckRequest::default()).await);
        is_refused(health.watch(HealthCheckRequest::default()).await);
        let ask = ServerReflectionRequest::default();
        is_refused(ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(ask)).await);
    }
    assert_eq!(refuse.0.lock().len(), 4 * 6);
}

#[tokio::test]
async fn a_check_holds_for_every_path_over_http_and_for_websockets() {
    let (rig, refuse) = refusing();
    let paths = [
        "GET /v2",
        "GET /v2/health/live",
        "GET /livez",
        "GET /readyz",
        "POST /v2/models/same/infer",
        "GET /v2/models/same",
        "POST /v2/repository/index",
        "POST /v2/logging",
        "GET /v2/systemsharedmemory/status",
        "GET /metrics",
        "GET /",
        "GET /admin/status.json",
        "POST /admin/drain",
        "GET /nowhere",
        "OPTIONS /v2",
        "POST /inference.GRPCInferenceService/ModelInfer",
    ];
    for address in rig.all_addresses() {
        for path in paths {
            let Answer { status, body, .. } = exchange(address, path, &[], b"").await;
            assert_eq!(
                (status, body.as_slice()),
                (403, br#"{"error":"not today","reason":"denied"}"#.as_slice()),
                "{path}"
            );
        }
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/v2/models/same/stream");
        let refused = tokio_tungstenite::client_async(url, stream).await.unwrap_err();
        assert!(matches!(refused, Error::Http(answer) if answer.status() == 403));
    }
    assert_eq!(refuse.0.lock().len(), 4 * (paths.len() + 1));
}

#[tokio::test]
async fn a_check_sees_caller_trace_parent_and_deadline() {
    let (rig, refuse) = refusing();
    let mut call = tonic::Request::new(request("same", "", &[1]));
    call.metadata_mut().insert("traceparent", "00-1-2-01".parse().unwrap());
    call.set_timeout(std::time::Duration::from_secs(7));
    is_refused(rig.client().await.model_infer(call).await);
    let seen = refuse.0.lock();
    let (path, RequestContext { caller, trace_parent, deadline, .. }) = &seen[0];
    assert_eq!(path, "/inference.GRPCInferenceService/ModelInfer");
    assert!(caller.address.ip().is_loopback());
    assert_eq!(trace_parent.as_ref().unwrap(), "00-1-2-01");
    assert_eq!(deadline.unwrap().allowed, std::time::Duration::from_secs(7));
}

#[tokio::test]
async fn every_refusal_has_the_marks_of_its_request() {
    let marks = [("x-request-id", "r-7"), ("traceparent", "00-1-2-01")];
    let has_marks =
        |status: &tonic::Status| marks.iter().all(|(name, value)| status.metadata().get(*name).unwrap() == *value);
    fn marked<T>(message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("x-request-id", "r-7".parse().unwrap());
        request.metadata_mut().insert("traceparent", "00-1-2-01".parse().unwrap());
        request
    }
    for rig in [Rig::new(), refusing().0] {
        let mut client = rig.client().await;
        assert!(has_marks(&client.model_infer(marked(request("nope", "", &[1]))).await.unwrap_err()));
        let nope = proto::ModelReadyRequest { name: "nope".to_owned(), ..Default::default() };
        assert!(has_marks(&client.model_ready(marked(nope)).await.unwrap_err()));
        for path in ["POST /v2/models/nope/infer", "GET /v2/models/nope", "GET /nowhere", "GET /v1/models/nope"] {
            let head = rig.http(path, &marks, b"").await.head;
            let has = |(name, value): &(&str, &str)| head.contains(&format!("{name}: {value}"));
            assert!(marks.iter().all(has), "{path}: {head}");
        }
    }
    let answer = Rig::new().client().await.model_infer(marked(request("same", "", &[1]))).await.unwrap();
    assert_eq!(answer.metadata().get("x-request-id").unwrap(), "r-7");
}
