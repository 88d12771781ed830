//! Control inputs: START, READY, END and the correlation id as the model sees them.

use sequor_core::Id;

use crate::support::values::{Element, texts};
use crate::support::{Seq, Server, both, model, sum};

const INPUT: &str = r#"input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }"#;

/// A model that returns its three controls, each with a value pair of this kind.
fn sees(strategy: &str, graph: &str, dtype: &str, pairs: [&str; 3]) -> Server {
    let names = ["START", "READY", "END"];
    let outputs: String =
        names.map(|n| format!("output {{ name: \"SEEN_{n}\" data_type: {dtype} dims: [ 1 ] }}\n")).concat();
    let controls: String = names
        .iter()
        .zip(pairs)
        .map(|(n, pair)| format!("control_input {{ name: \"{n}\" control {{ kind: CONTROL_SEQUENCE_{n} {pair} }} }}\n"))
        .collect();
    let config = format!(
        "max_batch_size: 4\ninstance_group {{ count: 1 }}\n{INPUT}\n{outputs}sequence_batching {{ max_sequence_idle_microseconds: 600000000 {strategy}\n{controls} }}"
    );
    model("sees").config(&config).onnx(graph).serve()
}

/// START, READY and END as the model saw them, for each kind of request.
fn plays<E: Element + Copy>(server: &Server) -> Vec<[E; 3]> {
    let a = server.seq(1);
    let asks = [a.start(), a.step(), a.start(), a.end(), a.only(), a.only()];
    let seen = |ask: crate::support::Ask<'_>| {
        let answer = ask.input(&[0]).answer();
        ["START", "READY", "END"].map(|n| answer.output::<E>(&format!("SEEN_{n}"))[0])
    };
    asks.into_iter().map(seen).collect()
}

#[test]
fn start_ready_and_end_controls_may_be_int32_fp32_or_bool() {
    for strategy in both() {
        let pairs = ["int32_false_true: [ 0, 1 ]"; 3];
        let want = [[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 1, 1]];
        assert_eq!(plays::<i32>(&sees(strategy, "sees_int32", "TYPE_INT32", pairs)), want, "{strategy}");
        let pairs = ["fp32_false_true: [ 0, 1 ]"; 3];
        let want = want.map(|seen| seen.map(|n| n as f32));
        assert_eq!(plays::<f32>(&sees(strategy, "sees_fp32", "TYPE_FP32", pairs)), want, "{strategy}");
        let pairs = ["bool_false_true: [ false, true ]"; 3];
        let want = want.map(|seen| seen.map(|n| n > 0.5));
        assert_eq!(plays::<bool>(&sees(strategy, "sees_bool", "TYPE_BOOL", pairs)), want, "{strategy}");
    }
}

#[test]
fn a_value_pair_is_any_two_values() {
    let pairs =
        ["int32_false_true: [ 7, -8 ]", "int32_false_true: [ 1, 0 ]", "int32_false_true: [ -2147483648, 2147483647 ]"];
    for strategy in both() {
        let seen = plays::<i32>(&sees(strategy, "sees_int32", "TYPE_INT32", pairs));
        assert_eq!(seen[..2], [[-8, 0, i32::MIN], [7, 0, i32::MIN]]);
        assert_eq!(seen[3..5], [[7, 0, i32::MAX], [-8, 0, i32::MAX]]);
        let pairs =
            ["fp32_false_true: [ 0.5, -0.25 ]", "fp32_false_true: [ 3, 3 ]", "fp32_false_true: [ -1e30, 1e-30 ]"];
        let seen = plays::<f32>(&sees(strategy, "sees_fp32", "TYPE_FP32", pairs));
        assert_eq!(seen[..2], [[-0.25, 3.0, -1e30], [0.5, 3.0, -1e30]]);
        assert_eq!(seen[3], [0.5, 3.0, 1e-30]);
        let pairs = ["bool_false_true: [ true, false ]"; 3];
        assert_eq!(plays::<bool>(&sees(strategy, "sees_bool", "TYPE_BOOL", pairs))[1], [true, false, true]);
    }
}

#[test]
fn a_value_pair_must_be_two_values_of_one_type() {
    let refused = |pair: &str| {
        let control = format!("control_input {{ name: \"START\" control {{ kind: CONTROL_SEQUENCE_START {pair} }} }}");
        model("sum").config(&sum("TYPE_INT32", &control, "")).onnx("begins_at_100").refused()
    };
    assert!(refused("").contains("must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true'"));
    assert!(refused("int32_false_true: [ 0, 1, 2 ]").contains("must have exactly 2 entries"));
    assert!(refused("int32_false_true: [ 0, 1 ] fp32_false_true: [ 0, 1 ]").contains("specifies more than one from"));
}

