//! The backlog: which sequences wait for a slot, with which requests, and which one is next.

use crate::slots::{sum_with_id, with_id};
use crate::support::watch::Run;
use crate::support::{Ask, Server, model};

/// Four slots in `direct`, with Triton's test aids: nothing runs until `requests` requests with a slot and `backlog` requests without one
/// wait.
fn delayed(requests: u32, backlog: u32) -> Server {
    model("sum").config(&with_id("direct { }")).onnx("sees_id_uint64").delay(requests, backlog).serve()
}

/// The ids in the rows of each run; 0 is padding.
fn rows(server: &Server) -> Vec<Vec<u64>> {
    server.runs().iter().map(|run| run.fed("CORRID")).collect()
}

#[test]
fn the_backlog_delay_counts_the_requests_of_a_second_incarnation() {
    let server = delayed(12, 2);
    let all = [1001u64, 1002, 1003, 1004].map(|id| server.seq(id));
    let first: Vec<_> =
        all.iter().flat_map(|seq| [seq.start(), seq.step(), seq.end()]).map(|ask| ask.input(&[1]).send()).collect();
    let start = all[1].start().input(&[10]).send();
    assert_eq!(server.runs().len(), 0);
    let end = all[1].end().input(&[10]).send();
    for (n, waiting) in (0..).zip(first) {
        waiting.gives(&[n % 3 + 1]);
    }
    start.gives(&[10]);
    end.gives(&[20]);
    let of_all = vec![1001, 1002, 1003, 1004];
    assert_eq!(rows(&server), [of_all.clone(), of_all.clone(), of_all, vec![1002], vec![1002]]);
}

#[test]
fn the_backlog_delay_counts_every_request_of_a_sequence_without_a_slot() {
    let server = delayed(10, 3);
    let seqs = [1u64, 2, 3, 4, 5, 6].map(|id| server.seq(id));
    let [a, b, c, d, only, late] = &seqs;
    let asks = [a.start(), a.step(), a.end(), b.start(), b.end(), c.start(), c.end(), d.start(), d.step(), d.end()];
    let mut waiting: Vec<_> = asks.into_iter().map(|ask| ask.input(&[1]).send()).collect();
    waiting.push(only.only().input(&[1]).send());
    waiting.push(late.start().input(&[1]).send());
    assert_eq!(server.runs().len(), 0);
    waiting.push(late.step().input(&[1]).send());
    let sums = [1, 2, 3, 1, 2, 1, 2, 1, 2, 3, 1, 1, 2];
    for (waiting, sum) in waiting.into_iter().zip(sums) {
        waiting.gives(&[sum]);
    }
    // Its END arrives after everything else has run.
    late.end().input(&[1]).gives(&[3]);
    assert_eq!(
        rows(&server),
        [vec![1, 2, 3, 4], vec![1, 2, 3, 4], vec![1, 5, 6, 4], vec![0, 0, 6], vec![0, 0, 6]],
        "14 requests in 5 runs"
    );
}

/// A server with one slot, for each strategy.
fn one_slot() -> [Server; 2] {
    ["direct { }", "oldest { max_candidate_sequences: 1 }"]
        .map(|strategy| sum_with_id(&with_id(strategy).replace("max_batch_size: 4", "max_batch_size: 1")))
}

fn ids(runs: &[Run]) -> Vec<u64> {
    runs.iter().flat_map(|run| run.fed::<u64>("CORRID")).collect()
}

#[test]
fn a_sequence_waits_with_all_its_requests_if_no_slot_is_free() {
    for server in one_slot() {
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        let waiting = [b.start().input(&[10]).send(), b.step().input(&[20]).send(), b.step().input(&[30]).send()];
        a.step().input(&[1]).gives(&[2]);
        a.step().input(&[1]).gives(&[3]);
        assert_eq!(ids(&server.runs()), [1, 1, 1], "b has not run");
        assert_eq!(server.repository.live(), 2);
        a.end().input(&[1]).gives(&[4]);
        for (waiting, sum) in waiting.into_iter().zip([10, 30, 60]) {
            waiting.gives(&[sum]);
        }
        b.end().input(&[1]).gives(&[61]);
        assert_eq!(ids(&server.runs())[4..], [2, 2, 2, 2]);
    }
}

