//! Tests whole configurations: texts and a signature in, settings or faults out.

use std::path::Path;
use std::time::Duration;

use sequor_core::{DataType, Dims, Shape};

use super::settings::{
    Constant, ControlKind, InitialData, ModelSettings, Scheduling, SequenceSettings, SequenceStrategy,
};
use super::{ConfigSource, Draft, Options, Port, Signature, Sources, json};

pub(super) type Ports<'a> = &'a [(&'a str, DataType, &'a [i64])];

pub(super) const FP32: DataType = DataType::Fp32;

pub(super) fn graph(inputs: Ports<'_>, outputs: Ports<'_>) -> Signature {
    let ports = |ports: Ports<'_>| {
        let port = |(name, dtype, dims): &(&str, DataType, &[i64])| Port {
            name: (*name).to_owned(),
            dtype: *dtype,
            dims: Dims::from_wire(dims),
        };
        ports.iter().map(port).collect()
    };
    Signature { inputs: ports(inputs), outputs: ports(outputs), ..Signature::default() }
}

fn sources(directory: &Path, config: &str, toml: &str) -> Sources {
    Sources {
        directory: directory.to_owned(),
        config: ConfigSource::Text(config.to_owned()),
        sequor_toml: Some(toml.to_owned()),
        files: vec!["model.onnx".to_owned()],
        ..Sources::default()
    }
}

