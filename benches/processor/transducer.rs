//! Measures the streaming transducer of `examples/`, served to 64 sequences at once: an encoder with four states, and `transducer-greedy`
//! behind it. That plug-in calls the models `decoder` and `joiner`. Prints the server's CPU time for a second of sound, next to the same
//! loop in Python with ONNX Runtime. Also prints the mean batches, with and without a queue delay of the joiner. Each row is measured
//! twice; the difference between two rows of the same name is noise.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sequor::bench::{BenchPlan, BenchReport, Child, Data, Recipe, Wanted, drive};
use serde_json::Value;
use tempfile::TempDir;

use crate::BenchResult;
use crate::pcm::guests;

/// Sequences at once, and windows of each.
const SEQUENCES: usize = 64;
const WINDOWS: u32 = 20;
/// Seconds of sound in a window: 32 frames of 10 ms.
const SOUND: f64 = 0.32;
/// Queue delays of the joiner in microseconds, with the target for the mean batch.
const DELAYS: [(u32, &str); 2] = [(0, "at least 4"), (500, "above 16")];
const TURNS: usize = 2;
const SPAN: Duration = Duration::from_secs(5);

/// A server of the example.
struct TransducerServer {
    server: Child,
    delay: u32,
    aim: &'static str,
    #[allow(dead_code, reason = "only its drop matters")]
    repository: TempDir,
}

pub(crate) fn figures() -> BenchResult<()> {
    let servers = DELAYS.map(|(delay, aim)| TransducerServer::start(delay, aim));
    let servers = servers.into_iter().collect::<BenchResult<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("a streaming transducer, {SEQUENCES} sequences at once, milliseconds of CPU for a second of sound:");
    let mut loops = Vec::new();
    for _ in 0..TURNS {
        let looped = looped()?;
        let [cpu, calls] = ["cpu_us", "decoder_calls"].map(|part| looped[part].as_f64().unwrap_or_default());
        let version = looped["version"].as_str().unwrap_or_default();
        println!(
            "  {:<34}{:>8.3} ms; decoder calls a window {calls:.2}",
            format!("Python, ONNX Runtime {version}"),
            of_sound(cpu)
        );
        loops.push(cpu);
        for served in &servers {
            served.row(&runtime, cpu)?;
        }
    }
    println!("  Python against itself {:.2}", loops[TURNS - 1] / loops[0]);
    Ok(())
}

/// Converts microseconds a window to milliseconds a second of sound.
fn of_sound(window_us: f64) -> f64 {
    window_us / 1e3 / SOUND
}

impl TransducerServer {
    fn start(delay: u32, aim: &'static str) -> BenchResult<TransducerServer> {
        let repository = TempDir::new()?;
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/transducer/repository");
        for model in ["asr", "decoder", "joiner"] {
            copy(&from.join(model), &repository.path().join(model))?;
        }
        let config = repository.path().join("joiner/config.pbtxt");
        let batching = format!("dynamic_batching {{ max_queue_delay_microseconds: {delay} }}");
        let text = std::fs::read_to_string(&config)?.replace("dynamic_batching { }", &batching);
        if !text.contains(&batching) {
            return Err("the joiner's config.pbtxt has no dynamic batching".into());
        }
        std::fs::write(&config, text)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
        command.arg("serve").arg("--model-repository").arg(repository.path()).arg("--plugins-dir").arg(guests());
        for model in ["decoder", "joiner"] {
            command.arg(format!("--plugins-grants=transducer-greedy=model:{model}"));
        }
        for listener in ["http", "grpc", "metrics", "admin"] {
            command.arg(format!("--{listener}-port=0"));
        }
        command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=warn"]);
        Ok(TransducerServer { server: Child::start(command)?, delay, aim, repository })
    }

    /// Drives the server, and prints the time for a second of sound next to `looped` microseconds a window.
    fn row(&self, runtime: &tokio::runtime::Runtime, looped: f64) -> BenchResult<()> {
        let TransducerServer { server, delay, aim, .. } = self;
        let before = BatchCounts::of(server)?;
        let report = runtime.block_on(driven(server))?;
        let after = BatchCounts::of(server)?;
        if report.failures() > 0 {
            return Err(format!("{report}").into());
        }
        let cpu = report.server.ok_or("the report says nothing of the server's CPU")?.cpu_us_per_request;
        let mean = |model: &str| after.mean_batch(&before, model);
        let calls = after.inferences("decoder") - before.inferences("decoder");
        let calls = calls / (after.inferences("asr") - before.inferences("asr")).max(1.0);
        println!(
            "  {:<34}{:>8.3} ms, {:.2} of Python's; decoder calls a window {calls:.2}; {:.0} windows a second",
            format!("served, the joiner waits {delay} us"),
            of_sound(cpu),
            cpu / looped,
            report.per_second,
        );
        let (asr, decoder, joiner) = (mean("asr"), mean("decoder"), mean("joiner"));
        println!("    mean batch: asr {asr:.1}, decoder {decoder:.1}, joiner {joiner:.1} (aim: {aim})");
        Ok(())
    }
}

/// The load generator's report about the encoder with its processor.
async fn driven(server: &Child) -> BenchResult<BenchReport> {
    let wanted = Wanted {
        model: "asr".to_owned(),
        data: Data::Random,
        shapes: BTreeMap::new(),
        sequence_length: WINDOWS,
        variation: 0,
        check_sums: false,
        seed: 1,
    };
    let recipe = Recipe::ask(drive::connect(&server.grpc).await?, &wanted).await?;
    let plan = BenchPlan {
        warm_up: Duration::from_millis(500),
        span: SPAN,
        streaming: true,
        metrics: server.metrics.clone(),
        pid: Some(server.pid()),
        ..BenchPlan::closed(server.grpc.clone(), SEQUENCES)
    };
    Ok(drive::run(&plan, &recipe, std::future::pending()).await?)
}

/// The loop in Python.
fn looped() -> BenchResult<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let default = || root.join(".sequor/venv/bin/python");
    let python = std::env::var_os("SEQUOR_PYTHON").map_or_else(default, PathBuf::from);
    let mut command = Command::new(python);
    command.arg(root.join("benches/processor/transducer.py")).args([SEQUENCES.to_string(), WINDOWS.to_string()]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The server's metrics.
struct BatchCounts(String);

impl BatchCounts {
    fn of(server: &Child) -> BenchResult<BatchCounts> {
        let mut stream = TcpStream::connect(server.metrics.as_deref().ok_or("no metrics")?)?;
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(BatchCounts(page))
    }

    fn count(&self, name: &str, model: &str) -> f64 {
        let label = format!("model=\"{model}\"");
        let is_it =
            |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')) && line.contains(&label);
        self.0.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn inferences(&self, model: &str) -> f64 {
        self.count("nv_inference_count", model)
    }

    fn mean_batch(&self, before: &BatchCounts, model: &str) -> f64 {
        let executions = |of: &BatchCounts| of.count("nv_inference_exec_count", model);
        (self.inferences(model) - before.inferences(model)) / (executions(self) - executions(before)).max(1.0)
    }
}

fn copy(from: &Path, to: &Path) -> BenchResult<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
