//! Runs Triton's own load generator, `perf_analyzer`, like its users. Every run must end well and report some throughput; the test does not
//! check how much.
//!
//! `SEQUOR_SOAK_RUNS=N` sets the number of runs with streamed sequences; `cargo xtask soak` uses it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::python::prepared;
use crate::server::{Call, Server, root};
use crate::steps::{accumulators, metric, step, sum};

/// Three windows of 600 ms that accept any figures: about two seconds.
const SHORT: [&str; 6] = ["-p", "600", "--max-trials", "3", "--stability-percentage", "999"];

/// A server with the accumulator in both strategies, with fewer slots than the generator has sequences at once, and a stateless model.
fn serve() -> Server {
    let call = Call::serve("repository");
    let repository = call.folder.path().join("repository");
    accumulators(&repository, 32, 5_000_000);
    let identity = repository.join("identity");
    fs::create_dir_all(identity.join("1")).unwrap();
    let source = root().join("benches/models");
    fs::copy(source.join("identity.pbtxt"), identity.join("config.pbtxt")).unwrap();
    fs::copy(source.join("identity.onnx"), identity.join("1/model.onnx")).unwrap();
    call.start()
}

/// Runs the generator. Returns the number of requests and the requests a second.
fn analyze(server: &Server, model: &str, options: &[&str]) -> (u64, f64) {
    let program = prepared("SEQUOR_PERF_ANALYZER");
    let folder = program.parent().and_then(Path::parent).unwrap();
    let address = if options.contains(&"http") { server.http } else { server.grpc };
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", folder.join("lib")).args(["-m", model, "-u", &address.to_string()]);
    command.args(SHORT).args(options);
    let done = command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let message = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && !message.contains("had error"), "{model} {options:?}: {}\n{message}", done.status);
    let number = |name: &str| -> f64 {
        let line = message.lines().find_map(|line| line.trim().strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{model} {options:?}: no {name}\n{message}"))
    };
    let (count, throughput) = (number("Request count:"), number("Throughput:"));
    assert!(count > 0.0 && throughput > 0.0, "{model} {options:?}\n{message}");
    (count as u64, throughput)
}

/// The generator does not check sums, so the server's state must still be right afterwards.
async fn still_adds_up(server: &Server) {
    assert_eq!(metric(server, "sequor_requests_in_flight", &[]), 0.0);
    let failed = |reason: &str| metric(server, "nv_inference_request_failure", &[&format!("reason=\"{reason}\"")]);
    assert_eq!(["REJECTED", "BACKEND", "OTHER"].map(failed), [0.0; 3]);
    let mut client = server.client().await;
    for model in crate::steps::STRATEGIES {
        for (value, start, total) in [(20, true, 20), (22, false, 42)] {
            let answer = client.model_infer(step(model, 77, String::new(), value, start, !start)).await.unwrap();
            assert_eq!(sum(answer.get_ref()), Some(total), "{model}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn perf_analyzer_runs_over_grpc_http_and_shared_memory() {
    let server = serve();
    let sequences = ["--sequence-length", "20", "--concurrency-range"];
    let with = |more: &[&'static str]| [&sequences[..], more].concat();
    let runs = [
        ("identity", vec!["-i", "grpc", "--concurrency-range", "8"]),
        ("identity", vec!["-i", "http", "--concurrency-range", "8"]),
        (
            "identity",
            vec![
                "-i",
                "grpc",
                "--concurrency-range",
                "8",
                "--shared-memory",
                "system",
                "--output-shared-memory-size",
                "256",
            ],
        ),
        ("oldest", with(&["16", "-i", "grpc"])),
        // Without `--sync` the generator opens a connection for each request in flight, and its last END may overtake earlier steps of its
        // sequence.
        ("direct", with(&["16", "-i", "http", "--sync"])),
        (
            "direct",
            with(&["8", "-i", "http", "--sync", "--shared-memory", "system", "--output-shared-memory-size", "256"]),
        ),
    ];
    for (model, options) in runs {
        let (count, throughput) = analyze(&server, model, &options);
        println!("perf_analyzer {model} {}: {count} requests, {throughput:.0} a second", options.join(" "));
    }
    still_adds_up(&server).await;
    assert_eq!(server.stop().code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn perf_analyzer_streams_sequences_repeatedly_without_failures() {
    let runs: usize = std::env::var("SEQUOR_SOAK_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let server = serve();
    let options = ["-i", "grpc", "--streaming", "--sequence-length", "20", "--concurrency-range", "64"];
    let mut all = 0;
    for n in 0..runs {
        let model = crate::steps::STRATEGIES[n % 2];
        let (count, throughput) = analyze(&server, model, &options);
        println!("perf_analyzer {model} {}: {count} requests, {throughput:.0} a second", options.join(" "));
        all += count;
    }
    println!("perf_analyzer: {runs} runs over streams, {all} requests, 0 failures");
    still_adds_up(&server).await;
    assert_eq!(server.stop().code, Some(0));
}
