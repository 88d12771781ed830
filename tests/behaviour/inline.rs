//! Short steps run on the thread that brings them, until one of them turns out slow.

use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use sequor::executor::ConnectionExecutor;
use sequor::model::{Clock, RequestOrigin};
use sequor::telemetry::StepPath;
use tokio::runtime::Builder;

use super::support::values::row;
use super::support::{Server, model};

/// A step whose COUNT says how often its loop goes round.
const CONFIG: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "COUNT" data_type: TYPE_INT64 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }, { name: "ROUNDS" data_type: TYPE_INT64 dims: [ 1 ] } ]
    sequence_batching {
      oldest { max_candidate_sequences: 4 }
      state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ 1 ] }
    }
"#;
/// Some 20 ms and more.
const SLOW: i64 = 20_000;
/// Attempts until the instance sleeps when a request comes.
const TRIES: usize = 10_000;

/// Sends a sequence of one step as a connection's thread does.
fn send(server: &Server, count: i64) {
    let mut connection = ConnectionExecutor::default();
    connection.turn();
    let ask = server.seq(1).only().input(&[1.0_f32]).with("COUNT", row(&[count]));
    let served = server.repository.find(&server.model, "").unwrap();
    let mut pending = served
        .submit_from(
            RequestOrigin { connection: Some(&connection.handle()), ..RequestOrigin::default() },
            ask.request(),
        )
        .unwrap();
    connection.next(Waker::noop());
    drop(connection);
    let answer = (&mut pending).now_or_never();
    let answer = answer.unwrap_or_else(|| Builder::new_current_thread().build().unwrap().block_on(pending));
    assert!(answer.is_ok());
    // The instance's thread goes to sleep, if it gets the time.
    thread::yield_now();
}

fn inline_steps(server: &Server) -> u64 {
    server.metrics.model(&server.model, 1).steps(StepPath::Inline)
}

/// Whether one of so many short steps runs inline.
fn runs_inline(server: &Server, tries: usize) -> bool {
    let before = inline_steps(server);
    (0..tries).any(|_| {
        send(server, 1);
        inline_steps(server) > before
    })
}

/// Sends short steps until one runs inline. On a busy machine a short step may take long, too; that ban is over first.
fn until_one_runs_inline(server: &Server, clock: &Clock) {
    for _ in 0..TRIES / 100 {
        if runs_inline(server, 100) {
            return;
        }
        clock.advance(Duration::from_mins(10));
    }
    panic!("no step runs inline");
}

#[test]
fn after_one_slow_step_none_runs_inline_until_the_time_is_over() {
    let clock = Clock::manual();
    let server = model("rounds").config(CONFIG).onnx("rounds").clock(&clock).unseen().serve();
    until_one_runs_inline(&server, &clock);
    clock.advance(Duration::from_mins(10));
    send(&server, SLOW);
    assert!(!runs_inline(&server, 300), "at once");
    clock.advance(Duration::from_millis(9_999));
    assert!(!runs_inline(&server, 300), "after 9,999 ms");
    clock.advance(Duration::from_millis(1));
    until_one_runs_inline(&server, &clock);
    let steps = |path| server.metrics.model("rounds", 1).steps(path);
    assert!(steps(StepPath::HandedOver) >= 600);
    let text = server.metrics.encode();
    let line =
        format!("sequor_steps_total{{model=\"rounds\",version=\"1\",path=\"inline\"}} {}", steps(StepPath::Inline));
    assert!(text.contains(&line), "{line} is not in\n{text}");
}
