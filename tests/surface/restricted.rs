//! Tests restricted groups of endpoints: each path and call belongs to one group, on both listeners, and has no other way in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use sequor::config::server::access::{ApiGroup, RestrictedGroups};
use sequor::config::server::{GivenFlags, HostInfo, load};
use sequor::server::ServerOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, http};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::rig::{Answer, Rig, exchange};

/// Every path of HTTP, by its group.
pub(crate) const PATHS: [(&str, &[&str]); 9] = [
    ("health", &["GET /v2/health/live", "GET /v2/health/ready", "GET /livez", "GET /readyz", "GET /healthz"]),
    ("health", &["GET /v2/models/same/ready", "GET /v2/models/same/versions/1/ready", "GET /v1/models/same"]),
    ("metadata", &["GET /v2", "GET /v2/models/same", "GET /v2/models/same/versions/1", "GET /v1/models/same/metadata"]),
    (
        "inference",
        &[
            "POST /v2/models/same/infer",
            "POST /v2/models/same/versions/1/infer",
            "POST /v2/models/same/generate",
            "POST /v2/models/same/generate_stream",
            "GET /v2/models/same/stream",
            "POST /v1/models/same:predict",
            "POST /v1/models/same%3Apredict",
            "POST /v1/models/same/versions/1%3apredict",
        ],
    ),
    ("shared-memory", &["GET /v2/systemsharedmemory/status", "POST /v2/cudasharedmemory/region/r/unregister"]),
    ("model-config", &["GET /v2/models/same/config", "GET /v2/models/same/versions/1/config"]),
    (
        "model-repository",
        &[
            "POST /v2/repository/index",
            "POST /v2/repository/models/same/load",
            "POST /v2/repository/models/same/unload",
            "GET /v1/config",
            "POST /v1/config/reload",
        ],
    ),
    ("statistics", &["GET /v2/models/stats", "GET /v2/models/same/stats"]),
    ("trace", &["GET /v2/trace/setting", "POST /v2/models/same/trace/setting"]),
];
pub(crate) const LOGGING: (&str, &[&str]) = ("logging", &["GET /v2/logging", "POST /v2/logging"]);

const KSERVE: &str = "inference.GRPCInferenceService";
const PREDICTION: &str = "tensorflow.serving.PredictionService";

/// Calls of gRPC, by their groups.
pub(crate) const CALLS: [(&str, &str, &str); 17] = [
    ("health", KSERVE, "ServerLive"),
    ("health", KSERVE, "ModelReady"),
    ("health", "grpc.health.v1.Health", "Check"),
    ("health", "tensorflow.serving.ModelService", "GetModelStatus"),
    ("metadata", KSERVE, "ServerMetadata"),
    ("metadata", PREDICTION, "GetModelMetadata"),
    ("inference", KSERVE, "ModelInfer"),
    ("inference", KSERVE, "ModelStreamInfer"),
    ("inference", PREDICTION, "Predict"),
    ("shared-memory", KSERVE, "SystemSharedMemoryStatus"),
    ("model-config", KSERVE, "ModelConfig"),
    ("model-repository", KSERVE, "RepositoryIndex"),
    ("model-repository", KSERVE, "RepositoryModelUnload"),
    ("model-repository", "tensorflow.serving.ModelService", "HandleReloadConfigRequest"),
    ("statistics", KSERVE, "ModelStatistics"),
    ("trace", KSERVE, "TraceSetting"),
    ("logging", KSERVE, "LogSettings"),
];

/// The restricted groups of these settings.
fn groups(text: &str) -> RestrictedGroups {
    let file = Some((Path::new("sequor.toml"), text));
    load(file, &|_| None, &GivenFlags::default(), &HostInfo::default()).unwrap().restricted
}

fn rig(text: &str) -> Rig {
    Rig::served(ServerOptions { restricted: groups(text), ..ServerOptions::default() })
}

fn is_refused(answer: &Answer, header: &str) -> bool {
    let text =
        format!("{{\"error\":\"This API is restricted, expecting header '{header}'\",\"reason\":\"restricted\"}}");
    let is = answer.status == 403;
    assert!(!is || (answer.body == text.as_bytes() && answer.head.contains("sequor-reason: restricted")));
    is
}

