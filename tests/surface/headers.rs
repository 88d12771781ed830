//! Tests headers as features. For a single request, schedulers see its own header; for a request on a stream, the header of the stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use parking_lot::Mutex;
use sequor::api::ServerLimits;
use sequor::backend::mock::MockBackend;
use sequor::config::model::LoadFacts;
use sequor::scheduling::PluginRules;
use sequor::scheduling::guest::{Events, Guest, Manifest, Source};
use sequor_core::{Admission, Columns, Decision, Hooks, Picks};
use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::{InferParameter, ModelInferRequest};
use sequor_wasm::call_error::CallError;
use sequor_wasm::limits;
use sequor_wasm::services::Services;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::rig::{Rig, SAME, request, write};
use crate::tfs::calls;

/// The key of each request that a scheduler saw, in order.
type Seen = Arc<Mutex<Vec<u64>>>;

/// The time from arrival to deadline of each request that a scheduler saw, in nanoseconds; `None` without a deadline.
type Deadlines = Arc<Mutex<Vec<Option<u64>>>>;

/// Leaves decisions to the server, and records the requests that it sees.
#[derive(Debug, Clone)]
struct Looks(Manifest, Seen, Deadlines);

impl Source for Looks {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn sha256(&self) -> &'static str {
        "looks"
    }

    fn start(&self, _: Arc<dyn Services>, _: limits::Limits) -> Result<Box<dyn Guest>, CallError> {
        Ok(Box::new(self.clone()))
    }
}

impl Guest for Looks {
    fn configure(&mut self, _: &str, _: &LoadFacts) -> Result<Result<(), String>, CallError> {
        Ok(Ok(()))
    }

    fn plan(&mut self, _: u32, see: &Columns, _: &Events, _: &mut Picks) -> Result<Decision, CallError> {
        self.1.lock().extend(&see.keys);
        let times = see.deadline.iter().zip(&see.arrival);
        self.2.lock().extend(times.map(|(due, arrival)| (*due != u64::MAX).then(|| due - arrival)));
        Ok(Decision::Default)
    }

    fn admit(&mut self, _: &Columns, _: &[u32], _: &Columns, _: &Events) -> Result<Vec<Admission>, CallError> {
        Ok(Vec::new())
    }

    fn observe(&mut self, _: &Events) -> Result<(), CallError> {
        Ok(())
    }
}

const NAMED: &str = r#"
    [[feature]]
    name = "zone"
    from = "header"
    key = "X-Zone"
    type = "key"
    default = "nowhere"
    [plugins.scheduler]
    use = "looks"
"#;

/// A server whose model `zoned` has a scheduler that records zones.
fn rig() -> (Rig, Seen) {
    rig_with(&Deadlines::default())
}

fn rig_with(deadlines: &Deadlines) -> (Rig, Seen) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "zoned", SAME, 1, "identity INT32 dims=-1");
    fs_err::write(folder.path().join("zoned/sequor.toml"), NAMED).unwrap();
    let plugins = folder.path().join("plugins");
    fs_err::create_dir(&plugins).unwrap();
    fs_err::write(plugins.join("looks.wasm"), "looks").unwrap();
    let rig = Rig::over(Arc::new(MockBackend::new()), ServerLimits::default(), folder);
    let seen = Seen::default();
    let hooks = Hooks { plan: true, columns: sequor_core::policy::columns::ALL, ..Hooks::default() };
    let manifest = Manifest {
        name: "looks".into(),
        version: "1".into(),
        hooks,
        features: vec!["zone".into()],
        codes: Arc::default(),
    };
    let looks: Arc<dyn Source> = Arc::new(Looks(manifest, Arc::clone(&seen), Arc::clone(deadlines)));
    let rules = PluginRules { dir: Some(plugins), time: Duration::from_secs(60), ..PluginRules::default() };
    rig.repository.run_plugins(rules, Box::new(move |_, _| Ok(Arc::clone(&looks)))).unwrap();
    rig.repository.load(&rig.folder.path().join("zoned"));
    assert!(rig.repository.ready(), "{:?}", rig.repository.statuses());
    (rig, seen)
}

/// The deadline comes from the parameter `timeout`, otherwise from the gRPC call.
#[tokio::test]
async fn a_scheduler_sees_the_deadline_of_the_parameter_or_of_grpc() {
    let deadlines = Deadlines::default();
    let (rig, _) = rig_with(&deadlines);
    let mut client = rig.client().await;
    for (parameter, own) in [(None, None), (Some(5_000_000), Some(20)), (None, Some(20))] {
        let mut message = request("zoned", "", &[1]);
        if let Some(micros) = parameter {
            let choice = Some(ParameterChoice::Int64Param(micros));
            message.parameters.insert("timeout".to_owned(), InferParameter { parameter_choice: choice });
        }
        let mut request = Request::new(message);
        if let Some(seconds) = own {
            request.set_timeout(Duration::from_secs(seconds));
        }
        client.model_infer(request).await.unwrap();
    }
    let seen = std::mem::take(&mut *deadlines.lock());
    assert_eq!(seen[..2], [None, Some(5_000_000_000)]);
    let own = seen[2].unwrap();
    assert!((1..=20_000_000_000).contains(&own), "{own}: at most 20 s, less what has passed");
}

