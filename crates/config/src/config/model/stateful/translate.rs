//! Translates a configuration of the stateful backend once the graph is known, and checks the backend's rules about the graph.

use std::collections::BTreeSet;
use std::sync::Arc;

use sequor_core::{DataType, Dim, Dims, Shape};
use sequor_proto::model_sequence_batching::{Control, ControlInput, State, control::Kind};
use sequor_proto::{DataType as ProtoType, ModelConfig, model_config::SchedulingChoice};

use super::pairs::{self, StatePair};
use super::parameters::{self, StatefulParameters};
use super::settings::StatefulSettings;
use crate::config::fault::{Fault, code};
use crate::config::model::dtype;
use crate::config::model::report::Report;
use crate::config::model::sequor_toml::{SequorToml, Storage};
use crate::config::model::settings::{
    ControlKind, ModelSettings, Scheduling, SequenceStrategy, WarmupData, WarmupInput, WarmupSample,
};
use crate::config::model::signature::{Port, Signature};

/// A configuration with its states.
pub(in crate::config::model) struct Translated {
    pub(in crate::config::model) config: ModelConfig,
    pub(in crate::config::model) toml: SequorToml,
    parameters: StatefulParameters,
    reset: ResetTensor,
    /// Notes about parameters without effect on a state.
    notes: Vec<Fault>,
}

/// The graph's input that marks the start of a sequence.
struct ResetTensor {
    name: String,
    /// Number of dimensions of 1 behind the batch dimension.
    ones: usize,
}

/// Translates a normalised configuration, or reports the faults.
pub(in crate::config::model) fn translate(report: &mut Report<'_>, graph: &Signature) -> Option<Translated> {
    let parameters = parameters::read(report);
    let pairs = pairs(report, &parameters, graph);
    for (side, list) in [("input", dims_of_inputs(report.config)), ("output", dims_of_outputs(report.config))] {
        for (i, dims) in list.iter().enumerate().filter(|(_, dims)| !dims.contains(&-1)) {
            let what = "Cannot infer the batch dimension based on the Triton model configuration";
            report.fault(&format!("{side}[{i}].dims"), code::DIMS, format!("{what} (no dimension of {dims:?} is -1)"));
        }
    }
    let reset = reset(report, graph);
    let mut toml = report.toml.clone();
    let states: Vec<State> = pairs.iter().filter_map(|pair| state(report, graph, pair, &mut toml)).collect();
    let notes = if parameters.as_fp16 { keep_as_fp16(report, &states, &mut toml) } else { Vec::new() };
    let reset = reset?;
    unknown(report, graph, &reset.name, &pairs);
    if !report.faults.is_empty() {
        return None;
    }
    let mut config = report.config.clone();
    if let Some(SchedulingChoice::SequenceBatching(sequence)) = &mut config.scheduling_choice {
        // Other controls stay if the graph has their input. An entry has one control: the draft refuses more.
        let is_other = |control: &ControlInput| {
            let starts = control.control.iter().any(|control| control.kind() == Kind::ControlSequenceStart);
            !starts && graph.input(&control.name).is_some()
        };
        sequence.control_input.retain(is_other);
        let control = Control { bool_false_true: vec![false, true], ..Control::default() };
        sequence.control_input.insert(0, ControlInput { name: reset.name.clone(), control: vec![control] });
        sequence.state = states;
    }
    Some(Translated { config, toml, parameters, reset, notes })
}

fn dims_of_inputs(config: &ModelConfig) -> Vec<Vec<i64>> {
    config.input.iter().map(|input| input.dims.clone()).collect()
}

fn dims_of_outputs(config: &ModelConfig) -> Vec<Vec<i64>> {
    config.output.iter().map(|output| output.dims.clone()).collect()
}

/// The names of the states: from the parameters, otherwise from the graph's description.
fn pairs(report: &mut Report<'_>, parameters: &StatefulParameters, graph: &Signature) -> Vec<StatePair> {
    if let Some(pairs) = &parameters.pairs {
        return pairs.clone();
    }
    let why = match pairs::in_description(&graph.description) {
        Ok(pairs) if !pairs.is_empty() => return pairs,
        Ok(_) => "parameter state_pairs is empty, and the graph's description names no pairs".to_owned(),
        Err(part) => format!("the graph's description has \"{part}\", which is not <<<input, output>>>"),
    };
    report.fault("parameters", code::STATE, format!("Could not find any state tensors ({why})"));
    Vec::new()
}

