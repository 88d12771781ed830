//! Checks a request against its model's configuration before it is queued. A request that fails a check changes nothing.

use sequor_core::{DataType, Dim, Dims, Id, RequestMeta, Shape};

use crate::batch::wiring::stateful;
use crate::config::model::settings::{ControlKind, Input, ModelSettings, Scheduling, StateSettings, reshaped};
use crate::error::{Invalid, WrongSource};
use crate::scheduling::key_interner::KeyInterner;
use crate::state::StateValue;
use crate::tensor::{NamedTensor, Tensor, rows};

use super::features::{self, FeatureSources};
use super::message::InferRequest;

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

// === first states in a START ===

/// Checks the sequence whose state a START copies.
fn check_source(settings: &ModelSettings, request: &InferRequest) -> Result<(), Invalid> {
    let Some(from) = &request.sequence.from else { return Ok(()) };
    let wrong = match &settings.scheduling {
        _ if settings.ensemble.is_some() => Some(WrongSource::Ensemble),
        Scheduling::Sequence(sequence) if sequence.client_state => match request.sequence.start {
            false => Some(WrongSource::NotAtStart),
            true => (*from == request.sequence.id || *from == Id::None).then_some(WrongSource::Itself),
        },
        _ => Some(WrongSource::NotAllowed),
    };
    wrong.map_or(Ok(()), |wrong| Err(Invalid::CopySource(wrong)))
}

/// The index and the settings of the state that a START may contain under this name. `None` for one of the model's own inputs.
fn brought_state<'a>(settings: &'a ModelSettings, name: &str) -> Option<(usize, &'a StateSettings)> {
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return None };
    if !sequence.client_state || settings.inputs.iter().any(|input| input.name == name) {
        return None;
    }
    stateful(settings).1.iter().enumerate().find(|(_, state)| state.input == name)
}

/// Parts the states that a START may contain from the model's own inputs.
fn part_states(settings: &ModelSettings, given: Vec<NamedTensor>) -> (Vec<NamedTensor>, Vec<NamedTensor>) {
    match &settings.scheduling {
        Scheduling::Sequence(sequence) if sequence.client_state => {
            given.into_iter().partition(|named| brought_state(settings, &named.name).is_some())
        }
        _ => (Vec::new(), given),
    }
}

/// Describes a state as an input.
fn as_input(state: &StateSettings) -> Input {
    Input {
        name: state.input.clone(),
        dtype: state.dtype,
        dims: state.dims.clone(),
        reshape: None,
        optional: true,
        batch_dim: None,
        ragged: None,
    }
}