async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Makes a call with an empty message and this metadata; the refusal of a restricted call, or `None`.
async fn refusal(
    channel: &Channel,
    (service, method): (&str, &str),
    metadata: &[(&'static str, &str)],
) -> Option<String> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(());
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    let path: PathAndQuery = format!("/{service}/{method}").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let status = client.unary(request, path, codec).await.err()?;
    let field = |name: &str| status.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
    if field("sequor-reason").as_deref() != Some("restricted") {
        return None;
    }
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert_eq!(field("grpc-retry-pushback-ms").as_deref(), Some("-1"), "clients retry this code by themselves");
    Some(status.message().to_owned())
}

#[tokio::test]
async fn a_restriction_applies_to_all_paths_of_its_group_and_no_others() {
    for group in ApiGroup::ALL.map(ApiGroup::name) {
        let rig = rig(&format!("[http]\nrestricted_api = [\"{group}:Admin-Key=s3cret\"]\n"));
        for (of, paths) in PATHS.iter().chain([&LOGGING]) {
            for path in *paths {
                let answer = rig.http(path, &[], b"{}").await;
                assert_eq!(is_refused(&answer, "Admin-Key"), *of == group, "{group}: {path}");
                let wrong = rig.http(path, &[("admin-key", "s3cre")], b"{}").await;
                assert_eq!(is_refused(&wrong, "Admin-Key"), *of == group, "{group}: {path}");
                let right = rig.http(path, &[("admin-key", "s3cret")], b"{}").await;
                assert!(!is_refused(&right, "Admin-Key"), "{group}: {path}");
            }
        }
        for path in ["GET /nowhere", "GET /metrics", "GET /v2/models/same/nothing"] {
            assert_eq!(rig.http(path, &[], b"").await.status, 404, "{path}");
        }
    }
}

#[tokio::test]
async fn a_restriction_applies_to_all_calls_of_its_group_and_no_others() {
    for group in ApiGroup::ALL.map(ApiGroup::name) {
        let rig = rig(&format!("[grpc]\nrestricted_protocol = [\"{group}:admin-key=s3cret\"]\n"));
        let channel = channel(rig.addresses.grpc.unwrap()).await;
        const HEADER: &str = "triton-grpc-protocol-admin-key";
        let text = format!("This protocol is restricted, expecting header '{HEADER}'");
        for (of, service, method) in CALLS {
            let want = (of == group).then(|| text.clone());
            assert_eq!(refusal(&channel, (service, method), &[]).await, want, "{group}: {method}");
            assert_eq!(refusal(&channel, (service, method), &[(HEADER, "s3cre")]).await, want, "{group}: {method}");
            assert_eq!(refusal(&channel, (service, method), &[("admin-key", "s3cret")]).await, want, "{method}");
            assert_eq!(refusal(&channel, (service, method), &[(HEADER, "s3cret")]).await, None, "{group}: {method}");
        }
        if group == "health" {
            assert_eq!(refusal(&channel, ("grpc.health.v1.Health", "Watch"), &[]).await, Some(text));
        }
    }
}

#[tokio::test]
async fn a_restriction_also_applies_to_the_other_protocol_of_its_port() {
    let only_http = rig("[http]\nrestricted_api = [\"model-repository:key=s3cret\"]\n");
    let [http, grpc, ..] = only_http.all_addresses();
    let (index, path) = ((KSERVE, "RepositoryIndex"), "POST /v2/repository/index");
    assert_eq!(refusal(&channel(grpc).await, index, &[]).await, None, "gRPC is not restricted");
    let text = "This protocol is restricted, expecting header 'key'";
    assert_eq!(refusal(&channel(http).await, index, &[]).await.as_deref(), Some(text));
    assert_eq!(refusal(&channel(http).await, index, &[("key", "s3cret")]).await, None);
    assert!(is_refused(&exchange(grpc, path, &[], b"").await, "key"), "HTTP is restricted on every port");
    let only_grpc = rig("[grpc]\nrestricted_protocol = [\"model-repository:key=s3cret\"]\n");
    let [http, grpc, ..] = only_grpc.all_addresses();
    assert_eq!(exchange(http, path, &[], b"").await.status, 200, "HTTP is not restricted");
    assert!(is_refused(&exchange(grpc, path, &[], b"").await, "triton-grpc-protocol-key"));
    assert_eq!(exchange(grpc, path, &[("triton-grpc-protocol-key", "s3cret")], b"").await.status, 200);
    assert!(refusal(&channel(http).await, index, &[]).await.is_some());
    // Only the path decides the protocol, not the headers.
    let plain = exchange(http, "POST /inference.GRPCInferenceService/RepositoryIndex", &[], b"").await;
    assert!(plain.status == 403 && plain.head.contains("sequor-reason: restricted"), "{}", plain.head);
    let both = rig("[http]\nrestricted_api = \"trace:a=1\"\n[grpc]\nrestricted_protocol = \"trace:b=2\"\n");
    let trace = (KSERVE, "TraceSetting");
    for address in &both.all_addresses()[..2] {
        assert!(is_refused(&exchange(*address, "GET /v2/trace/setting", &[("b", "2")], b"").await, "a"));
        assert_eq!(exchange(*address, "GET /v2/trace/setting", &[("a", "1")], b"").await.status, 200);
        assert_eq!(refusal(&channel(*address).await, trace, &[("triton-grpc-protocol-b", "2")]).await, None);
        assert!(refusal(&channel(*address).await, trace, &[("a", "1")]).await.is_some());
    }
}

#[tokio::test]
async fn a_websocket_shows_the_header_when_it_opens() {
    let rig = rig("[http]\nrestricted_api = [\"inference:key=s3cret\"]\n");
    let address = rig.addresses.http.unwrap();
    let open = async |header: Option<&'static str>| {
        let mut request = format!("ws://{address}/v2/models/same/stream").into_client_request().unwrap();
        request
            .headers_mut()
            .extend(header.map(|value| (http::HeaderName::from_static("key"), value.parse().unwrap())));
        tokio_tungstenite::client_async(request, TcpStream::connect(address).await.unwrap()).await
    };
    for header in [None, Some("wrong")] {
        let refused = open(header).await.unwrap_err();
        assert!(matches!(refused, Error::Http(answer) if answer.status() == 403));
    }
    assert!(open(Some("s3cret")).await.is_ok());
}

#[tokio::test]
async fn a_request_is_refused_before_its_body_is_read() {
    let rig = rig("[http]\nrestricted_api = [\"inference:key=s3cret\"]\n");
    let mut stream = TcpStream::connect(rig.addresses.http.unwrap()).await.unwrap();
    let head = "POST /v2/models/same/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403");
}

#[test]
fn every_group_is_tried() {
    let mut tried: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for (group, paths) in PATHS.iter().chain([&LOGGING]) {
        tried.entry(group).or_default()[0] += paths.len();
    }
    for (group, ..) in CALLS {
        tried.entry(group).or_default()[1] += 1;
    }
    for group in ApiGroup::ALL.map(ApiGroup::name) {
        assert!(tried.get(group).is_some_and(|[http, grpc]| *http > 0 && *grpc > 0), "{group}");
    }
}
