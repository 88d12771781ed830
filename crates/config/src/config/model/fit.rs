//! Checks that a configuration and its graph match: counts, names, types, dims, and the batch axis of states.

use std::collections::BTreeMap;

use sequor_core::{DataType, Dim, Dims};
use sequor_proto::model_sequence_batching::{Control, State, control::Kind};
use sequor_proto::{ModelInput, ModelOutput};

use super::report::Report;
use super::sequor_toml::bare;
use super::settings::RaggedInput;
use super::signature::{Port, Signature};
use super::{constant, dtype, fit_ragged, padding, padding_advice, state_padding};
use crate::config::fault::{code, did_you_mean};

/// Checks a configuration, which is valid in itself, against its graph.
pub(super) fn check(report: &mut Report<'_>, graph: &Signature) {
    if !report.marks_batch() {
        count(report, graph);
    }
    for (i, input) in report.config.input.iter().enumerate() {
        check_input(report, graph, &format!("input[{i}]"), input);
    }
    for (i, output) in report.config.output.iter().enumerate() {
        check_output(report, graph, &format!("output[{i}]"), output);
    }
    if let Some(sequence) = report.sequence() {
        for (i, input) in sequence.control_input.iter().enumerate() {
            let is_reset = |control: &Control| report.marks_batch() && control.kind() == Kind::ControlSequenceStart;
            let controls: Vec<&Control> = input.control.iter().filter(|control| !is_reset(control)).collect();
            for control in controls {
                check_control(report, graph, &format!("sequence_batching.control_input[{i}]"), &input.name, control);
            }
        }
        for (i, state) in sequence.state.iter().enumerate() {
            check_state(report, graph, &format!("sequence_batching.state[{i}]"), state);
        }
    }
    fit_ragged::check(report, graph);
    padding::fit(report, graph);
    state_padding::fit(report, graph);
    constants(report, graph);
    super::features::check(report);
}

/// Checks that every input of the graph has exactly one source.
fn count(report: &mut Report<'_>, graph: &Signature) {
    let config = report.config;
    let given = required_names(report);
    let optional = config.input.iter().filter(|i| i.optional).map(|i| i.name.as_str());
    let expects = given.len();
    let mut sources: BTreeMap<&str, usize> = BTreeMap::new();
    for name in given.into_iter().chain(optional) {
        *sources.entry(name).or_default() += 1;
    }
    for (name, _) in sources.iter().filter(|(_, n)| **n > 1) {
        given_twice(report, name);
    }
    let missing: Vec<&Port> = graph.inputs.iter().filter(|p| !sources.contains_key(p.name.as_str())).collect();
    // If a name is unknown, its own fault explains the problem better.
    let has_unknown = sources.keys().any(|name| graph.input(name).is_none());
    if expects != graph.inputs.len() || (!missing.is_empty() && !has_unknown) {
        wrong_count(report, graph, expects, &missing);
    }
}

/// The names of all inputs that the configuration gives, except for optional ones.
fn required_names<'a>(report: &Report<'a>) -> Vec<&'a str> {
    let (config, sequence) = (report.config, report.sequence());
    let controls = sequence.iter().flat_map(|s| s.control_input.iter().map(|c| c.name.as_str()));
    let states = sequence.iter().flat_map(|s| s.state.iter().map(|s| s.input_name.as_str()));
    let constants = report.toml.keys.input.iter().filter(|(_, i)| i.constant.is_some()).map(|(n, _)| n.as_str());
    let required = config.input.iter().filter(|i| !i.optional).map(|i| i.name.as_str());
    let described = config.batch_input.iter().flat_map(|b| b.target_name.iter().map(String::as_str));
    let padded = padding::targets(report.toml.keys.input.values());
    let pads = state_padding::targets(report.toml.keys.state.values().filter_map(|state| state.pad.as_ref()));
    let described = described.chain(padded).chain(pads);
    required.chain(controls).chain(states).chain(described).chain(constants).collect()
}

fn given_twice(report: &mut Report<'_>, name: &str) {
    let what = format!(
        "input '{name}' of {} is given twice: as an input, a control, a state, a batch input or a constant",
        report.config.name
    );
    match report.toml.has(&["input", name, "constant"]) {
        true => report.toml_fault(&["input", name, "constant"], code::INPUT, what),
        false => report.fault("input", code::INPUT, what),
    }
}