fn settle_in(directory: &Path, config: &str, toml: &str, graph: &Signature) -> Result<ModelSettings, Vec<String>> {
    Draft::parse(sources(directory, config, toml), &Options::default())
        .and_then(|draft| draft.resolve(graph))
        .map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

pub(super) fn resolve(config: &str, toml: &str, graph: &Signature) -> Result<ModelSettings, Vec<String>> {
    settle_in(Path::new("m"), config, toml, graph)
}

/// The faults, without the file name.
pub(super) fn faults(config: &str, toml: &str, graph: &Signature) -> Vec<String> {
    let faults = resolve(config, toml, graph).expect_err("faults");
    faults.iter().map(|f| f.strip_prefix("m/config.pbtxt:").unwrap_or(f).to_owned()).collect()
}

fn sequence(settings: &ModelSettings) -> &SequenceSettings {
    match &settings.scheduling {
        Scheduling::Sequence(sequence) => sequence,
        other => panic!("{other:?}"),
    }
}

const VAD: &str = r#"
name: "m"
backend: "onnxruntime"
max_batch_size: 64
input [ { name: "input" data_type: TYPE_FP32 dims: [ 576 ] } ]
output [ { name: "output" data_type: TYPE_FP32 dims: [ 1 ] } ]
sequence_batching {
  max_sequence_idle_microseconds: 10000000
  oldest { max_candidate_sequences: 512 }
  state [
    {
      input_name: "state"
      output_name: "stateN"
      data_type: TYPE_FP32
      dims: [ 2, 128 ]
      initial_state: { name: "silence" data_type: TYPE_FP32 dims: [ 2, 128 ] zero_data: true }
    }
  ]
}
"#;
const VAD_TOML: &str = "schema = 1\n[state.state]\nbatch_axis = 1\n[input.sr]\nconstant = 16000\n";

fn vad_graph() -> Signature {
    graph(
        &[("input", FP32, &[-1, -1]), ("state", FP32, &[2, -1, 128]), ("sr", DataType::Int64, &[])],
        &[("output", FP32, &[-1, 1]), ("stateN", FP32, &[-1, -1, -1])],
    )
}

#[test]
fn a_model_with_a_state_on_batch_axis_1_and_a_constant_input_is_resolved() {
    let settings = resolve(VAD, VAD_TOML, &vad_graph()).unwrap();
    let sr = Constant {
        input: "sr".to_owned(),
        dtype: DataType::Int64,
        shape: Shape::new(&[]),
        data: 16000i64.to_le_bytes().to_vec(),
    };
    assert_eq!(settings.constants, [sr]);
    assert_eq!((settings.max_batch_size, settings.instances, settings.file_name.as_str()), (64, 2, "model.onnx"));
    let sequence = sequence(&settings);
    assert_eq!(sequence.idle, Some(Duration::from_secs(10)));
    let state = &sequence.states[0];
    assert_eq!((state.batch_axis, state.storage, &state.initial.shape), (1, FP32, &Shape::new(&[2, 128])));
    assert!(matches!(sequence.strategy, SequenceStrategy::Oldest { slots: 512, .. }));
    assert_eq!(json::to_json(&settings.proto)["instance_group"][0]["kind"], "KIND_CPU");
}

#[test]
fn a_fault_of_a_state_on_another_batch_axis_names_the_key_to_set() {
    let toml = "[input.sr]\nconstant = 16000\n";
    assert_eq!(
        faults(VAD, toml, &vad_graph()),
        [
            "11:5: m: state \"state\" is [2,N,128] in the model: the batch is on axis 1. config.pbtxt cannot say that; add  \
          [state.state] batch_axis = 1  to m/sequor.toml"
        ]
    );
    assert_eq!(
        faults(VAD, &format!("{toml}[state.state]\nbatch_axis = 2\n"), &vad_graph()),
        ["m/sequor.toml:4:1: m: state \"state\" is [2,N,128] in the model: the batch is on axis 1. Say batch_axis = 1"]
    );
}

#[test]
fn an_input_without_a_source_is_reported() {
    assert_eq!(
        faults(VAD, "[state.state]\nbatch_axis = 1\n", &vad_graph()),
        [
            "5:9: unable to load model 'm', configuration expects 2 inputs, model provides 3 (not configured: \"sr\"; an input that is \
          always the same can be [input.NAME] constant = … in sequor.toml)"
        ]
    );
}

#[test]
fn an_input_that_may_be_a_mask_of_rows_of_different_length_is_offered_to_padding() {
    let config = "max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: [ -1, 4 ] } \
                  output { name: 'y' data_type: TYPE_FP32 dims: 4 } sequence_batching { oldest {} \
                  state { input_name: 'past.k' output_name: 'k' data_type: TYPE_FP32 dims: [ -1, 4 ] } \
                  state { input_name: 'v' output_name: 'v_out' data_type: TYPE_FP32 dims: [ -1, 4 ] } \
                  state { input_name: 'h' output_name: 'h_out' data_type: TYPE_FP32 dims: 4 } }";
    let grows: &[i64] = &[-1, -1, 4];
    let model = |name: &str, dtype, dims: &[i64]| {
        graph(
            &[
                ("x", FP32, grows),
                ("past.k", FP32, grows),
                ("v", FP32, grows),
                ("h", FP32, &[-1, 4]),
                (name, dtype, dims),
            ],
            &[("y", FP32, &[-1, 4]), ("k", FP32, grows), ("v_out", FP32, grows), ("h_out", FP32, &[-1, 4])],
        )
    };
    let offered = |toml: &str, model: &Signature| {
        let faults = faults(config, toml, model);
        assert_eq!(faults.len(), 1, "{faults:#?}");
        faults[0].split_once("in sequor.toml)").unwrap().1.to_owned()
    };
    let mask = model("mask", DataType::Int64, &[-1, -1]);
    assert_eq!(
        offered("", &mask),
        " (if \"mask\" is the mask of rows of different length, set pad = { side = \"left\", mask = \"mask\" } in [state.\"past.k\"] and \
         [state.v], or ragged = \"pad\" and mask = \"mask\" in [input.x] of sequor.toml)"
    );
    assert_eq!(
        offered("[input.x]\nragged = \"pad\"\n", &model("n", DataType::Int32, &[-1])),
        " (if \"n\" has the lengths of rows of different length, set pad = { side = \"left\", lengths = \"n\" } in [state.\"past.k\"] and \
         [state.v] of sequor.toml)"
    );
    assert_eq!(offered("", &model("rate", DataType::Int64, &[])), "", "a scalar is neither a mask nor lengths");
    let fixed = config.replace("[ -1, 4 ]", "[ 3, 4 ]");
    let faults = faults(&fixed, "", &mask);
    assert!(faults.iter().all(|fault| !fault.contains("different length")), "{faults:#?}");
}

#[test]
fn an_optional_input_without_a_value_in_the_graph_is_named() {
    let config = "max_batch_size: 2 input [ { name: 'x' data_type: TYPE_FP32 dims: 3 }, \
                  { name: 'z' data_type: TYPE_FP32 dims: 2 optional: true } ] output { name: 'y' data_type: TYPE_FP32 dims: 3 }";
    let model = graph(&[("x", FP32, &[-1, 3]), ("z", FP32, &[-1, 2])], &[("y", FP32, &[-1, 3])]);
    let faults = faults(config, "", &model);
    let sentence = "unable to load model 'm', configuration expects 1 inputs, model provides 2 (optional, but the graph has no value for it: \
                    \"z\"; remove `optional`, or give the graph an initializer of this name)";
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].ends_with(sentence), "{faults:#?}");
}