/// The tensor for START. Its name is compared without regard to case.
fn reset(report: &mut Report<'_>, graph: &Signature) -> Option<ResetTensor> {
    const MISSING: &str = "The model should include ResetSequence tensor to reset the state tensors";
    let controls = report.sequence().map(|sequence| sequence.control_input.as_slice()).unwrap_or_default();
    let starts = |control: &&ControlInput| control.control.iter().any(|c| c.kind() == Kind::ControlSequenceStart);
    let Some(control) = controls.iter().find(starts) else {
        let what = format!("{MISSING} (no control input has CONTROL_SEQUENCE_START)");
        report.fault("sequence_batching.control_input", code::CONTROL, what);
        return None;
    };
    let field = "sequence_batching.control_input";
    let mut ports = graph.inputs.iter().chain(&graph.optional);
    let Some(port) = ports.find(|port| port.name.eq_ignore_ascii_case(&control.name)) else {
        let what = format!("{MISSING} (the model has no input \"{}\")", control.name);
        report.fault(field, code::NO_INPUT, what);
        return None;
    };
    let (batch, rest) = port.dims.0.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
    if port.dtype != DataType::Bool {
        let what =
            format!("reset tensor \"{}\" must be BOOL, and the model has {}", port.name, port.dtype.config_name());
        report.fault(field, code::TYPE, what);
    } else if batch != Some(&Dim::Any) {
        let what = "Batch dimension should always be the first dimension for reset sequence tensor";
        report.fault(field, code::DIMS, format!("{what} (\"{}\" is {})", port.name, port.dims));
    } else if rest.iter().any(|dim| dim.fixed().is_some_and(|n| n != 1)) {
        let what =
            format!("reset tensor \"{}\" is {}: behind the batch every dimension must be 1", port.name, port.dims);
        report.fault(field, code::DIMS, what);
    } else {
        return Some(ResetTensor { name: port.name.clone(), ones: rest.len() });
    }
    None
}

/// Sets the storage type of the FP32 states, unless `sequor.toml` has one. Returns a note for each state that cannot be kept as FP16.
fn keep_as_fp16(report: &Report<'_>, states: &[State], toml: &mut SequorToml) -> Vec<Fault> {
    let mut notes = Vec::new();
    for State { input_name, dims, .. } in states.iter().filter(|state| state.data_type() == ProtoType::TypeFp32) {
        let storage = &mut toml.keys.state.entry(input_name.clone()).or_default().storage;
        if !dims.contains(&-1) {
            storage.get_or_insert(Storage::Fp16);
        } else if storage.is_none() {
            let what = format!(
                "state \"{input_name}\" stays FP32: its size changes, {dims:?}, and only states of a fixed size are kept as FP16"
            );
            notes.push(report.entry_note("parameters", "store_states_as_fp16", what));
        }
    }
    notes
}

/// A state of the graph. Records its batch axis in `toml`.
fn state(
    report: &mut Report<'_>,
    graph: &Signature,
    (input, output): &StatePair,
    toml: &mut SequorToml,
) -> Option<State> {
    let missing = |report: &mut Report<'_>, side: &str, name: &str, code| {
        let what = format!("state \"{name}\": the model has no such {side}");
        report.entry_fault("parameters", "state_pairs", code, what);
    };
    let (from, to) = (graph.input(input), graph.output(output));
    if from.is_none() {
        missing(report, "input", input, code::NO_INPUT);
    }
    if to.is_none() {
        missing(report, "output", output, code::NO_OUTPUT);
    }
    let (from, _) = from.zip(to)?;
    let Some(axis) = batch_axis(report, from) else {
        let what = "No dynamic dimension in the ONNX model for a state tensor";
        let what = format!("{what} (\"{input}\" is {})", from.dims);
        report.entry_fault("parameters", "state_pairs", code::STATE_AXIS, what);
        return None;
    };
    toml.keys.state.entry(input.clone()).or_default().batch_axis = u8::try_from(axis).ok();
    Some(State {
        input_name: input.clone(),
        output_name: output.clone(),
        data_type: dtype::to_proto(from.dtype),
        dims: from.dims.without(axis).to_wire(),
        ..State::default()
    })
}

