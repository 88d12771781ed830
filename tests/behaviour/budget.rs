//! `limits.state`: what is refused, and that nobody else notices.

use sequor::error::Failure;

use crate::support::{Server, both, model, sum};

/// Room for two sequences of 4 bytes.
fn two(strategy: &str) -> Server {
    model("sum").config(&sum("TYPE_INT32", strategy, "")).onnx("sum_int32").limit(10).serve()
}

#[test]
fn a_start_beyond_the_limit_is_refused_and_live_sequences_go_on() {
    for strategy in both() {
        let server = two(strategy);
        let [a, b, c] = [1u64, 2, 3].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[2]).gives(&[2]);
        assert_eq!(server.repository.state_bytes(), (8, 10));
        match c.start().input(&[3]).fails() {
            Failure::StateMemory { wanted: 4, used: 8, limit: 10, .. } => {}
            other => panic!("{other:?}"),
        }
        assert_eq!((server.repository.live(), server.runs().len()), (2, 2));
        a.step().input(&[1]).gives(&[2]);
        b.step().input(&[1]).gives(&[3]);
        a.end().input(&[1]).gives(&[3]);
        assert_eq!(server.repository.state_bytes().0, 4);
        c.start().input(&[3]).gives(&[3]);
        b.step().input(&[1]).gives(&[4]);
    }
}

#[test]
fn a_live_sequence_may_begin_anew_at_the_limit() {
    for strategy in both() {
        let server = two(strategy);
        let [a, b] = [1u64, 2].map(|id| server.seq(id));
        a.start().input(&[1]).gives(&[1]);
        b.start().input(&[2]).gives(&[2]);
        a.start().input(&[10]).gives(&[10]);
        a.step().input(&[1]).gives(&[11]);
        assert_eq!(server.repository.state_bytes().0, 8);
        a.end().input(&[1]).gives(&[12]);
        b.end().input(&[1]).gives(&[3]);
        assert_eq!(server.repository.state_bytes().0, 0);
    }
}

#[test]
fn what_was_refused_for_another_reason_holds_nothing() {
    let server = two("");
    for _ in 0..5 {
        let _ = server.seq(1).start().input(&[1.0f32]).fails();
        let _ = crate::support::Seq { id: sequor_core::Id::None, ..server.seq(1) }.start().input(&[1]).fails();
    }
    assert_eq!(server.repository.state_bytes().0, 0);
    server.seq(1).only().input(&[1]).gives(&[1]);
    assert_eq!(server.repository.state_bytes().0, 0);
}
