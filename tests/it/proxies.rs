//! Tests two servers behind a proxy that hashes the sequence id: every step reaches the server with its sequence. The proxy is Envoy from
//! PyPI, with the configuration of the examples.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::python;
use crate::server::{Call, Server, get, models, root};

/// Timeout of the proxy.
const HANGS: Duration = Duration::from_secs(180);

struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts Envoy with the configuration of the examples. Replaces the ports that it listens on (HTTP, gRPC), and the ports of the two
/// servers.
fn envoy(listen: [u16; 2], servers: &[Server; 2]) -> Proxy {
    let mut config = fs::read_to_string(root().join("examples/proxy/envoy.yaml")).unwrap();
    let [first, second] = servers;
    let ports = [
        (9000, listen[0]),
        (9001, listen[1]),
        (8000, first.http.port()),
        (8001, first.grpc.port()),
        (8100, second.http.port()),
        (8101, second.grpc.port()),
    ];
    for (n, (example, _)) in ports.iter().enumerate() {
        let of_example = format!("port_value: {example} ");
        assert_eq!(config.matches(&of_example).count(), 1, "{of_example}");
        config = config.replace(&of_example, &format!("port_value: <{n}> "));
    }
    for (n, (_, port)) in ports.iter().enumerate() {
        config = config.replace(&format!("<{n}>"), &port.to_string());
    }
    let program = python::prepared("SEQUOR_PYTHON").with_file_name("envoy");
    let arguments = ["--config-yaml", &config, "--use-dynamic-base-id", "--log-level", "error", "--concurrency", "1"];
    let mut proxy = Proxy(Command::new(program).args(arguments).stdin(Stdio::null()).spawn().unwrap());
    let begun = Instant::now();
    for port in listen {
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(proxy.0.try_wait().unwrap().is_none(), "Envoy ended");
            assert!(begun.elapsed() < HANGS, "Envoy does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    proxy
}

/// Number of requests that a server has answered.
fn answered(metrics: SocketAddr) -> u64 {
    let (_, page) = get(metrics, "/metrics");
    let counts = page.lines().filter(|line| line.starts_with("nv_inference_request_success{"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
}

#[test]
fn a_proxy_that_hashes_the_id_sends_all_steps_of_a_sequence_to_one_server() {
    let servers = [Server::of_models(), Server::of_models()];
    let [http, grpc] = [free_port(), free_port()];
    let _proxy = envoy([http, grpc], &servers);
    let addresses = [grpc, http].map(|port| format!("127.0.0.1:{port}"));
    let printed = python::run(&root().join("examples/proxy/client.py"), &addresses);
    let expected = ["grpc", "http"].map(|api| format!("{api}: 120 of 120 sums right, no step refused\n"));
    assert_eq!(printed, expected.concat());
    let counts = servers.each_ref().map(|server| answered(server.metrics));
    assert_eq!(counts.iter().sum::<u64>(), 240, "{counts:?}");
    assert!(counts.iter().all(|n| *n > 0), "one server had nothing to do: {counts:?}");
}

#[test]
fn live_sequences_behind_a_proxy_continue_while_their_server_drains() {
    let server = || Call::serve(models()).environment("SEQUOR_DRAIN_FINISH", "20s").start();
    let servers = [server(), server()];
    let [http, grpc] = [free_port(), free_port()];
    let _proxy = envoy([http, grpc], &servers);
    let script = root().join("tests/python/drain_behind_proxy.py");
    let printed = python::run(&script, &[format!("127.0.0.1:{grpc}"), servers[0].process.pid().to_string()]);
    assert_eq!(printed, "144 of 144 sums right, one server drained after step 2\n");
    let [drained, _] = servers;
    assert_eq!(drained.process.ended().code, Some(0));
}

/// Sends one step over a WebSocket of its own, whose address has the id, and returns the sum.
async fn step_over_a_websocket(http: u16, id: u64, (start, end): (bool, bool)) -> i64 {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", http)).await.unwrap();
    let address = format!("ws://127.0.0.1:{http}/v2/models/accumulator_int32/stream?sequence={id}");
    let (mut socket, _) = tokio_tungstenite::client_async(address, stream).await.unwrap();
    let step = json!({
        "inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [id]}],
        "outputs": [{"name": "OUTPUT"}],
        "parameters": {"sequence_id": id, "sequence_start": start, "sequence_end": end}
    });
    socket.send(Message::text(step.to_string())).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    answer["outputs"][0]["data"][0].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn websockets_behind_a_proxy_reach_the_server_of_the_id_in_their_address() {
    let servers = [Server::of_models(), Server::of_models()];
    let [http, grpc] = [free_port(), free_port()];
    let _proxy = envoy([http, grpc], &servers);
    for id in 1..=24 {
        assert_eq!(step_over_a_websocket(http, id, (true, false)).await, i64::try_from(id).unwrap());
        assert_eq!(step_over_a_websocket(http, id, (false, true)).await, i64::try_from(2 * id).unwrap());
    }
    let counts = servers.each_ref().map(|server| answered(server.metrics));
    assert_eq!(counts.iter().sum::<u64>(), 48, "{counts:?}");
    assert!(counts.iter().all(|n| *n > 0), "one server had nothing to do: {counts:?}");
}