#[test]
fn a_mistyped_state_input_is_the_only_fault() {
    let toml = "[input.sr]\nconstant = 16000\n";
    let mistyped = VAD.replace("input_name: \"state\"", "input_name: \"stat\"");
    let faults = faults(&mistyped, toml, &vad_graph());
    assert_eq!(faults.len(), 1, "{faults:#?}");
    assert!(faults[0].contains("the model has no such input"), "{faults:#?}");
}

#[test]
fn dims_that_lack_an_axis_are_refused_with_the_likely_batch_axis() {
    let toml = "[input.sr]\nconstant = 16000\n";
    let faults = faults(&VAD.replace("dims: [ 2, 128 ]", "dims: [ 128 ]"), toml, &vad_graph());
    let hint = "model takes [2,N,128], config says dims [128] (the batch seems to be on axis 1: then dims are [2,128], and sequor.toml \
                says [state.state] batch_axis = 1)";
    assert!(faults.iter().any(|fault| fault.contains(hint)), "{faults:#?}");
}

#[test]
fn names_types_and_dims_must_be_the_graphs() {
    let config = r#"
max_batch_size: 4
input { name: "imput" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_INT32 dims: [ 2 ] }
output { name: "z" data_type: TYPE_FP32 dims: [ 5 ] }
sequence_batching { state { input_name: "h" output_name: "h_out" data_type: TYPE_FP32 dims: [ 7, -1 ] }
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  control_input { name: "END" control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } } }
"#;
    let graph = graph(
        &[
            ("input", FP32, &[-1, 3]),
            ("h", FP32, &[-1, 8, -1]),
            ("START", DataType::Int32, &[-1, 1]),
            ("ID", DataType::Uint64, &[-1, 2]),
        ],
        &[("y", FP32, &[-1, -1]), ("z", FP32, &[3, 5]), ("h_out", FP32, &[-1, 7, 4])],
    );
    insta::assert_snapshot!(faults(config, "", &graph).join("\n"));
}

#[test]
fn controls_and_tiers_are_resolved() {
    let config = r#"
max_batch_size: 2
input { name: "x" data_type: TYPE_FP32 dims: 1 }
output { name: "y" data_type: TYPE_FP32 dims: 1 }
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 3, 7 ] } }
  control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ -1, 0.5 ] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
  state { input_name: "h" output_name: "h_out" data_type: TYPE_FP32 dims: [ 2, 4 ] }
}
"#;
    let toml = r#"
[sequence]
rules = "ovms"
idle = "never"
idle_scan = "5m"
max_live = 10
max_queued = 3
on_cancel = "keep"
end_without_inputs = true
tombstones = "1m"
[backlog]
max = 5
timeout = "1s"
[queue]
expire = "reject"
[state.h]
storage = "fp16"
"#;
    let graph = graph(
        &[
            ("x", FP32, &[-1, 1]),
            ("START", DataType::Int32, &[-1, 1]),
            ("READY", FP32, &[-1, 1]),
            ("ID", DataType::Bytes, &[-1, 1]),
            ("h", FP32, &[-1, -1, 4]),
        ],
        &[("y", FP32, &[-1, 1]), ("h_out", FP32, &[-1, -1, 4])],
    );
    let settings = resolve(config, toml, &graph).unwrap();
    let s = sequence(&settings);
    assert!(matches!(s.strategy, SequenceStrategy::Direct { compact: false, .. }));
    assert_eq!((s.idle, s.dialect, s.cancel_ends), (None, Some(sequor_core::Dialect::OVMS), false));
    assert_eq!(s.idle_scan, Some(Duration::from_secs(300)));
    assert_eq!((s.limits.live, s.limits.per_sequence, s.limits.backlog), (10, 3, 5));
    assert_eq!((s.limits.tomb_age, s.backlog_timeout), (Duration::from_secs(60), Some(Duration::from_secs(1))));
    assert!(s.reject_expired && s.end_without_inputs);
    let ControlKind::Start(start) = &s.controls[0].kind else { panic!() };
    assert_eq!(
        (start.dtype, start.no.as_slice(), start.yes.as_slice()),
        (DataType::Int32, &[3, 0, 0, 0][..], &[7, 0, 0, 0][..])
    );
    assert_eq!(s.controls[2].kind, ControlKind::CorrelationId(DataType::Bytes));
    let h = &s.states[0];
    assert_eq!(
        (h.storage, &h.initial.shape, &h.initial.data),
        (DataType::Fp16, &Shape::new(&[2, 4]), &InitialData::Zero)
    );
}

