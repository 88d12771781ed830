//! Checks states and their initial values.

use std::collections::BTreeSet;
use std::path::Path;

use sequor_core::{DataType, Dims};
use sequor_proto::model_sequence_batching::{InitialState, State, StrategyChoice, initial_state::StateData};

use crate::config::fault::{code, did_you_mean};
use crate::config::model::names::{self, leaves_directory};
use crate::config::model::report::Report;
use crate::config::model::resolve::initial_state_file;
use crate::config::model::sequor_toml::Storage;
use crate::config::model::stateful::is_stateful;
use crate::config::model::{dtype, sequor_toml};

/// Refuses durability for a model without states.
pub(super) fn durability(report: &mut Report<'_>) {
    let keys = &report.toml.keys;
    let says = keys.durability.as_ref().and_then(|d| d.when).filter(|when| *when != sequor_toml::When::Never);
    // The states of the stateful backend become known with the graph.
    let stateless = report.sequence().is_none_or(|sequence| sequence.state.is_empty()) && !is_stateful(report.config);
    if says.is_some() && stateless {
        let what = "durability is of the states of sequences, and this model has none";
        report.toml_fault(&["durability", "when"], code::STATE, what);
    }
    let every = keys.durability.as_ref().is_some_and(|d| d.every.is_some());
    if every && says != Some(sequor_toml::When::Every) {
        report.toml_fault(&["durability", "every"], code::VALUE, "every is for when = \"every\"");
    }
}

pub(super) fn check(report: &mut Report<'_>, file_size: &dyn Fn(&Path) -> Option<u64>) {
    let Some(sequence) = report.sequence() else { return };
    let (mut inputs, mut outputs) = (BTreeSet::new(), BTreeSet::new());
    for (i, state) in sequence.state.iter().enumerate() {
        let field = format!("sequence_batching.state[{i}]");
        tensor(report, &field, state);
        if !inputs.insert(&state.input_name) && !state.input_name.is_empty() {
            let what = format!("State input name '{}' specified more than once.", state.input_name);
            report.fault(&field, code::STATE, what);
        }
        if !outputs.insert(&state.output_name) && !state.output_name.is_empty() {
            let what = format!("state output '{}' is specified more than once", state.output_name);
            report.fault(&field, code::STATE, what);
        }
        initial(report, &field, state, file_size);
    }
}

fn tensor(report: &mut Report<'_>, field: &str, state: &State) {
    let model = report.model();
    if state.input_name.is_empty() || state.output_name.is_empty() {
        report.fault(field, code::STATE, format!("a state must specify 'input_name' and 'output_name' for {model}"));
    }
    let name = &state.input_name;
    let dtype = dtype::from_proto(state.data_type);
    if dtype.is_none() {
        let what = format!("state '{name}' must specify 'data_type' for {model}");
        report.fault(&format!("{field}.data_type"), code::STATE, what);
    }
    if state.dims.iter().any(|d| *d < 1 && *d != -1) {
        let what = format!(
            "state '{name}' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for {model}"
        );
        report.fault(&format!("{field}.dims"), code::STATE, what);
    }
    let half = report.toml.keys.state.get(name).and_then(|s| match s.storage {
        Some(Storage::Fp16) => Some("fp16"),
        Some(Storage::Bf16) => Some("bf16"),
        Some(Storage::Declared) | None => None,
    });
    let grows = state.dims.contains(&-1);
    if let Some(half) = half.filter(|_| grows && dtype == Some(DataType::Fp32)) {
        let what =
            format!("state \"{name}\" has a variable dimension: only states of a fixed size can be kept as {half}");
        report.toml_fault(&["state", name, "storage"], code::STATE, what);
    }
    if let (Some(half), Some(dtype)) = (half.filter(|_| dtype != Some(DataType::Fp32)), dtype) {
        let what = format!("state \"{name}\" is {dtype}: only FP32 states can be kept as {half}");
        report.toml_fault(&["state", name, "storage"], code::STATE, what);
    }
}

