//! Memory of a thousand sequences is returned after they have ended. Each test measures the memory of the whole process, so it needs its
//! own process. nextest starts one for each test; [`is_alone`] starts one otherwise.

use std::process::Command;
use std::time::Duration;

use crate::state::GROW;
use crate::support::server::{limit_tensors, sides, wait};
use crate::support::values::tensor;
use crate::support::{Server, model, sum};

const SEQUENCES: u64 = 1000;
/// Time between the last END and the measurement.
const AFTER: Duration = Duration::from_secs(15);
/// Bytes of a sequence's state.
const STATE: u64 = 64 << 10;

/// A model with a state of 64 KiB, to which INPUT adds as a whole. OUTPUT is its minimum and its maximum.
fn wide(strategy: &str, rows: u32) -> Server {
    let config = sum("TYPE_FP32", strategy, "")
        .replace(
            "OUTPUT_STATE\" data_type: TYPE_FP32 dims: [ 1 ]",
            "OUTPUT_STATE\" data_type: TYPE_FP32 dims: [ 16384 ]",
        )
        .replace("dims: [ -1 ]", "dims: [ 2 ]")
        .replace("max_batch_size: 4", &format!("max_batch_size: {rows}"));
    let server = model("wide").config(&config).onnx("wide").unseen().serve();
    assert_eq!(server.ready().state_bytes, sides(strategy) * STATE);
    server
}

/// Bytes of resident memory of this process.
fn resident() -> u64 {
    let statm = fs_err::read_to_string("/proc/self/statm").unwrap();
    // These tests run only on machines with pages of 4 KiB.
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Starts, steps and ends every sequence. Returns the resident memory while all are live.
fn play(server: &Server, strategy: &str) -> u64 {
    let all: Vec<_> = (1..=SEQUENCES).map(|id| server.seq(id)).collect();
    for step in 0..3 {
        let waiting: Vec<_> = all.iter().map(|seq| seq.nth(step).input(&[seq_value(step)]).send()).collect();
        let sum = (0..=step).map(seq_value).sum::<f32>();
        waiting.into_iter().for_each(|w| w.gives(&[sum, sum]));
    }
    let (live, bytes) = (server.repository.live(), server.repository.state_bytes().0);
    assert_eq!((live, bytes), (SEQUENCES, SEQUENCES * sides(strategy) * STATE));
    let resident = resident();
    let waiting: Vec<_> = all.iter().map(|seq| seq.end().input(&[0.5f32]).send()).collect();
    waiting.into_iter().for_each(|w| drop(w.answer()));
    assert_eq!((server.repository.live(), server.repository.state_bytes().0), (0, 0));
    resident
}

fn seq_value(step: usize) -> f32 {
    step as f32 + 1.0
}

/// The resident memory, once it no longer changes. Instances drop states when they are next idle, and freed memory is kept for a while.
fn settled(server: &Server) -> u64 {
    let mut seen = vec![resident()];
    let last = |seen: &[u64]| *seen.last().unwrap();
    while seen.len() < 20 {
        std::thread::sleep(Duration::from_millis(5));
        server.repository.upkeep_after(AFTER);
        match resident() {
            now if now.abs_diff(last(&seen)) <= 64 << 10 => seen.push(now),
            now => seen = vec![now],
        }
    }
    last(&seen)
}

/// Whether this process runs only one test. If not, runs the named test in a separate process.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "SEQUOR_TEST_ALONE";
    if std::env::var_os("NEXTEST").is_some() || std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let status = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").status().unwrap();
    assert!(status.success(), "{test}: {status}");
    false
}

/// The four-state model of the benchmarks, with 3.45 MiB a sequence.
fn cached(strategy: &str) -> Server {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/models");
    let config = fs_err::read_to_string(root.join("cached_direct.pbtxt")).unwrap();
    let config = config.replace("name: \"cached_direct\"", "name: \"cached\"").replace("direct { }", strategy);
    let graph = fs_err::read(root.join("cached_rows.onnx")).unwrap();
    model("cached").config(&config).file("1/model.onnx", &graph).unseen().serve()
}

