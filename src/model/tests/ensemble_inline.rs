//! The steps of an ensemble on the thread of the connection that brings the request.

use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

use super::ensembles::{House, LONG, accumulator, ensemble, request};
use crate::executor::{AfterTurn, ConnectionExecutor};
use crate::model::*;
use crate::telemetry::StepPath;

/// Requests until the instances of all members sleep when one comes.
const TRIES: i32 = 10_000;

/// Steps of each member that ran on a connection's thread.
fn inline_steps(house: &House, members: &[&str]) -> Vec<u64> {
    members.iter().map(|member| house.metrics.model(member, 1).steps(StepPath::Inline)).collect()
}

/// Sends requests as a connection's thread does, until one of them has run in each of these members on this thread.
fn runs_here(house: &House, clock: &Clock, members: &[&str], ask: impl Fn(i32) -> InferRequest) -> bool {
    for n in 0..TRIES {
        let before = inline_steps(house, members);
        let mut connection = ConnectionExecutor::default();
        connection.turn();
        let ask = ask(n);
        let served = house.repository.find(&ask.model, "").unwrap();
        let origin = RequestOrigin { connection: Some(&connection.handle()), ..RequestOrigin::default() };
        let mut pending = served.submit_from(origin, ask).unwrap();
        while connection.next(Waker::noop()) == AfterTurn::Turn {
            connection.turn();
        }
        let now = (&mut pending).now_or_never();
        let is_here = now.is_some();
        let answer =
            now.unwrap_or_else(|| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending));
        assert_eq!(answer.unwrap().outputs[0].tensor.data[..], n.to_le_bytes());
        let after = inline_steps(house, members);
        if is_here && before.iter().zip(&after).all(|(before, after)| after == &(before + 1)) {
            return true;
        }
        // The instances go to sleep, if they get the time. On a busy machine a short step may take long, and is not run inline for a while.
        thread::yield_now();
        if n % 100 == 99 {
            clock.advance(Duration::from_mins(10));
        }
    }
    false
}

fn plain() -> String {
    "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
     output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 } instance_group { kind: KIND_CPU count: 1 } dynamic_batching { }"
        .to_owned()
}

#[test]
fn short_steps_of_all_members_run_on_the_thread_that_brings_the_request() {
    let clock = Clock::manual();
    let models = [
        ("three", "", ensemble("three", &["p", "q", "r"], "max_inflight_requests: 4")),
        ("p", "identity INT32", plain()),
        ("q", "identity INT32", plain()),
        ("r", "identity INT32", plain()),
    ];
    let house = House::with(&models, clock.clone(), None);
    let ask = |n| request("three", 0, n, |step| step.id = sequor_core::Id::None);
    assert!(runs_here(&house, &clock, &["p", "q", "r"], ask));
}

#[test]
fn short_steps_of_sequences_run_on_the_thread_that_brings_the_request() {
    let clock = Clock::manual();
    let models = [
        ("ab", "", ensemble("ab", &["b", "a"], "")),
        ("a", "accumulate INT32", accumulator(4, LONG)),
        ("b", "accumulate INT32", accumulator(4, LONG)),
    ];
    let house = House::with(&models, clock.clone(), None);
    let ask = |n| request("ab", n as u64 + 1, n, |step| (step.start, step.end) = (true, true));
    assert!(runs_here(&house, &clock, &["a", "b"], ask));
    assert_eq!(["ab", "a", "b"].map(|model| house.live(model)), [0; 3]);
}