#[test]
fn a_request_of_a_sequence_with_a_slot_goes_there_past_the_backlog() {
    for server in one_slot() {
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        let held = server.hold(a.start().input(&[1]));
        let b_waits = b.start().input(&[5]).send();
        let steps = [a.step().input(&[1]).send(), a.step().input(&[1]).send(), a.end().input(&[1]).send()];
        held.release();
        for (step, sum) in steps.into_iter().zip([2, 3, 4]) {
            step.gives(&[sum]);
        }
        b_waits.gives(&[5]);
        assert_eq!(ids(&server.runs()), [1, 1, 1, 1, 2]);
    }
}

#[test]
fn slots_are_handed_on_at_end_in_the_order_of_the_starts() {
    for server in one_slot() {
        let a = server.seq(1);
        let mut held = server.hold(a.start().input(&[1]));
        // Their later requests arrive in another order, and all before a ends.
        let order = [5u64, 3, 9, 4].map(|id| server.seq(id));
        let mut waiting: Vec<_> = order.iter().map(|seq| seq.start().input(&[1]).send()).collect();
        waiting.extend(order.iter().rev().map(|seq| seq.end().input(&[1]).send()));
        let end = a.end().input(&[1]).send();
        let mut seen = vec![1];
        for _ in 0..9 {
            seen.extend(held.next_run().fed::<u64>("CORRID"));
        }
        assert_eq!(seen, [1, 1, 5, 5, 3, 3, 9, 9, 4, 4]);
        held.release();
        end.gives(&[2]);
        let sums = waiting.into_iter().map(|w| w.answer().output::<i32>("OUTPUT")[0]);
        assert_eq!(sums.collect::<Vec<_>>(), [1, 1, 1, 1, 2, 2, 2, 2]);
    }
}

#[test]
fn end_hands_the_slot_on_without_waiting_for_anybody_else() {
    // Two slots: the sequence in the second one is idle the whole time.
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 2 }"] {
        let server = sum_with_id(&with_id(strategy).replace("max_batch_size: 4", "max_batch_size: 2"));
        let [a, quiet, c] = [1u64, 2, 3].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        quiet.start().input(&[1]).gives(&[1]);
        let c_waits = c.start().input(&[7]).send();
        a.end().input(&[1]).gives(&[2]);
        c_waits.gives(&[7]);
        quiet.step().input(&[1]).gives(&[2]);
        c.step().input(&[1]).gives(&[8]);
    }
}

#[test]
fn an_id_that_restarts_in_the_backlog_runs_as_two_sequences_in_order() {
    for server in one_slot() {
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        let asks = [b.start().input(&[5]), b.end().input(&[1]), b.start().input(&[50]), b.end().input(&[1])];
        let waiting = asks.map(Ask::send);
        a.end().input(&[1]).gives(&[2]);
        for (waiting, sum) in waiting.into_iter().zip([5, 6, 50, 51]) {
            waiting.gives(&[sum]);
        }
        assert_eq!(server.repository.live(), 0);
    }
}

#[test]
fn requests_of_different_sequences_mix_freely() {
    for strategy in ["direct { }", "oldest { max_candidate_sequences: 4 }"] {
        let server = sum_with_id(&with_id(strategy));
        let all: Vec<_> = (1..=12).map(|id| server.seq(id)).collect();
        // Twelve sequences on four slots, interleaved. Each has five requests, all sent before any answer is awaited.
        let mut waiting = Vec::new();
        for step in 0..5 {
            for (n, seq) in all.iter().enumerate() {
                let ask = match step {
                    0 => seq.start(),
                    4 => seq.end(),
                    _ => seq.step(),
                };
                waiting.push((ask.input(&[n as i32]).send(), n as i32 * (step + 1)));
            }
        }
        for (waiting, sum) in waiting {
            waiting.gives(&[sum]);
        }
        assert_eq!(server.repository.live(), 0);
    }
}

#[test]
fn a_start_with_a_priority_gets_the_next_slot() {
    let config = with_id("oldest { max_candidate_sequences: 1 }");
    let server = model("sum").config(&config).toml("[backlog]\nlevels = 2\n").onnx("sees_id_uint64").serve();
    let first = server.seq(1);
    first.start().input(&[1]).gives(&[1]);
    let [low, high] = [2u64, 3].map(|id| server.seq(id));
    let low = low.only().input(&[1]).send();
    let high = high.only().input(&[1]).priority(1).send();
    first.end().input(&[1]).gives(&[2]);
    low.gives(&[1]);
    high.gives(&[1]);
    let ids: Vec<u64> = rows(&server).concat();
    assert_eq!(ids, [1, 1, 3, 2]);
}
