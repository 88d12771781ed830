//! Optional inputs: inputs for which the graph has a value. Requests that leave out the same inputs run together.

use crate::support::model;
use crate::support::values::tensor;
use crate::support::watch::Run;

const CONFIG: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    input { name: "SCALE" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
    input { name: "SHIFT" data_type: TYPE_FP32 dims: [ 1 ] optional: true }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    dynamic_batching { }
"#;

#[test]
fn requests_that_bring_the_same_inputs_run_together() {
    let server = model("optional").config(CONFIG).onnx("optional").serve();
    let one = |value: f32| tensor(&[1, 1], &[value]);
    let ask = |value: f32| server.stateless().with("INPUT", one(value));
    let held = server.hold(ask(1.0));
    let plain = [ask(1.0).send(), ask(2.0).send()];
    let scaled = [ask(3.0).with("SCALE", one(10.0)).send(), ask(4.0).with("SCALE", one(20.0)).send()];
    let both = ask(5.0).with("SHIFT", one(1.0)).with("SCALE", one(100.0)).send();
    assert_eq!(held.release().output::<f32>("OUTPUT"), [2.0], "the graph's own scale is 2");
    for (waiting, value) in plain.into_iter().chain(scaled).chain([both]).zip([2.0f32, 4.0, 30.0, 80.0, 501.0]) {
        waiting.gives(&[value]);
    }
    let runs = server.runs();
    let rows: Vec<u64> = runs.iter().map(Run::rows).collect();
    assert_eq!(rows, [1, 2, 2, 1]);
    assert!(!runs[1].inputs.contains_key("SCALE") && runs[2].inputs.contains_key("SCALE"));
}

/// An input of length 0 is given: it replaces the graph's own value, which an omitted one does not.
#[test]
fn a_request_that_omits_an_input_and_one_that_gives_no_elements_do_not_share_a_batch() {
    let config = r#"
        max_batch_size: 4
        instance_group { count: 1 }
        input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
        input { name: "LIST" data_type: TYPE_FP32 dims: [ -1 ] optional: true }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }
        dynamic_batching { }
    "#;
    let server = model("optional_list").config(config).onnx("optional_list").serve();
    let ask = |value: f32| server.stateless().with("INPUT", tensor(&[1, 1], &[value]));
    let with = |value: f32, list: &[f32]| ask(value).with("LIST", tensor(&[1, list.len() as u64], list));
    ask(1.0).gives(&[6.0f32]);
    with(1.0, &[]).gives(&[1.0f32]);
    for omitted_first in [true, false] {
        let held = server.hold(with(0.0, &[1.0, 2.0]));
        let (omitted, empty) = match omitted_first {
            true => {
                let omitted = ask(1.0).send();
                (omitted, with(1.0, &[]).send())
            }
            false => {
                let empty = with(1.0, &[]).send();
                (ask(1.0).send(), empty)
            }
        };
        assert_eq!(held.release().output::<f32>("OUTPUT"), [3.0]);
        let got = [omitted.answer(), empty.answer()].map(|answer| answer.output::<f32>("OUTPUT")[0]);
        assert_eq!(got, [6.0, 1.0], "the omitted one first: {omitted_first}");
    }
}

#[test]
fn an_input_that_the_graph_has_no_value_for_is_not_optional() {
    let config = CONFIG.replace(
        "dims: [ 1 ] }\n    input { name: \"SCALE\"",
        "dims: [ 1 ] optional: true }\n    input { name: \"SCALE\"",
    );
    let message = model("optional").config(&config).onnx("optional").refused();
    assert!(message.contains("configuration expects 0 inputs, model provides 1"), "{message}");
}
