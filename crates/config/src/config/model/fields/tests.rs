//! Compares the table with the descriptor, and tests how fields are handled.

use std::collections::BTreeSet;
use std::path::Path;

use prost_reflect::MessageDescriptor;
use sequor_core::{DataType, Dims};

use super::{CONFIG_MESSAGES, FieldStatus, set_fields};
use crate::config::model::settings::{GraphLevel, ModelSettings, SessionTuning};
use crate::config::model::{ConfigSource, Draft, Options, Port, Signature, Sources, descriptor, text};

fn messages() -> Vec<MessageDescriptor> {
    let root = descriptor::model_config().unwrap();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(message) = found.get(at).cloned() {
        at += 1;
        for field in message.fields() {
            let held = field.kind().as_message().cloned();
            let held = match held {
                Some(entry) if entry.is_map_entry() => entry.map_entry_value_field().kind().as_message().cloned(),
                other => other,
            };
            found.extend(held.filter(|m| !found.contains(m)));
        }
    }
    found
}

#[test]
fn every_field_has_an_entry_and_every_entry_a_field() {
    let of = |name: &str, field: &str| format!("{name}.{field}");
    let mut declared = BTreeSet::new();
    for message in messages() {
        let name = message.full_name().trim_start_matches("inference.").to_owned();
        declared.insert(of(&name, ""));
        declared.extend(message.fields().map(|field| of(&name, field.name())));
    }
    let mut listed = BTreeSet::new();
    for message in CONFIG_MESSAGES {
        listed.insert(of(message.name, ""));
        for (field, _) in message.fields {
            assert!(listed.insert(of(message.name, field)), "{}.{field} is listed twice", message.name);
        }
    }
    assert_eq!(declared.difference(&listed).collect::<Vec<_>>(), [""; 0], "fields without an entry");
    assert_eq!(listed.difference(&declared).collect::<Vec<_>>(), [""; 0], "entries without a field");
    assert!(declared.len() > 150, "{}", declared.len());
}

#[test]
fn every_field_reason_is_not_empty_and_has_no_final_period() {
    for message in CONFIG_MESSAGES {
        for (field, status) in message.fields {
            if let FieldStatus::NoEffect(why) | FieldStatus::Refused(why) = status {
                assert!(!why.is_empty() && !why.ends_with('.'), "{}.{field}", message.name);
            }
        }
    }
}

#[test]
fn a_field_that_is_set_is_found_with_its_path() {
    let config = text::parse(
        Path::new("config.pbtxt"),
        "input [ { name: 'a' }, { name: 'b' is_shape_tensor: true } ] \
         dynamic_batching { default_priority_level: 1 priority_queue_policy { key: 1 value { max_queue_size: 2 } } } \
         optimization { cuda { graphs: true } priority: PRIORITY_DEFAULT graph { level: 1 } }",
    )
    .unwrap();
    let paths: Vec<String> = set_fields(&config).into_iter().map(|field| field.path).collect();
    let has = |path: &str| paths.iter().any(|p| p == path);
    assert!(has("input[1].is_shape_tensor") && !has("input[0].is_shape_tensor"), "{paths:?}");
    assert!(
        has("dynamic_batching.priority_queue_policy") && has("optimization.cuda") && has("optimization.graph.level"),
        "{paths:?}"
    );
    assert!(!has("optimization.cuda.graphs"), "its message says it: {paths:?}");
    assert!(!has("optimization.priority"), "a default is not set: {paths:?}");
}

