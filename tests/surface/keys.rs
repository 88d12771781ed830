//! Tests clients' keys: which calls need one on every surface, and how they are refused.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sequor::api::ServerLimits;
use sequor::config::server::access::{ApiGroup, KeyedGroups};
use sequor::server::{ApiKeys, ClientKeys, ServerOptions};
use tempfile::NamedTempFile;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, http};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::restricted;
use crate::rig::{Rig, START, exchange, step};

fn keys(path: &Path, keyed: KeyedGroups) -> Option<ClientKeys> {
    Some(ClientKeys { keys: ApiKeys::open(path).unwrap(), keyed })
}

fn file(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs_err::write(file.path(), text).unwrap();
    file
}

fn rig(file: &NamedTempFile, keyed: KeyedGroups) -> Rig {
    Rig::served(ServerOptions { client_keys: keys(file.path(), keyed), ..ServerOptions::default() })
}

async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// Makes a call with an empty message. Returns whether it is refused because a key is missing or wrong.
async fn needs_key(channel: &Channel, path: &str, key: Option<(&'static str, &str)>) -> bool {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(());
    if let Some((name, value)) = key {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    let path: PathAndQuery = path.parse().unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let Err(status) = client.unary(request, path, codec).await else { return false };
    let is_refused = status.code() == tonic::Code::Unauthenticated;
    assert!(!is_refused || status.metadata().get("sequor-reason").unwrap() == "unauthenticated");
    is_refused
}

const CALLS: [(bool, &str); 12] = [
    (false, "/inference.GRPCInferenceService/ServerLive"),
    (false, "/inference.GRPCInferenceService/ServerReady"),
    (false, "/inference.GRPCInferenceService/ModelReady"),
    (false, "/grpc.health.v1.Health/Check"),
    (false, "/tensorflow.serving.ModelService/GetModelStatus"),
    (true, "/inference.GRPCInferenceService/ServerMetadata"),
    (true, "/inference.GRPCInferenceService/ModelInfer"),
    (true, "/inference.GRPCInferenceService/ModelStreamInfer"),
    (true, "/inference.GRPCInferenceService/RepositoryIndex"),
    (true, "/tensorflow.serving.PredictionService/Predict"),
    (true, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    (true, "/no.such.Service/Call"),
];

const PATHS: [(bool, &str); 15] = [
    (false, "GET /v2/health/live"),
    (false, "GET /v2/health/ready"),
    (false, "GET /v2/models/same/ready"),
    (false, "GET /readyz"),
    (false, "GET /v1/models/same"),
    (true, "GET /v2"),
    (true, "POST /v2/models/same/infer"),
    (true, "POST /v2/models/same/generate"),
    (true, "GET /v2/models/same/stream"),
    (true, "POST /v2/repository/index"),
    (true, "GET /v2/logging"),
    (true, "POST /v1/models/same:predict"),
    (true, "POST /v1/models/same%3Apredict"),
    (true, "POST /inference.GRPCInferenceService/ModelInfer"),
    (true, "GET /nowhere"),
];

#[tokio::test]
async fn all_but_health_needs_a_key_over_both_protocols_of_both_ports() {
    let file = file("anna:s3cret");
    let rig = rig(&file, KeyedGroups::AllButHealth);
    for address in &rig.all_addresses()[..2] {
        let channel = channel(*address).await;
        for (needs, path) in CALLS {
            assert_eq!(needs_key(&channel, path, None).await, needs, "{path}");
            assert_eq!(needs_key(&channel, path, Some(("sequor-key", "s3cre"))).await, needs, "{path}");
            assert!(!needs_key(&channel, path, Some(("authorization", "Bearer s3cret"))).await, "{path}");
            assert!(!needs_key(&channel, path, Some(("sequor-key", "s3cret"))).await, "{path}");
        }
        for (needs, path) in PATHS {
            for header in [&[][..], &[("authorization", "Bearer s3cre")], &[("authorization", "s3cret")]] {
                let answer = exchange(*address, path, header, b"{}").await;
                assert_eq!(answer.status == 401, needs, "{path} {header:?}");
                if needs {
                    assert!(answer.head.contains("sequor-reason: unauthenticated"), "{}", answer.head);
                    assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
                    assert_eq!(answer.json()["reason"], "unauthenticated");
                }
            }
            for header in [("authorization", "bearer s3cret"), ("Sequor-Key", "s3cret")] {
                assert_ne!(exchange(*address, path, &[header], b"{}").await.status, 401, "{path}");
            }
        }
    }
    let [.., metrics, _] = rig.all_addresses();
    assert_eq!(exchange(metrics, "GET /metrics", &[], b"").await.status, 200, "scrapes need no key");
}

#[tokio::test]
async fn a_websocket_shows_its_key_when_it_opens() {
    let file = file("anna:s3cret");
    let rig = rig(&file, KeyedGroups::AllButHealth);
    let address = rig.addresses.http.unwrap();
    let open = async |key: Option<&'static str>| {
        let mut request = format!("ws://{address}/v2/models/same/stream").into_client_request().unwrap();
        request
            .headers_mut()
            .extend(key.map(|key| (http::HeaderName::from_static("sequor-key"), key.parse().unwrap())));
        tokio_tungstenite::client_async(request, TcpStream::connect(address).await.unwrap()).await
    };
    for key in [None, Some("wrong")] {
        assert!(matches!(open(key).await.unwrap_err(), Error::Http(answer) if answer.status() == 401));
    }
    assert!(open(Some("s3cret")).await.is_ok());
}

#[tokio::test]
async fn only_the_groups_that_are_named_need_a_key() {
    let file = file("anna:s3cret");
    let keyed = KeyedGroups::Only(vec![ApiGroup::ModelRepository, ApiGroup::Logging]);
    let rig = rig(&file, keyed);
    let grpc = channel(rig.addresses.grpc.unwrap()).await;
    for (_, path) in CALLS {
        assert_eq!(needs_key(&grpc, path, None).await, path.ends_with("/RepositoryIndex"), "{path}");
    }
    for (_, path) in PATHS {
        let needs = path.ends_with("/index") || path.ends_with("/logging");
        // A key that the server does not know may be meant for a proxy.
        for header in [&[][..], &[("authorization", "Bearer of a proxy")]] {
            assert_eq!(rig.http(path, header, b"{}").await.status == 401, needs, "{path}");
        }
        assert_ne!(rig.http(path, &[("sequor-key", "s3cret")], b"{}").await.status, 401, "{path}");
    }
}

/// Each group by itself, and all but health: every path and call needs a key exactly if its group is among them.
#[tokio::test]
async fn each_keyed_group_needs_a_key_on_all_its_paths_and_calls() {
    let file = file("anna:s3cret");
    let single = ApiGroup::ALL.map(|group| KeyedGroups::Only(vec![group]));
    for keyed in single.into_iter().chain([KeyedGroups::AllButHealth]) {
        let needs = |group: &str| match &keyed {
            KeyedGroups::Only(groups) => groups.iter().any(|of| of.name() == group),
            KeyedGroups::AllButHealth => group != "health",
        };
        let rig = rig(&file, keyed.clone());
        for (group, paths) in restricted::PATHS.iter().chain([&restricted::LOGGING]) {
            for path in *paths {
                let without = rig.http(path, &[], b"{}").await.status == 401;
                assert_eq!(without, needs(group), "{keyed:?}: {path}");
                let with = rig.http(path, &[("sequor-key", "s3cret")], b"{}").await;
                assert_ne!(with.status, 401, "{keyed:?}: {path}");
            }
        }
        let grpc = channel(rig.addresses.grpc.unwrap()).await;
        for (group, service, method) in restricted::CALLS {
            let call = format!("/{service}/{method}");
            assert_eq!(needs_key(&grpc, &call, None).await, needs(group), "{keyed:?}: {call}");
            assert!(!needs_key(&grpc, &call, Some(("sequor-key", "s3cret"))).await, "{keyed:?}: {call}");
        }
    }
}

#[tokio::test]
async fn a_changed_file_of_keys_counts_from_the_next_request() {
    let file = file("anna:first");
    let rig = rig(&file, KeyedGroups::AllButHealth);
    let status = async |key: &str| rig.http("GET /v2", &[("sequor-key", key)], b"").await.status;
    assert_eq!((status("first").await, status("the second").await), (200, 401));
    fs_err::write(file.path(), "anna:the second").unwrap();
    assert_eq!((status("first").await, status("the second").await), (401, 200));
}

#[tokio::test]
async fn requests_with_one_key_count_as_one_client() {
    let file = file("anna:one\nbert:two");
    let limits = ServerLimits { sequences_per_peer: Some(1), ..ServerLimits::default() };
    let client_keys = keys(file.path(), KeyedGroups::AllButHealth);
    let rig = Rig::served(ServerOptions { limits, client_keys, ..ServerOptions::default() });
    let mut client = rig.client().await;
    let mut start = async |key: &'static str, id: i64| {
        let mut request = tonic::Request::new(step(id, "", 1, &[START]));
        request.metadata_mut().insert("sequor-key", key.parse().unwrap());
        client.model_infer(request).await.err().map(|status| status.metadata().get("sequor-reason").unwrap().clone())
    };
    assert_eq!(start("one", 1).await, None);
    assert_eq!(start("one", 2).await.unwrap(), "peer_limit");
    assert_eq!(start("two", 2).await, None);
}

#[test]
fn the_debug_output_of_keys_hides_them() {
    let file = file("anna:s3cret");
    let options =
        ServerOptions { client_keys: keys(file.path(), KeyedGroups::AllButHealth), ..ServerOptions::default() };
    assert!(!format!("{:?}", Arc::new(options)).contains("s3cret"));
}
