//! Measures the cost of hostile plug-ins for the model they decide for, and for another model next to it. For each plug-in there are short
//! windows in turn, with the plug-in and with the built-in policy, under a constant load. A window begins when the plug-in is attached to a
//! server with default settings, so it includes everything until the plug-in is parked. All windows of one kind are compared with all of
//! the other. For comparison, the output also has the difference between two halves of the windows without a plug-in.
//!
//! ```text
//! cargo bench --bench hostile                     eleven cases, eight pairs of windows of 4 s each: thirteen minutes
//! cargo bench --bench hostile -- --again          nothing is parked, and a failed plug-in is restarted every 50 ms
//! cargo bench --bench hostile -- --quick          two pairs of 0.3 s, as a smoke test
//! cargo bench --bench hostile -- --only loop      cases with this text in the name
//! cargo bench --bench hostile -- --pairs 64 --window 500     number of pairs, and milliseconds of a window
//! cargo bench --bench hostile -- --health         another measurement: `health.rs`
//! ```
//!
//! The guests are those of `cargo xtask prepare`, in `SEQUOR_GUESTS` or `.sequor/guests`.

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

/// The plug-in's model and the model next to it: streams, and steps a second of each.
const DECIDED: (&str, usize, u32) = ("oldest", 16, 50);
const BESIDE: (&str, usize, u32) = ("direct", 10, 200);
/// Maximum time of a call, and the further time that a request may take.
const BUDGET: Duration = Duration::from_millis(2);
const BEYOND: Duration = Duration::from_millis(30);
/// The feature for commands to the plug-in that obeys requests.
const SPIN: &str = "[[feature]]\nname = \"spin\"\nfrom = \"parameter\"\nkey = \"spin\"\ntype = \"number\"\n";
/// A request that is passed over for this long runs anyway (the server's `max_wait`).
const PATIENCE: Duration = Duration::from_secs(1);
/// Time of each phase of a plug-in that alternates. The first tenth of a phase does not count.
const TURN: Duration = Duration::from_millis(100);
/// Time between two windows, so that the change itself is in neither.
const SETTLES: Duration = Duration::from_millis(300);
/// With `--again`, the interval at which a plug-in with failed instances is restarted.
const AGAIN: Duration = Duration::from_millis(50);

/// The behaviour, its amount, whether it makes the instance fail, and the extra time that its requests may take.
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
    /// Whether strikes are cleared at once, so that no plug-in stays parked.
    again: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo nextest --benches` and similar tools list tests.
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
            // Both kinds alternate, so that changes of the machine over time affect both alike.
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

/// One plug-in throughout, which spins and rests in turn as its requests command. Other activity of the machine affects both phases alike,
/// and no change of plug-ins is measured.
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

/// The guest to attach, and whether to restart it repeatedly.
struct Hostile {
    does: &'static str,
    amount: u64,
    falls: bool,
}

impl Hostile {
    /// Lets the plug-in decide for this long, unless it is parked.
    fn decides(&self, operator: &Operator, long: Duration, pair: &mut Pair) {
        let began = Instant::now();
        // Each call of `spin` takes as long as the default limit. Its own limit is higher, so that the machine's noise causes no strikes.
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

/// The real server with default settings, or one that never parks a plug-in.
fn serve(repository: &Path, forgiving: bool) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sequor"));
    command.args([OsStr::new("serve"), OsStr::new("--model-repository"), repository.as_os_str()]);
    command.args(["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--admin-port=0", "--http-address=127.0.0.1"]);
    command.args(["--grpc-address=127.0.0.1", "--log-level=error", "--admin-upload=true"]);
    if forgiving {
        command.env("SEQUOR_PLUGINS_STRIKES", "1000000000");
    }
    // Messages about strikes must not affect the measurement.
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
