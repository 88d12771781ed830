//! Measures the voice activity model with packets of 32 ms of PCM, which `pcm-window` cuts, next to clients that cut the windows
//! themselves. One server serves both models, so both run on the same machine at the same time. The median counts.

use std::path::Path;
use std::process::Command;

use sequor::bench::Child;
use serde_json::Value;

use crate::BenchResult;
use crate::pcm::guests;

const TURNS: usize = 5;
/// The input of clients for each model.
const MODELS: [(&str, &str); 3] = [("vad", "input:1,576"), ("vad_pcm", "AUDIO:512"), ("vad", "input:1,576")];

pub(crate) fn figures() -> BenchResult<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir()?;
    for (name, from) in [("vad", "models/vad"), ("vad_pcm", "examples/pcm/repository/vad_pcm")] {
        let (model, from) = (folder.path().join(name), root.join(from));
        std::fs::create_dir_all(model.join("1"))?;
        for file in ["config.pbtxt", "sequor.toml", "1/model.onnx"] {
            std::fs::copy(from.join(file), model.join(file))?;
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.arg("serve").arg("--model-repository").arg(folder.path()).arg("--plugins-dir").arg(guests());
    for listener in ["http", "grpc", "metrics", "admin"] {
        command.arg(format!("--{listener}-port=0"));
    }
    command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=warn"]);
    let server = Child::start(command)?;
    let mut turns = vec![Vec::new(); MODELS.len()];
    for _ in 0..TURNS {
        for ((model, shape), turns) in MODELS.iter().zip(&mut turns) {
            turns.push(cost(&server, model, shape)?);
        }
    }
    println!("the voice activity model, a window of 32 ms a request, 32 streams, microseconds of the server's CPU:");
    let costs: Vec<f64> = turns.iter().map(|turns| middle(turns)).collect();
    for (name, cost) in ["clients cut windows", "packets of PCM", "clients cut windows, again"].iter().zip(&costs) {
        println!("  {name:<28}{cost:>7.1} a request ({:.2} x, aim 1.4)", cost / costs[0]);
    }
    Ok(())
}

/// The server's CPU time a request, in microseconds.
fn cost(server: &Child, model: &str, shape: &str) -> BenchResult<f64> {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_sequor"));
    bench.args([
        "bench",
        model,
        "--streaming",
        "--warm-up",
        "300ms",
        "--for",
        "3s",
        "--output",
        "json",
        "--shape",
        shape,
    ]);
    bench.args(["--server", &server.grpc]);
    let message = bench.output()?;
    if !message.status.success() {
        return Err(String::from_utf8_lossy(&message.stderr).into_owned().into());
    }
    let report: Value = serde_json::from_slice(&message.stdout)?;
    let cost = report["server"]["cpu_us_per_request"].as_f64();
    Ok(cost.ok_or("the report says nothing of the server's CPU")?)
}

fn middle(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