/// Adds the fault of a configuration that gives other inputs than the graph has. `missing` are those that it does not give.
fn wrong_count(report: &mut Report<'_>, graph: &Signature, expects: usize, missing: &[&Port]) {
    let (config, provides) = (report.config, graph.inputs.len());
    let mut what = format!(
        "unable to load model '{}', configuration expects {expects} inputs, model provides {provides}",
        config.name
    );
    if !missing.is_empty() {
        let names: Vec<String> = missing.iter().map(|port| format!("\"{}\"", port.name)).collect();
        what.push_str(&format!(
            " (not configured: {}; an input that is always the same can be [input.NAME] constant = … in sequor.toml)",
            names.join(", ")
        ));
    }
    what.extend(missing.iter().filter_map(|port| padding_advice::advice(report, port)));
    let optional = config.input.iter().filter(|input| input.optional).map(|input| input.name.as_str());
    let valueless: Vec<String> = optional
        .filter(|name| graph.inputs.iter().any(|port| port.name == *name))
        .map(|name| format!("\"{name}\""))
        .collect();
    if !valueless.is_empty() {
        what.push_str(&format!(
            " (optional, but the graph has no value for it: {}; remove `optional`, or give the graph an initializer of this name)",
            valueless.join(", ")
        ));
    }
    report.fault("input", code::COUNT, what);
}

fn no_input(report: &mut Report<'_>, graph: &Signature, field: &str, label: &str, name: &str) {
    let names = graph.inputs.iter().chain(&graph.optional).map(|p| p.name.as_str());
    let what = format!("{label} \"{name}\": the model has no such input{}", did_you_mean(name, names));
    report.fault(field, code::NO_INPUT, what);
}

fn no_output(report: &mut Report<'_>, graph: &Signature, field: &str, label: &str, name: &str) {
    let near = did_you_mean(name, graph.outputs.iter().map(|p| p.name.as_str()));
    report.fault(field, code::NO_OUTPUT, format!("{label} \"{name}\": the model has no such output{near}"));
}

fn check_input(report: &mut Report<'_>, graph: &Signature, field: &str, input: &ModelInput) {
    let Some(port) = graph.input(&input.name) else {
        return no_input(report, graph, field, "input", &input.name);
    };
    check_type(report, field, "input", port, input.data_type);
    if matches!(padding::ragged(report, input), Some(RaggedInput::Joined)) {
        return fit_ragged::check_ragged(report, field, port, input);
    }
    let dims = Dims::from_wire(input.reshape.as_ref().map_or(&input.dims, |r| &r.shape));
    if is_scalar(report, port, &dims) {
        return;
    }
    check_dims(report, field, PortSide::Input, port, &dims);
}

fn check_output(report: &mut Report<'_>, graph: &Signature, field: &str, output: &ModelOutput) {
    let Some(port) = graph.output(&output.name) else {
        return no_output(report, graph, field, "output", &output.name);
    };
    check_type(report, field, "output", port, output.data_type);
    if report.config.batch_output.iter().any(|b| b.target_name.contains(&output.name)) {
        return;
    }
    let dims = Dims::from_wire(output.reshape.as_ref().map_or(&output.dims, |r| &r.shape));
    if is_scalar(report, port, &dims) {
        return;
    }
    check_dims(report, field, PortSide::Output, port, &dims);
}

/// Whether the configuration has dims of ones for a tensor without dimensions, in a model that does not batch.
pub(super) fn is_scalar(report: &Report<'_>, port: &Port, dims: &Dims) -> bool {
    !report.batches() && port.dims.rank() == 0 && dims.0.iter().all(|d| *d == Dim::Fixed(1))
}

fn check_type(report: &mut Report<'_>, field: &str, label: &str, port: &Port, data_type: i32) {
    let Some(dtype) = dtype::from_proto(data_type).filter(|t| *t != port.dtype) else { return };
    let (name, model, config) = (&port.name, port.dtype.config_name(), dtype.config_name());
    let what = format!("{label} \"{name}\": model has {model}, config says {config}");
    report.fault(&format!("{field}.data_type"), code::TYPE, what);
}

/// The side of the model that a tensor is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortSide {
    Input,
    Output,
}

impl PortSide {
    fn label(self) -> &'static str {
        match self {
            PortSide::Input => "input",
            PortSide::Output => "output",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            PortSide::Input => "takes",
            PortSide::Output => "gives",
        }
    }
}

