//! `oldest`: which requests share a batch, and in which order they run.

use crate::slots::{sum_with_id, with_id};
use crate::support::server::wait;
use crate::support::watch::Run;
use crate::support::{Seq, Server};

fn oldest(inner: &str, rows: u32) -> Server {
    let config = with_id(&format!("oldest {{ {inner} }}"));
    sum_with_id(&config.replace("max_batch_size: 4", &format!("max_batch_size: {rows}")))
}

fn ids(run: &Run) -> Vec<u64> {
    run.fed("CORRID")
}

#[test]
fn candidates_may_be_more_than_a_batch_has_rows() {
    let server = oldest("max_candidate_sequences: 7", 2);
    assert_eq!(server.ready().slots, 7);
    let all: Vec<Seq<'_>> = (1..=7).map(|id| server.seq(id)).collect();
    // All seven are live at once and none is in the backlog: each has run before any has ended.
    for step in 0..3 {
        let waiting: Vec<_> = all.iter().map(|seq| seq.nth(step).input(&[2]).send()).collect();
        waiting.into_iter().for_each(|w| w.gives(&[2 * (step as i32 + 1)]));
    }
    assert_eq!(server.repository.live(), 7);
    assert!(server.runs().iter().all(|run| run.rows() <= 2));
}

#[test]
fn a_sequence_beyond_the_maximum_of_candidates_waits_until_another_ends() {
    let server = oldest("max_candidate_sequences: 3", 4);
    for id in 1..=3 {
        server.seq(id).start().input(&[1]).gives(&[1]);
    }
    let waiting = [4u64, 5].map(|id| server.seq(id).start().input(&[id as i32]).send());
    server.seq(2).step().input(&[1]).gives(&[2]);
    assert!(server.runs().iter().flat_map(ids).all(|id| id < 4));
    let [fourth, fifth] = waiting;
    server.seq(2).end().input(&[1]).gives(&[3]);
    fourth.gives(&[4]);
    server.seq(1).step().input(&[1]).gives(&[2]);
    assert!(server.runs().iter().flat_map(ids).all(|id| id < 5), "one place was freed, not two");
    server.seq(4).end().input(&[1]).gives(&[5]);
    fifth.gives(&[5]);
}

#[test]
fn a_batch_gathers_candidates_wherever_their_slots_are() {
    let server = oldest("max_candidate_sequences: 6", 4);
    for id in 1..=6 {
        server.seq(id).start().input(&[id as i32 * 10]).answer();
    }
    let held = server.hold(server.seq(1).step().input(&[0]));
    let waiting = [6u64, 2, 4].map(|id| server.seq(id).step().input(&[1]).send());
    held.release();
    waiting.into_iter().zip([61, 21, 41]).for_each(|(w, sum)| w.gives(&[sum]));
    let run = server.last_run();
    assert_eq!(ids(&run), [6, 2, 4], "real rows only, in the order they came");
    assert_eq!(run.fed::<i32>("INPUT_STATE"), [60, 20, 40]);
    for (id, sum) in [(1, 10), (2, 21), (3, 30), (4, 41), (5, 50), (6, 61)] {
        server.seq(id).step().input(&[0]).gives(&[sum]);
    }
}

#[test]
fn a_batch_of_a_preferred_size_runs_by_itself() {
    let server = oldest("max_candidate_sequences: 8 preferred_batch_size: [ 4 ]", 8);
    let held = server.hold(server.seq(1).start().input(&[0]));
    let waiting: Vec<_> = (2..=8).map(|id| server.seq(id).start().input(&[1]).send()).collect();
    held.release();
    waiting.into_iter().for_each(|w| w.gives(&[1]));
    assert_eq!(server.runs().iter().map(Run::rows).collect::<Vec<_>>(), [1, 4, 3]);
}

#[test]
fn requests_run_in_the_order_they_came() {
    for rows in [1, 2, 4] {
        let server = oldest("max_candidate_sequences: 8", rows);
        for id in 1..=8 {
            server.seq(id).start().input(&[0]).answer();
        }
        let before = server.runs().len() + 1;
        let held = server.hold(server.seq(1).step().input(&[0]));
        let order = [7u64, 3, 8, 2, 5, 4, 6];
        let waiting = order.map(|id| server.seq(id).step().input(&[1]).send());
        held.release();
        waiting.into_iter().for_each(|w| w.gives(&[1]));
        let ran: Vec<u64> = server.runs()[before..].iter().flat_map(ids).collect();
        assert_eq!(ran, order);
    }
}

#[test]
fn a_batch_never_has_two_requests_of_a_sequence() {
    let server = oldest("max_candidate_sequences: 3", 4);
    let all = [1u64, 2, 3].map(|id| server.seq(id));
    let held = server.hold(all[0].start().input(&[1]));
    // Ten requests of each are queued before the instance is free again.
    let mut waiting = Vec::new();
    for step in 0..10 {
        for (n, seq) in all.iter().enumerate() {
            let ask = if step == 0 && n > 0 { seq.start() } else { seq.step() };
            waiting.push((ask.input(&[1]).send(), step + 1 + i32::from(n == 0)));
        }
    }
    held.release();
    for (waiting, sum) in waiting {
        waiting.gives(&[sum]);
    }
    let runs = server.runs();
    for run in &runs {
        let mut seen = ids(run);
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]), "{seen:?}");
    }
    assert_eq!(runs.len(), 11, "and yet they share batches");
}

#[test]
fn end_frees_the_place_while_others_are_in_flight() {
    let server = oldest("max_candidate_sequences: 2", 1);
    let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
    a.start().input(&[1]).gives(&[1]);
    b.start().input(&[1]).gives(&[1]);
    let mut held = server.hold(a.end().input(&[1]));
    let (b_step, c_start) = (b.step().input(&[1]).send(), c.start().input(&[9]).send());
    assert_eq!(ids(&held.next_run()), [2], "a's END has run");
    assert_eq!(ids(&held.next_run()), [3], "and c has its place");
    held.release();
    b_step.gives(&[2]);
    c_start.gives(&[9]);
    wait(|| server.repository.live() == 2, || "b and c live".to_owned());
}

#[test]
fn ready_is_true_for_every_row() {
    let control = |kind: &str| {
        format!(
            r#"control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} int32_false_true: [ 0, 1 ] }} }}"#
        )
    };
    let controls = format!("oldest {{ max_candidate_sequences: 4 }} {} {}", control("START"), control("READY"));
    let config = crate::support::sum("TYPE_INT32", &controls, "");
    let server = crate::support::model("acc").config(&config).onnx("accumulate_int32").serve();
    for id in 1..=4 {
        server.seq(id).start().input(&[1]).gives(&[1]);
    }
    let held = server.hold(server.seq(1).step().input(&[0]));
    let waiting = [4u64, 2].map(|id| server.seq(id).step().input(&[1]).send());
    held.release();
    waiting.into_iter().for_each(|w| w.gives(&[2]));
    let runs = server.runs();
    assert!(runs.iter().flat_map(|run| run.fed::<i32>("READY")).all(|ready| ready == 1));
    assert_eq!(runs.last().unwrap().rows(), 2, "no padding row in between");
}
