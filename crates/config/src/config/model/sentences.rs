//! Every sentence of Triton about a configuration, each with a configuration that triggers it. Clients and scripts match on these
//! sentences, so Sequor keeps them byte for byte. Sequor's additions follow in brackets. Sentences about requests have their own table
//! (`tests/cases`).

use std::path::Path;

use sequor_core::DataType;

use super::tests::{FP32, faults, graph, resolve};
use super::{ConfigSource, Draft, Options, Sources};

/// A section of Triton's documentation of model configurations, a configuration, and the sentence.
type SentenceRow = (&'static str, &'static str, &'static str);

/// Sentences that need no graph.
const IN_ITSELF: &[SentenceRow] = &[
    ("top", "max_batch_size: -1", "'max_batch_size' must be non-negative value for m"),
    ("names", "platform: 'P'", "unexpected platform type 'P' for m"),
    (
        "names",
        "backend: 'onnxruntime' platform: 'tensorrt_plan'",
        "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
    ),
    ("input", "input { data_type: TYPE_FP32 dims: 1 }", "model input must specify 'name' for m"),
    ("input", "input { name: 'x' dims: 1 }", "model input 'x' must specify 'data_type' for m"),
    ("input", "input { name: 'x' data_type: TYPE_FP32 }", "model input 'x' must specify 'dims' for m"),
    (
        "input",
        "input { name: 'x' data_type: TYPE_FP32 dims: 0 }",
        "model input 'x' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        "input",
        "input { name: 'x' data_type: TYPE_FP32 dims: -2 }",
        "model input 'x' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        "input",
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 format: FORMAT_NHWC }",
        "model input NHWC/NCHW require 3 dims for m",
    ),
    (
        "input",
        "input { name: 'x' data_type: TYPE_FP32 dims: [ 1, 2 ] format: FORMAT_NCHW }",
        "model input NHWC/NCHW require 3 dims for m",
    ),
    (
        "input",
        "max_batch_size: 2 input { name: 'x' data_type: TYPE_INT32 dims: 1 is_shape_tensor: true }",
        "shape tensors are only supported for TensorRT platform for m",
    ),
    ("output", "output { data_type: TYPE_FP32 dims: 1 }", "model output must specify 'name' for m"),
    ("output", "output { name: 'y' dims: 1 }", "model output 'y' must specify 'data_type' for m"),
    ("output", "output { name: 'y' data_type: TYPE_FP32 }", "model output 'y' must specify 'dims' for m"),
    (
        "output",
        "output { name: 'y' data_type: TYPE_FP32 dims: 0 }",
        "model output 'y' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        "output",
        "max_batch_size: 2 output { name: 'y' data_type: TYPE_INT32 dims: 1 is_shape_tensor: true }",
        "shape tensors are only supported for TensorRT platform for m",
    ),
    (
        "reshape",
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 reshape { shape: [] } } output { name: 'y' data_type: TYPE_FP32 dims: 1 }",
        "model input 'x' cannot have empty reshape for non-batching model as scalar tensors are not supported for m",
    ),
    (
        "reshape",
        "input { name: 'x' data_type: TYPE_FP32 dims: 1 reshape { shape: 0 } }",
        "model input 'x' reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ),
    (
        "reshape",
        "input { name: 'x' data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] } }",
        "model input 'x' has different size for dims and reshape for m",
    ),
    (
        "reshape",
        "output { name: 'y' data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ 4, -1 ] } }",
        "model output 'y' has different size for dims and reshape for m",
    ),
    (
        "reshape",
        "output { name: 'y' data_type: TYPE_FP32 dims: [ -1, -1 ] reshape { shape: -1 } }",
        "model output 'y' has different number of variable-size dimensions for dims and reshape for m",
    ),
    (
        "batch_input",
        "batch_input { target_name: 'i' kind: BATCH_ITEM_SHAPE }",
        "batch input kind 'BATCH_ITEM_SHAPE' expects 1 source input, got 0",
    ),
    (
        "batch_input",
        "batch_input { target_name: 'i' source_input: [ 'a', 'b' ] }",
        "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 2",
    ),
    ("batch_input", "batch_input { target_name: 'i' source_input: 'z' }", "unknown source input name 'z'"),
    (
        "batch_input",
        "batch_input { target_name: 'i' source_input: 'x' data_type: TYPE_INT64 }",
        "batch input data type must be TYPE_INT32 or TYPE_FP32",
    ),
    (
        "batch_output",
        "output { name: 'y' data_type: TYPE_FP32 dims: -1 } batch_output { target_name: 'x' }",
        "unknown target output name 'x'",
    ),
    (
        "batch_output",
        "output { name: 'y' data_type: TYPE_FP32 dims: -1 } batch_output { target_name: [ 'y', 'y' ] }",
        "target output name 'y' can only be specified once",
    ),
    (
        "instance_group",
        "instance_group { name: 'g' kind: KIND_CPU gpus: 0 }",
        "instance group g of model m has kind KIND_CPU but specifies one or more GPUs",
    ),
    (
        "instance_group",
        "platform: 'ensemble' instance_group { } ensemble_scheduling { }",
        "instance group should not be specified for ensemble 'm'",
    ),
    (
        "dynamic_batching",
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: 0 }",
        "dynamic batching preferred size must be positive for m",
    ),
    (
        "dynamic_batching",
        "max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }",
        "dynamic batching preferred size must be <= max batch size for m",
    ),
    (
        "dynamic_batching",
        "max_batch_size: 4 dynamic_batching { priority_levels: 2 }",
        "default priority level must be in range [1, 2] for m",
    ),
    (
        "dynamic_batching",
        "max_batch_size: 4 dynamic_batching { priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 3 value { } } }",
        "priority queue policy must have priority level in range [1, 2] for m",
    ),
    (
        "sequence_batching",
        "max_batch_size: 2 sequence_batching { direct { minimum_slot_utilization: 1.5 } }",
        "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
    ),
    (
        "sequence_batching",
        "max_batch_size: 2 sequence_batching { oldest { preferred_batch_size: 0 } }",
        "sequence batching preferred batch size must be positive for m",
    ),
    (
        "sequence_batching",
        "max_batch_size: 2 sequence_batching { oldest { preferred_batch_size: 3 } }",
        "sequence batching preferred batch size must be <= max batch size for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { control { } } }",
        "sequence batching control tensor must have a name for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { name: 'c' control [ { }, { kind: CONTROL_SEQUENCE_END } ] } }",
        "sequence batching control tensor 'c' is specified for multiple control kinds for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input [ { name: 'c' control { } }, { name: 'd' control { } } ] }",
        "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_END } } }",
        "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for \
         CONTROL_SEQUENCE_END for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { name: 'c' control { fp32_false_true: [ 0, 1 ] bool_false_true: [ false, true ] } } }",
        "sequence batching specifies more than one from 'int32_false_true', 'fp32_false_true' and 'bool_false_true' for \
         CONTROL_SEQUENCE_START for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_READY bool_false_true: true } } }",
        "sequence batching control 'bool_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_READY for m",
    ),
    (
        "control_input",
        "sequence_batching { control_input { name: 'c' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_FP32 } } }",
        "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, \
         TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
    ),
    (
        "warm-up",
        "model_warmup { name: 'w' batch_size: 1 inputs { key: 'x' value { data_type: TYPE_FP32 dims: -1 zero_data: true } } }",
        "warmup setting expects all variable-size dimensions are specified for input 'x'",
    ),
];

