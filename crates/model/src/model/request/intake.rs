//! Checks a request against its model's configuration before it is queued. A request that fails a check changes nothing.

use sequor_core::{DataType, Dims, Id, RequestMeta, Shape};

use crate::config::model::settings::{ControlKind, Input, ModelSettings, Scheduling};
use crate::error::Invalid;
use crate::scheduling::key_interner::KeyInterner;
use crate::state::StateValue;
use crate::tensor::{NamedTensor, Tensor};

use super::features::{self, FeatureSources};
use super::input_checks::{batch_size, check_shape, check_type_and_shape, take_input};
use super::message::InferRequest;
use super::start_states::{as_input, brought_state, check_source, part_states, take_states};

/// Maximum bytes of a correlation id that is a text.
const ID_LIMIT: usize = 128;

/// A request that passed the checks, in the order of the settings.
#[derive(Debug)]
pub(in crate::model) struct Accepted {
    /// `None` for an optional input that was left out. Shapes are those of the graph.
    pub(in crate::model) inputs: Vec<Option<Tensor>>,
    /// The requested outputs, by their index in the settings.
    pub(in crate::model) outputs: Vec<usize>,
    /// Rows in the batch; 1 if the model does not batch.
    pub(in crate::model) rows: u64,
    pub(in crate::model) meta: RequestMeta,
    /// The states that a START contains, by their index in the settings. Empty if it contains none.
    pub(in crate::model) states: Vec<Option<StateValue>>,
}

/// Checks a request in the order in which Triton does.
pub(in crate::model) fn accept(
    settings: &ModelSettings,
    request: &mut InferRequest,
    headers: &[(String, String)],
    texts: &KeyInterner,
) -> Result<Accepted, Invalid> {
    let mut accepted = check(settings, request)?;
    if !settings.features.is_empty() {
        let sources = FeatureSources { parameters: &request.parameters, headers, inputs: &accepted.inputs };
        features::fill(&mut accepted.meta, settings, sources, texts);
    }
    Ok(accepted)
}

/// Checks a START of an ensemble whose inputs come later.
pub(in crate::model) fn accept_reservation(
    settings: &ModelSettings,
    request: &InferRequest,
    headers: &[(String, String)],
    texts: &KeyInterner,
) -> Result<Accepted, Invalid> {
    check_id(settings, &request.sequence.id)?;
    let meta = RequestMeta { rows: 1, ..RequestMeta::default() };
    let mut accepted = Accepted { inputs: Vec::new(), outputs: Vec::new(), rows: 1, meta, states: Vec::new() };
    if !settings.features.is_empty() {
        let sources = FeatureSources { parameters: &request.parameters, headers, inputs: &[] };
        features::fill(&mut accepted.meta, settings, sources, texts);
    }
    Ok(accepted)
}

/// Checks the inputs of a run that processors made, and gives them the graph's shapes. Their types and dimensions were checked before.
pub(in crate::model) fn accept_run(settings: &ModelSettings, run: Vec<Option<Tensor>>) -> Result<Accepted, Invalid> {
    // An END without inputs.
    if run.is_empty() && !settings.inputs.is_empty() {
        return Ok(Accepted { inputs: run, ..nothing() });
    }
    let batching = settings.max_batch_size > 0;
    let named = settings.inputs.iter().zip(run);
    let given: Vec<NamedTensor> =
        named.filter_map(|(input, tensor)| Some(NamedTensor { name: input.name.clone(), tensor: tensor? })).collect();
    let rows = if batching { batch_size(&given)? } else { 1 };
    if batching && rows > u64::from(settings.max_batch_size) {
        return Err(Invalid::BatchTooLarge { max: settings.max_batch_size });
    }
    if matches!(settings.scheduling, Scheduling::Sequence(_)) && rows != 1 {
        return Err(Invalid::SequenceBatch);
    }
    let inputs = taken(settings, given, batching)?;
    let meta = meta(settings, &inputs, rows);
    Ok(Accepted { inputs, rows, meta, ..nothing() })
}

/// A request without inputs.
fn nothing() -> Accepted {
    let meta = RequestMeta::default();
    Accepted { inputs: Vec::new(), outputs: Vec::new(), rows: 1, meta, states: Vec::new() }
}

/// Checks inputs and puts them at their indices in the settings.
fn taken(settings: &ModelSettings, given: Vec<NamedTensor>, batching: bool) -> Result<Vec<Option<Tensor>>, Invalid> {
    let mut inputs: Vec<Option<Tensor>> = vec![None; settings.inputs.len()];
    for named in given {
        let Some(at) = settings.inputs.iter().position(|i| i.name == named.name) else {
            return Err(unknown_input(settings, &named.name));
        };
        let (Some(input), Some(place)) = (settings.inputs.get(at), inputs.get_mut(at)) else { continue };
        *place = Some(take_input(input, named, batching)?);
    }
    Ok(inputs)
}

