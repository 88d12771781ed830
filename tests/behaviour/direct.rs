//! `direct`: the rows of its batches.

use crate::support::server::wait;
use crate::support::watch::Run;
use crate::support::{Server, both, model, sum};

/// A running sum with START and READY inputs.
fn accumulator(strategy: &str) -> Server {
    let control = |kind: &str| {
        format!(
            r#"control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} }}"#
        )
    };
    let config = sum("TYPE_INT32", &format!("{strategy} {} {}", control("START"), control("READY")), "");
    model("acc").config(&config).onnx("accumulate_int32").serve()
}

#[test]
fn rows_without_a_request_are_zeros_and_not_ready() {
    let server = accumulator("direct { }");
    let all = [1u64, 2, 3, 4].map(|id| server.seq(id));
    for (n, seq) in (1..).zip(&all) {
        seq.start().input(&[n * 100]).gives(&[n * 100]);
    }
    // Slot 2 steps, slot 1 starts again, slot 0 has no request, slot 3 is above the highest one.
    let held = server.hold(all[3].step().input(&[0]));
    let (start, step) = (all[1].start().input(&[7]).send(), all[2].step().input(&[5]).send());
    held.release();
    start.gives(&[7]);
    step.gives(&[305]);
    let run = server.last_run();
    assert_eq!(run.shape("INPUT"), [3, 1]);
    assert_eq!(run.fed::<i32>("INPUT"), [0, 7, 5]);
    assert_eq!(run.fed::<i32>("READY"), [0, 1, 1]);
    assert_eq!(run.fed::<i32>("START"), [0, 1, 0]);
    assert_eq!(run.fed::<i32>("INPUT_STATE")[2], 300);
    // The state of slot 0, and the states of sequences outside of the batch, are unchanged.
    all[0].step().input(&[1]).gives(&[101]);
    all[3].step().input(&[1]).gives(&[401]);
    all[2].end().input(&[1]).gives(&[306]);
}

/// The metric of padding rows.
fn padding_rows(server: &Server) -> u64 {
    server.metrics.model(&server.model, 1).padding_rows()
}

#[test]
fn padding_rows_are_counted() {
    let server = accumulator("direct { }");
    let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
    for seq in [&a, &b, &c] {
        seq.start().input(&[1]).gives(&[1]);
    }
    // The second START ran beside one idle slot, the third beside two.
    assert_eq!(padding_rows(&server), 3);
    c.step().input(&[1]).gives(&[2]);
    a.step().input(&[1]).gives(&[2]);
    assert_eq!(padding_rows(&server), 5);
    let rows: u64 = server.runs().iter().map(Run::rows).sum();
    assert_eq!(rows, 5 + 5, "rows run beside rows ready");
}

#[test]
fn compact_rows_are_those_that_are_ready_in_the_order_of_their_slots() {
    let control = r#"control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
        control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }"#;
    let config = sum("TYPE_INT32", &format!("direct {{ }} {control}"), "");
    let spec = model("acc").config(&config).onnx("accumulate_int32").toml("[sequence]\nrows = \"compact\"\n");
    let server = spec.serve();
    assert_eq!((server.ready().strategy, server.ready().rows), ("direct", Some("compact")));
    let all = [1u64, 2, 3, 4].map(|id| server.seq(id));
    for (n, seq) in (1..).zip(&all) {
        seq.start().input(&[n * 100]).gives(&[n * 100]);
    }
    // Slots 3 and 1 step. The states of the other slots stay in place.
    let held = server.hold(all[0].step().input(&[0]));
    let (late, early) = (all[3].step().input(&[4]).send(), all[1].step().input(&[2]).send());
    held.release();
    late.gives(&[404]);
    early.gives(&[202]);
    let run = server.last_run();
    assert_eq!(run.shape("INPUT"), [2, 1]);
    assert_eq!(run.fed::<i32>("INPUT"), [2, 4]);
    assert_eq!(run.fed::<i32>("INPUT_STATE"), [200, 400]);
    assert_eq!(run.fed::<i32>("READY"), [1, 1]);
    // Neighbours form a batch too, and so do all slots, independent of the sides of their states.
    for (members, sums) in [(vec![1usize, 2], vec![203, 301]), (vec![0, 1, 2, 3], vec![101, 204, 302, 405])] {
        let held = server.hold(all[members[0]].step().input(&[0]));
        let waiting: Vec<_> = members.iter().map(|n| all[*n].step().input(&[1]).send()).collect();
        held.release();
        waiting.into_iter().zip(sums).for_each(|(waiting, sum)| waiting.gives(&[sum]));
        assert_eq!(server.last_run().rows(), members.len() as u64);
    }
    all[2].end().input(&[1]).gives(&[303]);
    server.seq(5).start().input(&[5]).gives(&[5]);
    all[3].step().input(&[1]).gives(&[406]);
    assert_eq!(padding_rows(&server), 0);
}

