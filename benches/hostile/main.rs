//! What plug-ins that do what none should cost: the model they decide for, and another beside it. For each, short windows in turn, with the
//! plug-in and with the built-in policy, under the same load throughout; what is compared is what stands side by side, and how much two windows
//! without any plug-in differ stands beside it. A plug-in that would be parked is let loose again all the time.
//!
//! ```text
//! cargo bench --bench hostile                     ten cases, six pairs of windows of 2 s each: five minutes
//! cargo bench --bench hostile -- --quick          two pairs of 0.3 s: whether it works
//! cargo bench --bench hostile -- --only loop      cases whose name has this in it
//! ```
//!
//! The guests are those of `cargo xtask prepare` (`SEQUOR_GUESTS`, else `.sequor/guests`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

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
/// A request that is passed over for ever runs after this (the server's `max_wait`).
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two windows: what the change itself costs is no part of either.
const SETTLES: Duration = Duration::from_millis(300);
/// One whose instance falls is let loose again so often.
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
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo nextest --benches` and the like ask what tests there are.
    if arguments.iter().any(|a| a == "--list") {
        return;
    }
    let only = arguments.iter().position(|a| a == "--only").and_then(|at| arguments.get(at + 1)).cloned();
    let quick = arguments.iter().any(|a| a == "--quick");
    let (pairs, window) = if quick { (2, Duration::from_millis(300)) } else { (6, Duration::from_secs(2)) };
    let options = Options { pairs, window, only };
    let repository = repository();
    let server = Child::start(serve(repository.path())).expect("the server");
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
        for n in 0..options.pairs {
            let mut pair = Pair::default();
            // Whatever the machine does as time goes by befalls both alike.
            for with in if n % 2 == 0 { [false, true] } else { [true, false] } {
                if with {
                    let before = tokio::task::block_in_place(|| operator.let_loose(DECIDED.0, does, amount));
                    tokio::time::sleep(SETTLES).await;
                    let (of, began) = (windows.open(), Instant::now());
                    while began.elapsed() < options.window {
                        tokio::time::sleep(AGAIN.min(options.window)).await;
                        if falls {
                            tokio::task::block_in_place(|| operator.again());
                        }
                    }
                    windows.close();
                    pair.asked =
                        tokio::task::block_in_place(|| operator.calls() - before) / began.elapsed().as_secs_f64();
                    tokio::task::block_in_place(|| operator.take_off(DECIDED.0));
                    pair.hostile = load.of(of).await;
                } else {
                    tokio::time::sleep(SETTLES).await;
                    let of = windows.open();
                    tokio::time::sleep(options.window).await;
                    windows.close();
                    pair.built_in = load.of(of).await;
                }
            }
            case.pairs.push(pair);
        }
        case.print();
    }
    load.stop().await;
    table::foot();
}

/// The real server. Nothing parks a plug-in but this program, and so nothing keeps it parked.
fn serve(repository: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.args([OsStr::new("serve"), OsStr::new("--model-repository"), repository.as_os_str()]);
    command.args(["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--admin-port=0", "--http-address=127.0.0.1"]);
    command.args(["--grpc-address=127.0.0.1", "--log-level=error", "--admin-upload=true"]);
    // What it has to say of each strike is not what is measured here.
    command.env("SEQUOR_PLUGINS_STRIKES", "1000000000").stderr(Stdio::null());
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