fn check(settings: &ModelSettings, request: &mut InferRequest) -> Result<Accepted, Invalid> {
    let given = std::mem::take(&mut request.inputs);
    if let Some(repeated) = repeated(&given.iter().map(|g| g.name.as_str())) {
        return Err(Invalid::DuplicateInput { input: repeated.to_owned() });
    }
    let outputs = outputs(settings, &request.outputs)?;
    check_source(settings, request)?;
    let (states, given) = part_states(settings, given);
    if let Some(state) = states.first().filter(|_| !request.sequence.start) {
        return Err(Invalid::StateInput { input: state.name.clone() });
    }
    if let Some(empty) = end_without_inputs(settings, request, &given) {
        return Ok(Accepted { outputs, ..empty });
    }
    check_count(settings, given.iter().map(|g| g.name.as_str()))?;
    let batching = settings.max_batch_size > 0;
    let rows = if batching { batch_size(&given)? } else { 1 };
    for named in &given {
        let Some(input) = settings.inputs.iter().find(|i| i.name == named.name) else {
            return Err(unknown_input(settings, &named.name));
        };
        check_shape(input, &named.tensor, batching)?;
    }
    if batching && rows > u64::from(settings.max_batch_size) {
        return Err(Invalid::BatchTooLarge { max: settings.max_batch_size });
    }
    let inputs = taken(settings, given, batching)?;
    check_id(settings, &request.sequence.id)?;
    let stateful = matches!(settings.scheduling, Scheduling::Sequence(_));
    if stateful && rows != 1 {
        return Err(Invalid::SequenceBatch);
    }
    let states = take_states(settings, states, batching)?;
    let mut meta = meta(settings, &inputs, rows);
    meta.bytes += states.iter().flatten().map(|state| state.bytes.len() as u64).sum::<u64>();
    // A request that does not run needs no inputs.
    let inputs = if request.sequence.end && !runs_ends(settings) { Vec::new() } else { inputs };
    Ok(Accepted { inputs, outputs, rows, meta, states })
}

/// The type of an input of a request: one of the model's own, or a state that a START may contain.
pub(in crate::model) fn input_type(settings: &ModelSettings, name: &str) -> Option<DataType> {
    let own = settings.inputs.iter().find(|input| input.name == name).map(|input| input.dtype);
    own.or_else(|| brought_state(settings, name).map(|(_, state)| state.dtype))
}

/// Whether an END runs the model.
fn runs_ends(settings: &ModelSettings) -> bool {
    settings.stateful.as_ref().is_none_or(|stateful| stateful.runs_ends)
}

/// Accepts an END without inputs that does not run, if the model allows it.
fn end_without_inputs(settings: &ModelSettings, request: &InferRequest, given: &[NamedTensor]) -> Option<Accepted> {
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return None };
    let only_ends = sequence.end_without_inputs && given.is_empty() && request.sequence.end && !request.sequence.start;
    (only_ends && !settings.inputs.is_empty()).then(nothing)
}

fn outputs(settings: &ModelSettings, wanted: &[String]) -> Result<Vec<usize>, Invalid> {
    if wanted.is_empty() {
        return Ok((0..settings.outputs.len()).collect());
    }
    let find = |name: &String| {
        let at = settings.outputs.iter().position(|o| o.name == *name);
        let known = || settings.outputs.iter().map(|o| o.name.clone()).collect();
        at.ok_or_else(|| Invalid::UnknownOutput { output: name.clone(), known: known() })
    };
    let mut places = Vec::with_capacity(wanted.len());
    for name in wanted {
        let place = find(name)?;
        // An output that is requested twice is sent once.
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

/// Checks the names of a request's inputs, so that an API can refuse them before it reads their data.
pub(in crate::model) fn check_names(settings: &ModelSettings, names: &[&str]) -> Result<(), Invalid> {
    if let Some(repeated) = repeated(&names.iter().copied()) {
        return Err(Invalid::DuplicateInput { input: repeated.to_owned() });
    }
    check_count(settings, names.iter().copied().filter(|name| brought_state(settings, name).is_none()))
}

fn unknown_input(settings: &ModelSettings, input: &str) -> Invalid {
    let known = settings.inputs.iter().map(|i| i.name.clone()).collect();
    Invalid::UnknownInput { input: input.to_owned(), known }
}

/// The first name that occurs twice.
fn repeated<'a>(names: &(impl Iterator<Item = &'a str> + Clone)) -> Option<&'a str> {
    let mut later = names.clone().enumerate().skip(1);
    later.find(|(at, name)| names.clone().take(*at).any(|earlier| earlier == *name)).map(|(_, name)| name)
}

