//! The steps of an ensemble on the thread of the connection that brings the request.

use super::ensembles::{EnsembleRig, LONG, accumulator, ensemble, request};
use super::inline_steps::{TRIES, inline_steps, send_here};
use crate::model::*;

/// Sends requests until one of them has run in each of these members on this thread.
fn runs_here(rig: &EnsembleRig, members: &[&str], ask: impl Fn(i32) -> InferRequest) -> bool {
    (0..TRIES).any(|n| {
        let before = inline_steps(rig, members);
        let (is_here, answer) = send_here(rig, ask(n));
        assert_eq!(answer.outputs[0].tensor.data[..], n.to_le_bytes());
        let after = inline_steps(rig, members);
        is_here && before.iter().zip(&after).all(|(before, after)| after == &(before + 1))
    })
}

fn plain() -> String {
    "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
     output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 } instance_group { kind: KIND_CPU count: 1 } dynamic_batching { }"
        .to_owned()
}

#[test]
fn short_steps_of_all_members_run_on_the_thread_that_brings_the_request() {
    let models = [
        ("three", "", ensemble("three", &["p", "q", "r"], "max_inflight_requests: 4")),
        ("p", "identity INT32", plain()),
        ("q", "identity INT32", plain()),
        ("r", "identity INT32", plain()),
    ];
    let rig = EnsembleRig::with(&models, Clock::manual_for_work(), None);
    let ask = |n| request("three", 0, n, |step| step.id = sequor_core::Id::None);
    assert!(runs_here(&rig, &["p", "q", "r"], ask));
}

#[test]
fn short_steps_of_sequences_run_on_the_thread_that_brings_the_request() {
    let models = [
        ("ab", "", ensemble("ab", &["b", "a"], "")),
        ("a", "accumulate INT32", accumulator(4, LONG)),
        ("b", "accumulate INT32", accumulator(4, LONG)),
    ];
    let rig = EnsembleRig::with(&models, Clock::manual_for_work(), None);
    let ask = |n| request("ab", n as u64 + 1, n, |step| (step.start, step.end) = (true, true));
    assert!(runs_here(&rig, &["a", "b"], ask));
    assert_eq!(["ab", "a", "b"].map(|model| rig.live(model)), [0; 3]);
}
