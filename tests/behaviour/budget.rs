//! `limits.state`: which requests are refused, and that other sequences are not affected.

use sequor::error::Failure;

use crate::state::GROW;
use crate::support::server::sides;
use crate::support::values::tensor;
use crate::support::{Ask, Server, both, model, sum};

/// A server with memory for two sequences, and the bytes of each.
fn two(strategy: &str) -> (Server, u64) {
    let bytes = 4 * sides(strategy);
    let server = model("sum").config(&sum("TYPE_INT32", strategy, "")).onnx("sum_int32").limit(2 * bytes + 2).serve();
    assert_eq!(server.ready().state_bytes, bytes);
    (server, bytes)
}

#[test]
fn a_start_beyond_the_state_limit_is_refused_and_live_sequences_continue() {
    for strategy in both() {
        let (server, bytes) = two(strategy);
        let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[2]).gives(&[2]);
        assert_eq!(server.repository.state_bytes(), (2 * bytes, 2 * bytes + 2));
        match c.start().input(&[3]).fails() {
            Failure::StateMemory { wanted, used, limit, .. } => {
                assert_eq!((wanted, used, limit), (bytes, 2 * bytes, 2 * bytes + 2));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((server.repository.live(), server.runs().len()), (2, 2));
        a.step().input(&[1]).gives(&[2]);
        b.step().input(&[1]).gives(&[3]);
        a.end().input(&[1]).gives(&[3]);
        assert_eq!(server.repository.state_bytes().0, bytes);
        c.start().input(&[3]).gives(&[3]);
        b.step().input(&[1]).gives(&[4]);
    }
}

#[test]
fn a_live_sequence_may_restart_at_the_state_limit() {
    for strategy in both() {
        let (server, bytes) = two(strategy);
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[2]).gives(&[2]);
        a.start().input(&[10]).gives(&[10]);
        a.step().input(&[1]).gives(&[11]);
        assert_eq!(server.repository.state_bytes().0, 2 * bytes);
        a.end().input(&[1]).gives(&[12]);
        b.end().input(&[1]).gives(&[3]);
        assert_eq!(server.repository.state_bytes().0, 0);
    }
}

#[test]
fn a_start_refused_for_another_reason_holds_no_state_memory() {
    let (server, _) = two("");
    for _ in 0..5 {
        let _ = server.seq(1).start().input(&[1.0f32]).fails();
        let _ = crate::support::Seq { id: sequor_core::Id::None, ..server.seq(1) }.start().input(&[1]).fails();
    }
    assert_eq!(server.repository.state_bytes().0, 0);
    server.seq(1).only().input(&[1]).gives(&[1]);
    assert_eq!(server.repository.state_bytes().0, 0);
}

/// A state that is the memory of input and output at once has one copy.
#[test]
fn a_state_in_one_buffer_counts_once() {
    let config = sum("TYPE_INT32", "direct { }", "use_same_buffer_for_input_output: true");
    let server = model("sum").config(&config).onnx("sum_int32").limit(4).serve();
    assert_eq!(server.ready().state_bytes, 4);
    server.seq(1).start().input(&[1]).gives(&[1]);
    assert_eq!(server.repository.state_bytes().0, 4);
}

/// A state of 16 bytes at START that grows by 16 bytes for each row of INPUT.
fn grows(strategy: &str, limit: u64) -> Server {
    model("grow").config(&GROW.replace("STRATEGY", strategy)).onnx("grow_fp32").limit(limit).serve()
}

fn rows(ask: Ask<'_>, rows: u64) -> Ask<'_> {
    ask.with("INPUT", tensor(&[1, rows, 4], &vec![1.0f32; rows as usize * 4]))
}

#[test]
fn a_growing_state_counts_its_actual_size_and_is_refused_at_the_limit() {
    for strategy in both() {
        let server = grows(strategy, 64);
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        assert_eq!(rows(a.start(), 2).answer().shape("OUTPUT_STATE"), [1, 3, 4]);
        assert_eq!(server.repository.state_bytes(), (48, 64), "{strategy}");
        assert_eq!(rows(a.step(), 1).answer().shape("OUTPUT_STATE"), [1, 4, 4]);
        for _ in 0..2 {
            match rows(a.step(), 1).fails() {
                Failure::StateMemory { wanted: 16, used: 64, limit: 64, .. } => {}
                other => panic!("{other:?}"),
            }
            // Its state and its use of the budget are unchanged.
            assert_eq!(server.last_run().shape("INPUT_STATE"), [1, 4, 4]);
            assert_eq!(server.repository.state_bytes().0, 64);
        }
        match rows(b.start(), 1).fails() {
            Failure::StateMemory { wanted: 16, used: 64, .. } => {}
            other => panic!("{other:?}"),
        }
        // A new incarnation starts small, in the memory of the old one.
        assert_eq!(rows(a.start(), 1).answer().shape("OUTPUT_STATE"), [1, 2, 4]);
        assert_eq!(server.repository.state_bytes().0, 32, "{strategy}");
        assert_eq!(rows(b.start(), 1).answer().shape("OUTPUT_STATE"), [1, 2, 4]);
        // An END leaves no state, so it needs no memory.
        assert_eq!(rows(a.end(), 1).answer().shape("OUTPUT_STATE"), [1, 3, 4]);
        let _ = rows(b.end(), 1).send().result();
        server.wait_for_no_state();
    }
}

#[test]
fn only_rows_that_do_not_fit_are_refused_if_a_batch_exceeds_the_limit() {
    for strategy in both() {
        // 48 bytes for each of two, 32 for a third one, and room for one more row.
        let server = grows(strategy, 144);
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        for seq in [&a, &b] {
            assert_eq!(rows(seq.start(), 2).answer().shape("OUTPUT_STATE"), [1, 3, 4]);
        }
        let c = server.seq(3);
        let held = server.hold(rows(c.start(), 1));
        let waiting = [&a, &b].map(|seq| rows(seq.step(), 1).send());
        held.release();
        let ended = waiting.map(|w| w.result().map(|answer| answer.shape("OUTPUT_STATE").to_vec()));
        assert!(matches!(&ended[..], [Ok(_), Err(Failure::StateMemory { .. })]), "{strategy}: {ended:?}");
    }
}
