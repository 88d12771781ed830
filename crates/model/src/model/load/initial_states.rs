//! The states of a load's sequences: their shapes and initial values.

use std::path::Path;
use std::sync::Arc;

use crate::batch::wiring::stateful;
use crate::config::fault::code;
use crate::config::model::settings::{InitialData, ModelSettings, StateSettings};
use crate::error::{At, LoadError, LoadWarning};
use crate::state::{InitialValue, StateSpec};
use crate::tensor::rows;

/// The states of a model, with the initial values from files. A warning names a file with a wrong content.
pub(super) fn state_specs(
    settings: &ModelSettings,
    warnings: &mut Vec<LoadWarning>,
) -> Result<Vec<StateSpec>, LoadError> {
    let (_, states) = stateful(settings);
    let batching = settings.max_batch_size > 0;
    states.iter().map(|state| state_spec(state, batching, warnings)).collect()
}

fn state_spec(state: &StateSettings, batching: bool, warnings: &mut Vec<LoadWarning>) -> Result<StateSpec, LoadError> {
    let data = match &state.initial.data {
        InitialData::Zero => None,
        InitialData::File(path) => first_value(state, path, warnings)?,
    };
    Ok(StateSpec {
        input: state.input.clone(),
        output: state.output.clone(),
        dtype: state.dtype,
        dims: state.dims.clone(),
        batch_axis: batching.then_some(state.batch_axis),
        storage: state.storage,
        initial: InitialValue { shape: state.initial.shape.clone(), data },
        same_buffer: state.same_buffer,
        padding: state.pad.as_ref().map(|pad| pad.padding.clone()),
    })
}

/// Reads the initial value of a state from a file. A longer file is truncated. Texts that are not in the BYTES layout are replaced by empty
/// ones.
fn first_value(
    state: &StateSettings,
    path: &Path,
    warnings: &mut Vec<LoadWarning>,
) -> Result<Option<Arc<[u8]>>, LoadError> {
    let mut bytes = fs_err::read(path).map_err(|e| LoadError::File { path: path.to_owned(), what: e.to_string() })?;
    let elements = state.initial.shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let len = match state.dtype.size() {
        Some(size) => elements.saturating_mul(size),
        None => match rows::texts_len(&bytes, elements) {
            Ok(len) => len,
            Err(why) => {
                let input = &state.input;
                let what = format!(
                    "the data_file of state '{input}' is not in the BYTES layout, so its sequences start with empty texts: {why}"
                );
                let at = At { path: path.to_owned(), ..At::default() };
                warnings.push(LoadWarning { at, code: code::NOTE_INITIAL, what });
                return Ok(None);
            }
        },
    };
    bytes.truncate(len);
    Ok(Some(Arc::from(bytes)))
}
