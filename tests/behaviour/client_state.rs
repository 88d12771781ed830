//! `[sequence] client_state = true`: a START brings the first states of its sequence, or begins with a copy of another one's state.

use sequor::backend::mock::MockBackend;
use sequor::device::stand_in::StandIns;
use sequor::error::{Failure, Invalid, NotCopied, WrongSource};

use crate::state::GROW;
use crate::support::server::sides;
use crate::support::values::{row, tensor, texts};
use crate::support::{Server, both, model, sum};

const ON: &str = "[sequence]\nclient_state = true\nidle = \"1h\"\n";

fn int_sum(strategy: &str, toml: &str) -> Server {
    model("sum").config(&sum("TYPE_INT32", strategy, "")).toml(toml).onnx("sum_int32").serve()
}

/// Runs as on a GPU.
fn on_gpu(strategy: &str, gpus: &StandIns) -> Server {
    let config = sum("TYPE_INT32", strategy, "")
        .replace("instance_group { count: 1 }", "instance_group { kind: KIND_GPU count: 1 }")
        .replace("dims: [ -1 ]", "dims: [ 1 ]");
    let spec = model("sum").config(&config).toml(ON);
    spec.mock("accumulate INT32", MockBackend::new().with_stand_ins()).accelerators(gpus).serve()
}

#[track_caller]
fn invalid(failure: Failure) -> Invalid {
    let Failure::Invalid { what, .. } = failure else { panic!("{failure:?}") };
    *what
}

#[track_caller]
fn not_copied(failure: Failure) -> NotCopied {
    match failure {
        Failure::NotCopied { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_start_with_a_client_state_begins_from_that_state() {
    for strategy in both() {
        let gpus = StandIns::new(1, 256 << 20);
        for server in [int_sum(strategy, ON), on_gpu(strategy, &gpus)] {
            let (a, b) = (server.seq(1), server.seq(2));
            a.start().input(&[5]).with("INPUT_STATE", row(&[100])).gives(&[105]);
            b.start().input(&[5]).gives(&[5]);
            a.step().input(&[1]).gives(&[106]);
            b.step().input(&[1]).gives(&[6]);
            // On a live id as well.
            a.start().with("INPUT_STATE", row(&[-7])).input(&[1]).gives(&[-6]);
            a.start().input(&[2]).gives(&[2]);
            a.end().input(&[1]).gives(&[3]);
            server.seq(3).only().input(&[5]).with("INPUT_STATE", row(&[1])).gives(&[6]);
        }
    }
}

/// A graph that initialises itself at START sees none, so that it does not drop what the client brought.
#[test]
fn a_client_state_overrides_zeros_and_initial_state() {
    let start =
        r#"control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } }"#;
    for strategy in both() {
        let config = sum("TYPE_INT32", &format!("{strategy} {start}"), "").replace("dims: [ -1 ]", "dims: [ 1 ]");
        let server = model("begins").config(&config).toml(ON).onnx("begins_at_100").serve();
        let a = server.seq(1);
        a.start().input(&[1]).gives(&[101]);
        a.start().input(&[1]).with("INPUT_STATE", row(&[7])).gives(&[8]);
        a.start().input(&[1]).gives(&[101]);
        let initial = r#"initial_state { name: "x" data_type: TYPE_INT32 dims: [ 1 ] data_file: "fifty" }"#;
        let spec = model("sum").config(&sum("TYPE_INT32", strategy, initial)).toml(ON);
        let server = spec.file("initial_state/fifty", &50i32.to_le_bytes()).onnx("sum_int32").serve();
        let a = server.seq(1);
        a.start().input(&[1]).gives(&[51]);
        a.start().input(&[1]).with("INPUT_STATE", row(&[7])).gives(&[8]);
    }
}

#[test]
fn states_that_a_start_does_not_bring_keep_their_usual_initial_value() {
    let config = |strategy: &str| {
        format!(
            r#"
            max_batch_size: 4
            instance_group {{ count: 1 }}
            input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
            output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 3 ] }}
            sequence_batching {{
              {strategy}
              state {{ input_name: "c" output_name: "y" data_type: TYPE_FP32 dims: [ 1 ] }}
              state {{ input_name: "a" output_name: "z" data_type: TYPE_FP32 dims: [ 1 ] }}
              state {{ input_name: "b" output_name: "x" data_type: TYPE_INT32 dims: [ 1 ] }}
            }}
            "#
        )
    };
    for strategy in both() {
        let server = model("crossed").config(&config(strategy)).toml(ON).onnx("crossed").serve();
        let (one, two) = (server.seq(1), server.seq(2));
        // a sums the inputs, b counts requests, c doubles itself and adds the input.
        one.start().input(&[1.0f32]).with("b", row(&[40])).gives(&[1.0f32, 41.0, 1.0]);
        one.step().input(&[2.0f32]).gives(&[3.0f32, 42.0, 4.0]);
        let all = two.start().with("a", row(&[10.0f32])).with("b", row(&[20])).with("c", row(&[30.0f32]));
        all.input(&[1.0f32]).gives(&[11.0f32, 21.0, 61.0]);
        // Its own state stands above the copy.
        let three = server.seq(3).start().copy_of(1u64).with("a", row(&[100.0f32]));
        three.input(&[1.0f32]).gives(&[101.0f32, 43.0, 9.0]);
    }
}