#[test]
fn a_model_without_a_configuration_is_completed() {
    let sources = Sources { directory: "repo/m".into(), files: vec!["model.onnx".to_owned()], ..Sources::default() };
    let draft = Draft::parse(sources, &Options::default()).unwrap();
    assert_eq!((draft.name.as_str(), draft.file(3)), ("m", Path::new("repo/m/3/model.onnx").to_owned()));
    let settings = draft.resolve(&graph(&[("x", FP32, &[-1, 3])], &[("y", FP32, &[-1])])).unwrap();
    assert_eq!((settings.max_batch_size, settings.inputs[0].dims.to_wire()), (4, vec![3]));
    assert_eq!(settings.outputs[0].reshape, Some(Dims::default()));
    assert!(matches!(&settings.scheduling, Scheduling::Dynamic { preferred, .. } if preferred == &[4]));
    assert_eq!((settings.proto.name.as_str(), settings.proto.platform.as_str()), ("m", "onnxruntime_onnx"));
}

#[test]
fn a_scalar_matches_dims_of_1_without_batching() {
    let config =
        "input { name: 'x' data_type: TYPE_FP32 dims: [ 1, 1 ] } output { name: 'y' data_type: TYPE_FP32 dims: 1 }";
    let settings = resolve(config, "", &graph(&[("x", FP32, &[])], &[("y", FP32, &[])])).unwrap();
    assert_eq!(
        (settings.inputs[0].reshape.clone(), settings.outputs[0].reshape.clone()),
        (Some(Dims::default()), Some(Dims::default()))
    );
    assert!(matches!(settings.scheduling, Scheduling::Each));
}

#[test]
fn an_input_may_be_optional_only_if_the_graph_has_a_value_for_it() {
    let config = "input [ { name: 'x' data_type: TYPE_FP32 dims: 1 }, { name: 'o' data_type: TYPE_FP32 dims: 1 optional: true } ] \
                  output { name: 'y' data_type: TYPE_FP32 dims: 1 }";
    let mut with = graph(&[("x", FP32, &[1])], &[("y", FP32, &[1])]);
    assert_eq!(faults(config, "", &with), ["1:53: input \"o\": the model has no such input"]);
    with.optional = graph(&[("o", FP32, &[1])], &[]).inputs;
    assert!(resolve(config, "", &with).unwrap().inputs[1].optional);
}

/// The faults of an ensemble IN → first → second → OUT with these tensors between its steps, and this output.
fn of_pipe(first: (&str, &str), second: (&str, &str), output: &str) -> Vec<String> {
    let step = |model: &str, (reads, writes): (&str, &str)| {
        format!(
            "step {{ model_name: '{model}' model_version: -1\ninput_map {{ key: 'I' value: '{reads}' }}\noutput_map {{ key: 'O' value: '{writes}' }} }}\n"
        )
    };
    let config = [
        "platform: 'ensemble'\ninput { name: 'IN' data_type: TYPE_FP32 dims: 1 }\n".to_owned(),
        format!("output {{ name: '{output}' data_type: TYPE_FP32 dims: 1 }}\n"),
        format!("ensemble_scheduling {{\n{}{}}}", step("first", first), step("second", second)),
    ];
    faults(&config.concat(), "", &graph(&[], &[]))
}

