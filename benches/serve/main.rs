//! Measures the cost of serving next to its minimum: a bare tonic echo of the same messages, and a bare loop with ONNX Runtime. They run in
//! turns, so that a busy machine affects both alike. The server's CPU time a request is compared.
//!
//! ```text
//! cargo bench --bench serve                       everything, 50,000 requests a figure
//! cargo bench --bench serve -- --quick            5,000
//! cargo bench --bench serve -- --only direct      figures whose name has this in it; `lives` for whole sequences, `predict`
//!                                                 for TensorFlow Serving's calls, what brief sequences leave in memory, and how long
//!                                                 requests wait for a long step of another sequence; `batching` for
//!                                                 dynamic and ragged batches and ensembles
//! cargo bench --bench serve -- --before FILE      another build of the server beside this one
//! cargo bench --bench serve -- --turns 10         as many requests in more turns
//! cargo bench --bench serve -- --pair FILE        only CPU time, this build over that one, and that one over itself
//! cargo bench --bench serve -- --pair FILE --with FILE    the same of two builds
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod bare;
mod batching;
mod cost;
mod echo;
mod lives;
mod models;
mod pair;
mod predict;
mod share;
mod speech;
mod start;
mod waits;

use std::path::PathBuf;

// The server's allocator, so that the echo has no handicap.
#[global_allocator]
static ALLOCATOR: sequor::device::ProgramAllocator = sequor::device::ProgramAllocator;

/// The environment variable with the role of a child process of this program.
const ROLE: &str = "SEQUOR_BENCH_ROLE";

/// The command line's options.
struct Options {
    quick: bool,
    only: Option<String>,
    before: Option<PathBuf>,
    /// Number of turns of each figure; the median counts.
    turns: usize,
}

impl Options {
    /// Requests of one turn.
    fn requests(&self) -> u64 {
        let all = if self.quick { 5_000 } else { 50_000 };
        all / self.turns as u64
    }

    fn wants(&self, figure: &str) -> bool {
        self.only.as_ref().is_none_or(|only| figure.contains(only.as_str()))
    }
}

fn main() {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => return echo::serve(false),
        Ok("hop") => return echo::serve(true),
        Ok("vad") => return bare::vad(),
        Ok("lstm") => return bare::lstm(),
        Ok("wide") => return bare::wide(),
        Ok("cached") => return bare::cached(),
        _ => {}
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let behind = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1)).cloned();
    let options = Options {
        quick: arguments.iter().any(|a| a == "--quick"),
        only: behind("--only"),
        before: behind("--before").map(PathBuf::from),
        turns: behind("--turns").and_then(|turns| turns.parse().ok()).unwrap_or(5),
    };
    // `cargo nextest --benches` and similar tools list tests.
    if arguments.iter().any(|a| a == "--list") {
        return;
    }
    println!("{}", machine());
    if let Some(before) = behind("--pair").map(PathBuf::from) {
        return pair::figures(&options, &before, behind("--with").map(PathBuf::from));
    }
    if options.wants("start") {
        start::figures(&options);
    }
    cost::figures(&options);
    if options.wants("cached") {
        share::figures(&options);
    }
    if options.wants("batching") {
        batching::figures(&options);
    }
    if options.wants("predict") {
        predict::figures(&options);
        waits::figures(&options);
    }
    lives::figures(&options);
    if options.wants("vad") {
        speech::figures(&options);
    }
}

/// The server under test.
fn sequor() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sequor"))
}

/// A new process of this program in a role.
fn role(role: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.env(ROLE, role);
    command
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or("unknown")
        .trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = read("/proc/loadavg");
    let build = if cfg!(debug_assertions) { "DEBUG BUILD, figures mean nothing" } else { "release build" };
    format!("{cores} cores, {model}, {build}, load before: {}", load.split(' ').next().unwrap_or("?"))
}
