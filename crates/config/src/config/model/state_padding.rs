//! `[state.X] pad` of sequor.toml: pads growing states of different lengths to one length, so that their sequences share a batch.

use std::collections::BTreeMap;

use sequor_core::{DataType, Dim, Dims};
use sequor_proto::ModelConfig;
use sequor_proto::model_instance_group::Kind;
use sequor_proto::model_sequence_batching::State;

use super::padding::{self, ascends};
use super::report::Report;
use super::sequor_toml::{PadKeys, PadSide};
use super::settings::{BatchInput, BatchInputKind, BatchSource, Padding, PaddingSide, RaggedInput, StatePad};
use super::signature::Signature;
use super::stateful::is_stateful;
use super::{constant, dtype};
use crate::config::fault::{code, did_you_mean};

/// The padded states of the configuration, with their indices and keys.
fn padded<'a>(report: &Report<'a>) -> impl Iterator<Item = (usize, &'a State, &'a PadKeys)> + use<'a> {
    let toml = report.toml;
    let states = report.sequence().map_or(&[][..], |sequence| &sequence.state);
    let of = |(n, state): (usize, &'a State)| Some((n, state, toml.keys.state.get(&state.input_name)?.pad.as_ref()?));
    states.iter().enumerate().filter_map(of)
}

/// Checks everything that needs no graph.
pub(super) fn check(report: &mut Report<'_>) {
    let toml = report.toml;
    if is_stateful(report.config) {
        for (name, _) in toml.keys.state.iter().filter(|(_, keys)| keys.pad.is_some()) {
            let what = "pad is for states that config.pbtxt declares; the stateful backend declares states of its own";
            report.toml_fault(&["state", name, "pad"], code::STATE_PAD, what);
        }
        return;
    }
    for (_, state, keys) in padded(report) {
        for what in wrong_keys(keys).into_iter().chain(wrong_state(report, state)).chain(wrong_value(state, keys)) {
            report.toml_fault(&["state", &state.input_name, "pad"], code::STATE_PAD, what);
        }
    }
    shared_targets(report);
}

/// The first fault of the keys in combination.
fn wrong_keys(keys: &PadKeys) -> Option<String> {
    if keys.lengths.is_none() && keys.mask.is_none() {
        let what = "pad needs lengths or mask: without one, the model cannot tell a state from its padding";
        return Some(what.to_owned());
    }
    if keys.buckets.as_deref().is_some_and(|buckets| buckets.is_empty() || !ascends(buckets)) {
        return Some("pad: buckets is a list of lengths above 0, in ascending order".to_owned());
    }
    (keys.multiple_of == Some(0)).then(|| "pad: multiple_of must be at least 1".to_owned())
}

/// Why the value of the padding is not valid for an element of the state.
fn wrong_value(state: &State, keys: &PadKeys) -> Option<String> {
    let dtype = dtype::from_proto(state.data_type).filter(|dtype| *dtype != DataType::Bytes)?;
    let value = keys.value?;
    let is_none = constant::element(dtype, &toml::Value::Float(value)).is_none();
    is_none.then(|| format!("pad: value {value} is no element of {}", dtype.config_name()))
}

/// Why this state cannot be padded.
fn wrong_state(report: &Report<'_>, state: &State) -> Option<String> {
    let config = report.config;
    let open = state.dims.iter().filter(|dim| **dim == -1).count();
    if open != 1 {
        return Some(format!("pad: a padded state has exactly one variable dimension; this one has {open}"));
    }
    if state.data_type() == sequor_proto::DataType::TypeString {
        return Some("pad: texts cannot be padded".to_owned());
    }
    if !report.batches() {
        return Some("pad means nothing here: max_batch_size is 0, so each request runs alone".to_owned());
    }
    if let Some(what) = wrong_place(config) {
        return Some(what);
    }
    let listed = config.output.iter().any(|output| output.name == state.output_name);
    if listed && report.batch_axis(&state.input_name) != 0 {
        let output = &state.output_name;
        return Some(format!("pad: clients can get \"{output}\" only with the batch on axis 0; take it out of output"));
    }
    let crops = report.toml.keys.output.get(&state.output_name).is_some_and(|output| output.crop.is_some());
    crops.then(|| format!("pad takes the padding off \"{}\" already; remove its crop", state.output_name))
}

