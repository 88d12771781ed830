//! What plug-ins that do what none should cost: the model they decide for, and another beside it. For each, short windows in turn, with the
//! plug-in and with the built-in policy, under the same load throughout. A window begins as the plug-in is attached to a server that is as it
//! comes, and so has in it all that the plug-in does until it is parked, if it is. It compares all windows of the one kind with all of
//! the other; how much two halves of the windows without any plug-in differ stands beside it.
//!
//! ```text
//! cargo bench --bench hostile                     eleven cases, eight pairs of windows of 4 s each: thirteen minutes
//! cargo bench --bench hostile -- --again          nothing is parked, and who falls is let loose again every 50 ms
//! cargo bench --bench hostile -- --quick          two pairs of 0.3 s: whether it works
//! cargo bench --bench hostile -- --only loop      cases whose name has this in it
//! cargo bench --bench hostile -- --pairs 64 --window 500     so many pairs, of so many milliseconds
//! cargo bench --bench hostile -- --health         another question: `health.rs`
//! ```
//!
//! The guests are those of `cargo xtask prepare` (`SEQUOR_GUESTS`, else `.sequor/guests`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod health;
mod load;
mod operator;
mod table;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sequor::bench::Child;

use load::{Load, Windows};
use operator::Operator;
use table::{Case, Pair};

/// The plug-in's model, and the one beside it: streams, and steps of each in a second.
const DECIDED: (&str, usize, u32) = ("oldest", 16, 50);
const BESIDE: (&str, usize, u32) = ("direct", 10, 200);
/// What a call may take, and what a request may take beyond that.
const BUDGET: Duration = Duration::from_millis(2);
const BEYOND: Duration = Duration::from_millis(30);
/// Commands that requests carry to the plug-in that obeys them.
const SPIN: &str = "[[feature]]\nname = \"spin\"\nfrom = \"parameter\"\nkey = \"spin\"\ntype = \"number\"\n";
/// A request that is passed over for ever runs after this (the server's `max_wait`).
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a plug-in that takes turns does the one and then the other. A tenth of that passes before it counts.
const TURN: Duration = Duration::from_millis(100);
/// Between two windows: what the change itself costs is no part of either.
const SETTLES: Duration = Duration::from_millis(300);
/// One whose instance falls is let loose again so often, if that is wished.
const AGAIN: Duration = Duration::from_millis(50);

/// What it does, how much of it, whether its instance falls of it, and what its requests may take on top.
const CASES: [(&str, u64, bool, Duration); 10] = [
    ("loop", 0, true, Duration::ZERO),
    ("trap", 0, true, Duration::ZERO),
    ("recursion", 0, true, Duration::ZERO),
    ("gigabyte", 0, true, Duration::ZERO),
    ("beyond", 0, false, Duration::ZERO),
    ("twice", 0, false, Duration::ZERO),
    ("both", 0, false, Duration::ZERO),
    ("flood", 300, false, Duration::ZERO),
    ("spin", 0, false, Duration::ZERO),
    ("starve", 0, false, PATIENCE),
];

