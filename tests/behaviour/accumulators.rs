//! The reference model, a running sum, in three types, with both strategies and all kinds of initial states.

use std::fmt::Debug;

use crate::support::values::{Element, bytes, texts};
use crate::support::{Server, both, model, sum};

/// The initial state of a sequence.
#[derive(Debug, Clone, Copy, PartialEq)]
enum First {
    /// The model itself resets its state at START.
    Reset,
    None,
    Zero,
    File,
}

const ALL: [First; 4] = [First::Reset, First::None, First::Zero, First::File];

impl First {
    /// Serves the model. Its START control resets the sum, or is never true and does not.
    fn serve<E: Element>(self, strategy: &str, graph: &str, pair: &str, first: &E) -> Server {
        let dtype = E::DTYPE.config_name();
        let control = |kind: &str| {
            let (no, yes) = if pair.starts_with("bool") { ("false", "true") } else { ("0", "1") };
            let yes = if kind == "START" && self != First::Reset { no } else { yes };
            format!(
                r#"control_input {{ name: "{kind}" control {{ kind: CONTROL_SEQUENCE_{kind} {pair}: [ {no}, {yes} ] }} }}"#
            )
        };
        let ready = if pair.starts_with("bool") { String::new() } else { control("READY") };
        let state = |data: &str| format!(r#"initial_state {{ name: "first" data_type: {dtype} dims: [ 1 ] {data} }}"#);
        let state = match self {
            First::Reset | First::None => String::new(),
            First::Zero => state("zero_data: true"),
            First::File => state("data_file: \"first\""),
        };
        let config = sum(dtype, &format!("{strategy} {} {ready}", control("START")), &state);
        let spec = model("sum").config(&config).file("initial_state/first", &bytes(std::slice::from_ref(first)));
        spec.onnx(graph).serve()
    }
}

/// Plays three sequences at once, each step of all three in one batch. `add` computes what the graph computes.
fn play<E: Element + Clone + PartialEq + Debug>(server: &Server, first: &E, inputs: &[[E; 3]], add: fn(&E, &E) -> E) {
    let all = [7u64, 8, 9].map(|id| server.seq(id));
    let plug = server.seq(1);
    let mut sums = [first.clone(), first.clone(), first.clone()];
    plug.start().input(&[inputs[0][0].clone()]).answer();
    for (n, step) in inputs.iter().enumerate() {
        let held = server.hold(plug.step().input(&[step[0].clone()]));
        let waiting: Vec<_> =
            all.iter().zip(step).map(|(seq, value)| seq.nth(n).input(std::slice::from_ref(value)).send()).collect();
        held.release();
        for ((sum, value), waiting) in sums.iter_mut().zip(step).zip(waiting) {
            *sum = add(sum, value);
            assert_eq!(waiting.answer().output::<E>("OUTPUT"), std::slice::from_ref(sum), "step {n}");
        }
    }
    assert_eq!(server.runs().len(), 1 + 2 * inputs.len(), "three in a batch");
}

#[test]
fn an_int32_accumulator_keeps_its_state() {
    for strategy in both() {
        for first in ALL {
            let server = first.serve(strategy, "accumulate_int32", "int32_false_true", &-40);
            let begin = if first == First::File { -40 } else { 0 };
            play(&server, &begin, &[[1, 2, 3], [i32::MAX, 0, -3], [10, 20, 30]], |a, b| a.wrapping_add(*b));
        }
    }
}

#[test]
fn an_fp32_accumulator_keeps_its_state() {
    for strategy in both() {
        for first in ALL {
            let server = first.serve(strategy, "accumulate_fp32", "fp32_false_true", &0.125f32);
            let begin = if first == First::File { 0.125 } else { 0.0 };
            play(&server, &begin, &[[1.5f32, -2.0, 1e-3], [0.1, 0.2, 0.3], [1e20, -1.0, 7.0]], |a, b| a + b);
        }
    }
}

#[test]
fn a_text_accumulator_keeps_its_state() {
    let step = |a: &str, b: &str, c: &str| [a.to_owned(), b.to_owned(), c.to_owned()];
    let inputs = [step("a", "", "x\0"), step("bc", "\0\0", "y"), step("", "ü", "zzzzzzzzzzzzzzzzzzzz")];
    for strategy in both() {
        for first in ALL {
            let server = first.serve(strategy, "running_text", "bool_false_true", &"in\0it:".to_owned());
            let begin = if first == First::File { "in\0it:".to_owned() } else { String::new() };
            play(&server, &begin, &inputs, |a, b| format!("{a}{b}"));
        }
    }
}

#[test]
fn an_accumulator_restarts_at_start() {
    for strategy in both() {
        let server = First::Reset.serve(strategy, "accumulate_int32", "int32_false_true", &0);
        let a = server.seq(1);
        a.start().input(&[5]).gives(&[5]);
        a.step().input(&[5]).gives(&[10]);
        a.start().input(&[1]).gives(&[1]);
        a.step().input(&[1]).gives(&[2]);
        a.end().input(&[1]).gives(&[3]);
        a.only().input(&[8]).gives(&[8]);
        assert_eq!(server.repository.live(), 0);
        let server = First::Reset.serve(strategy, "running_text", "bool_false_true", &String::new());
        let a = server.seq(1);
        a.start().input(&texts(&["old"])).gives(&texts(&["old"]));
        a.start().input(&texts(&["new"])).gives(&texts(&["new"]));
    }
}