#[test]
fn a_start_can_bring_states_of_every_kind() {
    for strategy in both() {
        let toml = format!("{ON}[state.INPUT_STATE]\nbatch_axis = 1\n");
        let axis = r#"
            max_batch_size: 4
            instance_group { count: 1 }
            input { name: "INPUT" data_type: TYPE_FP32 dims: [ 3 ] }
            output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2, 3 ] }
            sequence_batching {
              STRATEGY
              state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ 2, 3 ] }
            }
        "#;
        let server = model("axis").config(&axis.replace("STRATEGY", strategy)).toml(&toml).onnx("on_axis_1").serve();
        let state = tensor(&[1, 2, 3], &[1.0f32, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let before = server.seq(2).start().input(&[1.0f32; 3]).answer().output::<f32>("OUTPUT");
        let after = server.seq(1).start().input(&[1.0f32; 3]).with("INPUT_STATE", state).answer();
        let more: Vec<f32> = after.output::<f32>("OUTPUT").iter().zip(&before).map(|(a, b)| a - b).collect();
        assert_eq!(more, [1.0, 2.0, 3.0, 10.0, 20.0, 30.0], "{strategy}");

        let server = model("grow").config(&GROW.replace("STRATEGY", strategy)).toml(ON).onnx("grow_fp32").serve();
        let (a, new) = (server.seq(1), |rows: u64, v: f32| tensor(&[1, rows, 4], &vec![v; rows as usize * 4]));
        let answer = a.start().with("INPUT", new(1, 1.0)).with("INPUT_STATE", new(6, 2.0)).answer();
        assert_eq!(answer.shape("OUTPUT_STATE"), [1, 7, 4], "{strategy}");
        assert_eq!(a.step().with("INPUT", new(1, 1.0)).answer().shape("OUTPUT_STATE"), [1, 8, 4]);
        let copy = server.seq(2).start().copy_of(1u64).with("INPUT", new(1, 1.0)).answer();
        assert_eq!(copy.shape("OUTPUT_STATE"), [1, 9, 4], "{strategy}");

        let delay = sum("TYPE_STRING", strategy, "");
        let server = model("delay").config(&delay).toml(ON).onnx("string_state").serve();
        server
            .seq(1)
            .start()
            .input(&texts(&["new"]))
            .with("INPUT_STATE", row(&texts(&["old"])))
            .gives(&texts(&["old"]));
    }
}