/// Why the instances cannot run a model with padded states. A group without a kind may still be put on a GPU, so this runs once the graph
/// is known.
fn wrong_place(config: &ModelConfig) -> Option<String> {
    let is_on_gpu = config.instance_group.iter().any(|group| group.kind() == Kind::Gpu);
    let what = "pad works on the CPU only; set KIND_CPU for instance_group, or start the server with --cpu-only";
    is_on_gpu.then(|| what.to_owned())
}

/// If requests of different lengths share a batch, rows grow by different lengths. Only the model can report these, so `new_lengths` is
/// required.
fn wrong_steps(report: &Report<'_>, keys: &PadKeys) -> Option<String> {
    let ragged = report.config.input.iter().find(|input| padding::ragged(report, input).is_some());
    let input = ragged.filter(|_| keys.new_lengths.is_none())?;
    let how = match padding::ragged(report, input) {
        Some(RaggedInput::Joined) => "joined",
        _ => "padded",
    };
    Some(format!(
        "pad needs new_lengths: requests of different lengths share a batch too (input \"{}\" is {how}), so the model has to say how long \
         each row of the state is",
        input.name
    ))
}

/// States that share an input for lengths or a mask are described by one tensor, so they must have the same padding.
fn shared_targets(report: &mut Report<'_>) {
    let mut first: BTreeMap<&str, (&str, &State, &PadKeys)> = BTreeMap::new();
    for (_, state, keys) in padded(report) {
        for (kind, target) in [("lengths", &keys.lengths), ("mask", &keys.mask)] {
            let Some(target) = target else { continue };
            let (its_kind, other, its) = *first.entry(target).or_insert((kind, state, keys));
            let alike = its.side == keys.side
                && its.multiple_of == keys.multiple_of
                && its.buckets == keys.buckets
                && its.new_steps == keys.new_steps;
            if !alike || its_kind != kind {
                let what = format!(
                    "pad: {kind}: \"{target}\" is the {its_kind} of state \"{}\" too; then side, multiple_of, buckets and new_steps must be those of \
                     that state",
                    other.input_name
                );
                report.toml_fault(&["state", &state.input_name, "pad"], code::STATE_PAD, what);
            }
        }
    }
}

/// Checks the graph's inputs and outputs for padding.
pub(super) fn fit(report: &mut Report<'_>, graph: &Signature) {
    for (_, state, keys) in padded(report) {
        let steps = wrong_place(report.config).into_iter().chain(wrong_steps(report, keys));
        let steps = steps.chain(wrong_new_steps(report, keys));
        for what in unfit(report, graph, state, keys).into_iter().chain(steps) {
            report.toml_fault(&["state", &state.input_name, "pad"], code::STATE_PAD, what);
        }
    }
}

fn unfit(report: &Report<'_>, graph: &Signature, state: &State, keys: &PadKeys) -> Vec<String> {
    let any = |rank: usize| Dims(vec![Dim::Any; rank]);
    let whole: &[DataType] = &[DataType::Int32, DataType::Int64];
    let mut faults = Vec::new();
    let axis = state.dims.iter().position(|dim| *dim == -1);
    let axis = axis.map(|axis| axis + usize::from(axis >= report.batch_axis(&state.input_name)));
    if let Some((port, axis)) = graph.input(&state.input_name).zip(axis)
        && let Some(fixed) = port.dims.0.get(axis).and_then(|dim| dim.fixed())
    {
        let dims = &port.dims;
        faults.push(format!(
            "pad: the model takes {dims}: its dimension {axis} is {fixed}, so no state is padded to another length"
        ));
    }
    let inputs: [(&str, &Option<String>, &[DataType], usize); 2] =
        [("lengths", &keys.lengths, whole, 1), ("mask", &keys.mask, padding::MASKS, 2)];
    for (key, target, dtypes, rank) in inputs {
        if let Some(target) = target {
            faults.extend(
                padding::wrong_target(graph, key, target, (dtypes, &any(rank))).map(|what| format!("pad: {what}")),
            );
        }
    }
    let Some(output) = &keys.new_lengths else { return faults };
    let fits = |dims: &Dims| match dims.0.as_slice() {
        [_] => true,
        [_, last] => matches!(last, Dim::Any | Dim::Fixed(1)),
        _ => false,
    };
    match graph.output(output) {
        None => faults.push(format!("pad: new_lengths: the model has no output \"{output}\"")),
        Some(port) if !whole.contains(&port.dtype) || !fits(&port.dims) => {
            let (dims, dtype) = (&port.dims, port.dtype.config_name());
            faults.push(format!(
                "pad: new_lengths: \"{output}\" must be [-1] or [-1,1] of TYPE_INT32 or TYPE_INT64; in the model it is {dims} of {dtype}"
            ));
        }
        Some(_) => {}
    }
    faults
}

