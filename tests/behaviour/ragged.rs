//! Ragged batches: requests of different shapes in one run, joined to one list of elements, with batch inputs that describe them.

use crate::support::values::tensor;
use crate::support::{Server, both, model};

/// Sends requests of different lengths and holds them until they run together. Returns OUTPUT of each answer with its shape.
fn together(server: &Server, inputs: &[(&[u64], &[f32])]) -> Vec<(Vec<u64>, Vec<f32>)> {
    let ask = |shape: &[u64], values: &[f32]| server.stateless().with("INPUT", tensor(shape, values));
    let held = server.hold(ask(&vec![1; inputs[0].0.len()], &[9.0]));
    let waiting: Vec<_> = inputs.iter().map(|(shape, values)| ask(shape, values).send()).collect();
    held.release();
    let answers = waiting.into_iter().map(|w| w.answer());
    answers.map(|a| (a.shape("OUTPUT").to_vec(), a.output::<f32>("OUTPUT"))).collect()
}

fn list(kind: &str) -> String {
    format!(
        r#"
        max_batch_size: 4
        instance_group {{ count: 1 }}
        input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }}
        batch_input {{ kind: {kind} target_name: "LIST" data_type: TYPE_INT32 source_input: "INPUT" }}
        output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }}
        batch_output {{ target_name: "OUTPUT" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT" }}
        dynamic_batching {{ }}
        "#
    )
}