/// Checks the dims of an input or an output. The configuration may fix a dimension that the model leaves open in an input, but not in an output.
fn check_dims(report: &mut Report<'_>, field: &str, side: PortSide, port: &Port, dims: &Dims) {
    let (label, verb) = (side.label(), side.verb());
    let (field, name) = (format!("{field}.dims"), &port.name);
    let (axis, dims) = &report.batch_of(dims);
    let axis = *axis;
    if axis.is_some_and(|axis| port.dims.0.get(axis) != Some(&Dim::Any)) {
        let what = format!(
            "{label} \"{name}\": model {verb} {}, whose first dimension is no batch dimension (-1); max_batch_size must be 0, or the \
             model exported with an open batch",
            port.dims
        );
        return report.fault(&field, code::DIMS, what);
    }
    let fits = |model: Dim, declared: Dim| model == declared || (side == PortSide::Input && model == Dim::Any);
    if !agree(&port.dims, dims, axis, fits) {
        let what = format!("{label} \"{name}\": model {verb} {}, config says dims {dims}", drawn(&port.dims, axis));
        report.fault(&field, code::DIMS, what);
    }
}

/// Whether the model's dims without the one at `axis` agree with the configured ones.
fn agree(model: &Dims, declared: &Dims, axis: Option<usize>, fits: impl Fn(Dim, Dim) -> bool) -> bool {
    let rest: Vec<Dim> = model.0.iter().enumerate().filter(|(i, _)| Some(*i) != axis).map(|(_, d)| *d).collect();
    rest.len() == declared.rank() && rest.iter().zip(&declared.0).all(|(m, s)| fits(*m, *s))
}

/// The model's dims with an N for the batch: `[2,N,128]`.
fn drawn(dims: &Dims, axis: Option<usize>) -> String {
    let parts = dims.0.iter().enumerate().map(|(i, d)| if Some(i) == axis { "N".to_owned() } else { d.to_string() });
    format!("[{}]", parts.collect::<Vec<_>>().join(","))
}

fn check_control(report: &mut Report<'_>, graph: &Signature, field: &str, name: &str, control: &Control) {
    let Some(port) = graph.input(name) else {
        let what = format!("configuration specified sequence control '{name}', but model does not provide that input");
        return report.fault(field, code::NO_INPUT, what);
    };
    let one = Dims(vec![Dim::Fixed(1)]);
    let axis = report.batches().then_some(0);
    if !agree(&port.dims, &one, axis, |m, s| m == s || m == Dim::Any) {
        let dims = Dims(port.dims.0.iter().skip(usize::from(axis.is_some())).copied().collect());
        let what = format!("sequence control '{name}' in model has dims {dims} but dims [1] is expected");
        report.fault(field, code::DIMS, what);
    } else if axis.is_some() && port.dims.0.first() != Some(&Dim::Any) {
        let what =
            format!("sequence control '{name}' in model is {}, whose first dimension is no batch dimension", port.dims);
        report.fault(field, code::DIMS, what);
    }
    if let Some(dtype) = control_type(control).filter(|t| *t != port.dtype) {
        let (model, declared) = (port.dtype.config_name(), dtype.config_name());
        let what = format!("sequence control '{name}': model has {model}, config says {declared}");
        report.fault(field, code::TYPE, what);
    }
}

/// The element type of a control's values.
pub(super) fn control_type(control: &Control) -> Option<DataType> {
    match control.kind() {
        Kind::ControlSequenceCorrid => dtype::from_proto(control.data_type),
        _ if !control.int32_false_true.is_empty() => Some(DataType::Int32),
        _ if !control.fp32_false_true.is_empty() => Some(DataType::Fp32),
        _ => Some(DataType::Bool),
    }
}

fn check_state(report: &mut Report<'_>, graph: &Signature, field: &str, state: &State) {
    match graph.input(&state.input_name) {
        None => no_input(report, graph, &format!("{field}.input_name"), "state", &state.input_name),
        Some(port) => {
            check_type(report, field, "state", port, state.data_type);
            check_state_dims(report, field, PortSide::Input, port, state);
        }
    }
    match graph.output(&state.output_name) {
        None => no_output(report, graph, &format!("{field}.output_name"), "state", &state.output_name),
        Some(port) => {
            check_type(report, field, "state", port, state.data_type);
            // The axis is that of the input, so without an input there is nothing to compare.
            if graph.input(&state.input_name).is_some() {
                check_state_dims(report, field, PortSide::Output, port, state);
            }
        }
    }
}