#[test]
fn the_rows_setting_is_refused_for_the_oldest_strategy() {
    let config = sum("TYPE_INT32", "oldest { max_candidate_sequences: 4 }", "");
    let refused = model("sum").config(&config).onnx("sum_int32").toml("[sequence]\nrows = \"compact\"\n").refused();
    assert!(refused.contains("sequor.toml:2:1: rows is for the strategy direct"), "{refused}");
}

#[test]
fn padding_rows_of_text_are_empty_texts() {
    let server = model("delay").config(&sum("TYPE_STRING", "direct { }", "")).onnx("string_state").serve();
    let text = |t: &str| [t.to_owned()];
    let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
    for (seq, t) in [(&a, "eins"), (&b, "zwei"), (&c, "drei")] {
        seq.start().input(&text(t)).gives(&text(""));
    }
    let held = server.hold(b.step().input(&text("vier")));
    let waiting = c.step().input(&text("fünf")).send();
    held.release();
    waiting.gives(&text("drei"));
    let run = server.last_run();
    assert_eq!(run.fed::<String>("INPUT"), ["", "", "fünf"]);
    assert_eq!(run.fed::<String>("INPUT_STATE"), ["", "", "drei"]);
    a.step().input(&text("")).gives(&text("eins"));
    b.step().input(&text("")).gives(&text("vier"));
}

#[test]
fn a_batch_is_rows_0_to_the_highest_that_is_ready() {
    let server = accumulator("direct { }");
    let all = [1u64, 2, 3, 4].map(|id| server.seq(id));
    for (n, seq) in (1..).zip(&all) {
        seq.start().input(&[0]).answer();
        assert_eq!(server.last_run().rows(), n);
    }
    for highest in [0usize, 3, 1, 2] {
        all[highest].step().input(&[1]).gives(&[1]);
        let run = server.last_run();
        assert_eq!(run.rows(), highest as u64 + 1);
        let ready: Vec<i32> = (0..=highest).map(|n| i32::from(n == highest)).collect();
        assert_eq!(run.fed::<i32>("READY"), ready);
    }
}

#[test]
fn an_idle_instance_runs_as_soon_as_any_slot_has_a_request() {
    let server = accumulator("direct { }");
    // No other request arrives and there is no delay, so each is answered alone.
    for id in 1..=4 {
        server.seq(id).start().input(&[1]).gives(&[1]);
        assert_eq!(server.last_run().fed::<i32>("READY").iter().sum::<i32>(), 1);
    }
    assert_eq!(server.runs().len(), 4);
}

#[test]
fn requests_that_wait_together_run_as_one_batch() {
    for strategy in both() {
        let server = accumulator(strategy);
        let plug = server.seq(1);
        let held = server.hold(plug.start().input(&[0]));
        let waiting = [2u64, 3, 4].map(|id| server.seq(id).start().input(&[id as i32]).send());
        held.release();
        waiting.into_iter().zip([2, 3, 4]).for_each(|(w, sum)| w.gives(&[sum]));
        let runs = server.runs();
        assert_eq!(runs.len(), 2, "{strategy}");
        assert_eq!(runs[1].fed::<i32>("READY").iter().sum::<i32>(), 3, "{strategy}");
    }
}

#[test]
fn a_start_within_a_sequence_sets_the_start_control_and_resets_the_state() {
    for strategy in both() {
        let server = accumulator(strategy);
        let a = server.seq(1);
        let held = server.hold(a.start().input(&[1]));
        let waiting = [a.step().input(&[1]).send(), a.start().input(&[50]).send(), a.step().input(&[1]).send()];
        held.release();
        waiting.into_iter().zip([2, 50, 51]).for_each(|(w, sum)| w.gives(&[sum]));
        let starts: Vec<i32> = server.runs().iter().flat_map(|run| run.fed::<i32>("START")).collect();
        assert_eq!(starts, [1, 0, 1, 0]);
        assert_eq!(server.repository.live(), 1);
    }
}

/// The state of a thread of this process, in the kernel's letters: `S` means it sleeps.
fn thread_state(name: &str) -> Option<char> {
    for task in fs_err::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if fs_err::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name) {
            let stat = fs_err::read_to_string(path.join("stat")).ok()?;
            return stat.rsplit_once(") ")?.1.chars().next();
        }
    }
    None
}

#[test]
fn an_instance_thread_sleeps_without_requests() {
    for strategy in both() {
        let config = sum("TYPE_INT32", strategy, "");
        let server = model("resting").config(&config).onnx("sum_int32").serve();
        let rests = || wait(|| thread_state("resting.0") == Some('S'), || "the thread does not sleep".to_owned());
        rests();
        assert_eq!(server.runs().len(), 0);
        let a = server.seq(1);
        a.start().input(&[1]).gives(&[1]);
        a.step().input(&[1]).gives(&[2]);
        rests();
        assert_eq!(server.runs().len(), 2, "one run a request, and none for nothing");
    }
}