/// The graph's inputs for lengths and masks of states, each once.
pub(super) fn targets<'a>(pads: impl Iterator<Item = &'a PadKeys>) -> impl Iterator<Item = &'a str> {
    let all: std::collections::BTreeSet<&str> =
        pads.flat_map(|keys| keys.lengths.iter().chain(&keys.mask).map(String::as_str)).collect();
    all.into_iter()
}

/// The padding of a state.
pub(super) fn pad(report: &Report<'_>, state: &State) -> Option<StatePad> {
    let keys = report.toml.keys.state.get(&state.input_name)?.pad.as_ref()?;
    // An invalid value was refused before.
    let number = toml::Value::Float(keys.value.unwrap_or(0.0));
    let padding = Padding {
        axis: state.dims.iter().position(|dim| *dim == -1)?,
        side: match keys.side {
            PadSide::Left => PaddingSide::Left,
            PadSide::Right => PaddingSide::Right,
        },
        value: constant::element(dtype::from_proto(state.data_type)?, &number)?,
        multiple_of: u64::from(keys.multiple_of.unwrap_or(1)),
        buckets: keys.buckets.clone().unwrap_or_default(),
    };
    Some(StatePad { padding, new_lengths: keys.new_lengths.clone() })
}

/// The index of the input in the configuration, and the axis of its new steps.
fn new_steps(report: &Report<'_>, keys: &PadKeys) -> Option<(usize, usize)> {
    let name = keys.new_steps.as_ref()?;
    let at = report.config.input.iter().position(|input| input.name == *name)?;
    let dims = &report.config.input.get(at)?.dims;
    dims.iter().position(|dim| *dim == -1).map(|axis| (at, axis))
}

/// Why `new_steps` does not name a valid input.
fn wrong_new_steps(report: &Report<'_>, keys: &PadKeys) -> Option<String> {
    let name = keys.new_steps.as_ref()?;
    if keys.mask.is_none() {
        return Some("pad: new_steps goes with mask".to_owned());
    }
    let inputs = &report.config.input;
    let Some(input) = inputs.iter().find(|input| input.name == *name) else {
        let near = did_you_mean(name, inputs.iter().map(|input| input.name.as_str()));
        return Some(format!("pad: new_steps: the model has no such input: \"{name}\"{near}"));
    };
    let open = input.dims.iter().filter(|dim| **dim == -1).count();
    if open != 1 || input.reshape.is_some() || input.optional || padding::ragged(report, input).is_some() {
        let what = "has exactly one variable dimension, no reshape, and is neither optional nor ragged";
        return Some(format!("pad: new_steps: an input of new steps {what}; \"{name}\" is none"));
    }
    None
}

/// The batch inputs for lengths and masks. States may share them.
pub(super) fn batch_inputs(report: &Report<'_>, graph: &Signature) -> Vec<BatchInput> {
    let mut made: Vec<BatchInput> = Vec::new();
    for (n, _, keys) in padded(report) {
        for (target, kind) in [(&keys.lengths, BatchInputKind::Lengths), (&keys.mask, BatchInputKind::Mask)] {
            let Some(port) = target.as_ref().and_then(|target| graph.input(target)) else { continue };
            match made.iter_mut().find(|input| input.targets.contains(&port.name)) {
                Some(BatchInput { source: BatchSource::States { states, .. }, .. }) => states.push(n),
                _ => made.push(BatchInput {
                    targets: vec![port.name.clone()],
                    kind,
                    dtype: port.dtype,
                    source: BatchSource::States {
                        states: vec![n],
                        new_steps: new_steps(report, keys).filter(|_| kind == BatchInputKind::Mask),
                    },
                }),
            }
        }
    }
    made
}
