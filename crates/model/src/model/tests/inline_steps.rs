//! Short steps run on the connection's thread, until one of them is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

use super::ensembles::{EnsembleRig, LONG, accumulator};
use super::request;
use crate::executor::{AfterTurn, ConnectionExecutor};
use crate::model::*;
use crate::telemetry::StepPath;

/// Maximum number of tries to send a request while the instances sleep.
pub(super) const TRIES: i32 = 10_000;

/// Sends a request as a connection's thread does. Returns whether it was answered on this thread, and the answer.
pub(super) fn send_here(rig: &EnsembleRig, ask: InferRequest) -> (bool, InferAnswer) {
    let mut connection = ConnectionExecutor::default();
    connection.turn();
    let served = rig.repository.find(&ask.model, "").unwrap();
    let origin = RequestOrigin { connection: Some(&connection.handle()), ..RequestOrigin::default() };
    let mut pending = served.submit_from(origin, ask).unwrap();
    while connection.next(Waker::noop()) == AfterTurn::Turn {
        connection.turn();
    }
    let now = (&mut pending).now_or_never();
    let is_here = now.is_some();
    let answer =
        now.unwrap_or_else(|| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending));
    // Lets the instances' threads go to sleep.
    thread::yield_now();
    (is_here, answer.unwrap())
}

/// Number of steps of each model that ran on a connection's thread.
pub(super) fn inline_steps(rig: &EnsembleRig, models: &[&str]) -> Vec<u64> {
    models.iter().map(|model| rig.metrics.model(model, 1).steps(StepPath::Inline)).collect()
}

/// Sends a sequence of one step, up to `tries` times. Returns whether one of them ran inline.
fn runs_inline(rig: &EnsembleRig, tries: i32) -> bool {
    let before = inline_steps(rig, &["sum"]);
    (0..tries).any(|n| {
        send_here(rig, request(1, n, |step| (step.start, step.end) = (true, true)));
        inline_steps(rig, &["sum"]) != before
    })
}

#[test]
fn no_step_runs_inline_for_two_seconds_after_a_step_of_two_milliseconds() {
    let (clock, is_slow) = (Clock::manual_for_work(), Arc::new(AtomicBool::new(false)));
    let (time, slow) = (clock.clone(), Arc::clone(&is_slow));
    let hook = Arc::new(move |_: &sequor_core::Shape| {
        if slow.swap(false, Ordering::Relaxed) {
            time.advance(Duration::from_millis(2));
        }
    });
    let rig = EnsembleRig::with(&[("sum", "accumulate INT32", accumulator(4, LONG))], clock.clone(), Some(hook));
    assert!(runs_inline(&rig, TRIES), "short steps run inline");
    is_slow.store(true, Ordering::Relaxed);
    send_here(&rig, request(1, 1, |step| (step.start, step.end) = (true, true)));
    assert!(!runs_inline(&rig, 300), "at once");
    clock.advance(Duration::from_millis(1_999));
    assert!(!runs_inline(&rig, 300), "after 1,999 ms");
    clock.advance(Duration::from_millis(1));
    assert!(runs_inline(&rig, TRIES), "after two seconds");
    let steps = |path| rig.metrics.model("sum", 1).steps(path);
    assert!(steps(StepPath::HandedOver) >= 600);
    let text = rig.metrics.encode();
    let line = format!("sequor_steps_total{{model=\"sum\",version=\"1\",path=\"inline\"}} {}", steps(StepPath::Inline));
    assert!(text.contains(&line), "{line} is not in\n{text}");
}