#[test]
fn a_tensor_without_a_writer_or_a_reader_names_its_step_and_the_nearest_name() {
    let unused = |tensor: &str, why: &str| format!("ensemble tensor '{tensor}' is unused in ensemble 'm' ({why})");
    let unwritten = |step: &str, near: &str| {
        format!(
            "{step} reads it as its input 'I', but no step writes it and it is no input of the ensemble; did you mean \"{near}\"?"
        )
    };
    let (first, second) = ("step 0 ('first')", "step 1 ('second')");
    // Each mistake is one fault, without those that follow from it.
    let smu = format!("9:1: {}", unused("smu", &unwritten(second, "sum")));
    assert_eq!(of_pipe(("IN", "sum"), ("smu", "OUT"), "OUT"), std::slice::from_ref(&smu));
    let outs = "3:1: ensemble output 'OUTS' for ensemble m' is not used (no step writes it; did you mean \"OUT\"?)";
    assert_eq!(of_pipe(("IN", "sum"), ("sum", "OUT"), "OUTS"), [outs]);
    assert_eq!(of_pipe(("IN", "sum"), ("smu", "OUT"), "OUTS"), [outs, smu.as_str()]);
    assert_eq!(
        of_pipe(("INN", "sum"), ("sum", "OUT"), "OUT"),
        [format!("6:1: {}", unused("INN", &unwritten(first, "IN")))]
    );
    // Without a near name, both ends are reported.
    let unread = "no step reads it and it is no output of the ensemble";
    let unwritten = "no step writes it and it is no input of the ensemble";
    assert_eq!(
        of_pipe(("IN", "sum"), ("other", "OUT"), "OUT"),
        [
            format!("7:1: {}", unused("sum", &format!("{first} writes it, but {unread}"))),
            format!("9:1: {}", unused("other", &format!("{second} reads it as its input 'I', but {unwritten}"))),
        ]
    );
    let circle = format!("{second} writes it, but cannot run: it waits for a tensor that needs its own outputs first");
    assert_eq!(
        of_pipe(("b", "a"), ("a", "b"), "b"),
        [
            "2:1: ensemble input 'IN' for ensemble m' is not used (no step reads it)".to_owned(),
            format!("3:1: output 'b' for ensemble 'm' is not written ({circle})"),
        ]
    );
}

/// Checks each configuration, one fault a line, and returns the resulting sentences.
#[test]
fn every_fault_of_a_configuration_alone_is_reported() {
    let graph = graph(&[], &[]);
    let message: Vec<String> =
        SENTENCES.iter().map(|c| format!("{c}\n    {}", faults(c, "", &graph).join("\n    "))).collect();
    insta::assert_snapshot!(message.join("\n"));
}