/// Whether a state's tensor has the configured dims, with an open batch dimension at `axis` if there is one.
fn state_fits(tensor: &Dims, declared: &Dims, axis: Option<usize>, gives: bool) -> bool {
    let fits_dim =
        |model: Dim, declared: Dim| model == declared || model == Dim::Any || (gives && declared == Dim::Any);
    let is_open = axis.is_none_or(|axis| tensor.0.get(axis) == Some(&Dim::Any));
    is_open && agree(tensor, declared, axis, fits_dim)
}

/// The axis of a state's batch in its input tensor, if it differs from the configured one.
pub(super) fn moved_axis(report: &Report<'_>, tensor: &Dims, state: &State) -> Option<usize> {
    let declared = Dims::from_wire(&state.dims);
    let fits_at = |axis: usize| state_fits(tensor, &declared, Some(axis), false);
    let axis = report.batches().then(|| report.batch_axis(&state.input_name))?;
    if fits_at(axis) { None } else { (0..tensor.rank()).find(|other| fits_at(*other)) }
}

/// Checks that a state's tensor has the configured dims with the batch at one axis. A dimension that the model leaves open fits anything.
/// In an output, a dimension that the configuration leaves open fits too, because each run is checked.
fn check_state_dims(report: &mut Report<'_>, field: &str, side: PortSide, port: &Port, state: &State) {
    let declared = Dims::from_wire(&state.dims);
    let name = &state.input_name;
    let gives = side == PortSide::Output;
    let fits_at = |axis: usize| state_fits(&port.dims, &declared, Some(axis), gives);
    let axis = report.batches().then(|| report.batch_axis(name));
    let fits = state_fits(&port.dims, &declared, axis, gives);
    if fits {
        return;
    }
    let elsewhere = axis.and_then(|_| (0..port.dims.rank()).find(|other| fits_at(*other)));
    let Some(other) = elsewhere else {
        let open = |axis: &usize| port.dims.0.get(*axis) == Some(&Dim::Any);
        let batch =
            axis.map(|axis| Some(axis).filter(open).or_else(|| (0..port.dims.rank()).find(open)).unwrap_or(axis));
        let mut what = format!(
            "state \"{name}\": model {} {}, config says dims {declared}",
            side.verb(),
            drawn(&port.dims, batch)
        );
        if let Some(other) = batch.filter(|other| Some(*other) != axis) {
            let rest = Dims(port.dims.0.iter().enumerate().filter(|(n, _)| *n != other).map(|(_, d)| *d).collect());
            what.push_str(&format!(
                " (the batch seems to be on axis {other}: then dims are {rest}, and sequor.toml says [state.{}] batch_axis = {other})",
                bare(name)
            ));
        }
        return report.fault(&format!("{field}.dims"), code::STATE_DIMS, what);
    };
    let what = format!(
        "{}: state \"{name}\" is {} in the model: the batch is on axis {other}.",
        report.model(),
        drawn(&port.dims, Some(other)),
    );
    let key = ["state", name, "batch_axis"];
    if report.toml.has(&key) {
        report.toml_fault(&key, code::STATE_AXIS, format!("{what} Say batch_axis = {other}"));
    } else {
        let file = report.directory.join("sequor.toml");
        let add = format!("[state.{}] batch_axis = {other}  to {}", bare(name), file.display());
        report.fault(field, code::STATE_AXIS, format!("{what} config.pbtxt cannot say that; add  {add}"));
    }
}

fn constants(report: &mut Report<'_>, graph: &Signature) {
    for (name, keys) in &report.toml.keys.input {
        let Some(value) = &keys.constant else { continue };
        let key = ["input", name, "constant"];
        match graph.input(name) {
            None => {
                let near = did_you_mean(name, graph.inputs.iter().map(|p| p.name.as_str()));
                let what = format!("constant: the model has no input \"{name}\"{near}");
                report.toml_fault(&key, code::NO_INPUT, what);
            }
            Some(port) => {
                if let Err(what) = constant::constant(port, value) {
                    report.toml_fault(&key, code::CONSTANT, format!("constant of \"{name}\": {what}"));
                }
            }
        }
    }
}
