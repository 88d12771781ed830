//! A model without a graph: `[model] plugin` of sequor.toml names the processor that answers its requests. config.pbtxt says what that takes and
//! gives, and everything that only a graph could do is refused.

use sequor_proto::{ModelConfig, model_config::SchedulingChoice, model_instance_group::Kind};

use super::report::Report;
use super::sequor_toml::bare;
use crate::config::fault::{Fault, code};

/// The backend of such a model, if config.pbtxt names none.
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

/// Whether the plug-in may stand in for this backend.
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
    set.into_iter().filter(|(_, is_set)| *is_set).map(|(field, _)| note(field)).collect()
}

/// Refuses what only a graph could do.
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
    let reshaped = config.input.iter().position(|input| input.reshape.is_some());
    let reshaped_at = reshaped.map_or_else(String::new, |n| format!("input[{n}].reshape"));
    let refused: [(bool, &str, &str); 7] = [
        (states, "sequence_batching.state", "it keeps what a sequence needs in the plug-in's scratch"),
        (!config.batch_input.is_empty(), "batch_input", "requests are not batched"),
        (!config.batch_output.is_empty(), "batch_output", "requests are not batched"),
        (!config.model_warmup.is_empty(), "model_warmup", "there is nothing to warm up"),
        (group.is_some(), &groups, "plug-ins run on the CPU; use KIND_CPU"),
        (ragged.is_some(), &ragged_at, "requests are not batched"),
        (reshaped.is_some(), &reshaped_at, "the plug-in gets tensors as clients send them"),
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