#[test]
fn an_unknown_or_wrong_client_state_is_refused_before_it_is_queued() {
    let server = int_sum("", ON);
    let seq = server.seq(1);
    seq.start().input(&[1]).gives(&[1]);
    let step = seq.step().input(&[1]).with("INPUT_STATE", row(&[5])).fails();
    assert!(matches!(invalid(step), Invalid::StateInput { input } if input == "INPUT_STATE"));
    let wrong = |state| invalid(server.seq(2).start().input(&[1]).with("INPUT_STATE", state).fails());
    assert!(matches!(wrong(row(&[1.0f32])), Invalid::DataType { input, .. } if input == "INPUT_STATE"));
    assert!(matches!(wrong(row(&[1, 2])), Invalid::Shape { input, .. } if input == "INPUT_STATE"));
    assert!(matches!(wrong(tensor(&[1], &[1])), Invalid::Shape { .. }));
    assert!(matches!(wrong(tensor(&[2, 1], &[1, 2])), Invalid::BatchSizes { .. }));
    let short = sequor::model::Tensor { data: vec![0; 3].into(), ..row(&[1]) };
    assert!(matches!(wrong(short), Invalid::ByteSize { want: 4, got: 3, .. }));
    let twice = server.seq(2).start().input(&[1]).with("INPUT_STATE", row(&[1])).with("INPUT_STATE", row(&[2]));
    assert!(matches!(invalid(twice.fails()), Invalid::DuplicateInput { .. }));
    let only = server.seq(2).start().with("INPUT_STATE", row(&[1])).fails();
    assert!(matches!(invalid(only), Invalid::InputCount { .. }), "the input is missing");
    assert!(matches!(
        invalid(seq.start().input(&[1]).with("OUTPUT_STATE", row(&[1])).fails()),
        Invalid::InputCount { .. }
    ));
    assert_eq!(server.repository.live(), 1);
    seq.step().input(&[1]).gives(&[2]);

    let server = int_sum("", "");
    let refused = server.seq(1).start().input(&[1]).with("INPUT_STATE", row(&[5])).fails();
    assert!(matches!(invalid(refused), Invalid::InputCount { .. }), "without the key");
    let source = invalid(server.seq(1).start().input(&[1]).copy_of(2u64).fails());
    assert_eq!(source, Invalid::CopySource(WrongSource::NotAllowed));
}

#[test]
fn a_start_copies_the_state_of_a_live_sequence_that_continues() {
    for strategy in both() {
        let gpus = StandIns::new(1, 256 << 20);
        for server in [int_sum(strategy, ON), on_gpu(strategy, &gpus)] {
            let (a, b, c) = (server.seq(1), server.seq(2), server.named("call-77"));
            a.start().input(&[40]).gives(&[40]);
            a.step().input(&[1]).gives(&[41]);
            b.start().copy_of(1u64).input(&[5]).gives(&[46]);
            a.step().input(&[1]).gives(&[42]);
            b.step().input(&[1]).gives(&[47]);
            c.start().copy_of(2u64).input(&[1]).gives(&[48]);
            // A copy of a copy by its text, on a live id, after the first one has ended.
            a.end().input(&[1]).gives(&[43]);
            b.start().copy_of("call-77").input(&[2]).gives(&[50]);
            c.step().input(&[1]).gives(&[49]);
            assert_eq!(server.repository.live(), 2);
        }
    }
}