#[test]
fn requests_are_joined_described_and_cut_apart_again() {
    let kinds: [(&str, &[i32]); 5] = [
        ("BATCH_ELEMENT_COUNT", &[2, 4, 1, 3]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT", &[2, 6, 7, 10]),
        ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", &[0, 2, 6, 7, 10]),
        ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", &[0, 0, 0, 0]),
        ("BATCH_ITEM_SHAPE_FLATTEN", &[2, 4, 1, 3]),
    ];
    for (kind, message) in kinds {
        let server = model("ragged").config(&list(kind)).onnx("ragged_list").serve();
        let sent: [(&[u64], &[f32]); 4] =
            [(&[1, 2], &[1.0, 2.0]), (&[1, 4], &[3.0, 4.0, 5.0, 6.0]), (&[1, 1], &[7.0]), (&[1, 3], &[8.0, 9.0, 10.0])];
        let got = together(&server, &sent);
        let run = server.last_run();
        assert_eq!((server.runs().len(), run.shape("INPUT")), (2, vec![10]), "{kind}");
        assert_eq!(run.fed::<f32>("INPUT"), (1..=10).map(|n| n as f32).collect::<Vec<_>>());
        assert_eq!(run.fed::<i32>("LIST"), message, "{kind}");
        for ((shape, values), got) in sent.iter().zip(got) {
            assert_eq!(got, (shape.to_vec(), values.to_vec()), "{kind}");
        }
    }
}

#[test]
fn every_item_of_a_batch_has_its_shape() {
    let config = list("BATCH_ITEM_SHAPE").replace("LIST\" data_type: TYPE_INT32", "ITEMS\" data_type: TYPE_FP32");
    let config = config.replace("dims: [ -1 ]", "dims: [ -1, -1 ]");
    let config = config + r#"output { name: "SHAPE" data_type: TYPE_FP32 dims: [ -1 ] }"#;
    let server = model("ragged").config(&config).onnx("ragged_items").serve();
    let ask = |shape: &[u64], values: &[f32]| server.stateless().with("INPUT", tensor(shape, values));
    let held = server.hold(ask(&[1, 1, 1], &[9.0]));
    let two = ask(&[2, 3, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).send();
    let one = ask(&[1, 2, 2], &[7.0, 8.0, 9.0, 10.0]).send();
    held.release();
    let (two, one) = (two.answer(), one.answer());
    let run = server.last_run();
    assert_eq!((run.shape("INPUT"), run.shape("ITEMS")), (vec![10], vec![3, 2]));
    assert_eq!(run.fed::<f32>("ITEMS"), [3.0, 1.0, 3.0, 1.0, 2.0, 2.0]);
    // An output without batch_output has a row for each item.
    assert_eq!((two.shape("SHAPE"), two.output::<f32>("SHAPE")), (&[2, 2][..], vec![3.0, 1.0, 3.0, 1.0]));
    assert_eq!((one.shape("SHAPE"), one.output::<f32>("SHAPE")), (&[1, 2][..], vec![2.0, 2.0]));
    assert_eq!((two.shape("OUTPUT"), one.shape("OUTPUT")), (&[2, 3, 1][..], &[1, 2, 2][..]));
}

const SUMS: &str = r#"
    max_batch_size: 4
    instance_group { count: 1 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
    batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "OFFSETS" data_type: TYPE_INT32 source_input: "INPUT" }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state { input_name: "STATE" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: [ 1 ] }
    }
"#;

#[test]
fn sequences_send_steps_of_any_length() {
    for strategy in both() {
        let server = model("sums").config(&SUMS.replace("STRATEGY", strategy)).onnx("ragged_sums").serve();
        let mut message = [0f32; 3];
        for step in 0..5usize {
            let input =
                |n: usize| -> Vec<f32> { (0..(n * 7 + step * 3) % 5 + 1).map(|k| (n + k + step) as f32).collect() };
            let ask = |n: usize| server.seq(n as u64 + 1).nth(step).input(&input(n));
            // The first is held, so that the others run together.
            let held = server.hold(ask(0));
            let others: Vec<_> = (1..3).map(|n| ask(n).send()).collect();
            let first = held.release();
            for (n, sum) in message.iter_mut().enumerate() {
                *sum += input(n).iter().sum::<f32>();
            }
            assert_eq!(first.output::<f32>("OUTPUT"), [message[0]], "{strategy}");
            for (other, sum) in others.into_iter().zip(&message[1..]) {
                other.gives(&[*sum]);
            }
            let run = server.last_run();
            let lengths: usize = (1..3).map(|n| input(n).len()).sum();
            // In `direct`, the row of sequence 1 is padding with the shape of the first request of the batch.
            let padding = if strategy.starts_with("direct") { run.fed::<i32>("OFFSETS").len() - 3 } else { 0 };
            assert_eq!(run.shape("INPUT"), [(lengths + padding * input(1).len()) as u64], "{strategy} {step}");
        }
    }
}

#[test]
fn a_model_that_cannot_take_a_ragged_input_is_refused() {
    let config = r#"
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] allow_ragged_batch: true }
        batch_input { kind: BATCH_ELEMENT_COUNT target_name: "INPUT_STATE" data_type: TYPE_INT32 source_input: "INPUT" }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }
        batch_output { target_name: "OUTPUT" source_input: "INPUT" }
    "#;
    let message = model("grow").config(config).onnx("grow_fp32").refused();
    for sentence in [
        "configuration expects model provides input with shape [-1]  for ragged input 'INPUT', model provides [-1,-1,4] (requests are joined to one list",
        "batch input \"INPUT_STATE\": model has TYPE_FP32, config says TYPE_INT32",
        "batch input \"INPUT_STATE\": model takes [-1,-1,4], and its kind needs [-1]",
        "output 'OUTPUT' has a variable dimension that its source input does not have: the source has 2 dimension(s)",
    ] {
        assert!(message.contains(sentence), "{sentence}\nnot in\n{message}");
    }
}

#[test]
fn an_output_that_is_too_short_fails_its_request_alone() {
    // The output is divided by the shape of an input that is longer than it.
    let config = list("BATCH_ELEMENT_COUNT").replace("TYPE_FP32 dims: [ -1 ] }", "TYPE_FP32 dims: [ 2, 3 ] }");
    let server = model("ragged").config(&config).onnx("ragged_list").serve();
    let ask = |values: &[f32]| server.stateless().with("INPUT", tensor(&[1, values.len() as u64], values));
    let failure = format!("{:?}", ask(&[1.0, 2.0]).fails());
    assert!(failure.contains("the requests take 6 elements, model output has 2"), "{failure}");
    assert_eq!(ask(&[1.0; 6]).answer().shape("OUTPUT"), [1, 2, 3]);
}
