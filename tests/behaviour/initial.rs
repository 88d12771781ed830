//! The initial state of a sequence: zeros, a file, dims, and the rules for its configuration.

use crate::support::values::{bytes, texts};
use crate::support::{Server, both, model, sum};

fn initial(dtype: &str, dims: &str, data: &str) -> String {
    format!(r#"initial_state {{ name: "first" data_type: {dtype} dims: [ {dims} ] {data} }}"#)
}

#[test]
fn the_default_initial_state_is_zeros_even_in_a_reused_slot() {
    for strategy in both() {
        let server = model("sum").config(&sum("TYPE_FP32", strategy, "")).onnx("sum_fp32").serve();
        for (id, value) in [(1, 1e30f32), (2, -7.5), (3, 0.25)] {
            server.seq(id).start().input(&[value]).gives(&[value]);
            server.seq(id).end().input(&[value]).gives(&[2.0 * value]);
        }
        assert!(server.runs().iter().all(|run| run.rows() == 1), "all three had the first slot");
    }
    let texts_before = sum("TYPE_STRING", "", "");
    let server = model("delay").config(&texts_before).onnx("string_state").serve();
    server.seq(1).start().input(&texts(&["old"])).gives(&texts(&[""]));
    server.seq(1).end().input(&texts(&[""])).gives(&texts(&["old"]));
    server.seq(2).start().input(&texts(&["new"])).gives(&texts(&[""]));
}

#[test]
fn a_model_can_initialise_itself_by_its_start_control() {
    let start =
        r#"control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } }"#;
    for strategy in both() {
        let config = sum("TYPE_INT32", &format!("{strategy} {start}"), "").replace("dims: [ -1 ]", "dims: [ 1 ]");
        let server = model("begins").config(&config).onnx("begins_at_100").serve();
        let a = server.seq(1);
        a.start().input(&[1]).gives(&[101]);
        a.step().input(&[1]).gives(&[102]);
        a.start().input(&[7]).gives(&[107]);
        a.step().input(&[1]).gives(&[108]);
    }
}

fn growing(dims: &str, state: &str) -> String {
    format!(
        r#"
        max_batch_size: 4
        instance_group {{ count: 1 }}
        input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ -1, 4 ] }}
        output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] }}
        sequence_batching {{
          max_sequence_idle_microseconds: 600000000
          STRATEGY
          state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ {dims} ] {state} }}
        }}
        "#
    )
}

fn first_step(server: &Server) -> (Vec<u64>, Vec<f32>) {
    let input = crate::support::values::tensor(&[1, 1, 4], &[1.0f32, 2.0, 3.0, 4.0]);
    let answer = server.seq(1).start().with("INPUT", input).answer();
    (server.last_run().shape("INPUT_STATE"), answer.output("OUTPUT"))
}

#[test]
fn open_dims_start_at_one() {
    for strategy in both() {
        let config = growing("-1, 4", "").replace("STRATEGY", strategy);
        let server = model("grow").config(&config).onnx("grow_fp32").serve();
        assert_eq!(first_step(&server), (vec![1, 1, 4], vec![1.0, 2.0, 3.0, 4.0]));
        let open = sum("TYPE_FP32", strategy, "").replace("dims: [ 1 ]", "dims: [ -1 ]");
        let server = model("sum").config(&open).onnx("sum_fp32").serve();
        // One zero is added to both.
        server.seq(1).start().input(&[1.0f32, 2.0]).gives(&[1.0f32, 2.0]);
        assert_eq!(server.last_run().shape("INPUT_STATE"), [1, 1]);
        server.seq(1).step().input(&[1.0f32, 1.0]).gives(&[2.0f32, 3.0]);
        assert_eq!(server.last_run().shape("INPUT_STATE"), [1, 2]);
    }
}