#[test]
fn a_source_that_cannot_be_copied_is_refused_with_what_to_do() {
    for strategy in both() {
        let server = int_sum(strategy, ON);
        let (a, b) = (server.seq(1), server.seq(2));
        a.start().input(&[40]).gives(&[40]);
        assert_eq!(not_copied(b.start().copy_of(9u64).input(&[1]).fails()), NotCopied::Unknown);
        assert_eq!(invalid(b.start().copy_of(2u64).input(&[1]).fails()), Invalid::CopySource(WrongSource::Itself));
        assert_eq!(invalid(b.start().copy_of("").input(&[1]).fails()), Invalid::CopySource(WrongSource::Itself));
        assert_eq!(invalid(a.step().copy_of(2u64).input(&[1]).fails()), Invalid::CopySource(WrongSource::NotAtStart));
        assert_eq!(
            (server.repository.live(), server.repository.state_bytes().0),
            (1, 4 * sides(strategy)),
            "{strategy}"
        );
        // A live sequence that was to begin anew lives on.
        b.start().input(&[7]).gives(&[7]);
        assert_eq!(not_copied(b.start().copy_of(9u64).input(&[1]).fails()), NotCopied::Unknown);
        b.end().input(&[1]).gives(&[8]);
        // Its first step runs.
        let held = server.hold(b.start().input(&[1]));
        let early = server.seq(3).start().copy_of(2u64).input(&[1]).send();
        assert_eq!(not_copied(early.fails()), NotCopied::NotYet);
        held.release();
        server.seq(3).start().copy_of(2u64).input(&[1]).gives(&[2]);
        a.step().input(&[1]).gives(&[41]);
    }
}

#[test]
fn a_client_or_copied_state_counts_against_the_state_limit() {
    for strategy in both() {
        let spec = model("sum").config(&sum("TYPE_INT32", strategy, "")).toml(ON).onnx("sum_int32");
        let server = spec.limit(8 * sides(strategy)).serve();
        let (a, b, c) = (server.seq(1), server.seq(2), server.seq(3));
        a.start().input(&[1]).with("INPUT_STATE", row(&[10])).gives(&[11]);
        b.start().input(&[1]).copy_of(1u64).gives(&[12]);
        assert!(matches!(c.start().input(&[1]).with("INPUT_STATE", row(&[1])).fails(), Failure::StateMemory { .. }));
        assert!(matches!(c.start().input(&[1]).copy_of(1u64).fails(), Failure::StateMemory { .. }));
        // A state that has grown needs what it has grown to.
        let spec = model("grow").config(&GROW.replace("STRATEGY", strategy)).toml(ON).onnx("grow_fp32");
        let server = spec.limit(64).serve();
        let new = |rows: u64| tensor(&[1, rows, 4], &vec![1.0f32; rows as usize * 4]);
        let large = server.seq(1).start().with("INPUT", new(1)).with("INPUT_STATE", new(5)).fails();
        assert!(matches!(large, Failure::StateMemory { .. }), "{large:?}");
        server.seq(1).start().with("INPUT", new(1)).with("INPUT_STATE", new(3)).answer();
        assert_eq!(server.repository.state_bytes().0, 64, "{strategy}");
    }
}

#[test]
fn a_failed_start_leaves_its_sequence_with_the_clients_state() {
    for strategy in both() {
        let config = sum("TYPE_INT32", strategy, "").replace("dims: [ -1 ]", "dims: [ 1 ]");
        let server =
            model("sum").config(&config).toml(ON).mock("accumulate INT32 poison=99", MockBackend::new()).serve();
        let a = server.seq(1);
        a.start().input(&[1]).gives(&[1]);
        assert!(matches!(a.start().input(&[99]).with("INPUT_STATE", row(&[50])).fails(), Failure::Run(_)));
        a.step().input(&[1]).gives(&[51]);
        assert!(matches!(a.start().input(&[99]).copy_of(2u64).fails(), Failure::NotCopied { .. }));
        a.step().input(&[1]).gives(&[52]);
        a.start().input(&[1]).gives(&[1]);
    }
}

#[test]
fn only_a_model_with_states_takes_the_key() {
    let stateless = r#"
        max_batch_size: 4
        instance_group { count: 1 }
        input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }
        output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
        sequence_batching { }
    "#;
    let refused = model("echo").config(stateless).toml(ON).onnx("echo_int32").refused();
    assert!(refused.contains("sequor.toml:2:1: client_state is for the states of a model"), "{refused}");
}
