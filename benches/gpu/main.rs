//! Tests that need a machine with an NVIDIA GPU: that models answer as on the CPU (`check`), and how fast (`measure`).
//! `cargo xtask gpu-test` and `cargo xtask gpu-bench` call it. docs/deploy/gpu.md explains how to carry it to a machine without Rust.
//!
//! `gpu look | check | measure [--root DIR] [--batch N] [--seconds N] [--rehearse]`. DIR must contain the repository's `models` and
//! `tests/models`; the default is the current folder. With `--rehearse`, `check` and `measure` run on the CPU; their results then say
//! nothing about a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bare;
mod check;
mod count;
mod graph;
mod measure;
mod model;
mod rows;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use sequor::backend::Backend;
use sequor::backend::onnx::OnnxBackend;
use sequor::backend::onnx::library::{self, System};
use sequor::device::{Accelerators, Device, Host};

use count::Counted;

/// The options of a run.
struct Terms {
    root: PathBuf,
    batch: u32,
    seconds: u64,
    /// Whether to run on the CPU instead of the GPU.
    rehearse: bool,
    backend: Arc<dyn Backend>,
    gpus: Counted,
}

impl Terms {
    /// The GPU, or the host in a rehearsal.
    fn device(&self, gpus: &dyn Accelerators) -> Arc<dyn Device> {
        if self.rehearse { Arc::new(Host) } else { gpus.open(0).unwrap() }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let behind = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1)).cloned();
    let what = arguments.first().map(String::as_str);
    if !matches!(what, Some("look" | "check" | "measure")) {
        // For `cargo bench` without arguments and similar calls: nothing can run by default.
        println!("gpu: say look, check or measure; all need an NVIDIA GPU");
        return ExitCode::SUCCESS;
    }
    let gpus = Counted::default();
    let rehearse = arguments.iter().any(|a| a == "--rehearse");
    let found = match gpus.usable() {
        Ok(found) => found,
        Err(_) if rehearse => Vec::new(),
        Err(error) => return refuse(&error),
    };
    for gpu in &found {
        println!("GPU {}: {}, {} MiB, {}", gpu.ordinal, gpu.name, gpu.total_bytes >> 20, gpu.uuid);
    }
    if what == Some("look") {
        return ExitCode::SUCCESS;
    }
    if rehearse {
        println!("A rehearsal on the CPU: nothing below is of a GPU");
    }
    let library = match library::find(None, &System) {
        Ok(library) => library,
        Err(error) => return refuse(&error),
    };
    let backend: Arc<dyn Backend> = match OnnxBackend::new(&library.path) {
        Ok(backend) => Arc::new(backend),
        Err(error) => return refuse(&error),
    };
    if !rehearse && let Err(error) = backend.is_for_accelerators().and_then(|()| backend.try_accelerator(0)) {
        return refuse(&error);
    }
    println!("ONNX Runtime {} ({})", library.version, library.path.display());
    let terms = Terms {
        root: behind("--root").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from),
        batch: behind("--batch").and_then(|n| n.parse().ok()).unwrap_or(256),
        seconds: behind("--seconds").and_then(|n| n.parse().ok()).unwrap_or(5),
        rehearse,
        backend,
        gpus,
    };
    match what {
        Some("check") => check::all(&terms),
        _ => measure::all(&terms),
    }
}

fn refuse(why: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("gpu: {why}");
    ExitCode::FAILURE
}
