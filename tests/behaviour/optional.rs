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

#[test]
fn an_input_that_the_graph_has_no_value_for_is_not_optional() {
    let config = CONFIG.replace(
        "dims: [ 1 ] }\n    input { name: \"SCALE\"",
        "dims: [ 1 ] optional: true }\n    input { name: \"SCALE\"",
    );
    let message = model("optional").config(&config).onnx("optional").refused();
    assert!(message.contains("configuration expects 0 inputs, model provides 1"), "{message}");
}