const SENTENCES: &[&str] = &[
    "name: 'other'",
    "backend: 'python'",
    "backend: 'pytorch'",
    "platform: 'tensorrt_plan'",
    "backend: 'onnxruntime' platform: 'tensorrt_plan'",
    "platform: 'unheard_of'",
    "platform: 'ensemble' ensemble_scheduling { }",
    "default_model_filename: '../x.onnx' backend: 'onnxruntime'",
    "max_batch_size: -1",
    "input { data_type: TYPE_FP32 dims: 1 } output { name: 'y' }",
    "input { name: 'x' data_type: TYPE_FP32 dims: 0 } output { name: 'y' data_type: TYPE_FP32 dims: -2 }",
    "input { name: 'x' data_type: TYPE_FP32 dims: [ 1, 2 ] format: FORMAT_NHWC } output { name: 'y' data_type: TYPE_FP32 dims: 1 label_filename: '../l' }",
    "input { name: 'x' data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 2, 3 ] } } output { name: 'y' data_type: TYPE_FP32 dims: 1 reshape { } }",
    "version_policy { specific { versions: [ 1, -3 ] } }",
    "max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 0, 5 ] }",
    "dynamic_batching { priority_levels: 2 default_priority_level: 3 priority_queue_policy { key: 4 value { } } preserve_ordering: true }",
    "instance_group [ { kind: KIND_GPU }, { kind: KIND_MODEL } ]",
    "instance_group { kind: KIND_CPU gpus: 0 rate_limiter { } profile: 'p' }",
    "instance_group { passive: true }",
    "batch_input { target_name: 'i' source_input: 'z' } batch_input { source_input: [ 'a', 'b' ] data_type: TYPE_INT64 } batch_output { }",
    "input { name: 'x' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true optional: true } output { name: 'y' data_type: TYPE_FP32 dims: -1 } \
     batch_output { target_name: [ 'y', 'y', 'z' ] source_input: 'x' }",
    "response_cache { enable: true } sequence_batching { } model_warmup { name: 'w' batch_size: 2 inputs { key: 'z' value { dims: -1 } } }",
    "model_transaction_policy { decoupled: true } model_repository_agents { agents { name: 'a' } }",
    "model_transaction_policy { decoupled: true } response_cache { enable: true }",
    "model_operations { op_library_filename: 'x.so' } parameters { key: 'TRITON_BATCH_STRATEGY_PATH' value { string_value: 'x' } }",
    "input { name: 'x' is_shape_tensor: true allow_ragged_batch: true is_non_linear_format_io: true }",
    "sequence_batching { iterative_sequence: true state { input_name: 'a' output_name: 'b' use_growable_memory: true } }",
    "max_batch_size: 2 sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
    "max_batch_size: 2 sequence_batching { oldest { preferred_batch_size: [ 0, 3 ] max_candidate_sequences: -1 } }",
    "sequence_batching { control_input { control { kind: CONTROL_SEQUENCE_START } } control_input { name: 'c' } }",
    "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_START int32_false_true: 0 } control { kind: CONTROL_SEQUENCE_START } } }",
    "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_END int32_false_true: 0 fp32_false_true: 0 } } }",
    "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } control_input { name: 'd' control { kind: CONTROL_SEQUENCE_CORRID bool_false_true: true } } }",
    "sequence_batching { state { input_name: 'a' dims: 0 } }",
    "sequence_batching { state [ { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 }, { input_name: 'a' output_name: 'c' data_type: TYPE_FP32 } ] }",
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: 1 initial_state [ { }, { } ] } }",
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: 1 initial_state { } } }",
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: [ 1, 2 ] initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 1, -1 ] zero_data: true } } }",
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: [ 1, 2 ] initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 1, 3 ] data_file: '../x' } } }",
];

#[test]
fn ordered_answers_and_delayed_requests_contradict_each_other_with_and_without_levels() {
    let warns = |levels: &str, action: &str, timeout: u32| {
        let config = format!(
            "max_batch_size: 4 dynamic_batching {{ {levels} preserve_ordering: true default_queue_policy {{ timeout_action: {action} \
             default_timeout_microseconds: {timeout} }} }} input {{ name: 'x' data_type: TYPE_FP32 dims: 3 }} \
             output {{ name: 'y' data_type: TYPE_FP32 dims: 3 }}"
        );
        let ports = [("x", DataType::Fp32, [-1, 3].as_slice())];
        resolve(&config, "", &graph(&ports, &[("y", DataType::Fp32, &[-1, 3])])).is_err()
    };
    for levels in ["", "priority_levels: 1 default_priority_level: 1"] {
        assert!(warns(levels, "DELAY", 100), "{levels}");
        assert!(!warns(levels, "REJECT", 100) && !warns(levels, "DELAY", 0), "{levels}");
    }
}

#[test]
fn an_initial_state_file_must_have_the_size_of_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("m");
    std::fs::create_dir_all(model.join("initial_state")).unwrap();
    std::fs::write(model.join("initial_state/h"), [0; 12]).unwrap();
    let config = |dims: &str, file: &str| {
        format!(
            "input {{ name: 'x' data_type: TYPE_FP32 dims: 1 }} output {{ name: 'y' data_type: TYPE_FP32 dims: 1 }} sequence_batching {{ \
             state {{ input_name: 'h' output_name: 'g' data_type: TYPE_FP32 dims: [ -1 ] initial_state {{ name: 'i' data_type: TYPE_FP32 \
             dims: [ {dims} ] data_file: '{file}' }} }} }}"
        )
    };
    let graph = graph(&[("x", FP32, &[1]), ("h", FP32, &[-1])], &[("y", FP32, &[1]), ("g", FP32, &[-1])]);
    let settings = settle_in(&model, &config("3", "h"), "", &graph).unwrap();
    let initial = &sequence(&settings).states[0].initial;
    assert_eq!((&initial.shape, &initial.data), (&Shape::new(&[3]), &InitialData::File(model.join("initial_state/h"))));
    let short = settle_in(&model, &config("4", "h"), "", &graph).unwrap_err();
    let file = model.join("initial_state/h");
    let message = format!(
        "initial_state setting expects 16 bytes, but the data provided from {} only has 12 bytes.",
        file.display()
    );
    assert!(short[0].ends_with(&message), "{short:?}");
    assert!(settle_in(&model, &config("4", "none"), "", &graph).unwrap_err()[0].ends_with("cannot be read"));
}