/// Sentences about one state `s` of FP32 `[ 2, -1 ]`, by the fields of the state.
const OF_A_STATE: &[(&str, &str)] = &[
    (
        "initial_state [ { }, { } ]",
        "initial_state field for state input 's' must contain exactly one or zero element. Found '2' elements.",
    ),
    (
        "initial_state { name: 'i' data_type: TYPE_INT32 dims: [ 2, 1 ] zero_data: true }",
        "The data type used for 'initial_state' field of state 's' does not match the state data type.",
    ),
    (
        "initial_state { data_type: TYPE_FP32 dims: [ 2, 1 ] zero_data: true }",
        "Field 'name' must be set when using initial_state for state input 's'.",
    ),
    (
        "initial_state { name: 'i' data_type: TYPE_FP32 dims: 2 zero_data: true }",
        "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 's'. 1 != 2",
    ),
    (
        "initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 2, -1 ] zero_data: true }",
        "'initial_state' field for state input name 's' contains variable dimensions.",
    ),
    (
        "initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 3, 1 ] zero_data: true }",
        "'initial_state' dim for input name 's' doesn't match 'state' dim description. 3 != 2",
    ),
    (
        "initial_state { name: 'i' data_type: TYPE_FP32 dims: [ 2, 1 ] }",
        "initial_state setting expects state's' to have state_data set",
    ),
    (
        "} state { input_name: 's' output_name: 'u' data_type: TYPE_FP32 dims: [ 2, -1 ]",
        "State input name 's' specified more than once.",
    ),
];

