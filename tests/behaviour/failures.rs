//! Requests that fail: which requests are affected, and what happens to the sequence.

use sequor::backend::mock::MockBackend;
use sequor::error::Failure;

use crate::support::server::wait;
use crate::support::values::row;
use crate::support::{Server, both, model, sum};

const SIXTEEN: [&str; 2] = ["direct { }", "oldest { max_candidate_sequences: 16 }"];

/// A running sum of table entries. INPUT is an index, and 99 is an invalid one.
fn lookup(strategy: &str) -> Server {
    lookup_with(strategy, "")
}

fn lookup_with(strategy: &str, state: &str) -> Server {
    let config = sum("TYPE_FP32", strategy, state)
        .replace(r#""INPUT" data_type: TYPE_FP32"#, r#""INPUT" data_type: TYPE_INT64"#)
        .replace("max_batch_size: 4", "max_batch_size: 16")
        .replace("dims: [ -1 ]", "dims: [ 1 ]");
    model("lookup").config(&config).onnx("lookup").serve()
}

#[test]
fn one_bad_row_among_sixteen_fails_alone() {
    for strategy in SIXTEEN {
        let server = lookup(strategy);
        let all: Vec<_> = (1..=16).map(|id| server.seq(id)).collect();
        for seq in &all {
            seq.start().input(&[1i64]).gives(&[10.0f32]);
        }
        let held = server.hold(all[0].step().input(&[0i64]));
        let ask =
            |(n, seq): (usize, &crate::support::Seq<'_>)| seq.step().input(&[if n == 7 { 99i64 } else { 2 }]).send();
        let waiting: Vec<_> = all.iter().enumerate().map(ask).collect();
        held.release();
        let (mut right, mut failed) = (0, 0);
        for (n, waiting) in waiting.into_iter().enumerate() {
            match waiting.result() {
                Ok(answer) => {
                    assert_eq!(answer.output::<f32>("OUTPUT"), [if n == 0 { 111.0 } else { 110.0 }], "{n}");
                    right += 1;
                }
                Err(Failure::Run(text)) => {
                    assert!(n == 7 && text.contains("99"), "{n}: {text}");
                    failed += 1;
                }
                Err(other) => panic!("{n}: {other:?}"),
            }
        }
        assert_eq!((right, failed), (15, 1), "{strategy}");
        assert!(server.runs().iter().any(|run| run.rows() == 16), "all sixteen were one batch");
        // Every sequence continues from its state; the failed one from its previous state.
        for (n, seq) in all.iter().enumerate() {
            let sum = [111.0, 110.0, 10.0][if n == 0 {
                0
            } else if n == 7 {
                2
            } else {
                1
            }];
            seq.step().input(&[0i64]).gives(&[sum + 1.0f32]);
        }
        assert_eq!(server.repository.live(), 16);
    }
}

#[test]
fn one_poisoned_row_among_sixteen_fails_alone_on_the_mock_backend() {
    for strategy in SIXTEEN {
        let config = sum("TYPE_INT32", strategy, "")
            .replace("max_batch_size: 4", "max_batch_size: 16")
            .replace("dims: [ -1 ]", "dims: [ 1 ]");
        let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let sizes = std::sync::Arc::clone(&seen);
        let backend = MockBackend::with_hook(std::sync::Arc::new(move |shape| sizes.lock().push(shape.0[0])));
        let server = model("acc").config(&config).mock("accumulate INT32 poison=13", backend).serve();
        let all: Vec<_> = (1..=16).map(|id| server.seq(id)).collect();
        let held = server.hold(all[3].start().input(&[5]));
        let poisoned = |n: usize| n == 3;
        let ask = |(n, seq): (usize, &crate::support::Seq<'_>)| {
            seq.nth(usize::from(poisoned(n))).input(&[if poisoned(n) { 13 } else { 1 }]).send()
        };
        let waiting: Vec<_> = all.iter().enumerate().map(ask).collect();
        held.release();
        for (n, waiting) in waiting.into_iter().enumerate() {
            if n == 3 {
                assert!(format!("{}", waiting.fails()).contains("mock error"), "{strategy}");
            } else {
                waiting.gives(&[1]);
            }
        }
        all[3].step().input(&[1]).gives(&[6]);
        assert!(seen.lock().contains(&16), "{strategy}");
    }
}

#[test]
fn a_failed_request_keeps_the_state_and_the_sequence_continues() {
    for strategy in both() {
        let server = lookup(strategy);
        let a = server.seq(1);
        a.start().input(&[1i64]).gives(&[10.0f32]);
        for _ in 0..3 {
            assert!(matches!(a.step().input(&[99i64]).fails(), Failure::Run(_)));
            a.step().input(&[0i64]).answer();
        }
        a.step().input(&[2i64]).gives(&[113.0f32]);
    }
}

/// With `use_same_buffer_for_input_output`, Triton overwrites the old state during a run. In Sequor the old state survives a failed run.
#[test]
fn a_failed_run_keeps_a_state_that_shares_its_input_and_output_buffer() {
    for strategy in both() {
        let server = lookup_with(strategy, "use_same_buffer_for_input_output: true");
        let all: Vec<_> = (1..=4).map(|id| server.seq(id)).collect();
        for (n, seq) in (0i64..).zip(&all) {
            seq.start().input(&[n]).gives(&[10f32.powi(n as i32)]);
        }
        // A batch of neighbouring slots with one failure, and one with a hole.
        let held = server.hold(all[0].step().input(&[0i64]));
        let waiting = [1, 2, 3].map(|n| all[n].step().input(&[if n == 2 { 99i64 } else { 0 }]).send());
        held.release();
        for (n, waiting) in (1..).zip(waiting) {
            match n {
                2 => assert!(matches!(waiting.fails(), Failure::Run(_))),
                n => waiting.gives(&[10f32.powi(n) + 1.0]),
            }
        }
        let held = server.hold(all[1].step().input(&[0i64]));
        let waiting = [0, 3].map(|n| all[n].step().input(&[0i64]).send());
        held.release();
        for (waiting, sum) in waiting.into_iter().zip([3.0f32, 1002.0]) {
            waiting.gives(&[sum]);
        }
        all[2].step().input(&[0i64]).gives(&[101.0f32]);
    }
}

#[test]
fn a_failed_start_keeps_the_initial_state_and_a_failed_end_ends_the_sequence() {
    for strategy in both() {
        let server = lookup(strategy);
        let a = server.seq(1);
        assert!(matches!(a.start().input(&[99i64]).fails(), Failure::Run(_)));
        assert_eq!(server.repository.live(), 1);
        a.step().input(&[1i64]).gives(&[10.0f32]);
        // A START that fails on a live sequence has still reset it.
        assert!(matches!(a.start().input(&[99i64]).fails(), Failure::Run(_)));
        a.step().input(&[0i64]).gives(&[1.0f32]);
        assert!(matches!(a.end().input(&[99i64]).fails(), Failure::Run(_)));
        assert_eq!(server.repository.live(), 0);
        let failure = a.step().input(&[0i64]).fails();
        assert!(format!("{failure:?}").contains("Unknown"), "{failure:?}");
    }
}

#[test]
fn a_request_that_does_not_fit_the_model_never_reaches_the_sequence() {
    for strategy in both() {
        let server = lookup(strategy);
        let a = server.seq(1);
        a.start().input(&[1i64]).gives(&[10.0f32]);
        for ask in [
            a.step().input(&[1i32]),
            a.end().input(&[1i64, 2]),
            a.start().with("INPUT", crate::support::values::tensor(&[2, 1], &[1i64, 2])),
            a.end(),
            a.start().input(&[1i64]).with("OTHER", row(&[1])),
        ] {
            let failure = ask.fails();
            assert!(matches!(failure, Failure::Invalid { .. }), "{failure:?}");
        }
        a.step().input(&[1i64]).gives(&[20.0f32]);
        assert_eq!(server.runs().len(), 2);
    }
}

#[test]
fn a_start_on_a_live_id_restarts_it_after_its_waiting_requests() {
    for strategy in both() {
        let server = lookup(strategy);
        let a = server.seq(1);
        let held = server.hold(a.start().input(&[1i64]));
        let waiting = [a.step().input(&[1i64]).send(), a.start().input(&[2i64]).send(), a.step().input(&[0i64]).send()];
        assert_eq!(server.repository.live(), 1);
        assert_eq!(held.release().output::<f32>("OUTPUT"), [10.0]);
        waiting.into_iter().zip([20.0f32, 100.0, 101.0]).for_each(|(w, sum)| w.gives(&[sum]));
        assert_eq!(server.repository.live(), 1);
    }
}

#[test]
fn a_restarted_sequence_is_counted_as_ended_and_as_started() {
    let server = lookup("");
    let a = server.seq(1);
    for ask in [a.start(), a.step(), a.start(), a.end()] {
        ask.input(&[1i64]).answer();
    }
    // The metrics are updated shortly after the answer is sent.
    let counted = |what: &str| {
        let text = server.metrics.encode();
        let lines = text.lines().filter(|l| l.starts_with("sequor_sequences_") && l.contains(what));
        lines.map(|l| l.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum::<u32>()
    };
    wait(|| counted("_live") == 0, || server.metrics.encode());
    assert_eq!((counted("started_total"), counted("ended_total")), (2, 2), "{}", server.metrics.encode());
    assert_eq!((counted("\"ended\""), counted("\"restarted\"")), (1, 1), "{}", server.metrics.encode());
}

#[test]
fn an_end_without_inputs_is_accepted_only_if_the_model_allows_it() {
    for strategy in both() {
        let spec = |toml: &str| model("sum").config(&sum("TYPE_INT32", strategy, "")).toml(toml).onnx("sum_int32");
        let server = spec("[sequence]\nend_without_inputs = true\n").serve();
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[2]).gives(&[2]);
        assert!(a.end().answer().0.outputs.is_empty());
        assert_eq!((server.repository.live(), server.runs().len()), (1, 2), "nothing ran");
        // In a batch with others, and behind its own requests.
        a.start().input(&[5]).gives(&[5]);
        let held = server.hold(b.step().input(&[1]));
        let waiting = [a.step().input(&[1]).send(), a.end().send(), b.step().input(&[1]).send(), b.end().send()];
        held.release();
        let [a_step, a_end, b_step, b_end] = waiting;
        a_step.gives(&[6]);
        b_step.gives(&[4]);
        assert!(a_end.answer().0.outputs.is_empty() && b_end.answer().0.outputs.is_empty());
        assert_eq!(server.repository.live(), 0);
        assert!(matches!(a.only().fails(), Failure::Invalid { .. }), "a START brings its inputs");
        let strict = spec("").serve();
        strict.seq(1).start().input(&[1]).gives(&[1]);
        assert!(matches!(strict.seq(1).end().fails(), Failure::Invalid { .. }));
        strict.seq(1).end().input(&[1]).gives(&[2]);
    }
}

#[test]
fn a_step_older_than_its_timeout_is_refused_only_if_the_model_sets_it() {
    let timeout = std::time::Duration::from_millis(20);
    for (toml, lives_on) in [("", true), ("[queue]\nexpire = \"reject\"\n", false)] {
        let config = sum("TYPE_INT32", "oldest { max_candidate_sequences: 4 }", "");
        let server = model("sum").config(&config).toml(toml).onnx("sum_int32").serve();
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        let held = server.hold(b.start().input(&[2]));
        let late = a.step().input(&[3]).timeout(timeout).send();
        if lives_on {
            held.release();
            late.gives(&[4]);
        } else {
            let failure = late.fails();
            held.release();
            assert!(format!("{failure:?}").contains("QueueTimeout"), "{failure:?}");
            let gone = a.step().input(&[3]).fails();
            assert!(format!("{gone:?}").contains("why: Cancelled"), "{gone:?}");
        }
        b.end().input(&[1]).gives(&[3]);
    }
}
