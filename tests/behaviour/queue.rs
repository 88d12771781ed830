//! Queues of models without sequences: levels and their policies, the maximum size, the timeout, and requests without a batcher.

use std::time::Duration;

use sequor::error::Failure;
use sequor::model::Clock;
use sequor_core::Refusal;

use crate::support::values::row;
use crate::support::{Server, Spec, model};

const CONFIG: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    dynamic_batching { default_queue_policy { POLICY } }
"#;

fn spec(policy: &str) -> Spec {
    model("optional").config(&CONFIG.replace("POLICY", policy)).onnx("optional")
}

fn server(policy: &str) -> Server {
    spec(policy).serve()
}

fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Refused(refused) => refused.refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_queue_refuses_requests_until_it_has_room() {
    let server = server("max_queue_size: 2");
    let ask = |value: f32| server.stateless().with("INPUT", row(&[value]));
    let held = server.hold(ask(1.0));
    let waiting = [ask(2.0).send(), ask(3.0).send()];
    assert_eq!(refusal(ask(4.0).fails()), Refusal::QueueFull { limit: 2 });
    held.release();
    for (waiting, value) in waiting.into_iter().zip([4.0f32, 6.0]) {
        waiting.gives(&[value]);
    }
    ask(4.0).gives(&[8.0f32]);
}

#[test]
fn a_request_expires_by_the_queue_policy_or_by_its_own_timeout_if_allowed() {
    let (soon, late) = (Duration::from_millis(1), Duration::from_secs(600));
    // The policy, the request's own timeout, and whether it expires. Time passes only after the run of the held request has begun.
    let cases = [
        ("default_timeout_microseconds: 500000", None, true),
        ("default_timeout_microseconds: 500000 allow_timeout_override: true", Some(late), true),
        ("default_timeout_microseconds: 600000000 allow_timeout_override: true", Some(soon), true),
        ("allow_timeout_override: true", Some(soon), true),
        ("default_timeout_microseconds: 600000000", Some(soon), false),
        ("max_queue_size: 9", Some(soon), false),
    ];
    for (policy, own, expires) in cases {
        let clock = Clock::manual();
        let server = spec(policy).clock(&clock).serve();
        let ask = || server.stateless().with("INPUT", row(&[1.0f32]));
        let held = server.hold(ask());
        let late = match own {
            Some(span) => ask().timeout(span).send(),
            None => ask().send(),
        };
        clock.advance(Duration::from_millis(500));
        if expires {
            let refusal = refusal(late.fails());
            assert!(matches!(refusal, Refusal::QueueTimeout { .. }), "{policy}: {refusal:?}");
            held.release();
        } else {
            held.release();
            late.gives(&[2.0f32]);
        }
    }
}

#[test]
fn requests_without_a_batcher_are_spread_over_the_instances() {
    let config =
        CONFIG.replace("dynamic_batching { default_queue_policy { POLICY } }", "").replace("count: 1", "count: 2");
    let server = model("optional").config(&config).onnx("optional").serve();
    let ask = |value: f32| server.stateless().with("INPUT", row(&[value]));
    server.watch.close("");
    let waiting = [ask(1.0).send(), ask(2.0).send(), ask(3.0).send()];
    server.watch.wait_for(2);
    let instances: Vec<String> = server.runs().into_iter().map(|run| run.instance).collect();
    assert_ne!(instances[0], instances[1]);
    server.watch.open();
    for (waiting, value) in waiting.into_iter().zip([2.0f32, 4.0, 6.0]) {
        waiting.gives(&[value]);
    }
    assert!(server.runs().iter().all(|run| run.rows() == 1), "each runs alone");
}

#[test]
fn priority_level_1_runs_first_and_each_level_has_its_own_queue_policy() {
    let levels = "dynamic_batching { priority_levels: 3 default_priority_level: 2 \
                  priority_queue_policy { key: 3 value { max_queue_size: 1 } } }";
    let config = CONFIG
        .replace("dynamic_batching { default_queue_policy { POLICY } }", levels)
        .replace("max_batch_size: 4", "max_batch_size: 1");
    let server = model("optional").config(&config).onnx("optional").serve();
    let ask = |value: f32, priority: u32| server.stateless().with("INPUT", row(&[value])).priority(priority);
    let held = server.hold(ask(1.0, 0));
    let waiting = [ask(2.0, 3).send(), ask(3.0, 0).send(), ask(4.0, 9).send(), ask(5.0, 1).send()];
    assert_eq!(refusal(ask(6.0, 3).fails()), Refusal::QueueFull { limit: 1 });
    held.release();
    for (waiting, value) in waiting.into_iter().zip([4.0f32, 6.0, 8.0, 10.0]) {
        waiting.gives(&[value]);
    }
    let order: Vec<f32> = server.runs().iter().skip(1).map(|run| run.fed::<f32>("INPUT")[0]).collect();
    assert_eq!(order, [5.0, 3.0, 4.0, 2.0]);
}