/// Checks states and puts them at their indices in the settings. Each must have one row.
fn take_states(
    settings: &ModelSettings,
    given: Vec<NamedTensor>,
    batching: bool,
) -> Result<Vec<Option<StateValue>>, Invalid> {
    let mut states = if given.is_empty() { Vec::new() } else { vec![None; stateful(settings).1.len()] };
    for named in given {
        let Some((at, state)) = brought_state(settings, &named.name) else { continue };
        let input = as_input(state);
        check_shape(&input, &named.tensor, batching)?;
        if batching && named.tensor.shape.0.first() != Some(&1) {
            return Err(Invalid::BatchSizes { input: named.name });
        }
        let Tensor { shape, data, .. } = take_input(&input, named, batching)?;
        if let Some(place) = states.get_mut(at) {
            let shape = if batching { shape.without(0) } else { shape };
            *place = Some(StateValue { shape, bytes: data });
        }
    }
    Ok(states)
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

/// The number of rows: the first dimension, which must be the same in all inputs.
fn batch_size(given: &[NamedTensor]) -> Result<u64, Invalid> {
    let mut size = None;
    for named in given {
        let Some(first) = named.tensor.shape.0.first().copied() else {
            return Err(Invalid::NoBatchDim { input: named.name.clone() });
        };
        if *size.get_or_insert(first) != first {
            return Err(Invalid::BatchSizes { input: named.name.clone() });
        }
    }
    Ok(size.unwrap_or(1))
}

fn check_shape(input: &Input, tensor: &Tensor, batching: bool) -> Result<(), Invalid> {
    check_type_and_shape(input, tensor.dtype, &tensor.shape, batching)
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

fn check_type_and_shape(input: &Input, dtype: DataType, shape: &Shape, batching: bool) -> Result<(), Invalid> {
    let name = || input.name.clone();
    if dtype != input.dtype {
        return Err(Invalid::DataType { input: name(), got: dtype, want: input.dtype });
    }
    if batching && shape.rank() == 0 {
        return Err(Invalid::NoBatchDim { input: name() });
    }
    let row = row_of(shape, batching);
    if let Some(axis) = input.batch_dim.filter(|axis| row.get(*axis).is_some_and(|n| *n != 1)) {
        // Requests of a sequence have one row.
        let want = input.dims.with(0, Dim::Any);
        let one = |(n, dim): (usize, &Dim)| if n == axis + 1 { Dim::Fixed(1) } else { *dim };
        let want = Dims(want.0.iter().enumerate().map(one).collect());
        return Err(Invalid::Shape { input: name(), want, got: shape.clone(), batching });
    }
    if !fits(&input.dims, row) {
        let want = if batching { input.dims.with(0, Dim::Any) } else { input.dims.clone() };
        return Err(Invalid::Shape { input: name(), want, got: shape.clone(), batching });
    }
    Ok(())
}

/// Checks the number of bytes of an input, and gives it the graph's shape.
fn take_input(input: &Input, named: NamedTensor, batching: bool) -> Result<Tensor, Invalid> {
    let NamedTensor { name, mut tensor } = named;
    check_size(&name, &tensor, batching)?;
    if let Some(to) = &input.reshape {
        let row = if batching { tensor.shape.without(0) } else { tensor.shape.clone() };
        let shape = reshaped(&input.dims, to, &row).unwrap_or(row);
        tensor.shape = match tensor.shape.0.first() {
            Some(rows) if batching => shape.with(0, *rows),
            _ => shape,
        };
    }
    Ok(tensor)
}

/// Converts checked inputs back to the client's names and shapes. `None` if a shape cannot be converted back.
pub(in crate::model) fn as_given(settings: &ModelSettings, inputs: Vec<Option<Tensor>>) -> Option<Vec<NamedTensor>> {
    let batching = settings.max_batch_size > 0;
    let given = |(input, tensor): (&Input, Option<Tensor>)| {
        let Some(mut tensor) = tensor else { return Some(None) };
        if let Some(to) = &input.reshape {
            let row = Shape(row_of(&tensor.shape, batching).into());
            let shape = reshaped(to, &input.dims, &row)?;
            tensor.shape = match tensor.shape.0.first() {
                Some(rows) if batching => shape.with(0, *rows),
                _ => shape,
            };
        }
        Some(Some(NamedTensor { name: input.name.clone(), tensor }))
    };
    let given: Option<Vec<Option<NamedTensor>>> = settings.inputs.iter().zip(inputs).map(given).collect();
    Some(given?.into_iter().flatten().collect())
}

/// The dimensions of a row.
fn row_of(shape: &Shape, batching: bool) -> &[u64] {
    shape.0.get(usize::from(batching)..).unwrap_or_default()
}

/// Whether a row of this shape fits the declared dimensions.
fn fits(dims: &Dims, row: &[u64]) -> bool {
    dims.rank() == row.len() && dims.0.iter().zip(row).all(|(dim, n)| dim.fixed().is_none_or(|d| d == *n))
}

fn check_size(name: &str, tensor: &Tensor, batching: bool) -> Result<(), Invalid> {
    let got = tensor.data.len() as u64;
    let input = || name.to_owned();
    let Some(size) = tensor.dtype.size() else { return check_texts(input(), &tensor.shape, &tensor.data) };
    let bytes = |shape: &Shape| shape.elements().and_then(|n| n.checked_mul(size as u64));
    match bytes(&tensor.shape) {
        // A batch of no rows has no bytes; Triton calls that a mismatch with one row.
        Some(0) if batching && tensor.shape.0.first() == Some(&0) => {
            let want = bytes(&tensor.shape.without(0)).unwrap_or(u64::MAX);
            Err(Invalid::ByteSize { input: input(), want, got })
        }
        Some(want) if want == got => Ok(()),
        want => Err(Invalid::ByteSize { input: input(), want: want.unwrap_or(u64::MAX), got }),
    }
}

/// Checks that BYTES parse into exactly as many elements as the shape has.
fn check_texts(input: String, shape: &Shape, data: &[u8]) -> Result<(), Invalid> {
    let mut texts = rows::BytesElements(data);
    let got = texts.by_ref().count() as u64;
    let left = texts.0;
    let want = shape.elements().unwrap_or(u64::MAX);
    if !left.is_empty() {
        return match left.split_first_chunk::<4>() {
            None => Err(Invalid::StringLength { input }),
            Some((length, rest)) => {
                let want = u64::from(u32::from_le_bytes(*length));
                Err(Invalid::StringData { input, want, left: rest.len() as u64 })
            }
        };
    }
    if got == want { Ok(()) } else { Err(Invalid::StringCount { input, want, got }) }
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
    let mut class = 0;
    for (input, tensor) in settings.inputs.iter().zip(inputs) {
        class = match tensor {
            Some(tensor) if is_open(&input.dims) && input.ragged.is_none() => tensor.shape.without(0).class(class),
            Some(_) if input.optional => Shape::new(&[1]).class(class),
            None => Shape::new(&[0]).class(class),
            _ => class,
        };
    }
    let bytes = inputs.iter().flatten().map(|t| t.data.len() as u64).sum();
    RequestMeta { rows: u32::try_from(rows).unwrap_or(u32::MAX), bytes, shape: class, ..RequestMeta::default() }
}

fn is_open(dims: &Dims) -> bool {
    dims.0.iter().any(|dim| dim.fixed().is_none())
}
