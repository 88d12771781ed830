//! Tests configurations of the stateful backend: their defaults, their parameters, and the notes about values without effect.

use sequor_core::{DataType, Dims};

use crate::config::model::draft::{ConfigSource, Draft, Options, Sources};
use crate::config::model::settings::{
    ControlKind, DurabilityWhen, LineLevel, ModelSettings, Scheduling, SequenceStrategy, StateChunks,
};
use crate::config::model::signature::{Port, Signature};

fn port(name: &str, dtype: DataType, dims: &[i64]) -> Port {
    Port { name: name.to_owned(), dtype, dims: Dims::from_wire(dims) }
}

fn graph() -> Signature {
    let fp32 = DataType::Fp32;
    Signature {
        inputs: vec![
            port("x", fp32, &[4, -1, 5]),
            port("Reset", DataType::Bool, &[-1]),
            port("h", fp32, &[-1, 3]),
            port("c", DataType::Int64, &[2, -1, -1]),
        ],
        outputs: vec![port("y", fp32, &[-1, 7]), port("h2", fp32, &[-1, 3]), port("c2", DataType::Int64, &[2, -1, -1])],
        ..Signature::default()
    }
}

const PAIRS: &str = "parameters { key: 'state_pairs' value { string_value: '<<<h, h2>>> <<<c, c2>>>' } }\n";

fn settled(strategy: &str, more: &str, toml: &str) -> Result<ModelSettings, Vec<String>> {
    settled_with(strategy, more, toml, &graph())
}