/// Each request of a stream has the stream's deadline.
#[tokio::test]
async fn a_scheduler_sees_the_deadline_of_a_stream() {
    let deadlines = Deadlines::default();
    let (rig, _) = rig_with(&deadlines);
    let mut client = rig.client().await;
    // One request at a time, because a request that waits for a run may be shown twice.
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let mut stream = Request::new(tokio_stream::wrappers::ReceiverStream::new(requests));
    stream.set_timeout(Duration::from_secs(30));
    send.send(request("zoned", "", &[1])).await.unwrap();
    let mut replies = client.model_stream_infer(stream).await.unwrap().into_inner();
    for n in 0..2 {
        if n > 0 {
            send.send(request("zoned", "", &[1])).await.unwrap();
        }
        assert_eq!(replies.message().await.unwrap().unwrap().error_message, "");
    }
    let seen = std::mem::take(&mut *deadlines.lock());
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|at| at.is_some_and(|at| (1..=30_000_000_000).contains(&at))), "{seen:?}");
}

/// The zones that were seen since the last call.
fn zones(rig: &Rig, seen: &Seen) -> Vec<String> {
    let texts = rig.repository.registry().unwrap().texts();
    let keys = std::mem::take(&mut *seen.lock());
    keys.into_iter().map(|key| texts.text(key).unwrap().to_string()).collect()
}

fn body() -> Value {
    json!({ "inputs": [{ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1] }] })
}

#[tokio::test]
async fn a_scheduler_sees_the_header_of_each_request() {
    let (rig, seen) = rig();
    let body = body().to_string();
    for headers in [&[("x-zone", "eu")][..], &[("X-ZONE", "us"), ("x-other", "eu")], &[]] {
        let answer = rig.http("POST /v2/models/zoned/infer", headers, body.as_bytes()).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(zones(&rig, &seen), ["eu", "us", "nowhere"]);
    let mut client = rig.client().await;
    for zone in [Some("asia"), None] {
        let mut request = Request::new(request("zoned", "", &[1]));
        if let Some(zone) = zone {
            request.metadata_mut().insert("x-zone", MetadataValue::from_static(zone));
        }
        client.model_infer(request).await.unwrap();
    }
    assert_eq!(zones(&rig, &seen), ["asia", "nowhere"]);
}

#[tokio::test]
async fn a_scheduler_sees_the_header_of_each_tensorflow_serving_request() {
    let (rig, seen) = rig();
    let body = json!({ "inputs": { "INPUT": [[1]] } }).to_string();
    for headers in [&[("x-zone", "eu")][..], &[]] {
        let answer = rig.http("POST /v1/models/zoned:predict", headers, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.json());
    }
    assert_eq!(zones(&rig, &seen), ["eu", "nowhere"]);
    let mut client = calls::client(&rig).await;
    for zone in [Some("asia"), None] {
        let mut request = Request::new(calls::request("zoned", &[("INPUT", calls::number(1))]));
        if let Some(zone) = zone {
            request.metadata_mut().insert("x-zone", MetadataValue::from_static(zone));
        }
        client.predict(request).await.unwrap();
    }
    assert_eq!(zones(&rig, &seen), ["asia", "nowhere"]);
}

#[tokio::test]
async fn a_scheduler_sees_the_header_that_opened_the_stream_for_each_request() {
    let (rig, seen) = rig();
    let mut client = rig.client().await;
    let mut streams = Vec::new();
    for zone in ["eu", "us", ""] {
        let (sender, receiver) = tokio::sync::mpsc::channel::<ModelInferRequest>(8);
        let mut opening = Request::new(ReceiverStream::new(receiver));
        if !zone.is_empty() {
            opening.metadata_mut().insert("x-zone", MetadataValue::from_static(zone));
        }
        let replies = client.model_stream_infer(opening).await.unwrap().into_inner();
        streams.push((sender, replies));
    }
    for _ in 0..3 {
        for (sender, replies) in &mut streams {
            sender.send(request("zoned", "", &[1])).await.unwrap();
            let reply = replies.next().await.unwrap().unwrap();
            assert!(reply.error_message.is_empty(), "{}", reply.error_message);
        }
        assert_eq!(zones(&rig, &seen), ["eu", "us", "nowhere"]);
    }
}

#[tokio::test]
async fn a_scheduler_sees_the_header_that_opened_the_websocket_for_each_request() {
    let (rig, seen) = rig();
    let address = rig.addresses.http.unwrap();
    for zone in [Some("eu"), None] {
        let mut opening = format!("ws://{address}/v2/models/zoned/stream").into_client_request().unwrap();
        if let Some(zone) = zone {
            opening.headers_mut().insert("x-zone", zone.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        let mut socket = tokio_tungstenite::client_async(opening, stream).await.unwrap().0;
        for _ in 0..3 {
            socket.send(Message::text(body().to_string())).await.unwrap();
            let answer = socket.next().await.unwrap().unwrap();
            assert!(answer.to_text().unwrap().contains("outputs"), "{answer}");
            assert_eq!(zones(&rig, &seen), [zone.unwrap_or("nowhere")]);
        }
    }
}
