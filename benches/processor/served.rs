//! Measures a server whose model has a pass-through processor, next to two servers without one; the difference between those two is noise.
//! `sequor bench` drives each in turn, and the median counts.

use std::path::Path;
use std::process::Command;

use sequor::bench::Child;
use serde_json::Value;
use tempfile::TempDir;

use crate::BenchResult;
use crate::calls::pass_through;

const TURNS: usize = 7;
const REQUESTS: &str = "30000";
const MODEL: &str = "accumulator_int32";

/// A server with the running sum.
pub(crate) struct BenchServer {
    pub(crate) name: &'static str,
    pub(crate) server: Child,
    pub(crate) folder: TempDir,
}

impl BenchServer {
    /// Starts a server. `component` is in front of the model, if given.
    pub(crate) fn new(name: &'static str, component: Option<&[u8]>, slots: u32) -> BenchResult<BenchServer> {
        let folder = TempDir::new()?;
        let (repository, plugins) = (folder.path().join("repository"), folder.path().join("plugins"));
        let (model, from) = (repository.join(MODEL), Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(MODEL));
        std::fs::create_dir_all(model.join("1"))?;
        std::fs::create_dir_all(&plugins)?;
        std::fs::copy(from.join("1/model.onnx"), model.join("1/model.onnx"))?;
        let config = std::fs::read_to_string(from.join("config.pbtxt"))?;
        let config = config.replace("max_candidate_sequences: 8", &format!("max_candidate_sequences: {slots}"));
        std::fs::write(model.join("config.pbtxt"), config)?;
        if let Some(component) = component {
            std::fs::write(plugins.join("pass.wasm"), component)?;
            std::fs::write(model.join("sequor.toml"), "[[plugins.processor]]\nuse = \"pass\"\ntime = \"1s\"\n")?;
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
        command.arg("serve").arg("--model-repository").arg(&repository).arg("--plugins-dir").arg(&plugins);
        for listener in ["http", "grpc", "metrics", "admin"] {
            command.arg(format!("--{listener}-port=0"));
        }
        command.args(["--http-address=127.0.0.1", "--grpc-address=127.0.0.1", "--log-level=warn"]);
        Ok(BenchServer { name, server: Child::start(command)?, folder })
    }

    /// The load generator's report.
    pub(crate) fn asked(&self, flags: &[&str]) -> BenchResult<Value> {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_sequor"));
        bench.args(["bench", MODEL, "--warm-up", "300ms", "--output", "json", "--check", "accumulator"]).args(flags);
        bench.args(["--server", &self.server.grpc]);
        if let Some(metrics) = &self.server.metrics {
            bench.args(["--metrics", metrics]);
        }
        let message = bench.output()?;
        if !message.status.success() {
            return Err(String::from_utf8_lossy(&message.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&message.stdout)?)
    }
}

pub(crate) fn figures() -> BenchResult<()> {
    let pass = pass_through("");
    let all = [
        BenchServer::new("no processor", None, 64)?,
        BenchServer::new("no processor, again", None, 64)?,
        BenchServer::new("pass-through", Some(&pass), 64)?,
    ];
    for (how, flags) in [("call by call", &[][..]), ("streams", &["--streaming"])] {
        println!("the accumulator through the server, 64 slots, 32 clients, {how}:");
        let mut turns = vec![Vec::new(); all.len()];
        for _ in 0..TURNS {
            for (served, turns) in all.iter().zip(&mut turns) {
                let report = served.asked(&[&["--requests", REQUESTS], flags].concat())?;
                turns.push(report["per_second"].as_f64().unwrap_or(f64::NAN));
            }
        }
        let rates: Vec<f64> = turns.iter().map(|turns| middle(turns)).collect();
        for (served, rate) in all.iter().zip(&rates) {
            println!("  {:<22}{rate:>9.0} a second ({:.3} x)", served.name, rate / rates[0]);
        }
    }
    Ok(())
}

fn middle(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
