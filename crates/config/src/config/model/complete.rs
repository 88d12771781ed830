//! Completes a configuration from the graph. A pure function of both.

use std::collections::BTreeSet;

use sequor_core::Dim;
use sequor_proto::{
    ModelConfig, ModelDynamicBatching, ModelInput, ModelOutput, ModelTensorReshape, model_config::SchedulingChoice,
};

use super::signature::{Port, Signature};
use super::{dtype, padding, sequor_toml, state_padding};

/// Tensors of the graph that clients neither send nor get: controls, states, batch inputs, constants.
#[derive(Debug, Default)]
struct Reserved {
    inputs: BTreeSet<String>,
    outputs: BTreeSet<String>,
    /// Inputs that have no batch dimension.
    constants: BTreeSet<String>,
    /// Tensors whose batch dimension is not the first, with its axis.
    axes: Vec<(String, usize)>,
}

impl Reserved {
    fn from_config(config: &ModelConfig, keys: &sequor_toml::Keys) -> Reserved {
        let mut reserved = Reserved::default();
        if let Some(SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice {
            reserved.inputs.extend(sequence.control_input.iter().map(|c| c.name.clone()));
            for state in &sequence.state {
                reserved.inputs.insert(state.input_name.clone());
                reserved.outputs.insert(state.output_name.clone());
                let axis = keys.state.get(&state.input_name).and_then(|s| s.batch_axis).map_or(0, usize::from);
                reserved.axes.push((state.input_name.clone(), axis));
                reserved.axes.push((state.output_name.clone(), axis));
            }
        }
        reserved.inputs.extend(config.batch_input.iter().flat_map(|b| b.target_name.iter().cloned()));
        reserved.inputs.extend(padding::targets(keys.input.values()).map(str::to_owned));
        let pads = keys.state.values().filter_map(|state| state.pad.as_ref());
        reserved.inputs.extend(state_padding::targets(pads).map(str::to_owned));
        reserved.outputs.extend(keys.state.values().filter_map(|state| state.pad.as_ref()?.new_lengths.clone()));
        let constants = keys.input.iter().filter(|(_, input)| input.constant.is_some());
        reserved.constants.extend(constants.map(|(name, _)| name.clone()));
        reserved.inputs.extend(reserved.constants.iter().cloned());
        reserved
    }

    /// Whether the batch dimension of this tensor is open. A constant has none and counts as open.
    fn batches(&self, port: &Port) -> bool {
        let axis = self.axes.iter().find(|(name, _)| *name == port.name).map_or(0, |(_, axis)| *axis);
        self.constants.contains(&port.name) || port.dims.0.get(axis) == Some(&Dim::Any)
    }
}

/// Whether the configuration needs completion: it has no inputs or no outputs.
pub(super) fn is_needed(config: &ModelConfig) -> bool {
    (config.input.is_empty() && config.batch_input.is_empty()) || config.output.is_empty()
}

/// Completes the configuration from the graph, or returns why that is impossible.
pub(super) fn complete(
    config: &mut ModelConfig,
    keys: &sequor_toml::Keys,
    graph: &Signature,
    default_max_batch_size: u32,
) -> Result<(), String> {
    if !is_needed(config) {
        return Ok(());
    }
    let reserved = Reserved::from_config(config, keys);
    let can_batch = graph.inputs.iter().chain(&graph.outputs).all(|port| reserved.batches(port));
    if can_batch && config.max_batch_size == 0 {
        config.max_batch_size = i32::try_from(default_max_batch_size).unwrap_or(i32::MAX);
    }
    if !can_batch && config.max_batch_size != 0 {
        return Err(format!(
            "autofill failed for model '{}': model does not support batching while non-zero max_batch_size is specified",
            config.name
        ));
    }
    if config.max_batch_size > 1 && config.scheduling_choice.is_none() {
        config.scheduling_choice = Some(SchedulingChoice::DynamicBatching(ModelDynamicBatching::default()));
    }
    let batches = config.max_batch_size > 0;
    if config.input.is_empty() && config.batch_input.is_empty() {
        let listed = graph.inputs.iter().filter(|port| !reserved.inputs.contains(&port.name));
        config.input = listed.map(|port| input(port, batches)).collect();
    }
    if config.output.is_empty() {
        let listed = graph.outputs.iter().filter(|port| !reserved.outputs.contains(&port.name));
        config.output = listed.map(|port| output(port, batches)).collect();
    }
    Ok(())
}

fn input(port: &Port, batches: bool) -> ModelInput {
    let (dims, reshape) = dims(port, batches);
    ModelInput {
        name: port.name.clone(),
        data_type: dtype::to_proto(port.dtype),
        dims,
        reshape,
        ..ModelInput::default()
    }
}

fn output(port: &Port, batches: bool) -> ModelOutput {
    let (dims, reshape) = dims(port, batches);
    ModelOutput {
        name: port.name.clone(),
        data_type: dtype::to_proto(port.dtype),
        dims,
        reshape,
        ..ModelOutput::default()
    }
}

/// The dims without the batch dimension. A tensor without other dimensions has dims `[1]`, reshaped to an empty shape.
fn dims(port: &Port, batches: bool) -> (Vec<i64>, Option<ModelTensorReshape>) {
    let dims: Vec<i64> = port.dims.to_wire().into_iter().skip(usize::from(batches)).collect();
    match dims.is_empty() {
        true => (vec![1], batches.then(ModelTensorReshape::default)),
        false => (dims, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::sequor_toml::SequorToml;
    use crate::config::model::text;
    use sequor_core::{DataType, Dims};
    use std::path::Path;

    fn port(name: &str, dims: &[i64]) -> Port {
        Port { name: name.to_owned(), dtype: DataType::Fp32, dims: Dims::from_wire(dims) }
    }

    fn graph(inputs: &[(&str, &[i64])], outputs: &[(&str, &[i64])]) -> Signature {
        let ports = |ports: &[(&str, &[i64])]| ports.iter().map(|(n, d)| port(n, d)).collect();
        Signature { inputs: ports(inputs), outputs: ports(outputs), ..Signature::default() }
    }

    fn completed(text: &str, toml: &str, graph: &Signature) -> Result<ModelConfig, String> {
        let mut config = text::parse(Path::new("config.pbtxt"), text).unwrap();
        let toml = SequorToml::parse(Path::new("sequor.toml"), toml).unwrap();
        complete(&mut config, &toml.keys, graph, 4).map(|()| config)
    }

    #[test]
    fn an_empty_configuration_is_completed_from_the_graph() {
        let config = completed("", "", &graph(&[("x", &[-1, 3])], &[("y", &[-1]), ("z", &[-1, -1])])).unwrap();
        assert_eq!((config.max_batch_size, config.input[0].dims.as_slice()), (4, &[3][..]));
        assert_eq!(
            (config.output[0].dims.as_slice(), config.output[0].reshape.clone().map(|r| r.shape)),
            (&[1][..], Some(vec![]))
        );
        assert_eq!((config.output[1].dims.as_slice(), config.output[1].reshape.is_some()), (&[-1][..], false));
        assert!(matches!(config.scheduling_choice, Some(SchedulingChoice::DynamicBatching(_))));
        assert_eq!(config.input[0].data_type(), sequor_proto::DataType::TypeFp32);
    }

    #[test]
    fn a_graph_is_not_batched_without_a_default_batch_size() {
        let graph = graph(&[("x", &[-1, 3])], &[("y", &[-1])]);
        let mut config = ModelConfig::default();
        complete(&mut config, &sequor_toml::Keys::default(), &graph, 0).unwrap();
        assert_eq!((config.max_batch_size, config.scheduling_choice.is_none()), (0, true));
        assert_eq!((config.input[0].dims.as_slice(), config.output[0].dims.as_slice()), (&[-1, 3][..], &[-1][..]));
    }

    #[test]
    fn a_graph_that_cannot_batch_is_completed_without_batching() {
        let scalar = graph(&[("x", &[-1, 3]), ("s", &[])], &[("y", &[-1])]);
        let config = completed("", "", &scalar).unwrap();
        assert_eq!((config.max_batch_size, config.scheduling_choice.is_none()), (0, true));
        assert_eq!((config.input[0].dims.as_slice(), config.input[1].dims.as_slice()), (&[-1, 3][..], &[1][..]));
        assert_eq!(
            completed("name: 'm' max_batch_size: 2", "", &scalar).unwrap_err(),
            "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
        );
    }

    #[test]
    fn a_configuration_with_inputs_and_outputs_is_not_completed() {
        let text = "input { name: 'x' } output { name: 'y' }";
        let config = completed(text, "", &graph(&[("x", &[-1, 3])], &[("y", &[-1])])).unwrap();
        assert_eq!((config.max_batch_size, config.input[0].dims.len()), (0, 0));
    }

    #[test]
    fn missing_inputs_are_completed_if_only_outputs_are_configured() {
        let text = "max_batch_size: 1 output { name: 'y' data_type: TYPE_FP32 dims: 9 }";
        let config = completed(text, "", &graph(&[("x", &[-1, 3])], &[("y", &[-1]), ("z", &[-1])])).unwrap();
        assert_eq!((config.input.len(), config.output.len(), config.scheduling_choice.is_none()), (1, 1, true));
    }

    #[test]
    fn states_and_constants_are_not_completed_as_inputs() {
        let silero = graph(
            &[("input", &[-1, -1]), ("state", &[2, -1, 128]), ("sr", &[])],
            &[("output", &[-1, 1]), ("stateN", &[-1, -1, -1])],
        );
        let text = "max_batch_size: 64 sequence_batching { state { input_name: 'state' output_name: 'stateN' } }";
        let toml = "[state.state]\nbatch_axis = 1\n[input.sr]\nconstant = 16000\n";
        let config = completed(text, toml, &silero).unwrap();
        let names = |i: usize| (config.input[i].name.as_str(), config.output[i].name.as_str());
        assert_eq!((names(0), config.input.len(), config.output.len()), (("input", "output"), 1, 1));
        assert!(completed(text, "", &silero).is_err());
    }
}