struct Options {
    pairs: usize,
    window: Duration,
    only: Option<String>,
    /// No plug-in is parked for long.
    again: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo nextest --benches` and the like ask what tests there are.
    if arguments.iter().any(|a| a == "--list") {
        return;
    }
    let value = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1)).cloned();
    let number = |flag: &str| value(flag).map(|n| n.parse::<u64>().expect(flag));
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    let (pairs, window) = if has("--quick") { (2, 300) } else { (8, 4000) };
    let options = Options {
        pairs: number("--pairs").map_or(pairs, |n| n as usize),
        window: Duration::from_millis(number("--window").unwrap_or(window)),
        only: value("--only"),
        again: has("--again"),
    };
    if has("--health") {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
        let long = Duration::from_secs(if has("--quick") { 1 } else { 20 });
        return runtime.block_on(health::measure(value("--before").map(PathBuf::from).as_deref(), long));
    }
    let repository = repository();
    let server = Child::start(serve(repository.path(), options.again)).expect("the server");
    let operator = Operator::of(server.admin.clone().expect("the operators' listener"));
    operator.load("hostile", &guest("hostile-default"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(measure(&options, &server, &operator));
}

async fn measure(options: &Options, server: &Child, operator: &Operator) {
    let windows = Windows::default();
    let load = Load::start(&server.grpc, &[DECIDED, BESIDE], &windows).await;
    tokio::time::sleep(SETTLES).await;
    let spin = tokio::task::block_in_place(|| operator.spins(DECIDED.0, BUDGET));
    table::head(options.pairs, options.window);
    for (does, amount, falls, more) in CASES {
        if options.only.as_ref().is_some_and(|only| !does.contains(only.as_str())) {
            continue;
        }
        let amount = if does == "spin" { spin } else { amount };
        let mut case = Case::new(does, BUDGET + BEYOND + more);
        let guest = Hostile { does, amount, falls: falls && options.again };
        for n in 0..options.pairs {
            let mut pair = Pair::default();
            // Changes of the machine over time slow both alike.
            for with in if n % 2 == 0 { [false, true] } else { [true, false] } {
                tokio::time::sleep(SETTLES).await;
                let of = windows.open();
                if with {
                    tokio::task::block_in_place(|| guest.decides(operator, options.window, &mut pair));
                } else {
                    tokio::time::sleep(options.window).await;
                }
                windows.close();
                if with {
                    tokio::task::block_in_place(|| operator.take_off(DECIDED.0));
                }
                *(if with { &mut pair.hostile } else { &mut pair.built_in }) = load.of(of).await;
            }
            case.pairs.push(pair);
        }
        case.print();
    }
    if options.only.as_ref().is_none_or(|only| "turns".contains(only.as_str())) {
        turns(options, operator, &load, &windows, spin).await;
    }
    load.stop().await;
    table::foot();
}

/// One plug-in throughout that spins for a moment and is quiet for the next, as its requests say: what else the machine does befalls both alike,
/// and there is no change of plug-ins in it.
async fn turns(options: &Options, operator: &Operator, load: &Load, windows: &Windows, spin: u64) {
    let mut case = Case::new("turns", BUDGET + BEYOND);
    tokio::task::block_in_place(|| operator.let_loose(DECIDED.0, "spin-when-told", spin, Some("20ms")));
    let of = [(); 4].map(|()| windows.unopened());
    let turns = 2 * options.pairs as u128 * options.window.as_millis() / TURN.as_millis();
    for n in 0..turns as usize {
        windows.spins(n % 2 == 1);
        tokio::time::sleep(TURN / 10).await;
        windows.reopen(of[n % of.len()]);
        tokio::time::sleep(TURN * 9 / 10).await;
        windows.close();
    }
    windows.spins(false);
    let (asked, state) = tokio::task::block_in_place(|| operator.asked());
    let asked = asked / (TURN.as_secs_f64() * turns as f64);
    tokio::task::block_in_place(|| operator.take_off(DECIDED.0));
    for half in of.chunks(2) {
        let (built_in, hostile) = (load.of(half[0]).await, load.of(half[1]).await);
        case.pairs.push(Pair { built_in, hostile, asked, state: state.clone() });
    }
    case.print();
}

/// The guest to attach, and whether again and again.
struct Hostile {
    does: &'static str,
    amount: u64,
    falls: bool,
}

impl Hostile {
    /// Decides for so long, if it is not stopped.
    fn decides(&self, operator: &Operator, long: Duration, pair: &mut Pair) {
        let began = Instant::now();
        // It takes all that a call may by default, every time. What it may is more, so that it is not struck for what the machine does.
        let time = (self.does == "spin").then_some("20ms");
        operator.let_loose(DECIDED.0, self.does, self.amount, time);
        while began.elapsed() < long {
            std::thread::sleep(AGAIN.min(long.saturating_sub(began.elapsed())));
            if self.falls {
                operator.again();
            }
        }
        (pair.asked, pair.state) = operator.asked();
        pair.asked /= began.elapsed().as_secs_f64();
    }
}

/// The real server, as it comes; or one that strikes and never parks for it.
fn serve(repository: &Path, forgiving: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.args([OsStr::new("serve"), OsStr::new("--model-repository"), repository.as_os_str()]);
    command.args(["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--admin-port=0", "--http-address=127.0.0.1"]);
    command.args(["--grpc-address=127.0.0.1", "--log-level=error", "--admin-upload=true"]);
    if forgiving {
        command.env("SEQUOR_PLUGINS_STRIKES", "1000000000");
    }
    // What it has to say of each strike is not what is measured here.
    command.stderr(Stdio::null());
    command
}

/// The sum of `models/accumulator_fp32`, in either strategy.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let graph = root("models/accumulator_fp32/1/model.onnx");
    for (name, config) in
        [("oldest", include_str!("../models/oldest.pbtxt")), ("direct", include_str!("../models/direct.pbtxt"))]
    {
        let model = folder.path().join(name);
        std::fs::create_dir_all(model.join("1")).expect("a folder");
        std::fs::write(model.join("config.pbtxt"), config).expect("a file");
        std::fs::copy(&graph, model.join("1/model.onnx")).expect("a graph");
        std::fs::write(model.join("sequor.toml"), SPIN).expect("a file");
    }
    folder
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn guest(name: &str) -> Vec<u8> {
    let folder = std::env::var_os("SEQUOR_GUESTS").map_or_else(|| root(".sequor/guests"), PathBuf::from);
    let file = folder.join(format!("{name}.wasm"));
    std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask prepare` makes it", file.display()))
}
