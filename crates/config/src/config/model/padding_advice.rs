//! Offers padding for an input of the graph without a source that may be the mask or the lengths of rows of different length.

use sequor_core::{DataType, Dim};
use sequor_proto::ModelInput;
use sequor_proto::model_sequence_batching::State;

use super::padding::{self, MASKS};
use super::report::Report;
use super::sequor_toml::bare;
use super::signature::Port;

/// The key of a padding that names this input, judged by its type and shape.
fn key_of(port: &Port) -> Option<&'static str> {
    match port.dims.0.as_slice() {
        [Dim::Any, Dim::Any] if MASKS.contains(&port.dtype) => Some("mask"),
        [Dim::Any] if matches!(port.dtype, DataType::Int32 | DataType::Int64) => Some("lengths"),
        _ => None,
    }
}

/// The keys of `sequor.toml` that give this input its values. `None` if no row of the model can have another length than its neighbours.
pub(super) fn advice(report: &Report<'_>, port: &Port) -> Option<String> {
    let key = key_of(port).filter(|_| report.batches())?;
    let states: Vec<&State> = report.sequence().map_or(&[][..], |sequence| &sequence.state).iter().collect();
    let grows = |state: &&State| is_open(&state.dims) && !has_pad(report, state);
    let states: Vec<String> =
        states.into_iter().filter(grows).map(|state| format!("[state.{}]", bare(&state.input_name))).collect();
    let is_padded = |input: &ModelInput| padding::ragged(report, input).is_some() || input.optional;
    let inputs = report.config.input.iter().filter(|input| is_open(&input.dims) && !is_padded(input));
    let inputs: Vec<String> = inputs.map(|input| format!("[input.{}]", bare(&input.name))).collect();
    let name = &port.name;
    let of_states = (!states.is_empty())
        .then(|| format!("pad = {{ side = \"left\", {key} = \"{name}\" }} in {}", states.join(" and ")));
    let of_inputs = inputs.first().map(|input| format!("ragged = \"pad\" and {key} = \"{name}\" in {input}"));
    let keys: Vec<String> = of_states.into_iter().chain(of_inputs).collect();
    let kind = if key == "mask" { "is the mask" } else { "has the lengths" };
    (!keys.is_empty()).then(|| {
        format!(" (if \"{name}\" {kind} of rows of different length, set {} of sequor.toml)", keys.join(", or "))
    })
}

fn is_open(dims: &[i64]) -> bool {
    dims.iter().filter(|dim| **dim == -1).count() == 1
}

fn has_pad(report: &Report<'_>, state: &State) -> bool {
    report.toml.keys.state.get(&state.input_name).is_some_and(|keys| keys.pad.is_some())
}