/// The settings of a model `m` with one input, one output, and this further configuration.
fn settings(config: &str) -> Result<ModelSettings, Vec<String>> {
    let ports = |name: &str| vec![Port { name: name.to_owned(), dtype: DataType::Fp32, dims: Dims::from_wire(&[1]) }];
    let graph = Signature { inputs: ports("x"), outputs: ports("y"), ..Signature::default() };
    let sources = Sources {
        directory: "m".into(),
        config: ConfigSource::Text(format!(
            "input {{ name: 'x' data_type: TYPE_FP32 dims: 1 }} output {{ name: 'y' data_type: TYPE_FP32 dims: 1 }}\n{config}"
        )),
        files: vec!["model.onnx".to_owned()],
        ..Sources::default()
    };
    let settled = Draft::parse(sources, &Options::default()).and_then(|draft| draft.resolve(&graph));
    settled.map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn a_field_without_effect_is_noted_at_its_line() {
    let config = "runtime: 'x'\noptimization {\n  cuda { graphs: true busy_wait_events: true }\n  eager_batching: true }\n\
                  parameters { key: 'enable_mem_pattern' value { string_value: '1' } }\n\
                  parameters {\n  key: \"max_sequences\"\n value { string_value: 'x' } }";
    let notes: Vec<String> = settings(config).unwrap().notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "m/config.pbtxt:2:1: runtime has no effect: [runtime] onnxruntime of the server names the library for all models",
            "m/config.pbtxt:4:3: optimization.cuda has no effect: only the TensorRT backend uses optimization.cuda",
            "m/config.pbtxt:5:3: optimization.eager_batching has no effect: a batch is formed when an instance is free to run it",
            "m/config.pbtxt:7:1: parameter max_sequences has no effect: neither Sequor nor ONNX Runtime has a parameter of this name",
        ]
    );
    assert_eq!(settings("").unwrap().notes, [], "defaults are not the configuration's words");
}

#[test]
fn values_of_parameters_and_tags_are_checked_at_their_line() {
    let parameter =
        |key: &str, value: &str| format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n");
    let wrong = [
        parameter("intra_op_thread_count", "many"),
        parameter("execution_mode", "2"),
        parameter("session.use_env_allocators", "0"),
        "metric_tags { key: 'model' value: 'a' }\nmetric_tags { key: '1st' value: 'b' }\n".to_owned(),
        "optimization { graph { level: 3 } execution_accelerators { cpu_execution_accelerator { name: 'tensorrt' } } }"
            .to_owned(),
    ]
    .concat();
    assert_eq!(
        settings(&wrong).unwrap_err(),
        [
            "m/config.pbtxt:2:1: parameter intra_op_thread_count: \"many\" is not a number of threads",
            "m/config.pbtxt:3:1: parameter execution_mode is \"2\"; it must be 0 or 1",
            "m/config.pbtxt:4:1: parameter session.use_env_allocators is not served: choose the allocator by enable_mem_arena",
            "m/config.pbtxt:5:1: metric_tags: the metrics of models already have a label \"model\"",
            "m/config.pbtxt:6:1: metric_tags: \"1st\" is not the name of a label: letters, digits and _, no digit first, no __ in front",
            "m/config.pbtxt:7:24: optimization.graph.level 3 does not exist: -1 is basic, 0 all, 1 extended, 2 none",
            "m/config.pbtxt:7:88: accelerator \"tensorrt\" is not served: \"openvino\" is the one for CPUs",
        ]
    );
}

#[test]
fn session_options_of_a_configuration_are_parsed() {
    let config = "optimization { graph { level: -1 } execution_accelerators { cpu_execution_accelerator { name: 'openvino' \
                  parameters { key: 'device_type' value: 'CPU' } } } } \
                  parameters { key: 'intra_op_thread_count' value { string_value: '4' } } \
                  parameters { key: 'execution_mode' value { string_value: '1' } } \
                  parameters { key: 'enable_mem_arena' value { string_value: '0' } } \
                  parameters { key: 'session.intra_op.allow_spinning' value { string_value: '1' } }";
    let directory = std::path::PathBuf::from("m");
    let config = ConfigSource::Text(config.to_owned());
    let files = vec!["model.onnx".to_owned()];
    let sources = Sources { directory, config, files, ..Sources::default() };
    let draft = Draft::parse(sources, &Options::default()).unwrap();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        *draft.tuning(),
        SessionTuning {
            level: GraphLevel::Basic,
            intra_threads: Some(4),
            inter_threads: None,
            parallel: Some(true),
            memory_pattern: None,
            arena: Some(false),
            entries: vec![pair("session.intra_op.allow_spinning", "1")],
            openvino: Some(vec![pair("device_type", "CPU")]),
        }
    );
}
