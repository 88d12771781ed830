//! Maps each input of a graph to its source and each output to its destination. Resolved once a load.

use crate::config::model::settings::{Control, ModelSettings, Scheduling, StateSettings};

/// The source of an input of the graph, by its index in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputSource {
    /// The client's tensor.
    Client(usize),
    Control(usize),
    State(usize),
    Constant(usize),
    /// A description of the batch.
    Batch(usize),
}

/// The destination of an output of the graph: a client, a state, or both. An output with neither holds the lengths of the rows of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sink {
    pub client: Option<usize>,
    pub state: Option<usize>,
}

/// All inputs and outputs of a graph that a model uses, in the order of its contexts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    pub input_names: Vec<String>,
    pub inputs: Vec<InputSource>,
    pub output_names: Vec<String>,
    pub outputs: Vec<Sink>,
    /// The outputs (indices into `outputs`) that hold the lengths of the rows of a padded state after a run, each with the state's number.
    pub new_lengths: Vec<(usize, usize)>,
}

impl Wiring {
    pub fn new(settings: &ModelSettings) -> Wiring {
        let (controls, states) = stateful(settings);
        let clients = settings.inputs.iter().enumerate().map(|(n, i)| (i.name.clone(), InputSource::Client(n)));
        let controls = controls.iter().enumerate().map(|(n, c)| (c.input.clone(), InputSource::Control(n)));
        let kept = states.iter().enumerate().map(|(n, s)| (s.input.clone(), InputSource::State(n)));
        let constants = settings.constants.iter().enumerate().map(|(n, c)| (c.input.clone(), InputSource::Constant(n)));
        let described = settings.batch_inputs.iter().enumerate();
        let described =
            described.flat_map(|(n, b)| b.targets.iter().map(move |name| (name.clone(), InputSource::Batch(n))));
        let inputs = clients.chain(controls).chain(kept).chain(constants).chain(described);
        let (input_names, inputs) = inputs.unzip();
        let state_of = |name: &str| states.iter().position(|s| s.output == name);
        let listed = |name: &str| settings.outputs.iter().any(|o| o.name == name);
        let clients = settings.outputs.iter().enumerate().map(|(n, o)| {
            let sink = Sink { client: Some(n), state: state_of(&o.name) };
            (o.name.clone(), sink)
        });
        let hidden = states.iter().enumerate().filter(|(_, s)| !listed(&s.output));
        let hidden = hidden.map(|(n, s)| (s.output.clone(), Sink { client: None, state: Some(n) }));
        let (mut output_names, mut outputs): (Vec<String>, Vec<Sink>) = clients.chain(hidden).unzip();
        let mut new_lengths = Vec::new();
        for (state, name) in
            states.iter().enumerate().filter_map(|(n, s)| Some((n, s.pad.as_ref()?.new_lengths.as_ref()?)))
        {
            let at = output_names.iter().position(|output| output == name).unwrap_or_else(|| {
                output_names.push(name.clone());
                outputs.push(Sink { client: None, state: None });
                outputs.len() - 1
            });
            new_lengths.push((at, state));
        }
        Wiring { input_names, inputs, output_names, outputs, new_lengths }
    }

    /// The wiring for a request that leaves out optional inputs. `given` has one flag for each of the client's inputs.
    pub fn without(&self, given: &[bool]) -> Wiring {
        let there = |source: &InputSource| match source {
            InputSource::Client(n) => given.get(*n).copied().unwrap_or(false),
            _ => true,
        };
        let pairs = self.input_names.iter().cloned().zip(self.inputs.iter().copied());
        let (input_names, inputs) = pairs.filter(|(_, source)| there(source)).unzip();
        Wiring { input_names, inputs, ..self.clone() }
    }
}

/// The controls and states of a model; none, if it is stateless.
pub fn stateful(settings: &ModelSettings) -> (&[Control], &[StateSettings]) {
    match &settings.scheduling {
        Scheduling::Sequence(sequence) => (&sequence.controls, &sequence.states),
        _ => (&[], &[]),
    }
}
