//! What serving costs, beside the least it could cost: a bare tonic echo of the same messages, a bare loop over ONNX Runtime. All in one
//! run and in turns, so that a busy machine disturbs both alike; what is compared is the server's CPU time for a request.
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

// As the server has it, so that the echo has no handicap.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What a child process of this program is to be.
const ROLE: &str = "SEQUOR_BENCH_ROLE";

/// What was asked for.
struct Options {
    quick: bool,
    only: Option<String>,
    before: Option<PathBuf>,
    /// That each figure is measured in; the middle one is taken.
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
    // `cargo nextest --benches` and the like ask what tests there are.
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

/// This program once more, in a role.
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