/// Sentences that need a graph with an input `x` of `[-1,3]`, a control `START` of `[-1,2]` and an output `y` of `[-1,3]`.
const WITH_A_GRAPH: &[SentenceRow] = &[
    (
        "graph",
        "max_batch_size: 2 input { name: 'x' data_type: TYPE_FP32 dims: 3 } output { name: 'y' data_type: TYPE_FP32 dims: 3 }",
        "unable to load model 'm', configuration expects 1 inputs, model provides 2",
    ),
    (
        "control_input",
        "max_batch_size: 2 input { name: 'x' data_type: TYPE_FP32 dims: 3 } output { name: 'y' data_type: TYPE_FP32 dims: 3 } \
         sequence_batching { control_input { name: 'START' control { fp32_false_true: [ 0, 1 ] } } }",
        "sequence control 'START' in model has dims [2] but dims [1] is expected",
    ),
    (
        "control_input",
        "max_batch_size: 2 input { name: 'x' data_type: TYPE_FP32 dims: 3 } output { name: 'y' data_type: TYPE_FP32 dims: 3 } \
         sequence_batching { control_input { name: 'END' control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } } }",
        "configuration specified sequence control 'END', but model does not provide that input",
    ),
    (
        "ragged",
        "max_batch_size: 2 input [ { name: 'x' data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }, \
         { name: 'START' data_type: TYPE_FP32 dims: 2 } ] output { name: 'y' data_type: TYPE_FP32 dims: 3 }",
        "configuration expects model provides input with shape [-1]  for ragged input 'x', model provides [-1,3]",
    ),
];

/// Whether one of the faults is this sentence, alone or followed by an addition in brackets.
fn says(faults: &[String], sentence: &str) -> bool {
    faults.iter().filter_map(|fault| fault.splitn(3, ':').nth(2)).map(str::trim_start).any(|what| {
        let rest = what.strip_prefix(sentence);
        rest.is_some_and(|rest| rest.is_empty() || (rest.starts_with(" (") && rest.ends_with(')')))
    })
}

#[test]
fn every_configuration_fault_matches_tritons_message_byte_for_byte() {
    let nothing = graph(&[], &[]);
    let model = graph(&[("x", FP32, &[-1, 3]), ("START", DataType::Fp32, &[-1, 2])], &[("y", FP32, &[-1, 3])]);
    let tables = [(IN_ITSELF, &nothing), (WITH_A_GRAPH, &model)];
    let rows =
        tables.iter().flat_map(|(rows, graph)| rows.iter().map(move |(_, config, says)| (*config, *says, *graph)));
    for (config, sentence, graph) in rows {
        let faults = faults(config, "", graph);
        assert!(says(&faults, sentence), "{config}\nwanted {sentence}\ngot {faults:#?}");
    }
    for (more, sentence) in OF_A_STATE {
        let state = format!("input_name: 's' output_name: 't' data_type: TYPE_FP32 dims: [ 2, -1 ] {more}");
        let faults = faults(&format!("sequence_batching {{ state {{ {state} }} }}"), "", &nothing);
        assert!(says(&faults, sentence), "{more}\nwanted {sentence}\ngot {faults:#?}");
    }
}

/// Sentences about the directory.
#[test]
fn faults_of_names_and_files_match_tritons_messages_byte_for_byte() {
    let refused = |directory: &str, config: &str, files: &[&str]| {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let config = ConfigSource::Text(config.to_owned());
        let sources = Sources {
            directory: Path::new(directory).to_owned(),
            config,
            sequor_toml: None,
            files,
            ..Sources::default()
        };
        let faults = Draft::parse(sources, &Options::default()).expect_err("faults");
        faults.into_iter().map(|fault| fault.what).collect::<Vec<_>>()
    };
    let nameless = refused("", "backend: 'onnxruntime'", &[]);
    assert!(nameless.contains(&"model configuration must specify 'name'".to_owned()), "{nameless:?}");
    let unknown =
        "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. (";
    assert!(refused("m", "", &[])[0].starts_with(unknown));
    let two = refused("m", "backend: 'onnxruntime' platform: 'ensemble' ensemble_scheduling { }", &[]);
    let sentence = "Ensemble model 'm' must have platform type 'ensemble' and empty backend type";
    assert!(two.contains(&sentence.to_owned()), "{two:?}");
}

#[test]
fn autofill_failures_match_tritons_message_byte_for_byte() {
    let scalar = graph(&[("x", FP32, &[3])], &[("y", FP32, &[3])]);
    let sentence =
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified";
    assert!(says(&faults("max_batch_size: 2", "", &scalar), sentence));
}

#[test]
fn a_shape_tensor_of_a_model_that_does_not_batch_is_an_ordinary_tensor() {
    let config = "input { name: 'shape' data_type: TYPE_INT64 dims: -1 is_shape_tensor: true } \
                  output { name: 'y' data_type: TYPE_FP32 dims: [ -1, -1 ] }";
    let expand = graph(&[("shape", DataType::Int64, &[-1])], &[("y", FP32, &[-1, -1])]);
    let settings = resolve(config, "", &expand).unwrap();
    assert_eq!((settings.inputs[0].dims.to_wire(), settings.max_batch_size), (vec![-1], 0));
}
