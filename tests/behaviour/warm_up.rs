//! `model_warmup`: samples run on every instance before a model is ready. If a sample fails, the load fails.

use crate::support::model;
use crate::support::values::bytes;

const SUMS: &str = r#"
    max_batch_size: 4
    instance_group { count: 2 }
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
    batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "OFFSETS" data_type: TYPE_INT32 source_input: "INPUT" }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }
    sequence_batching { state { input_name: "STATE" output_name: "STATE_OUT" data_type: TYPE_FP32 dims: [ 1 ] } }
    model_warmup { name: "skipped" inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: 1 zero_data: true } } }
    model_warmup { name: "zeros" batch_size: 3 count: 2 inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: 5 zero_data: true } } }
    model_warmup {
      name: "file" batch_size: 1
      inputs { key: "INPUT" value { data_type: TYPE_FP32 dims: 2 input_data_file: "sample" } }
      inputs { key: "STATE" value { data_type: TYPE_FP32 dims: 1 random_data: true } }
    }
"#;

#[test]
fn every_instance_runs_every_sample_before_the_model_is_ready() {
    let server =
        model("sums").config(SUMS).onnx("ragged_sums").file("warmup/sample", &bytes(&[1.5f32, 2.5, 9.0])).serve();
    let runs = server.runs();
    assert_eq!(runs.len(), 2 * 3, "two instances, two samples, one of them twice");
    for of_one in runs.chunks(3) {
        for run in &of_one[..2] {
            assert_eq!((run.fed::<f32>("INPUT"), run.fed::<i32>("OFFSETS")), (vec![0.0; 15], vec![0, 5, 10, 15]));
            assert_eq!(run.fed::<f32>("STATE"), [0.0; 3]);
        }
        assert_eq!((of_one[2].fed::<f32>("INPUT"), of_one[2].fed::<i32>("OFFSETS")), (vec![1.5, 2.5], vec![0, 2]));
        let state = of_one[2].fed::<f32>("STATE");
        assert!(state.len() == 1 && (0.0..1.0).contains(&state[0]), "{state:?}");
    }
    // A sequence starts as if nothing had run before.
    server.seq(1).start().input(&[2.0f32, 3.0]).gives(&[5.0f32]);
}

const GATHER: &str = r#"
    max_batch_size: 4
    input { name: "INDEX" data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
    model_warmup { name: "far" batch_size: 2 inputs { key: "INDEX" value { data_type: TYPE_INT64 dims: 1 input_data_file: "index" } } }
"#;

#[test]
fn a_sample_that_fails_fails_the_load() {
    let message = model("gather").config(GATHER).onnx("gather").file("warmup/index", &bytes(&[9i64])).refused();
    assert!(message.contains("config.pbtxt:5:5: failed to run warmup sample 'far': onnx runtime error"), "{message}");
    model("gather").config(GATHER).onnx("gather").file("warmup/index", &bytes(&[3i64])).serve();
}

#[test]
fn samples_are_checked_before_anything_runs() {
    let sample = |batch: u32, message: &str| {
        let config = GATHER.replace("name: \"far\" batch_size: 2", &format!("name: \"s\" batch_size: {batch}"));
        let from = config.find("inputs {").unwrap();
        model("gather").config(&format!("{}{message} }}", &config[..from])).onnx("gather").refused()
    };
    let input = |message: &str| sample(1, &format!("inputs {{ key: \"INDEX\" value {{ {message} }} }}"));
    let cases = [
        (
            input("data_type: TYPE_INT64 dims: -1 zero_data: true"),
            "warmup setting expects all variable-size dimensions are specified for input 'INDEX'",
        ),
        (input("data_type: TYPE_INT64 dims: 1"), "warmup setting expects input 'INDEX' to have input_data_type set"),
        (input("dims: 1 zero_data: true"), "warmup setting expects input 'INDEX' to have data_type set"),
        (
            input("data_type: TYPE_INT64 dims: 1 input_data_file: '../x'"),
            "input_data_file '../x' is not a file of the folder warmup",
        ),
        (input("data_type: TYPE_INT64 dims: 1 input_data_file: 'x'"), "warmup/x cannot be read"),
        (
            input("data_type: TYPE_FP32 dims: 1 zero_data: true"),
            "warm-up input 'INDEX' is TYPE_FP32 [1], and the model's input is TYPE_INT64 [1]",
        ),
        (sample(1, ""), "warm-up sample 's' has no input 'INDEX'"),
        (
            sample(1, "inputs { key: \"INDEXES\" value { data_type: TYPE_INT64 dims: 1 zero_data: true } }"),
            "the model has no input 'INDEXES'",
        ),
        (
            sample(9, "inputs { key: \"INDEX\" value { data_type: TYPE_INT64 dims: 1 zero_data: true } }"),
            "warm-up sample 's' has batch_size 9, and the maximum of gather is 4",
        ),
        (
            input("data_type: TYPE_INT64 dims: 100000000000000 zero_data: true"),
            "warm-up sample 's' has more than 1 GiB in all rows and inputs; give it smaller dims or a smaller batch_size",
        ),
        (
            input("data_type: TYPE_INT64 dims: [4294967296, 4294967296, 4294967296] zero_data: true"),
            "warm-up sample 's' has more than 1 GiB",
        ),
    ];
    for (message, sentence) in cases {
        assert!(message.contains(sentence), "{sentence}\nnot in\n{message}");
    }
}

#[test]
fn a_file_that_is_too_short_is_refused() {
    let message = model("gather").config(GATHER).onnx("gather").file("warmup/index", &[0; 4]).refused();
    assert!(
        message.contains("warmup setting expects 8 bytes, but the data provided from")
            && message.contains("only has 4 bytes"),
        "{message}"
    );
}
