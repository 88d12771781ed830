//! Measures a model next to one with a hostile processor, and then next to one with a hostile initializer. Prints p99 and p99.9 for each
//! behaviour of the plug-in. All orders are sent at the same pace. The rows `harmless` are the same requests without an order, and each p99
//! is shown as a multiple of theirs. The rows `alone` are the same server without other load. The difference between two rows of the same
//! name is noise.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor::bench::Child;
use serde_json::{Value, json};

use crate::BenchResult;
use crate::initializer_orders::{CONFIG, HostileStart, STEPS, guest};
use crate::puppet::{PuppetOrder, PuppetProcessor};

const BESIDE: &str = "accumulator_int32";
const HOSTILE: &str = "hostile";
/// Clients that send orders, and the pause of each between two orders: 500 a second together.
const SENDERS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(8);
/// An input that the processor passes on.
const HARMLESS: i32 = 1;
/// An input that the initializer answers with `default`.
const DEFAULT: i32 = 50;
const ORDERS: [PuppetOrder; 10] = [
    PuppetOrder::Trap,
    PuppetOrder::Loop,
    PuppetOrder::Gigabyte,
    PuppetOrder::WrongShape,
    PuppetOrder::WrongPort,
    PuppetOrder::TenThousandRuns,
    PuppetOrder::ScratchOfGigabyte,
    PuppetOrder::ScratchBeyond,
    PuppetOrder::TrapInPost,
    PuppetOrder::LoopInPost,
];

pub(crate) fn figures() -> BenchResult<()> {
    let folder = tempfile::tempdir()?;
    let (repository, plugins) = (folder.path().join("repository"), folder.path().join("plugins"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(BESIDE);
    for name in [BESIDE, HOSTILE] {
        let model = repository.join(name);
        std::fs::create_dir_all(model.join("1"))?;
        std::fs::copy(from.join("1/model.onnx"), model.join("1/model.onnx"))?;
        let config = std::fs::read_to_string(from.join("config.pbtxt"))?.replace(BESIDE, name);
        std::fs::write(model.join("config.pbtxt"), config)?;
    }
    PuppetProcessor::default().install(&plugins, &repository.join(HOSTILE), "");
    let processors = ORDERS.map(|order| (format!("{order:?}"), order.value()));
    table("processor", &serve(&repository, &plugins)?, HARMLESS, &processors)?;

    // The same model with an initializer in place of the processor.
    let model = repository.join(HOSTILE);
    std::fs::write(model.join("config.pbtxt"), CONFIG)?;
    std::fs::write(model.join("sequor.toml"), "[plugins.initializer]\nuse = \"guest\"\n")?;
    let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/sum_int32.onnx");
    std::fs::copy(graph, model.join("1/model.onnx"))?;
    std::fs::write(plugins.join("guest.wasm"), guest(STEPS))?;
    let initializers = HostileStart::ALL.map(|start| (format!("{start:?}"), start as i32));
    table("initializer", &serve(&repository, &plugins)?, DEFAULT, &initializers)
}

fn serve(repository: &Path, plugins: &Path) -> BenchResult<Child> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.arg("serve").arg("--model-repository").arg(repository).arg("--plugins-dir").arg(plugins);
    for listener in ["http", "grpc", "metrics", "admin"] {
        command.arg(format!("--{listener}-port=0"));
    }
    command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=off"]);
    // Otherwise the plug-in would be parked.
    command.arg("--plugins-strikes=4000000000");
    Ok(Child::start(command)?)
}

/// Prints a row for each order, between rows of harmless orders and of none.
fn table(world: &str, server: &Child, harmless: i32, orders: &[(String, i32)]) -> BenchResult<()> {
    println!("a model beside a hostile {world}, 4 streams, us:");
    println!("{:<20} {:>8} {:>8} {:>8} {:>10} {:>14}", "", "p50", "p99", "p99.9", "orders", "p99 / harmless");
    row("alone", &beside(server)?, 0, None);
    let (report, sent) = beside_orders(server, harmless)?;
    let of_harmless = p99(&report);
    row("harmless", &report, sent, Some(of_harmless));
    for (name, value) in orders {
        let (report, sent) = beside_orders(server, *value)?;
        row(name, &report, sent, Some(of_harmless));
    }
    let (report, sent) = beside_orders(server, harmless)?;
    row("harmless, again", &report, sent, Some(of_harmless));
    row("alone, again", &beside(server)?, 0, None);
    Ok(())
}

/// The load generator's report about the other model while these orders are sent, and the number of orders.
fn beside_orders(server: &Child, value: i32) -> BenchResult<(Value, u64)> {
    let (enough, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let http = server.http.as_deref().ok_or("no HTTP")?;
    let report = std::thread::scope(|scope| {
        for id in 1..=SENDERS {
            let (enough, sent) = (&enough, &sent);
            scope.spawn(move || {
                let mut due = Instant::now();
                while !enough.load(Ordering::Relaxed) && give(http, id, value).is_some() {
                    sent.fetch_add(1, Ordering::Relaxed);
                    due += PAUSE;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
        }
        let report = beside(server);
        enough.store(true, Ordering::Relaxed);
        report
    })?;
    Ok((report, sent.into_inner()))
}

fn latency(report: &Value, part: &str) -> u64 {
    report["latency_us"][part].as_u64().unwrap_or_default()
}

fn p99(report: &Value) -> f64 {
    latency(report, "p99") as f64
}

fn row(name: &str, report: &Value, orders: u64, harmless: Option<f64>) {
    let [p50, high, higher] = ["p50", "p99", "p999"].map(|part| latency(report, part));
    let ratio = harmless.map_or_else(String::new, |harmless| format!("{:.2}", p99(report) / harmless));
    println!("{name:<20} {p50:>8} {high:>8} {higher:>8} {orders:>10} {ratio:>14}");
    assert_eq!(report["wrong_sums"], 0, "{report}");
}

/// The load generator's report about the other model.
fn beside(server: &Child) -> BenchResult<Value> {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sequor"));
    bench.args(["bench", BESIDE, "--warm-up", "300ms", "--for", "4s", "--clients", "4", "--streaming"]);
    bench.args(["--output", "json", "--check", "accumulator", "--server", &server.grpc]);
    let message = bench.output()?;
    if !message.status.success() {
        return Err(String::from_utf8_lossy(&message.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&message.stdout)?)
}

/// Starts a sequence with an order, on a new connection. `None` without an answer.
fn give(http: &str, id: u64, value: i32) -> Option<()> {
    let input = json!({ "name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value] });
    let parameters = json!({ "sequence_id": id, "sequence_start": true, "sequence_end": true });
    let body = json!({ "parameters": parameters, "inputs": [input] }).to_string();
    let mut stream = TcpStream::connect(http).ok()?;
    let head = format!("POST /v2/models/{HOSTILE}/infer HTTP/1.1\r\nhost: x\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 ").then_some(())
}
