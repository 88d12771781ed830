//! Tests several servers that share the sequences of a model over one Redis: which server a step reaches does not matter, and a server that is
//! gone, stopped or late loses no answered step.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sequor_proto::infer_parameter::ParameterChoice;
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelInferRequest, ModelInferResponse, ServerReadyRequest};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::certificates::TestCertificates;
use crate::operator::ask;
use crate::python::prepared;
use crate::server::{Call, Server, root, sequor, until};
use crate::steps::{STRATEGIES, accumulators, metric, parameter, step, sum};

type Client = GrpcInferenceServiceClient<Channel>;

/// A lease that even a machine keeps that is busy with other things.
const LONG: &str = "30s";
/// A lease for tests that wait for its end.
const SHORT: &str = "1s";

/// A Redis that writes each change to its file before it answers.
struct Redis {
    child: Option<Child>,
    port: u16,
    folder: TempDir,
    /// The line of its configuration for another user than the default one.
    user: Option<String>,
}

impl Redis {
    fn start() -> Redis {
        Redis::start_with(None)
    }

    fn start_with(user: Option<String>) -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut redis = Redis { child: None, port, folder: tempfile::tempdir().unwrap(), user };
        redis.resume();
        redis
    }

    /// Starts it with what it wrote before.
    fn resume(&mut self) {
        let mut command = Command::new(prepared("SEQUOR_REDIS"));
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]);
        command.args(["--appendfsync", "always", "--requirepass", "s3cret"]).arg("--dir").arg(self.folder.path());
        command.args(
            self.user.iter().flat_map(|line| format!("--{line}").split(' ').map(str::to_owned).collect::<Vec<_>>()),
        );
        self.child = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        until("Redis answers", || self.ask("PING").is_some_and(|answer| answer.contains("PONG")));
    }

    /// Stops it, or lets it go on.
    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Ends it as a power failure would.
    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn url(&self) -> String {
        format!("redis://:s3cret@127.0.0.1:{}/0", self.port)
    }

    /// The answer to a command, as Redis writes it.
    fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "AUTH s3cret\r\n{command}\r\nQUIT\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        String::from_utf8_lossy(&answer).strip_prefix("+OK\r\n")?.strip_suffix("+OK\r\n").map(str::to_owned)
    }

    fn count(&self, pattern: &str) -> usize {
        let answer = self.ask(&format!("KEYS {pattern}")).unwrap();
        answer.lines().next().and_then(|line| line.strip_prefix('*')).and_then(|n| n.parse().ok()).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A folder with a repository of models with this durability.
fn repository(when: &str) -> TempDir {
    configured(64, &format!("[durability]\nwhen = \"{when}\""))
}

/// A folder with a repository of models with this many slots and these settings.
fn configured(slots: u32, settings: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    accumulators(folder.path(), slots, 600_000_000);
    for model in STRATEGIES {
        let path = folder.path().join(model).join("sequor.toml");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        write!(file, "\n{settings}\n").unwrap();
    }
    folder
}

/// The time for which [`let_steps_wait`] lets steps wait, unless a test needs more.
const WAIT: Duration = Duration::from_millis(300);

/// Lets each step of the first model wait this long for others to batch with.
fn let_steps_wait(repository: &Path, wait: Duration) {
    let path = repository.join(STRATEGIES[0]).join("config.pbtxt");
    let config = fs::read_to_string(&path).unwrap();
    let candidates = "max_candidate_sequences: 64";
    let wait = wait.as_micros();
    let waits = format!("{candidates}\n    preferred_batch_size: [ 8 ]\n    max_queue_delay_microseconds: {wait}");
    assert!(config.contains(candidates));
    fs::write(&path, config.replace(candidates, &waits)).unwrap();
}

fn node(repository: &Path, redis: &Redis, name: &str, lease: &str) -> Server {
    let call = Call::serve(repository).environment("SEQUOR_STATE_URL", redis.url());
    call.arguments(["--state-lease", lease, "--node", name]).start()
}

fn signal(server: &Server, signal: &str) {
    let sent = Command::new("kill").args([signal, &server.process.pid().to_string()]).status().unwrap();
    assert!(sent.success());
}

fn numbered(mut request: ModelInferRequest, number: i64) -> ModelInferRequest {
    request.parameters.insert("sequence_step".to_owned(), parameter(ParameterChoice::Int64Param(number)));
    request
}

async fn infer(client: &mut Client, request: ModelInferRequest) -> Result<ModelInferResponse, Status> {
    client.model_infer(request).await.map(tonic::Response::into_inner)
}

/// The running sum after a plain step.
async fn add(client: &mut Client, model: &str, id: i64, value: i32, (start, end): (bool, bool)) -> i32 {
    let answer = infer(client, step(model, id, String::new(), value, start, end)).await;
    sum(&answer.unwrap_or_else(|e| panic!("sequence {id} of {model}: {e:?}"))).unwrap()
}

const FIRST: (bool, bool) = (true, false);
const NEXT: (bool, bool) = (false, false);
const LAST: (bool, bool) = (false, true);

/// Sends a step until it is answered. Only refusals that let the client try again may come before.
async fn retried(client: &mut Client, request: &ModelInferRequest) -> ModelInferResponse {
    for _ in 0..2000 {
        match infer(client, request.clone()).await {
            Ok(answer) => return answer,
            Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no answer to {request:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_sequence_may_go_to_any_server() {
    for when in ["drain", "every", "step"] {
        let (folder, redis) = (repository(when), Redis::start());
        let servers = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
        let mut clients = [servers[0].client().await, servers[1].client().await];
        for model in STRATEGIES {
            let mut totals = [0; 4];
            for n in 0..12_usize {
                for (id, total) in totals.iter_mut().enumerate() {
                    let value = i32::try_from(n * 10 + id).unwrap();
                    *total += value;
                    let at = &mut clients[(n + id) % 2];
                    let flags = (n == 0, n == 11);
                    assert_eq!(add(at, model, 1 + id as i64, value, flags).await, *total, "{when} {model} {n}");
                }
            }
        }
        until("nothing is left", || redis.count("sequor:seq:*") + redis.count("sequor:blob:*") == 0);
        let moved = servers.iter().map(|server| metric(server, "sequor_shared_taken_over_total", &[])).sum::<f64>();
        assert!(moved >= 44.0, "{when}: {moved}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_another_server_goes_on_at_the_last_answered_step() {
    let (folder, redis) = (repository("step"), Redis::start());
    let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, SHORT));
    let (mut one, mut other) = (first.client().await, second.client().await);
    for model in STRATEGIES {
        assert_eq!(add(&mut one, model, 7, 3, FIRST).await, 3);
        assert_eq!(add(&mut one, model, 7, 4, NEXT).await, 7);
    }
    signal(&first, "-KILL");
    for model in STRATEGIES {
        let third = step(model, 7, String::new(), 5, false, false);
        assert_eq!(sum(&retried(&mut other, &third).await), Some(12));
        assert_eq!(add(&mut other, model, 7, 1, LAST).await, 13);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_stopped_past_its_lease_answers_nothing_for_sequences_of_others() {
    for when in ["step", "every", "drain"] {
        let (folder, redis) = (repository(when), Redis::start());
        let model = STRATEGIES[0];
        // The server is stopped while it has a step.
        let_steps_wait(folder.path(), WAIT);
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, SHORT));
        let (mut one, mut other) = (first.client().await, second.client().await);
        for number in 1..=2 {
            let request = step(model, 7, String::new(), 5, number == 1, false);
            assert_eq!(sum(&infer(&mut one, numbered(request, number)).await.unwrap()), Some(5 * number as i32));
        }
        let third = numbered(step(model, 7, String::new(), 5, false, false), 3);
        let late = tokio::spawn({
            let (mut one, third) = (one.clone(), third.clone());
            async move { infer(&mut one, third).await }
        });
        until("the step waits", || metric(&first, "nv_inference_pending_request_count", &[model]) == 1.0);
        signal(&first, "-STOP");
        let taken = loop {
            match infer(&mut other, third.clone()).await {
                Ok(answer) => break Some(sum(&answer)),
                Err(status) if status.code() == Code::Unavailable => {}
                // What was only in the memory of the first server is lost, as after a crash.
                Err(status) if when != "step" => {
                    assert!(matches!(status.code(), Code::InvalidArgument | Code::FailedPrecondition), "{status:?}");
                    break None;
                }
                Err(status) => panic!("{status:?}"),
            }
        };
        assert_eq!(taken, (when == "step").then_some(Some(15)), "{when}");
        if taken.is_some() {
            for number in 4..=5 {
                let request = step(model, 7, String::new(), 5, false, false);
                assert_eq!(sum(&retried(&mut other, &numbered(request, number)).await), Some(5 * number as i32));
            }
        } else {
            let start = numbered(step(model, 7, String::new(), 100, true, false), 1);
            assert_eq!(sum(&retried(&mut other, &start).await), Some(100));
        }
        signal(&first, "-CONT");
        let late = late.await.unwrap();
        assert!(late.is_err(), "{when}: the late server answered {late:?}");
        let (number, value) = if when == "step" { (6, 30) } else { (2, 105) };
        let next = numbered(step(model, 7, String::new(), 5, false, false), number);
        assert_eq!(sum(&retried(&mut one, &next).await), Some(value), "{when}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_leaves_its_sequences_to_the_others() {
    for when in ["drain", "every", "step"] {
        let (folder, redis) = (repository(when), Redis::start());
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
        let (mut one, mut other) = (first.client().await, second.client().await);
        for id in 1..=40 {
            assert_eq!(add(&mut one, STRATEGIES[0], id, 9, FIRST).await, 9);
        }
        let ended = first.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        for id in 1..=40 {
            assert_eq!(add(&mut other, STRATEGIES[0], id, 1, NEXT).await, 10, "{when}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_comes_back_finds_the_sequences_as_they_were() {
    for when in ["drain", "step"] {
        let (folder, mut redis) = (repository(when), Redis::start());
        let server = node(folder.path(), &redis, "a", SHORT);
        let (mut client, model) = (server.client().await, STRATEGIES[1]);
        assert_eq!(add(&mut client, model, 7, 2, FIRST).await, 2);
        redis.kill();
        until("the lease ends", || metric(&server, "sequor_shared_lease", &[]) == 0.0);
        let steps = [step(model, 8, String::new(), 1, true, false), step(model, 7, String::new(), 1, false, false)];
        for request in steps {
            let status = infer(&mut client, request).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            assert!(!status.message().contains("s3cret"), "{status:?}");
        }
        let status = output_of(&server, &["status"]);
        assert!(status.contains("! state.url: no lease for ") && !status.contains("s3cret"), "{status}");
        redis.resume();
        until("the lease is back", || metric(&server, "sequor_shared_lease", &[]) == 1.0);
        let status = output_of(&server, &["status"]);
        assert!(!status.contains("no lease"), "{status}");
        let explained: Value =
            serde_json::from_str(&output_of(&server, &["why", model, "7", "--output", "json"])).unwrap();
        assert_eq!(explained["refused"][0]["reason"], "store_failed", "a refusal at the gate: {explained}");
        assert_eq!(add(&mut client, model, 7, 3, NEXT).await, 5, "{when}");
        assert_eq!(add(&mut client, model, 8, 1, FIRST).await, 1);
        assert!(metric(&server, "sequor_shared_lapsed_total", &[]) >= 1.0);
        let log = server.stop().stderr;
        let back = log.lines().find(|line| line.contains("this server has its lease again"));
        assert!(back.is_some_and(|line| line.contains("away_seconds=") && line.contains("sequences_lost=0")), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_has_caught_up_says_what_its_outage_has_cost() {
    let (folder, redis) = (repository("step"), Redis::start());
    let server = node(folder.path(), &redis, "a", LONG);
    let (mut client, model) = (server.client().await, STRATEGIES[0]);
    assert_eq!(add(&mut client, model, 7, 1, FIRST).await, 1);
    assert_eq!(redis.ask("CONFIG SET maxmemory 1").as_deref(), Some("+OK\r\n"));
    let refused = infer(&mut client, step(model, 7, String::new(), 1, false, false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
    assert_eq!(redis.ask("CONFIG SET maxmemory 0").as_deref(), Some("+OK\r\n"));
    assert_eq!(sum(&retried(&mut client, &step(model, 8, String::new(), 5, true, false)).await), Some(5));
    let log = server.stop().stderr;
    assert_eq!(log.matches("the store has caught up").count(), 1, "{log}");
    let line = log.lines().find(|line| line.contains("the store has caught up")).unwrap();
    assert!(line.contains("away_seconds=") && line.contains("states_not_stored=1"), "{line}");
}

/// A proxy before Redis, at the port that it returns. While the flag is set, it forwards nothing.
fn cut_off(redis: u16) -> (u16, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, is_cut) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&is_cut);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let Ok(upstream) = TcpStream::connect(("127.0.0.1", redis)) else { return };
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), upstream.try_clone().unwrap()),
                (upstream.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                let flag = Arc::clone(&flag);
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(count @ 1..) = from.read(&mut buffer) {
                        if flag.load(Ordering::SeqCst) || to.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    (port, is_cut)
}

/// What a server says about its readiness: over HTTP, in both forms, and over gRPC, in both services.
async fn readiness(server: &Server) -> (u16, u16, bool, ServingStatus) {
    let [ready, readyz] = ["/v2/health/ready", "/readyz"].map(|path| server.get(path).0);
    let over_grpc = server.client().await.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready;
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let health = HealthClient::new(channel).check(HealthCheckRequest::default()).await.unwrap();
    (ready, readyz, over_grpc, health.into_inner().status())
}

const READY: (u16, u16, bool, ServingStatus) = (200, 200, true, ServingStatus::Serving);
const NOT_READY: (u16, u16, bool, ServingStatus) = (400, 503, false, ServingStatus::NotServing);

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loses_its_lease_is_not_ready_if_its_settings_ask_for_that() {
    let (folder, redis) = (repository("step"), Redis::start());
    let (port, is_cut) = cut_off(redis.port);
    let url = redis.url().replace(&redis.port.to_string(), &port.to_string());
    let behind = |name: &str, more: &[&str]| {
        let call = Call::serve(folder.path()).environment("SEQUOR_STATE_URL", &url);
        call.arguments(["--state-lease", SHORT, "--node", name]).arguments(more).start()
    };
    let (strict, usual) = (behind("a", &["--state-ready-without-lease=false"]), behind("b", &[]));
    let connected = node(folder.path(), &redis, "c", LONG);
    let has_lease = |server: &Server| metric(server, "sequor_shared_lease", &[]) == 1.0;
    until("both have a lease", || has_lease(&strict) && has_lease(&usual));
    assert_eq!((readiness(&strict).await, readiness(&usual).await), (READY, READY));
    is_cut.store(true, Ordering::SeqCst);
    until("the leases end", || !has_lease(&strict) && !has_lease(&usual));
    assert_eq!(readiness(&strict).await, NOT_READY);
    assert_eq!((readiness(&usual).await, readiness(&connected).await), (READY, READY));
    assert_eq!(metric(&strict, "sequor_ready", &[]), 0.0);
    // The model is served: only steps of its sequences need the lease.
    assert_eq!(strict.get(&format!("/v2/models/{}/ready", STRATEGIES[0])).0, 200);
    is_cut.store(false, Ordering::SeqCst);
    until("the lease is back", || has_lease(&strict));
    assert_eq!(readiness(&strict).await, READY);
}

/// Redis hangs or is killed while the server has a step, for longer than the lease. It may or may not get the write of that step.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_write_redis_did_not_confirm_is_sent_again_and_counts_once() {
    for hangs in [true, false] {
        let (folder, mut redis) = (repository("step"), Redis::start());
        // Redis fails while a step waits, and another one behind it.
        let_steps_wait(folder.path(), Duration::from_secs(1));
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, SHORT));
        let (mut one, mut other, model) = (first.client().await, second.client().await, STRATEGIES[0]);
        let request = |number| numbered(step(model, 7, String::new(), 5, number == 1, false), number);
        for number in 1..=2 {
            assert_eq!(sum(&infer(&mut one, request(number)).await.unwrap()), Some(5 * number as i32));
        }
        let send = |number| {
            let (mut one, request) = (one.clone(), request(number));
            tokio::spawn(async move { infer(&mut one, request).await })
        };
        let waiting = |requests: f64| metric(&first, "nv_inference_pending_request_count", &[model]) == requests;
        let third = send(3);
        until("the step waits", || waiting(1.0));
        let fourth = send(4);
        until("another one waits behind it", || waiting(2.0));
        if hangs {
            redis.signal("-STOP");
        } else {
            redis.kill();
        }
        for late in [third, fourth] {
            let refused = late.await.unwrap().unwrap_err();
            assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
            assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "store_failed", "{refused:?}");
            assert!(refused.metadata().get("grpc-retry-pushback-ms").is_some_and(|wait| wait != "-1"), "{refused:?}");
        }
        let refused = infer(&mut one, request(3)).await.unwrap_err();
        assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "store_failed", "Redis is away: {refused:?}");
        if hangs {
            redis.signal("-CONT");
        } else {
            redis.resume();
        }
        assert_eq!(sum(&retried(&mut one, &request(3)).await), Some(15));
        assert_eq!(sum(&retried(&mut other, &request(4)).await), Some(20), "any server goes on with it");
        assert_eq!(sum(&retried(&mut one, &request(5)).await), Some(25));
        assert_eq!(metric(&first, "sequor_sequences_ended_total", &["reason=\"unsealed\""]), 0.0);
        assert_eq!(metric(&first, "sequor_sequences_rolled_back_total", &[model]), 1.0);
    }
}

/// The lease ends while the server has a step, and no other server wants the sequence.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_dropped_without_a_lease_goes_on_from_its_last_stored_step() {
    let (folder, mut redis) = (configured(64, "[durability]\nwhen = \"every\"\nevery = 1"), Redis::start());
    let_steps_wait(folder.path(), Duration::from_secs(3));
    let server = node(folder.path(), &redis, "a", SHORT);
    let (mut client, model) = (server.client().await, STRATEGIES[0]);
    let first = numbered(step(model, 7, String::new(), 5, true, false), 1);
    assert_eq!(sum(&retried(&mut client, &first).await), Some(5));
    until("its state is stored", || redis.count("sequor:blob:*") == 1);
    let second = numbered(step(model, 7, String::new(), 6, false, false), 2);
    let late = tokio::spawn({
        let (mut client, second) = (client.clone(), second.clone());
        async move { infer(&mut client, second).await }
    });
    until("the step waits", || metric(&server, "nv_inference_pending_request_count", &[model]) == 1.0);
    redis.kill();
    let refused = late.await.unwrap().unwrap_err();
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "fenced", "{refused:?}");
    redis.resume();
    until("the lease is back", || metric(&server, "sequor_shared_lease", &[]) == 1.0);
    until("the sequence is released", || metric(&server, "sequor_shared_sequences", &[]) == 0.0);
    assert_eq!(sum(&retried(&mut client, &second).await), Some(11));
}

/// The store has no state of it while the step waits, and the server may not write it as the sequence of the other server.
#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_whose_first_step_here_is_cancelled_goes_back_to_the_store() {
    let settings = "[durability]\nwhen = \"drain\"\n[sequence]\non_cancel = \"keep\"";
    let (folder, redis) = (configured(1, settings), Redis::start());
    let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
    let (mut one, mut other, model) = (first.client().await, second.client().await, STRATEGIES[0]);
    assert_eq!(add(&mut one, model, 7, 3, FIRST).await, 3);
    assert_eq!(add(&mut other, model, 8, 1, FIRST).await, 1);
    let waits = tokio::spawn({
        let mut other = other.clone();
        async move { infer(&mut other, step(model, 7, String::new(), 1, false, false)).await }
    });
    let is_read = || metric(&second, "sequor_shared_taken_over_total", &[]) == 1.0 && redis.count("sequor:blob:*") == 0;
    until("its state is read", is_read);
    waits.abort();
    until("its state is stored again", || redis.count("sequor:blob:*") == 1);
    assert_eq!(add(&mut one, model, 7, 4, NEXT).await, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_replaces_a_sequence_of_another_server_and_an_end_is_known_there() {
    for when in ["drain", "step"] {
        let (folder, redis) = (repository(when), Redis::start());
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
        let (mut one, mut other) = (first.client().await, second.client().await);
        for model in STRATEGIES {
            assert_eq!(add(&mut one, model, 7, 50, FIRST).await, 50);
            assert_eq!(add(&mut other, model, 7, 1, FIRST).await, 1);
            assert_eq!(add(&mut one, model, 7, 1, NEXT).await, 2, "{when}");
            assert_eq!(add(&mut one, model, 7, 1, LAST).await, 3);
            let refused = infer(&mut other, step(model, 7, String::new(), 1, false, false)).await.unwrap_err();
            assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "ended", "{when}: {refused:?}");
            let refused = infer(&mut other, step(model, 99, String::new(), 1, false, false)).await.unwrap_err();
            assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "never_started", "{refused:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_arrive_together_on_two_servers_each_get_their_turn() {
    let (folder, redis) = (repository("step"), Redis::start());
    let servers = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
    let mut first = servers[0].client().await;
    let model = STRATEGIES[0];
    for id in 1..=8 {
        assert_eq!(add(&mut first, model, id, 0, FIRST).await, 0);
    }
    let sends = (0..4).flat_map(|n| (1..=8).map(move |id| (n, id)));
    let mut tasks = Vec::new();
    for (n, id) in sends {
        let mut client = servers[n % 2].client().await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                add(&mut client, model, id, 1, NEXT).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for id in 1..=8 {
        assert_eq!(add(&mut first, model, id, 0, LAST).await, 20, "each step counts once");
    }
}

/// A proxy before Redis, at the port that it returns. It ends every connection on which a server gives a sequence up. Redis carries out the first
/// such command.
fn losing_releases(redis: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, is_first) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(true)));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, is_first) = (client.unwrap(), Arc::clone(&is_first));
            let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", redis)) else { return };
            let (mut answers, mut to_client) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    let commands = String::from_utf8_lossy(&buffer[..count]);
                    let has = |name: &str| commands.contains(name);
                    let releases = has("sequor:owned:") && has("sequor:end:") && !has("sequor:claims");
                    if releases {
                        let _ = client.shutdown(Shutdown::Both);
                    }
                    if releases && !is_first.swap(false, Ordering::SeqCst)
                        || upstream.write_all(&buffer[..count]).is_err()
                    {
                        break;
                    }
                }
                let _ = upstream.shutdown(Shutdown::Write);
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_an_answer_leaves_the_sequence_to_the_other_server() {
    let (folder, redis) = (repository("drain"), Redis::start());
    let url = redis.url().replace(&redis.port.to_string(), &losing_releases(redis.port).to_string());
    let call = Call::serve(folder.path()).environment("SEQUOR_STATE_URL", url);
    let one = call.arguments(["--state-lease", SHORT, "--node", "a"]).start();
    let other = node(folder.path(), &redis, "b", SHORT);
    let (mut first, mut second) = (one.client().await, other.client().await);
    let model = STRATEGIES[0];
    assert_eq!(add(&mut first, model, 7, 1, FIRST).await, 1);
    let moved = retried(&mut second, &step(model, 7, String::new(), 10, false, false)).await;
    assert_eq!(sum(&moved), Some(11));
    // The first server tries for a lease to hear that it has given the sequence up.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let back = retried(&mut first, &step(model, 7, String::new(), 100, false, false)).await;
    assert_eq!(sum(&back), Some(111), "the step of the other server counts");
}

/// Sends the numbered steps of sequences of one id, one sequence after the other, to servers in turn, each step again until it is answered, until
/// `enough` is set. Counts those that were answered. Every sum must be right: no step is lost, and none is counted twice.
async fn steady(
    id: i64,
    addresses: Vec<watch::Receiver<SocketAddr>>,
    enough: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
) {
    const STEPS: i64 = 12;
    let (mut total, mut number, mut at) = (0, 0, usize::try_from(id).unwrap());
    let model = STRATEGIES[usize::try_from(id).unwrap() % 2];
    let mut clients: HashMap<SocketAddr, Client> = HashMap::new();
    while !enough.load(Ordering::Relaxed) {
        number = number % STEPS + 1;
        let value = i32::try_from(id * 3 + number).unwrap();
        total = if number == 1 { value } else { total + value };
        let flags = (number == 1, number == STEPS);
        let request = numbered(step(model, id, String::new(), value, flags.0, flags.1), number);
        let mut may_have_run = false;
        loop {
            at += 1;
            let address = *addresses[at % addresses.len()].borrow();
            let client = match clients.entry(address) {
                Entry::Occupied(client) => client.into_mut(),
                Entry::Vacant(none) => {
                    let connected = GrpcInferenceServiceClient::connect(format!("http://{address}")).await;
                    let Ok(client) = connected else { continue };
                    none.insert(client)
                }
            };
            // A server that is stopped does not refuse: the client turns to another one.
            let outcome = tokio::time::timeout(Duration::from_secs(8), infer(client, request.clone())).await;
            match outcome {
                Ok(Ok(answer)) => {
                    assert_eq!(sum(&answer), Some(total), "sequence {id}, step {number}");
                    break;
                }
                Ok(Err(status)) => {
                    let reason = status.metadata().get("sequor-reason").map(|reason| reason.to_str().unwrap());
                    match (status.code(), reason) {
                        // The answer to the END was lost with its connection.
                        (Code::InvalidArgument, Some("ended")) if flags.1 && may_have_run => break,
                        (Code::FailedPrecondition, Some("step_repeat")) => {}
                        (Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal, _) => {
                            clients.remove(&address);
                        }
                        _ => panic!("sequence {id}, step {number}: {status:?}"),
                    }
                }
                Err(_) => {}
            }
            may_have_run = true;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_lost_or_counted_twice_while_servers_and_redis_fail() {
    let (folder, mut redis) = (repository("step"), Redis::start());
    let mut servers: Vec<Option<Server>> =
        ["a", "b", "c"].iter().map(|name| Some(node(folder.path(), &redis, name, SHORT))).collect();
    let message: Vec<_> = servers.iter().map(|of| watch::Sender::new(of.as_ref().unwrap().grpc)).collect();
    let (enough, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let addresses: Vec<_> = message.iter().map(watch::Sender::subscribe).collect();
    let client = |id| tokio::spawn(steady(id, addresses.clone(), Arc::clone(&enough), Arc::clone(&answered)));
    let running: Vec<_> = (1..=12).map(client).collect();
    // Each failure meets servers that answer.
    let serve_for_a_while = || {
        let goal = answered.load(Ordering::Relaxed) + 60;
        until("steps are answered", || answered.load(Ordering::Relaxed) >= goal);
    };
    for round in 0..2 {
        serve_for_a_while();
        signal(servers[0].as_ref().unwrap(), "-STOP");
        tokio::time::sleep(Duration::from_millis(2500)).await;
        signal(servers[0].as_ref().unwrap(), "-CONT");
        serve_for_a_while();
        // The process is killed, and another one begins.
        drop(servers[1].take());
        let server = node(folder.path(), &redis, "b", SHORT);
        message[1].send_replace(server.grpc);
        servers[1] = Some(server);
        serve_for_a_while();
        redis.kill();
        if round == 1 {
            // All leases end, and writes get no answer.
            tokio::time::sleep(Duration::from_millis(2500)).await;
        }
        redis.resume();
        serve_for_a_while();
        let ended = servers[2].take().unwrap().stop();
        assert_eq!(ended.code, Some(0), "round {round}: {ended:?}");
        let server = node(folder.path(), &redis, "c", SHORT);
        message[2].send_replace(server.grpc);
        servers[2] = Some(server);
    }
    enough.store(true, Ordering::Relaxed);
    for running in running {
        running.await.unwrap();
    }
    println!("{} steps answered", answered.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sequence_is_not_released_while_its_end_is_on_the_way() {
    for when in ["step", "drain"] {
        let (folder, redis) = (repository(when), Redis::start());
        let_steps_wait(folder.path(), WAIT);
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
        let (mut one, mut other) = (first.client().await, second.client().await);
        let model = STRATEGIES[0];
        assert_eq!(add(&mut one, model, 7, 3, FIRST).await, 3);
        let end = tokio::spawn({
            let mut one = one.clone();
            async move { add(&mut one, model, 7, 4, LAST).await }
        });
        until("the END waits", || metric(&first, "nv_inference_pending_request_count", &[model]) == 1.0);
        // Another server wants the sequence meanwhile.
        let late = infer(&mut other, step(model, 7, String::new(), 1, false, false)).await.unwrap_err();
        assert_eq!(late.metadata().get("sequor-reason").unwrap(), "ended", "{when}: {late:?}");
        assert_eq!(end.await.unwrap(), 7, "{when}");
        until("nothing is left", || redis.count("sequor:seq:*") + redis.count("sequor:blob:*") == 0);
    }
}

/// A step over TensorFlow Serving's protocol. Without an id, the server assigns one. Returns the sum and the id.
fn predict(server: &Server, id: Option<u64>, control: u32) -> (i64, u64) {
    let mut inputs = json!({ "INPUT": [[2]], "sequence_control_input": [control] });
    if let Some(id) = id {
        inputs["sequence_id"] = json!([id]);
    }
    let body = json!({ "inputs": inputs }).to_string();
    let path = format!("/v1/models/{}:predict", STRATEGIES[0]);
    let (status, text) = ask(server.http, "POST", &path, "application/json", body.as_bytes());
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let id = &answer["outputs"]["sequence_id"][0];
    (answer["outputs"]["OUTPUT"][0][0].as_i64().unwrap(), id.as_u64().unwrap_or_else(|| panic!("{answer}")))
}

#[test]
fn a_sequence_whose_id_a_server_assigns_goes_to_any_server() {
    for when in ["step", "drain"] {
        let (folder, redis) = (repository(when), Redis::start());
        let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
        let ids = [&first, &second, &first].map(|server| predict(server, None, 1).1);
        assert!(ids[0] != ids[1] && ids[0] != ids[2], "{ids:?}");
        for (id, [one, other]) in ids.iter().zip([[&second, &first], [&first, &second], [&second, &second]]) {
            assert_eq!([predict(one, Some(*id), 0).0, predict(other, Some(*id), 2).0], [4, 6], "{when}");
        }
        until("nothing is left", || redis.count("sequor:seq:*") + redis.count("sequor:blob:*") == 0);
    }
}

/// What an operator's command prints.
fn output_of(server: &Server, arguments: &[&str]) -> String {
    let at = server.admin.unwrap().to_string();
    let ended = Call::sequor().arguments(arguments).arguments(["--server", &at]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

/// The line of the page for a user with few rights.
fn user_of_page() -> String {
    let page = fs::read_to_string(root().join("docs/deploy/several-servers.md")).unwrap();
    let line = page.split("```text acl\n").nth(1).and_then(|block| block.lines().next()).unwrap();
    assert!(line.starts_with("user sequor on >PASSWORD "), "{line}");
    line.replace("PASSWORD", "s3cret")
}

fn node_of_user(repository: &Path, redis: &Redis, name: &str) -> Call {
    let url = redis.url().replace("redis://:", "redis://sequor:");
    let call = Call::serve(repository).environment("SEQUOR_STATE_URL", url);
    call.arguments(["--state-lease", SHORT, "--node", name])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_redis_needs_no_more_rights_than_the_page_says() {
    for when in ["drain", "step"] {
        let (folder, redis) = (repository(when), Redis::start_with(Some(user_of_page())));
        let [first, second] = ["a", "b"].map(|name| node_of_user(folder.path(), &redis, name).start());
        let (mut one, mut other) = (first.client().await, second.client().await);
        for model in STRATEGIES {
            assert_eq!(add(&mut one, model, 7, 3, FIRST).await, 3);
            assert_eq!(add(&mut other, model, 7, 4, NEXT).await, 7, "{when}: it moves");
            assert_eq!(add(&mut one, model, 7, 1, LAST).await, 8);
            assert_eq!(add(&mut one, model, 8, 1, FIRST).await, 1);
            output_of(&second, &["sequence", "drop", model, "8"]);
            let refused = infer(&mut one, step(model, 8, String::new(), 1, false, false)).await.unwrap_err();
            assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "dropped", "{refused:?}");
            assert_eq!(add(&mut one, model, 9, 5, FIRST).await, 5);
        }
        assert_eq!(first.stop().code, Some(0));
        for model in STRATEGIES {
            assert_eq!(add(&mut other, model, 9, 5, NEXT).await, 10, "it was released");
        }
        assert_eq!(redis.ask("ACL LOG").unwrap(), "*0\r\n", "nothing was refused");
    }
}

#[test]
fn a_right_that_is_missing_is_known_at_the_start() {
    let user = format!("{} -incr -time", user_of_page());
    let (folder, redis) = (repository("drain"), Redis::start_with(Some(user)));
    let ended = node_of_user(folder.path(), &redis, "a").end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("rights: INCR, TIME.") && !ended.stderr.contains("s3cret"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_reach_the_sequences_of_any_server() {
    let (folder, redis) = (repository("drain"), Redis::start());
    let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
    let (mut one, model) = (first.client().await, STRATEGIES[0]);
    for id in 7..=9 {
        assert_eq!(add(&mut one, model, id, 3, FIRST).await, 3);
    }
    output_of(&second, &["sequence", "drop", model, "7"]);
    let refused = infer(&mut one, step(model, 7, String::new(), 1, false, false)).await.unwrap_err();
    assert_eq!(refused.metadata().get("sequor-reason").unwrap(), "dropped", "{refused:?}");
    let list = || output_of(&second, &["sequence", "list", "--model", model, "--resumable", "--output", "json"]);
    let ids = || serde_json::from_str::<Value>(&list()).unwrap()["sequences"].as_array().unwrap().len();
    assert_eq!(ids(), 0, "the other server has them");
    let ended = first.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ids(), 2, "{}", list());
    output_of(&second, &["sequence", "drop", model, "8"]);
    assert_eq!(ids(), 1, "{}", list());
    let mut other = second.client().await;
    assert_eq!(add(&mut other, model, 9, 3, LAST).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sequence_of_any_server_is_found_without_a_scan() {
    let (folder, redis) = (repository("drain"), Redis::start());
    let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
    let (mut one, model) = (first.client().await, STRATEGIES[0]);
    // A server tries all commands when it starts.
    redis.ask("CONFIG RESETSTAT").unwrap();
    assert_eq!(add(&mut one, model, 7, 3, FIRST).await, 3);
    let at = second.admin.unwrap().to_string();
    let why = |id: &str| {
        let ended = Call::sequor().arguments(["why", model, id, "--output", "json", "--server", &at]).end();
        serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
    };
    let explained = why("7");
    assert_eq!(
        (&explained["place"], &explained["sequence"]["node"]),
        (&json!("elsewhere"), &json!("a")),
        "{explained}"
    );
    assert!(explained["remedy"].is_null(), "{explained}");
    assert!(output_of(&second, &["sequence", "show", model, "7"]).starts_with("7 is on server a"));
    assert_eq!(why("99")["remedy"]["reason"], "never_started");
    let ended = first.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let explained = why("7");
    assert_eq!((&explained["place"], &explained["sequence"]["step"]), (&json!("stored"), &json!(1)), "{explained}");
    let commands = redis.ask("INFO commandstats").unwrap();
    assert!(commands.contains("cmdstat_hmget:") && !commands.contains("cmdstat_scan:"), "{commands}");
}

/// HAProxy with the configuration of the examples, for these servers. Returns it with the port for gRPC.
fn haproxy(servers: &[&Server; 2]) -> (Redirector, u16) {
    let mut config = fs::read_to_string(root().join("examples/proxy/haproxy.cfg")).unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let [http, grpc] = [free(), free()];
    let [one, two] = servers;
    let ports = [
        (":9000", http),
        (":9001", grpc),
        (":8000", one.http.port()),
        (":8001", one.grpc.port()),
        (":8100", two.http.port()),
        (":8101", two.grpc.port()),
        ("port 8000", one.http.port()),
        ("port 8100", two.http.port()),
    ];
    for (n, (example, _)) in ports.iter().enumerate() {
        assert_eq!(config.matches(example).count(), 1, "{example}");
        let (kept, _) = example.split_at(example.len() - 4);
        config = config.replace(example, &format!("{kept}<{n}>"));
    }
    for (n, (_, port)) in ports.iter().enumerate() {
        config = config.replace(&format!("<{n}>"), &port.to_string());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haproxy.cfg");
    fs::write(&path, config).unwrap();
    let child = Command::new(prepared("SEQUOR_HAPROXY")).arg("-f").arg(&path).stdin(Stdio::null()).spawn().unwrap();
    let proxy = Redirector(child, folder);
    until("HAProxy listens", || TcpStream::connect(("127.0.0.1", grpc)).is_ok());
    (proxy, grpc)
}

struct Redirector(Child, #[allow(dead_code, reason = "only its drop matters")] TempDir);

impl Drop for Redirector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_haproxy_a_server_leaves_and_every_step_is_answered() {
    const SEQUENCES: i64 = 24;
    let (folder, redis) = (repository("step"), Redis::start());
    let [first, second] = ["a", "b"].map(|name| node(folder.path(), &redis, name, LONG));
    let (_proxy, port) = haproxy(&[&first, &second]);
    let client = GrpcInferenceServiceClient::connect(format!("http://127.0.0.1:{port}")).await.unwrap();
    let answered = Arc::new(AtomicU64::new(0));
    let sequence = |id: i64| {
        let (mut client, answered) = (client.clone(), Arc::clone(&answered));
        async move {
            let mut total = 0;
            for number in 1..=60 {
                let value = i32::try_from(id + number).unwrap();
                total += value;
                let plain = step(STRATEGIES[0], id, String::new(), value, number == 1, false);
                let request = numbered(plain, number);
                let answer = loop {
                    let mut call = tonic::Request::new(request.clone());
                    call.metadata_mut().insert("x-sequence-id", id.to_string().parse().unwrap());
                    match client.model_infer(call).await {
                        Ok(answer) => break answer.into_inner(),
                        // The proxy has not noticed yet, or a step waits for the other server.
                        Err(status) => {
                            let may_retry = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal);
                            assert!(may_retry, "sequence {id}, step {number}: {status:?}");
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                };
                assert_eq!(sum(&answer), Some(total), "sequence {id}, step {number}");
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    let running: Vec<_> = (1..=SEQUENCES).map(|id| tokio::spawn(sequence(id))).collect();
    until("all have begun", || answered.load(Ordering::Relaxed) > 8 * SEQUENCES as u64);
    let counts = [&first, &second].map(|server| metric(server, "nv_inference_request_success", &[]));
    assert!(counts.iter().all(|count| *count > 0.0), "both serve: {counts:?}");
    let ended = first.stop();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for running in running {
        running.await.unwrap();
    }
    let moved = metric(&second, "sequor_shared_claimed_total", &[]);
    assert!(moved >= SEQUENCES as f64, "{moved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_to_redis_may_be_encrypted() {
    let (folder, redis, certificates) = (repository("step"), Redis::start(), TestCertificates::new());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = |file: &str| certificates.path(file).display().to_string();
    let files = [("cert", "server.pem"), ("key", "server.key"), ("ca-cert", "ca.pem")];
    let files = files.map(|(what, file)| format!("tls-{what}-file {}", path(file))).join(" ");
    let message = redis.ask(&format!("CONFIG SET {files} tls-auth-clients no tls-port {port}")).unwrap();
    assert_eq!(message, "+OK\r\n");
    let url = format!("rediss://:s3cret@localhost:{port}");
    let call = || Call::serve(folder.path()).environment("SEQUOR_STATE_URL", &url);
    let ended = call().end();
    assert_eq!(ended.code, Some(3), "its authority is not known: {ended:?}");
    assert!(ended.stderr.contains("invalid peer certificate"), "{ended:?}");
    let server = call().environment("SSL_CERT_FILE", path("ca.pem")).start();
    let mut client = server.client().await;
    assert_eq!(add(&mut client, STRATEGIES[0], 7, 3, FIRST).await, 3);
    assert_eq!(add(&mut client, STRATEGIES[0], 7, 4, LAST).await, 7);
    assert!(metric(&server, "sequor_shared_claimed_total", &[]) >= 1.0);
}

#[test]
fn a_server_does_not_start_without_its_redis_and_shows_no_password() {
    let (folder, port) = (repository("step"), TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    let url = format!("redis://:s3cret@127.0.0.1:{port}");
    let ended = Call::serve(folder.path()).environment("SEQUOR_STATE_URL", &url).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains(&format!("state.url: redis://:***@127.0.0.1:{port} cannot be reached")), "{ended:?}");
    assert!(!ended.stderr.contains("s3cret") && !ended.stdout.contains("s3cret"), "{ended:?}");
    let both = Call::new(sequor()).arguments(["serve", "--state-url", &url, "--state-dir", "state"]).end();
    assert!(both.stderr.contains("state.url and state.dir are both set"), "{both:?}");
    assert!(!both.stderr.contains("s3cret"), "{both:?}");
}

#[test]
fn a_url_without_the_password_that_redis_asks_for_is_refused_with_its_form() {
    let (folder, redis) = (repository("step"), Redis::start());
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let ended = Call::serve(folder.path()).environment("SEQUOR_STATE_URL", &url).end();
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("it asks for a password: redis://:PASSWORD@HOST:PORT/0"), "{ended:?}");
    assert_eq!(ended.stderr.matches("state.url").count(), 1, "{ended:?}");
}
