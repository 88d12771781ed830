//! Models without a graph: `[model] plugin` of sequor.toml names the processor that answers the requests. config.pbtxt declares inputs and
//! outputs. Fields that only make sense for a graph are refused.

use sequor_proto::{ModelConfig, model_config::SchedulingChoice, model_instance_group::Kind};

use super::report::Report;
use super::sequor_toml::bare;
use crate::config::fault::{Fault, code};

/// The backend of such a model, if config.pbtxt sets none.
const PLUGIN: &str = "plugin";

/// Fills in the names that config.pbtxt leaves out.
pub(super) fn fill(config: &mut ModelConfig, directory: &str) {
    if config.name.is_empty() {
        directory.clone_into(&mut config.name);
    }
    if config.backend.is_empty() {
        PLUGIN.clone_into(&mut config.backend);
    }
}

/// Checks that the configuration's backend has no graph of its own.
pub(super) fn check_backend(report: &mut Report<'_>) {
    let backend = &report.config.backend;
    if !["python", PLUGIN].contains(&backend.as_str()) {
        let what = format!(
            "backend \"{backend}\" runs a graph, and [model] plugin of sequor.toml takes its place; take one of both out"
        );
        report.fault("backend", code::BACKEND, what);
    }
}

/// A note for each field that has no effect.
pub(super) fn notes(report: &Report<'_>) -> Vec<Fault> {
    let is_dynamic = matches!(report.config.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_)));
    let set = [("dynamic_batching", is_dynamic), ("instance_group", report.has("instance_group[0]"))];
    let note = |field: &str| {
        let why = "requests run one by one on the threads of plug-ins";
        report.note(field, format!("{field} has no effect on a model without a graph: {why}"))
    };
    let queue = set.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| note(field));
    queue.chain(reshape_notes(report)).collect()
}

/// A note for each `reshape`: a plug-in has no graph's side to reshape to.
fn reshape_notes(report: &Report<'_>) -> Vec<Fault> {
    let inputs = report.config.input.iter().map(|input| ("input", input.reshape.is_some()));
    let outputs = report.config.output.iter().map(|output| ("output", output.reshape.is_some()));
    let reshaped = inputs.enumerate().chain(outputs.enumerate()).filter(|(_, (_, is_set))| *is_set);
    let note = |(n, (side, _)): (usize, (&str, bool))| {
        let what = "reshape has no effect on a model without a graph: the plug-in has tensors as clients see them";
        report.note(&format!("{side}[{n}].reshape"), what.to_owned())
    };
    reshaped.map(note).collect()
}

/// Refuses fields that only make sense for a graph.
pub(super) fn check(report: &mut Report<'_>) {
    let config = report.config;
    for (field, is_missing) in [("input", config.input.is_empty()), ("output", config.output.is_empty())] {
        if is_missing {
            let what = format!("a model without a graph names each {field} in config.pbtxt");
            report.fault(field, code::COUNT, what);
        }
    }
    let states = report.sequence().is_some_and(|sequence| !sequence.state.is_empty());
    let group = config.instance_group.iter().position(|group| group.kind() == Kind::Gpu);
    let groups = group.map_or_else(String::new, |n| format!("instance_group[{n}].kind"));
    let ragged = config.input.iter().position(|input| input.allow_ragged_batch);
    let ragged_at = ragged.map_or_else(String::new, |n| format!("input[{n}].allow_ragged_batch"));
    let refused: [(bool, &str, &str); 6] = [
        (states, "sequence_batching.state", "it keeps what a sequence needs in the plug-in's scratch"),
        (!config.batch_input.is_empty(), "batch_input", "requests are not batched"),
        (!config.batch_output.is_empty(), "batch_output", "requests are not batched"),
        (!config.model_warmup.is_empty(), "model_warmup", "there is nothing to warm up"),
        (group.is_some(), &groups, "plug-ins run on the CPU; use KIND_CPU, or start the server with --cpu-only"),
        (ragged.is_some(), &ragged_at, "requests are not batched"),
    ];
    for (is_there, field, why) in refused {
        if is_there {
            report.fault(field, code::NOT_SERVED, format!("{field} is not served for a model without a graph: {why}"));
        }
    }
    let keys = &report.toml.keys;
    let tables = [
        ("state", keys.state.keys().next()),
        ("input", keys.input.keys().next()),
        ("output", keys.output.keys().next()),
    ];
    for (table, name) in tables {
        if let Some(name) = name {
            let what = format!("[{table}.{}] is not served for a model without a graph", bare(name));
            report.toml_fault(&[table, name], code::NOT_SERVED, what);
        }
    }
    super::features::check(report);
}

#[cfg(test)]
mod tests {
    use crate::config::model::settings::Processor;
    use crate::config::model::{ConfigSource, Draft, Options, Signature, Sources};

    /// A configuration from a public repository: a scorer on GPUs, with a length that Triton passes on without its dimension.
    #[test]
    fn a_model_without_a_graph_ignores_reshape_and_obeys_cpu_only() {
        let text = "backend: 'python' max_batch_size: 4 \
            input [ { name: 'frames' data_type: TYPE_FP16 dims: [ -1, 32 ] }, \
            { name: 'lens' data_type: TYPE_INT64 dims: [ 1 ] reshape { shape: [ ] } } ] \
            output { name: 'OUTPUT0' data_type: TYPE_STRING dims: [ 1 ] } instance_group { kind: KIND_GPU }";
        let parse = |cpu_only: bool| {
            let sources = Sources {
                directory: "/models/scorer".into(),
                config: ConfigSource::Text(text.to_owned()),
                sequor_toml: Some("[model]\nplugin = \"p\"\n".to_owned()),
                files: Vec::new(),
                ..Sources::default()
            };
            Draft::parse(sources, &Options { cpu_only, ..Options::default() })
        };
        let faults: Vec<String> = parse(false).unwrap_err().into_iter().map(|fault| fault.what).collect();
        assert_eq!(faults.len(), 1);
        assert!(faults[0].ends_with("use KIND_CPU, or start the server with --cpu-only"), "{faults:?}");
        let draft = parse(true).unwrap();
        let notes: Vec<&str> = draft.notes().iter().map(|note| note.what.as_str()).collect();
        assert!(notes.iter().any(|note| note.starts_with("reshape has no effect")), "{notes:?}");
        assert!(notes.iter().any(|note| note.starts_with("KIND_GPU runs on the CPU")), "{notes:?}");
        let settings = draft.resolve(&Signature::default()).unwrap();
        assert_eq!((settings.inputs[1].reshape.clone(), settings.processors.clone()), (None, vec![Processor::Cpu]));
    }
}