#[test]
fn a_growing_state_is_kept_in_its_declared_type() {
    let growing = VAD.replace("dims: [ 2, 128 ]\n      initial", "dims: [ 2, -1 ]\n      initial");
    let toml = VAD_TOML.replace("batch_axis = 1", "batch_axis = 1\nstorage = \"bf16\"");
    let why = "state \"state\" has a variable dimension: only states of a fixed size can be kept as bf16";
    let faults = faults(&growing, &toml, &vad_graph());
    assert!(faults.iter().any(|fault| fault.ends_with(why)), "{faults:?}");
}

#[test]
fn keys_of_sequor_toml_must_mean_something() {
    let toml = "[state.stat]\nstorage = \"fp16\"\n[input.sr]\nconstant = \"x\"\n[input.rate]\nconstant = 1\n[input.input]\nconstant = 1\n";
    let faults = faults(VAD, toml, &vad_graph());
    assert_eq!(faults, ["m/sequor.toml:1:8: [state.stat]: the model has no such state; did you mean \"state\"?"]);
    let toml = toml.replace("[state.stat]\nstorage = \"fp16\"", "[state.state]\nbatch_axis = 1");
    insta::assert_snapshot!(self::faults(VAD, &toml, &vad_graph()).join("\n"));
    let stateless =
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 } output { name: 'y' data_type: TYPE_FP32 dims: 1 }";
    assert_eq!(
        self::faults(stateless, "[sequence]\nidle = \"1s\"\n", &vad_graph()),
        ["m/sequor.toml:1:2: [sequence] is for models with sequence_batching; m has none"]
    );
    assert_eq!(
        self::faults(&VAD.replace("64", "0").replace("oldest", "# "), "[state.state]\nbatch_axis = 1\n", &vad_graph()),
        ["m/sequor.toml:2:1: batch_axis means nothing here: max_batch_size is 0, so no tensor has a batch dimension"]
    );
}

#[test]
fn the_configuration_of_a_load_request_is_json() {
    let sources = Sources {
        directory: "m".into(),
        config: ConfigSource::Json("{\"backend\": \"onnxruntime\", \"maxBatchSize\": -2}".to_owned()),
        ..Sources::default()
    };
    let faults = Draft::parse(sources, &Options::default()).unwrap_err();
    assert_eq!(faults[0].to_string(), "config: 'max_batch_size' must be non-negative value for m");
}

#[test]
fn faults_of_both_files_are_reported_together() {
    let sources = sources(Path::new("m"), "nmae: 'x'", "[sequence]\nidel = 1\n");
    let faults = Draft::parse(sources, &Options::default()).unwrap_err();
    assert_eq!(faults.len(), 2, "{faults:?}");
}

#[test]
fn an_undeclared_state_is_noted_only_for_a_model_without_a_configuration() {
    let ports: Ports<'_> = &[("INPUT", FP32, &[-1, 1]), ("INPUT_STATE", FP32, &[-1, 8])];
    let graph = graph(ports, &[("OUTPUT", FP32, &[-1, 1]), ("OUTPUT_STATE", FP32, &[-1, 8])]);
    let notes = |config: ConfigSource| {
        let sources = Sources { config, ..sources(Path::new("m"), "", "") };
        let settings = Draft::parse(sources, &Options::default()).unwrap().resolve(&graph).unwrap();
        settings.notes.iter().map(|note| note.what.clone()).collect::<Vec<_>>()
    };
    let note = "input \"INPUT_STATE\" and output \"OUTPUT_STATE\" look like a state, but no sequence_batching pairs them: clients must \
                send it (docs/export-a-stateful-onnx.md)";
    assert_eq!(notes(ConfigSource::None), [note]);
    assert_eq!(notes(ConfigSource::Text("backend: 'onnxruntime'".to_owned())), [""; 0]);
}