#[test]
fn ended_sequences_with_large_states_leave_nothing_behind() {
    if !is_alone("memory::ended_sequences_with_large_states_leave_nothing_behind") {
        return;
    }
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 32 }"] {
        let server = cached(strategy);
        let idle = settled(&server);
        let frames = || tensor(&[1, 16, 80], &[0.5f32; 16 * 80]);
        let all: Vec<_> = (1..=32).map(|id| server.seq(id)).collect();
        for step in 0..4 {
            let asks = all.iter().map(|seq| if step == 3 { seq.end() } else { seq.nth(step) });
            let waiting: Vec<_> = asks.map(|ask| ask.with("x", frames()).send()).collect();
            waiting.into_iter().for_each(|w| drop(w.answer()));
        }
        assert_eq!(server.repository.live(), 0);
        let most = resident();
        assert!(most > idle + (100 << 20), "{strategy}: idle {idle}, then {most}: were they there at all?");
        let limit = idle + (15 << 20);
        let released = || {
            server.repository.upkeep_after(AFTER);
            resident() <= limit
        };
        wait(released, || format!("{strategy}: idle {idle}, after the last END {}", resident()));
    }
}

#[test]
fn a_thousand_sequences_release_their_memory() {
    if !is_alone("memory::a_thousand_sequences_release_their_memory") {
        return;
    }
    for (strategy, rows) in [("oldest { max_candidate_sequences: 1000 }", 32), ("direct { }", 1000)] {
        let server = wide(strategy, rows);
        play(&server, strategy);
        let idle = settled(&server);
        let live = play(&server, strategy);
        let mib = |bytes: u64| bytes >> 20;
        println!("{strategy}: idle {} MiB, live {} MiB", mib(idle), mib(live));
        assert!(
            live > idle + SEQUENCES * STATE * 3 / 4,
            "{strategy}: idle {idle}, live {live}: were they there at all?"
        );
        let limit = idle + idle / 10;
        let released = || {
            server.repository.upkeep_after(AFTER);
            resident() <= limit
        };
        wait(released, || format!("{strategy}: idle {idle}, live {live}, and still {}", resident()));
    }
}

/// `limits.tensors` is for the tensors of runs. States and answers that stay after a run have limits of their own.
#[test]
fn states_and_answers_that_outlive_their_run_leave_the_limit_of_tensors() {
    if !is_alone("memory::states_and_answers_that_outlive_their_run_leave_the_limit_of_tensors") {
        return;
    }
    limit_tensors(8 << 20);
    let grows = GROW.replace("STRATEGY", "oldest { max_candidate_sequences: 16 }");
    let server = model("grow").config(&grows).onnx("grow_fp32").unseen().serve();
    // Rows of 16 bytes.
    let rows = (1u64 << 20) / 16;
    let all: Vec<_> = (1..=10).map(|id| server.seq(id)).collect();
    let mut unread = Vec::new();
    for seq in &all {
        let ask = seq.start().with("INPUT", tensor(&[1, rows, 4], &vec![1.0f32; rows as usize * 4]));
        unread.push(ask.answer());
    }
    assert!(server.repository.state_bytes().0 > 10 << 20);
    let config = r#"
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_INT32 dims: [ -1 ] }
        output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] }
        dynamic_batching { }
    "#;
    let other = model("echo").config(config).onnx("echo_int32").unseen().serve();
    let values = vec![7i32; 1 << 18];
    let ask = || other.stateless().with("INPUT", tensor(&[1, 1 << 18], &values));
    for _ in 0..10 {
        unread.push(ask().answer());
    }
    assert_eq!(unread[19].output::<i32>("OUTPUT"), values);
    // What they leave counts again once it is free, and a run that needs too much still fails.
    drop((unread, all));
    let values = vec![7i32; 3 << 20];
    let _ = other.stateless().with("INPUT", tensor(&[1, 3 << 20], &values)).fails();
    ask().answer();
}