fn initial(report: &mut Report<'_>, field: &str, state: &State, file_size: &dyn Fn(&Path) -> Option<u64>) {
    let name = &state.input_name;
    let field = format!("{field}.initial_state");
    let initial = match state.initial_state.as_slice() {
        [] => return,
        [initial] => initial,
        many => {
            let what = format!(
                "initial_state field for state input '{name}' must contain exactly one or zero element. Found '{}' elements.",
                many.len()
            );
            report.fault(&field, code::INITIAL, what);
            return;
        }
    };
    if initial.data_type != state.data_type {
        let what = format!(
            "The data type used for 'initial_state' field of state '{name}' does not match the state data type."
        );
        report.fault(&format!("{field}.data_type"), code::INITIAL, what);
    }
    if initial.name.is_empty() {
        let what = format!("Field 'name' must be set when using initial_state for state input '{name}'.");
        report.fault(&field, code::INITIAL, what);
    }
    if let Some(what) = dims_fault(name, &state.dims, &initial.dims) {
        report.fault(&format!("{field}.dims"), code::INITIAL, what);
    }
    match &initial.state_data {
        None => {
            let what = format!("initial_state setting expects state'{name}' to have state_data set");
            report.fault(&field, code::INITIAL, what);
        }
        Some(StateData::ZeroData(_)) => {}
        Some(StateData::DataFile(file)) => {
            if let Some(what) = file_fault(report, initial, file, file_size) {
                report.fault(&format!("{field}.data_file"), code::INITIAL, what);
            }
        }
    }
}

fn dims_fault(name: &str, dims: &[i64], initial: &[i64]) -> Option<String> {
    if dims.len() != initial.len() {
        return Some(format!(
            "Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input '{name}'. {} != {}",
            initial.len(),
            dims.len()
        ));
    }
    if initial.iter().any(|d| *d < 0) {
        return Some(format!("'initial_state' field for state input name '{name}' contains variable dimensions."));
    }
    let differs = dims.iter().zip(initial).find(|(d, i)| **d != -1 && d != i);
    differs.map(|(d, i)| {
        format!("'initial_state' dim for input name '{name}' doesn't match 'state' dim description. {i} != {d}")
    })
}

/// The fault of the file of an initial state. A longer file is truncated; BYTES data is not checked here.
fn file_fault(
    report: &Report<'_>,
    initial: &InitialState,
    file: &str,
    file_size: &dyn Fn(&Path) -> Option<u64>,
) -> Option<String> {
    if file.is_empty() || leaves_directory(file) {
        return Some(format!("data_file '{file}' is not a file of the folder initial_state"));
    }
    let path = initial_state_file(report.directory, file);
    let Some(there) = file_size(&path) else { return Some(format!("{} cannot be read", path.display())) };
    let element = dtype::from_proto(initial.data_type)?.size()?;
    let elements = Dims::from_wire(&initial.dims).fixed()?.elements()?;
    let needed = elements.checked_mul(u64::try_from(element).ok()?)?;
    (there < needed).then(|| {
        let path = path.display();
        format!(
            "initial_state setting expects {needed} bytes, but the data provided from {path} only has {there} bytes."
        )
    })
}

/// Checks the keys of sequor.toml about states and sequences of this model.
pub(super) fn own_keys(report: &mut Report<'_>) {
    let toml = report.toml;
    let Some(sequence) = report.sequence() else {
        // For an ensemble, these keys apply to all its members with sequences.
        let of_ensemble = |section: &str| names::is_ensemble(report.config) && matches!(section, "sequence" | "reload");
        let sections = ["sequence", "backlog", "queue", "state", "reload"]
            .into_iter()
            .filter(|s| toml.has(&[s]) && !of_ensemble(s));
        for section in sections.collect::<Vec<_>>() {
            let what = format!("[{section}] is for models with sequence_batching; {} has none", report.model());
            report.toml_fault(&[section], code::SEQUENCE, what);
        }
        return;
    };
    if toml.keys.sequence.rows.is_some() && matches!(sequence.strategy_choice, Some(StrategyChoice::Oldest(_))) {
        let what = "rows is for the strategy direct; the batches of oldest never have padding rows";
        report.toml_fault(&["sequence", "rows"], code::SEQUENCE, what);
    }
    // The states of the stateful backend become known with the graph.
    if is_stateful(report.config) && sequence.state.is_empty() {
        return;
    }
    let names = || sequence.state.iter().map(|s| s.input_name.as_str());
    for (name, keys) in &toml.keys.state {
        if !names().any(|n| n == name) {
            let near = did_you_mean(name, names());
            let what = format!("[state.{}]: the model has no such state{near}", sequor_toml::bare(name));
            report.toml_fault(&["state", name], code::STATE, what);
        } else if keys.batch_axis.is_some() && !report.batches() {
            let what = "batch_axis means nothing here: max_batch_size is 0, so no tensor has a batch dimension";
            report.toml_fault(&["state", name, "batch_axis"], code::STATE_AXIS, what);
        }
    }
}