/// The axis of a state's batch dimension: the one set in sequor.toml, otherwise the first open one.
fn batch_axis(report: &Report<'_>, port: &Port) -> Option<usize> {
    let from_toml = report.toml.keys.state.get(&port.name).and_then(|keys| keys.batch_axis).map(usize::from);
    from_toml.or_else(|| port.dims.0.iter().position(|dim| *dim == Dim::Any))
}

/// Reports tensors of the graph that are neither in the configuration nor states.
fn unknown(report: &mut Report<'_>, graph: &Signature, reset: &str, pairs: &[StatePair]) {
    let controls = report.sequence().map(|sequence| sequence.control_input.as_slice()).unwrap_or_default();
    let mut known: BTreeSet<&str> = pairs.iter().flat_map(|(a, b)| [a.as_str(), b.as_str()]).collect();
    known.extend(report.config.input.iter().map(|input| input.name.as_str()));
    known.extend(report.config.output.iter().map(|output| output.name.as_str()));
    known.extend(
        report.toml.keys.input.iter().filter(|(_, keys)| keys.constant.is_some()).map(|(name, _)| name.as_str()),
    );
    known.extend(controls.iter().map(|control| control.name.as_str()));
    known.insert(reset);
    for port in graph.inputs.iter().chain(&graph.outputs).filter(|port| !known.contains(port.name.as_str())) {
        let what = format!("Model configuration does not match ONNX model for tensor name: {}", port.name);
        report.fault("input", code::COUNT, what);
    }
}

impl Translated {
    /// Adds the settings that only this backend has. `own` is the configuration as clients see it.
    pub(in crate::config::model) fn finish(self, settings: ModelSettings, own: ModelConfig) -> ModelSettings {
        let Translated { parameters, reset, notes, .. } = self;
        let mut settings = settings;
        settings.notes.extend(notes);
        for input in &mut settings.inputs {
            input.batch_dim = marked(&input.dims);
        }
        for output in &mut settings.outputs {
            output.batch_dim = marked(&output.dims);
        }
        let mut preferred = Vec::new();
        let most = settings.max_batch_size;
        let instances = u32::from(settings.instances.max(1));
        if let Scheduling::Sequence(sequence) = &mut settings.scheduling {
            for control in sequence.controls.iter_mut().filter(|control| control.input == reset.name) {
                control.kind = ControlKind::Reset { ones: reset.ones };
            }
            if let (SequenceStrategy::Oldest { slots, preferred: sizes, .. }, Some(chunks)) =
                (&mut sequence.strategy, parameters.chunks)
            {
                *slots = chunks.capacity();
                preferred.clone_from(sizes);
                if parameters.is_prompt {
                    sequence.limits.store = chunks.capacity().saturating_mul(instances);
                }
            }
        }
        preferred.push(most);
        preferred.sort_unstable();
        preferred.dedup();
        let first = settings.warmup.len();
        let alone = [1u32].into_iter().filter(|_| !parameters.pad);
        let mut sizes: Vec<u32> = alone.chain(preferred.iter().copied()).collect();
        sizes.dedup();
        let samples = (first..).zip(sizes).map(|(index, size)| sample(&settings, index, size)).collect::<Vec<_>>();
        settings.warmup.extend(samples);
        settings.stateful = Some(StatefulSettings {
            chunks: parameters.chunks,
            pad_to: if parameters.pad { preferred } else { Vec::new() },
            runs_ends: parameters.runs_ends,
            log: parameters.log,
        });
        settings.proto = Arc::new(own);
        settings
    }
}

/// The axis that is the graph's batch dimension: the first open one.
fn marked(dims: &Dims) -> Option<usize> {
    dims.0.iter().position(|dim| *dim == Dim::Any)
}

/// A warm-up sample of `rows` rows of zeros, each the start of a sequence.
fn sample(settings: &ModelSettings, index: usize, rows: u32) -> WarmupSample {
    let input = |input: &crate::config::model::settings::Input| WarmupInput {
        name: input.name.clone(),
        dtype: input.dtype,
        shape: Shape(input.dims.0.iter().map(|dim| dim.fixed().unwrap_or(1)).collect()),
        data: WarmupData::Zero,
    };
    WarmupSample {
        index,
        name: format!("{rows} rows"),
        batch_size: rows,
        count: 1,
        inputs: settings.inputs.iter().map(input).collect(),
    }
}