fn check_count<'a>(settings: &ModelSettings, given: impl Iterator<Item = &'a str> + Clone) -> Result<(), Invalid> {
    let all = settings.inputs.len();
    let required = settings.inputs.iter().filter(|i| !i.optional).count();
    let is_missing = |input: &&Input| !input.optional && !given.clone().any(|name| name == input.name);
    let count = given.clone().count();
    if (required..=all).contains(&count) {
        let unknown = given.clone().find(|name| !settings.inputs.iter().any(|i| i.name == *name));
        if let Some(unknown) = unknown {
            return Err(unknown_input(settings, unknown));
        }
        if !settings.inputs.iter().any(|input| is_missing(&input)) {
            return Ok(());
        }
    }
    let mut missing: Vec<String> = settings.inputs.iter().filter(is_missing).map(|i| i.name.clone()).collect();
    let mut got: Vec<String> = given.map(str::to_owned).collect();
    missing.sort_unstable();
    got.sort_unstable();
    Err(Invalid::InputCount { required, all, got, missing })
}

/// Checks the type and the shape of an input, so that an API can refuse them before it reads the data. Leaves an input that the model does
/// not have to [`check_names`].
pub(in crate::model) fn check_form(
    settings: &ModelSettings,
    name: &str,
    dtype: DataType,
    shape: &Shape,
) -> Result<(), Invalid> {
    let batching = settings.max_batch_size > 0;
    match settings.inputs.iter().find(|input| input.name == name) {
        Some(input) => check_type_and_shape(input, dtype, shape, batching),
        None => brought_state(settings, name)
            .map_or(Ok(()), |(_, state)| check_type_and_shape(&as_input(state), dtype, shape, batching)),
    }
}

/// Checks the length of an id, and that its type fits the model's CORRID control.
fn check_id(settings: &ModelSettings, id: &Id) -> Result<(), Invalid> {
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return Ok(()) };
    if let Id::Str(text) = id
        && text.len() > ID_LIMIT
    {
        return Err(Invalid::IdTooLong { limit: ID_LIMIT });
    }
    for control in &sequence.controls {
        let ControlKind::CorrelationId(want) = control.kind else { continue };
        let got = match id {
            Id::Str(_) => DataType::Bytes,
            Id::Int(_) => DataType::Uint64,
            Id::None => continue,
        };
        if (got == DataType::Bytes) != (want == DataType::Bytes) {
            return Err(Invalid::IdType { control: control.input.clone(), got, want });
        }
    }
    Ok(())
}

/// The properties that scheduling uses: the size, and the class of the shapes that must agree within a batch.
fn meta(settings: &ModelSettings, inputs: &[Option<Tensor>], rows: u64) -> RequestMeta {
    let class = shape_class(&settings.inputs, inputs);
    let bytes = inputs.iter().flatten().map(|t| t.data.len() as u64).sum();
    RequestMeta { rows: u32::try_from(rows).unwrap_or(u32::MAX), bytes, shape: class, ..RequestMeta::default() }
}

/// The class of the shapes that must agree within a batch, and of the inputs that are given. An input of length 0 is given, and replaces the
/// graph's own value, so whether it is there is part of the class beside its shape.
fn shape_class(inputs: &[Input], given: &[Option<Tensor>]) -> u64 {
    let mut class = 0;
    for (input, tensor) in inputs.iter().zip(given) {
        let Some(tensor) = tensor else {
            class = Shape::new(&[0]).class(class);
            continue;
        };
        if input.optional {
            class = Shape::new(&[1]).class(class);
        }
        if is_open(&input.dims) && input.ragged.is_none() {
            class = tensor.shape.without(0).class(class);
        }
    }
    class
}

fn is_open(dims: &Dims) -> bool {
    dims.0.iter().any(|dim| dim.fixed().is_none())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Every set of given inputs has a class of its own, also if the given ones have one element or none.
    #[test]
    fn requests_that_give_different_inputs_have_different_shape_classes() {
        let input = |dims: &[i64]| Input {
            name: String::new(),
            dtype: DataType::Uint8,
            dims: Dims::from_wire(dims),
            reshape: None,
            optional: true,
            batch_dim: None,
            ragged: None,
        };
        let inputs = [input(&[-1]), input(&[-1]), input(&[1])];
        let tensor = |length: u64| Tensor {
            dtype: DataType::Uint8,
            shape: Shape::new(&[1, length]),
            data: Bytes::from(vec![0; length as usize]),
        };
        let choices = |lengths: &[u64]| {
            std::iter::once(None).chain(lengths.iter().map(|length| Some(tensor(*length)))).collect::<Vec<_>>()
        };
        let mut classes = Vec::new();
        for one in choices(&[0, 1, 2]) {
            for two in choices(&[0, 1, 2]) {
                for three in choices(&[1]) {
                    classes.push(shape_class(&inputs, &[one.clone(), two.clone(), three]));
                }
            }
        }
        let count = classes.len();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!((count, classes.len()), (32, 32));
    }
}