/// A running sum that returns the id it got.
fn sees_id(strategy: &str, graph: &str, dtype: &str) -> Server {
    let output = format!("output {{ name: \"SEEN\" data_type: {dtype} dims: [ 1 ] }}");
    let control =
        format!("control_input {{ name: \"CORRID\" control {{ kind: CONTROL_SEQUENCE_CORRID data_type: {dtype} }} }}");
    let config = sum("TYPE_INT32", &format!("{strategy} {control}"), "").replace("dims: [ -1 ]", "dims: [ 1 ]");
    model("sees").config(&(config + &output)).onnx(graph).serve()
}

fn seen_id<E: Element>(seq: &Seq<'_>) -> E {
    seq.start().input(&[1]).answer().output::<E>("SEEN").remove(0)
}

#[test]
fn the_correlation_id_control_supports_five_data_types() {
    const WIDE: u64 = 0xfedc_ba98_8765_4321;
    for strategy in both() {
        let server = sees_id(strategy, "sees_id_uint64", "TYPE_UINT64");
        assert_eq!(seen_id::<u64>(&server.seq(WIDE)), WIDE);
        assert_eq!(seen_id::<u64>(&server.seq(1)), 1);
        let server = sees_id(strategy, "sees_id_int64", "TYPE_INT64");
        assert_eq!(seen_id::<i64>(&server.seq(WIDE)), WIDE as i64);
        // The low half of the id.
        let server = sees_id(strategy, "sees_id_uint32", "TYPE_UINT32");
        assert_eq!(seen_id::<u32>(&server.seq(WIDE)), 0x8765_4321);
        let server = sees_id(strategy, "sees_id_int32", "TYPE_INT32");
        assert_eq!(seen_id::<i32>(&server.seq(WIDE)), 0x8765_4321u32 as i32);
        let server = sees_id(strategy, "sees_id_string", "TYPE_STRING");
        let long = "x".repeat(128);
        for text in ["call-77", "7", "ü\0", long.as_str()] {
            let seq = server.named(text);
            assert_eq!(seen_id::<String>(&seq), text);
            assert_eq!(seq.end().input(&[1]).answer().output::<String>("SEEN"), texts(&[text]));
        }
    }
}

#[test]
fn ids_must_match_the_id_control_and_number_and_text_ids_are_distinct() {
    let server = sees_id("", "sees_id_uint64", "TYPE_UINT64");
    let failure = server.named("7").start().input(&[1]).fails();
    assert!(format!("{failure:?}").contains("IdType"), "{failure:?}");
    let server = sees_id("", "sees_id_string", "TYPE_STRING");
    let failure = server.seq(7).start().input(&[1]).fails();
    assert!(format!("{failure:?}").contains("IdType"), "{failure:?}");
    let server = model("sum").config(&sum("TYPE_INT32", "", "")).onnx("sum_int32").serve();
    let (number, text) = (server.seq(7), server.named("7"));
    assert_ne!(number.id, Id::Str("7".into()));
    number.start().input(&[1]).gives(&[1]);
    text.start().input(&[10]).gives(&[10]);
    number.step().input(&[1]).gives(&[2]);
    text.step().input(&[1]).gives(&[11]);
}

#[test]
fn only_the_controls_that_are_listed_are_fed() {
    for (extra, graph, inputs) in [
        ("", "sum_int32", vec!["INPUT", "INPUT_STATE"]),
        (
            r#"control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } }"#,
            "begins_at_100",
            vec!["INPUT", "INPUT_STATE", "START"],
        ),
        (
            r#"control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }"#,
            "sees_id_uint64",
            vec!["CORRID", "INPUT", "INPUT_STATE"],
        ),
    ] {
        for strategy in both() {
            let dims = if graph == "sum_int32" { "dims: [ -1 ]" } else { "dims: [ 1 ]" };
            let config = sum("TYPE_INT32", &format!("{strategy} {extra}"), "").replace("dims: [ -1 ]", dims);
            let server = model("sum").config(&config).onnx(graph).serve();
            server.seq(1).start().input(&[1]).answer();
            assert_eq!(server.last_run().inputs.keys().collect::<Vec<_>>(), inputs);
        }
    }
    // A control that the model does not have is a fault of the configuration.
    let ready =
        r#"control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } }"#;
    let why = model("sum").config(&sum("TYPE_INT32", ready, "")).onnx("sum_int32").refused();
    assert!(
        why.contains("configuration specified sequence control 'READY', but model does not provide that input"),
        "{why}"
    );
}