fn settled_with(strategy: &str, more: &str, toml: &str, graph: &Signature) -> Result<ModelSettings, Vec<String>> {
    let config = format!(
        "backend: 'stateful'\n\
         input {{ name: 'x' data_type: TYPE_FP32 dims: [ 4, -1, 5 ] }}\n\
         output {{ name: 'y' data_type: TYPE_FP32 dims: [ -1, 7 ] }}\n\
         sequence_batching {{ {strategy} control_input {{ name: 'RESET' control {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} }} }}\n\
         parameters {{ key: 'onnx_file_name' value {{ string_value: 'net.onnx' }} }}\n\
         {PAIRS}{more}"
    );
    let sources = Sources {
        directory: "m".into(),
        config: ConfigSource::Text(config),
        sequor_toml: Some(toml.to_owned()),
        files: vec!["net.onnx".to_owned()],
        ..Sources::default()
    };
    let settled = Draft::parse(sources, &Options::default()).and_then(|draft| {
        assert_eq!(draft.file_name, "net.onnx");
        draft.resolve(graph)
    });
    settled.map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

fn parameter(key: &str, value: &str) -> String {
    format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n")
}

#[test]
fn unset_stateful_parameters_get_the_defaults_of_the_backend() {
    let settings = settled("oldest { }", "", "").unwrap();
    let Scheduling::Sequence(sequence) = &settings.scheduling else { panic!() };
    assert_eq!((settings.max_batch_size, sequence.idle.unwrap().as_secs()), (64, 100));
    assert!(
        matches!(&sequence.strategy, SequenceStrategy::Oldest { slots: 1152, preferred, .. } if *preferred == [64])
    );
    assert_eq!(sequence.limits.store, 1152);
    let stateful = settings.stateful.as_ref().unwrap();
    let chunks = StateChunks { first: 1152, next: 1, count: 1, grow_below: 0, shrink_above: u32::MAX };
    assert_eq!((stateful.chunks, stateful.runs_ends, stateful.pad_to.len()), (Some(chunks), true, 0));
    assert_eq!(settings.instances, 1);
    assert_eq!(settings.notes, []);
}

#[test]
fn states_are_those_of_the_graph_and_start_drives_the_reset_tensor() {
    let settings = settled("oldest { }", &parameter("store_states_as_fp16", "1"), "").unwrap();
    let Scheduling::Sequence(sequence) = &settings.scheduling else { panic!() };
    assert_eq!(sequence.controls.len(), 1);
    assert_eq!(
        (sequence.controls[0].input.as_str(), &sequence.controls[0].kind),
        ("Reset", &ControlKind::Reset { ones: 0 })
    );
    let states: Vec<_> = sequence
        .states
        .iter()
        .map(|s| (s.input.as_str(), s.output.as_str(), s.dtype, s.dims.to_wire(), s.batch_axis, s.storage))
        .collect();
    assert_eq!(
        states,
        [
            ("h", "h2", DataType::Fp32, vec![3], 0, DataType::Fp16),
            ("c", "c2", DataType::Int64, vec![2, -1], 1, DataType::Int64)
        ]
    );
    assert_eq!((settings.inputs[0].batch_dim, settings.outputs[0].batch_dim), (Some(1), Some(0)));
    let toml = "[state.c]\nbatch_axis = 2\n[state.h]\nstorage = \"declared\"\n";
    let settings = settled("direct { }", &parameter("store_states_as_fp16", "1"), toml).unwrap();
    let Scheduling::Sequence(sequence) = &settings.scheduling else { panic!() };
    assert_eq!((sequence.states[1].batch_axis, sequence.states[0].storage), (2, DataType::Fp32), "sequor.toml decides");
    assert_eq!(settings.stateful.unwrap().chunks, None, "direct has one piece of memory");
}

#[test]
fn states_of_the_graph_can_be_durable() {
    let settings = settled("oldest { }", "", "[durability]\nwhen = \"step\"\n").unwrap();
    assert_eq!(settings.durability, DurabilityWhen::Step);
}

#[test]
fn a_state_that_grows_is_not_kept_as_fp16() {
    let text = parameter("store_states_as_fp16", "1");
    let mut grows = graph();
    for port in grows.inputs.iter_mut().chain(&mut grows.outputs).filter(|port| port.name.starts_with('h')) {
        port.dims = Dims::from_wire(&[-1, -1, 3]);
    }
    let settings = settled_with("oldest { }", &text, "", &grows).unwrap();
    let Scheduling::Sequence(sequence) = &settings.scheduling else { panic!() };
    assert_eq!(sequence.states[0].storage, DataType::Fp32);
    let notes: Vec<&str> = settings.notes.iter().map(|note| note.what.as_str()).collect();
    assert!(notes.len() == 1 && notes[0].contains("\"h\" stays FP32: its size changes"), "{notes:?}");
    let faults = settled_with("oldest { }", "", "[state.h]\nstorage = \"fp16\"\n", &grows).unwrap_err();
    let what = "only states of a fixed size can be kept as fp16";
    assert!(faults.len() == 1 && faults[0].contains(what), "{faults:?}");
}

#[test]
fn a_use_ratio_out_of_its_range_is_named() {
    for (ratio, slots) in [("nan", 1), ("0", 1), ("-1", 1), ("5", 100)] {
        let text = parameter("max_candidate_sequence_use_ratio", ratio);
        let settings = settled("oldest { max_candidate_sequences: 100 }", &text, "").unwrap();
        assert_eq!(settings.stateful.as_ref().unwrap().chunks.unwrap().capacity(), slots);
        let what = format!("an instance keeps the states of {slots} sequences");
        assert!(settings.notes.len() == 1 && settings.notes[0].what.ends_with(&what), "{:?}", settings.notes);
    }
}

#[test]
fn sizes_of_chunks_give_the_capacity() {
    let sizes = ["initial_buffer_size", "subsequent_buffer_size", "buffer_alloc_threshold", "buffer_dealloc_threshold"];
    let of = |values: [&str; 4], ratio: &str| {
        let text: String = sizes.iter().zip(values).map(|(key, value)| parameter(key, value)).collect();
        let text = format!("max_batch_size: 8\n{text}{}", parameter("max_candidate_sequence_use_ratio", ratio));
        settled("oldest { max_candidate_sequences: 100 }", &text, "")
    };
    let settings = of(["20", "30", "8", "40"], "0.9").unwrap();
    let Scheduling::Sequence(sequence) = &settings.scheduling else { panic!() };
    let chunks = settings.stateful.as_ref().unwrap().chunks.unwrap();
    // 1 + (90 - 20) / 30 chunks, so 20 + 2 * 30 slots.
    assert_eq!((chunks.count, chunks.capacity(), sequence.limits.store), (3, 80, 80));
    let whole = of(["40", "30", "8", "40"], "1").unwrap();
    let Scheduling::Sequence(sequence) = &whole.scheduling else { panic!() };
    assert_eq!((whole.stateful.unwrap().chunks.unwrap().capacity(), sequence.limits.store), (100, 0), "STARTs wait");
    let notes: Vec<String> = of(["20", "30", "8", "8"], "x").unwrap().notes.iter().map(|n| n.what.clone()).collect();
    assert_eq!(
        notes,
        [
            "Deallocation threshold should be larger than allocation threshold (8, 8)",
            "Invalid value in 'max_candidate_sequence_use_ratio': \"x\"; the default is used"
        ]
    );
}

#[test]
fn log_levels_are_those_of_the_backend() {
    let of = |level: &str, batches: &str| {
        let text = parameter("logging_level", level)
            + &parameter("batch_info_logging_level", batches)
            + &parameter("detailed_metrics_logging_level", "VERBOSE")
            + &parameter("metric_logging_frequency_seconds", "2");
        let log = settled("oldest { }", &text, "").unwrap().stateful.unwrap().log;
        assert_eq!(log.every.unwrap().as_secs(), 2);
        (log.sizes, log.times, log.batches)
    };
    assert_eq!(of("NONE", "INFO"), (LineLevel::Off, LineLevel::Off, LineLevel::Off));
    assert_eq!(of("INFO", "VERBOSE"), (LineLevel::Info, LineLevel::Off, LineLevel::Off));
    assert_eq!(of("INFO", "INFO"), (LineLevel::Info, LineLevel::Off, LineLevel::Info));
    assert_eq!(of("VERBOSE", "VERBOSE"), (LineLevel::Info, LineLevel::Debug, LineLevel::Debug));
}

#[test]
fn parameters_of_tensorrt_are_named_where_the_backend_would_use_them() {
    let named = |kind: &str, parameters: &[(&str, &str)]| {
        let parameters: String = parameters.iter().map(|(key, value)| parameter(key, value)).collect();
        let text = format!("instance_group {{ kind: {kind} }}\n{parameters}");
        let notes = settled("oldest { }", &text, "").unwrap().notes;
        let key = |text: &str| text.split(' ').nth(1).unwrap().to_owned();
        assert!(notes.iter().all(|note| note.what.contains(" has no effect: ")), "{notes:?}");
        notes.iter().map(|note| key(&note.what)).collect::<Vec<_>>()
    };
    let tensorrt = [
        ("ort_ep", "trt"),
        ("compute_precision", "fp16"),
        ("enable_trt_caching", "1"),
        ("trt_cache_dir", "/tmp/cache"),
    ];
    let keys = tensorrt.map(|(key, _)| key);
    assert_eq!(named("KIND_AUTO", &tensorrt), keys);
    // The backend ignores them on the CPU, and without TensorRT.
    assert_eq!(named("KIND_CPU", &tensorrt), [""; 0]);
    let mut cuda = tensorrt;
    cuda[0].1 = "cuda";
    assert_eq!(named("KIND_AUTO", &cuda), [""; 0]);
    let plain =
        [("ort_ep", "trt"), ("compute_precision", "fp32"), ("enable_trt_caching", "0"), ("trt_cache_dir", "/x")];
    assert_eq!(named("KIND_AUTO", &plain), ["ort_ep"]);
    assert_eq!(named("KIND_AUTO", &[("enable_cuda_graph", "1")]), ["enable_cuda_graph"]);
    assert_eq!(named("KIND_AUTO", &[("enable_cuda_graph", "0")]), [""; 0]);
}

#[test]
fn states_named_in_the_configuration_itself_are_refused() {
    let state = "state { input_name: 'h' output_name: 'h2' data_type: TYPE_FP32 dims: [ 3 ] }";
    let refused = settled(&format!("oldest {{ }} {state}"), "", "").unwrap_err();
    assert!(refused[0].contains("names its states in parameter state_pairs"), "{refused:?}");
}