#[test]
fn initial_state_dims_fix_the_variable_dims() {
    for strategy in both() {
        let zeros = growing("-1, 4", &initial("TYPE_FP32", "3, 4", "zero_data: true")).replace("STRATEGY", strategy);
        let server = model("grow").config(&zeros).onnx("grow_fp32").serve();
        assert_eq!(first_step(&server), (vec![1, 3, 4], vec![1.0, 2.0, 3.0, 4.0]));
        assert_eq!(server.ready().state_bytes, 48);
        let file = growing("-1, 4", &initial("TYPE_FP32", "2, 4", "data_file: \"two\"")).replace("STRATEGY", strategy);
        let rows = bytes(&[10.0f32, 20.0, 30.0, 40.0, 0.5, 0.5, 0.5, 0.5]);
        let server = model("grow").config(&file).file("initial_state/two", &rows).onnx("grow_fp32").serve();
        assert_eq!(first_step(&server), (vec![1, 2, 4], vec![11.5, 22.5, 33.5, 44.5]));
    }
}

#[test]
fn zero_data_is_zeros_whatever_its_value() {
    for strategy in both() {
        for message in ["zero_data: true", "zero_data: false"] {
            let config = sum("TYPE_INT32", strategy, &initial("TYPE_INT32", "1", message));
            let server = model("sum").config(&config).onnx("sum_int32").serve();
            server.seq(1).start().input(&[3]).gives(&[3]);
            server.seq(1).step().input(&[3]).gives(&[6]);
            server.seq(2).start().input(&[4]).gives(&[4]);
        }
    }
}

/// A running sum of this type with this file as its initial state.
fn from_file(dtype: &str, graph: &str, strategy: &str, file: &[u8]) -> Server {
    let state = initial(dtype, "2", "data_file: \"first.bin\"");
    let config = sum(dtype, strategy, &state).replace("dims: [ 1 ]", "dims: [ 2 ]");
    model("file").config(&config).file("initial_state/first.bin", file).onnx(graph).serve()
}

#[test]
fn a_data_file_is_the_first_state_of_every_sequence() {
    for strategy in both() {
        let server = from_file("TYPE_INT32", "sum_int32", strategy, &bytes(&[1000, -1]));
        let (a, b) = (server.seq(1), server.seq(2));
        a.start().input(&[1, 1]).gives(&[1001, 0]);
        a.step().input(&[1, 1]).gives(&[1002, 1]);
        b.start().input(&[2, 2]).gives(&[1002, 1]);
        a.start().input(&[3, 3]).gives(&[1003, 2]);
        let server = from_file("TYPE_FP32", "sum_fp32", strategy, &bytes(&[0.5f32, 1e-3]));
        server.seq(1).start().input(&[1.0f32, 1.0]).gives(&[1.5f32, 1.001]);
        server.seq(1).step().input(&[0.0f32, 0.0]).gives(&[1.5f32, 1.001]);
        let first = texts(&["erst", "n\0l"]);
        let server = from_file("TYPE_STRING", "string_state", strategy, &bytes(&first));
        server.seq(1).start().input(&texts(&["a", "b"])).gives(&first);
        server.seq(1).step().input(&texts(&["c", "d"])).gives(&texts(&["a", "b"]));
        server.seq(2).start().input(&texts(&["e", "f"])).gives(&first);
    }
}

#[test]
fn a_longer_data_file_is_cut() {
    for strategy in both() {
        let server = from_file("TYPE_INT32", "sum_int32", strategy, &bytes(&[1, 2, 3, 4]));
        server.seq(1).start().input(&[0, 0]).gives(&[1, 2]);
        server.seq(1).step().input(&[0, 0]).gives(&[1, 2]);
        // The same for a state in memory of its own.
        let grow = growing("-1, 4", &initial("TYPE_FP32", "1, 4", "data_file: \"f\"")).replace("STRATEGY", strategy);
        let server =
            model("grow").config(&grow).file("initial_state/f", &bytes(&[1.0f32; 6])).onnx("grow_fp32").serve();
        assert_eq!(first_step(&server), (vec![1, 1, 4], vec![2.0, 3.0, 4.0, 5.0]));
    }
}

