//! A server with an admin listener, within the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use sequor::backend::mock::MockBackend;
use sequor::config::server::Drain;
use sequor::config::server::file::ControlMode;
use sequor::config::units::Span;
use sequor::model::{Repository, RepositoryControl, RepositoryOptions};
use sequor::server::{
    Addresses, AdminOptions, ApiKeys, Drained, Listeners, RunningServer, ServerOptions, Stop, Tls, local, start,
};
use sequor::telemetry::Metrics;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::described::assert_described;
use super::fake::Fake;

pub(super) struct Rig {
    pub(super) fake: Arc<Fake>,
    pub(super) admin: SocketAddr,
    pub(super) http: SocketAddr,
    running: RunningServer,
    _stop: mpsc::Sender<Stop>,
}

/// The options of the server.
#[derive(Default)]
pub(super) struct RigOptions<'w> {
    pub(super) upload: bool,
    pub(super) keys: Option<&'w Path>,
    pub(super) plugins_dir: Option<&'w Path>,
    /// A model repository.
    pub(super) models: Option<&'w Path>,
    /// Whether models of that repository are loaded and unloaded by request.
    pub(super) explicit: bool,
    pub(super) tls: Option<Tls>,
}

impl Rig {
    pub(super) fn new(options: RigOptions<'_>) -> Rig {
        let metrics = Metrics::new(true);
        let repository =
            Repository::new(Arc::new(MockBackend::default()), RepositoryOptions::default(), metrics.clone()).unwrap();
        if let Some(folder) = options.models {
            repository.load_all(folder).unwrap();
            let mode = if options.explicit { ControlMode::Explicit } else { ControlMode::None };
            repository.govern(RepositoryControl { mode, directories: vec![folder.to_owned()] });
        }
        let wanted = Addresses { http: Some(local(0)), admin: Some(local(0)), ..Addresses::default() };
        let (stop, stopped) = mpsc::channel(2);
        let fake = Arc::new(Fake::default());
        let serves = sequor::api::admin::AdminSetup {
            plugins: Some(fake.clone()),
            plugins_dir: options.plugins_dir.map(Path::to_owned),
            upload: options.upload,
            peek: false,
            capture: 0,
            node: "here & <now>".to_owned(),
            runtime: "nothing 1.0".to_owned(),
            settings: Vec::new(),
        };
        let admin = AdminOptions { keys: options.keys.map(|path| ApiKeys::open(path).unwrap()), serves };
        let drain = Drain { announce: Span::default(), finish: Span::default(), ..Drain::default() };
        let options = ServerOptions { drain, tls: options.tls, admin, ..ServerOptions::default() };
        let running = start(Listeners::bind(&wanted).unwrap(), options, repository, metrics, stopped);
        let [admin, http] = [running.addresses.admin, running.addresses.http].map(Option::unwrap);
        Rig { fake, admin, http, running, _stop: stop }
    }

    pub(super) async fn ask(&self, verb_and_path: &str, body: &[u8]) -> (u16, Value) {
        self.ask_with(verb_and_path, &[], body).await
    }

    /// The status and the JSON of an answer; an answer that is not JSON becomes a string. Checks every answer against `/openapi.json`.
    pub(super) async fn ask_with(&self, verb_and_path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
        let connect = async || TcpStream::connect(self.admin).await.unwrap();
        // Fetches the document first, because the request may stop the server.
        let (status, document) = exchange(connect().await, "GET /openapi.json", headers, b"").await;
        let answer = exchange(connect().await, verb_and_path, headers, body).await;
        if let (200, Some((verb, path))) = (status, verb_and_path.split_once(' ')) {
            assert_described(&document, verb, path, answer.0, &answer.1);
        }
        answer
    }

    /// Sends an inference request to the clients' listener.
    pub(super) async fn infer(&self, model: &str, body: &str) -> (u16, Value) {
        let stream = TcpStream::connect(self.http).await.unwrap();
        exchange(stream, &format!("POST /v2/models/{model}/infer"), &[], body.as_bytes()).await
    }

    pub(super) async fn join(self) -> Drained {
        self.running.join().await
    }
}

/// Sends one request on a new connection.
pub(super) async fn exchange(
    mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin,
    verb_and_path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> (u16, Value) {
    let mut head = format!("{verb_and_path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += "host: localhost\r\n";
    }
    if body.starts_with(b"{") {
        head += "content-type: application/json\r\n";
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    // A server that refuses a request does not read the whole body.
    let _ = stream.write_all(&[head.as_bytes(), b"\r\n", body].concat()).await;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| body.into());
    // The header has the reason too, for programs.
    if let (Some(reason), true) = (body["reason"].as_str(), status >= 400 && status != 405) {
        assert!(head.contains(&format!("sequor-reason: {reason}")), "{head}");
    }
    (status, body)
}
