//! The first state of a sequence that its START specifies: a sequence to copy, or states among the inputs.

use sequor_core::Id;

use crate::batch::wiring::stateful;
use crate::config::model::settings::{Input, ModelSettings, Scheduling, StateSettings};
use crate::error::{Invalid, WrongSource};
use crate::state::StateValue;
use crate::tensor::{NamedTensor, Tensor};

use super::input_checks::{check_shape, take_input};
use super::message::InferRequest;

/// Checks the sequence whose state a START copies.
pub(super) fn check_source(settings: &ModelSettings, request: &InferRequest) -> Result<(), Invalid> {
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
pub(super) fn brought_state<'a>(settings: &'a ModelSettings, name: &str) -> Option<(usize, &'a StateSettings)> {
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return None };
    if !sequence.client_state || settings.inputs.iter().any(|input| input.name == name) {
        return None;
    }
    stateful(settings).1.iter().enumerate().find(|(_, state)| state.input == name)
}

/// Parts the states that a START may contain from the model's own inputs.
pub(super) fn part_states(settings: &ModelSettings, given: Vec<NamedTensor>) -> (Vec<NamedTensor>, Vec<NamedTensor>) {
    match &settings.scheduling {
        Scheduling::Sequence(sequence) if sequence.client_state => {
            given.into_iter().partition(|named| brought_state(settings, &named.name).is_some())
        }
        _ => (Vec::new(), given),
    }
}

/// Describes a state as an input.
pub(super) fn as_input(state: &StateSettings) -> Input {
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
pub(super) fn take_states(
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