#[test]
fn a_malformed_text_file_gives_a_warning_and_empty_initial_texts() {
    // One BYTES element for a state of two, and bytes that are not a BYTES element.
    for file in [bytes(&texts(&["one"])), bytes(&[100i32])] {
        for strategy in both() {
            let server = from_file("TYPE_STRING", "string_state", strategy, &file);
            let [warning] = server.ready().warnings.try_into().unwrap();
            assert!(warning.at.path.ends_with("file/initial_state/first.bin"), "{warning:?}");
            assert!(warning.what.contains("state 'INPUT_STATE' is not in the BYTES layout"), "{warning:?}");
            server.seq(1).start().input(&texts(&["a", "b"])).gives(&texts(&["", ""]));
            server.seq(1).step().input(&texts(&["c", "d"])).gives(&texts(&["a", "b"]));
        }
    }
}

#[test]
fn a_text_file_with_more_texts_than_the_state_has_is_cut() {
    for strategy in both() {
        let server = from_file("TYPE_STRING", "string_state", strategy, &bytes(&texts(&["eins", "zwei", "drei"])));
        assert_eq!(server.ready().warnings, []);
        server.seq(1).start().input(&texts(&["a", "b"])).gives(&texts(&["eins", "zwei"]));
    }
}

/// Why a running sum of INT32 with this text in its state does not load.
fn refused(state: &str, file: &[u8]) -> String {
    let spec = model("sum").config(&sum("TYPE_INT32", "direct { }", state)).onnx("sum_int32");
    spec.file("initial_state/first.bin", file).refused()
}

#[test]
fn a_load_is_refused_if_the_data_file_is_too_short_or_missing() {
    let named = |file: &str| initial("TYPE_INT32", "1", &format!("data_file: \"{file}\""));
    let short = refused(&named("first.bin"), &[1, 2, 3]);
    assert!(short.contains("initial_state setting expects 4 bytes, but the data provided from "), "{short}");
    assert!(short.contains(" only has 3 bytes."), "{short}");
    assert!(refused(&named("absent.bin"), &[]).contains("absent.bin"));
    let outside = refused(&named("../1/model.onnx"), &[]);
    assert!(outside.contains("is not a file of the folder initial_state"), "{outside}");
    let nothing = refused(&initial("TYPE_INT32", "1", ""), &[]);
    assert!(nothing.contains("initial_state setting expects state'INPUT_STATE' to have state_data set"), "{nothing}");
}

#[test]
fn type_name_count_and_dims_of_an_initial_state_are_checked() {
    let zero = "zero_data: true";
    let good = initial("TYPE_INT32", "1", zero);
    for (state, sentence) in [
        (
            initial("TYPE_FP32", "1", zero),
            "The data type used for 'initial_state' field of state 'INPUT_STATE' does not match the state data type.",
        ),
        (
            good.replace(r#"name: "first""#, ""),
            "Field 'name' must be set when using initial_state for state input 'INPUT_STATE'.",
        ),
        (
            good.clone() + &good,
            "initial_state field for state input 'INPUT_STATE' must contain exactly one or zero element. Found '2' elements.",
        ),
        (
            initial("TYPE_INT32", "1, 1", zero),
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 'INPUT_STATE'. 2 != 1",
        ),
        (
            initial("TYPE_INT32", "-1", zero),
            "'initial_state' field for state input name 'INPUT_STATE' contains variable dimensions.",
        ),
        (
            initial("TYPE_INT32", "2", zero),
            "'initial_state' dim for input name 'INPUT_STATE' doesn't match 'state' dim description. 2 != 1",
        ),
    ] {
        let why = refused(&state, &[]);
        assert!(why.contains(sentence), "{why}");
    }
    assert!(model("sum").config(&sum("TYPE_INT32", "", &good)).onnx("sum_int32").serve().repository.ready());
}
