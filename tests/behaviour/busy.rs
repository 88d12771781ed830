//! A busy sequence delays its own requests and no other sequence's, in OVMS's dialect and in Triton's.

use sequor_core::Dialect;

use crate::support::{model, sum};

#[test]
fn a_request_that_waits_for_a_busy_sequence_delays_no_other_sequence() {
    for dialect in [Dialect::OVMS, Dialect::TRITON] {
        let config = sum("TYPE_INT32", "oldest { max_candidate_sequences: 4 }", "").replace("count: 1", "count: 2");
        let server = model("sum").config(&config).onnx("sum_int32").serve();
        let ask = |id: u64, start: bool| {
            let seq = server.seq(id);
            let ask = if start { seq.start() } else { seq.step() };
            ask.input(&[1i32]).dialect(dialect)
        };
        // Each sequence is on a separate instance.
        ask(1, true).gives(&[1i32]);
        ask(2, true).gives(&[1i32]);
        let before = server.runs().len();
        server.watch.close(".0");
        let first = ask(1, false).send();
        server.watch.wait_for(before + 1);
        let second = ask(1, false).send();
        for sum in 2..=51 {
            ask(2, false).gives(&[sum]);
        }
        assert_eq!(server.runs().len(), before + 1 + 50, "the second request waits for the first one");
        server.watch.open();
        first.gives(&[2i32]);
        second.gives(&[3i32]);
    }
}
