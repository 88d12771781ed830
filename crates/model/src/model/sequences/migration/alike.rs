//! Whether two loads of a model are so alike that requests, or sequences, of one can go to the other.

use crate::model::load::LoadedModel;

/// Checks that the same requests mean the same on two loads. The error says why they do not.
pub(super) fn takes_same(old: &LoadedModel, new: &LoadedModel) -> Result<(), String> {
    for load in [old, new] {
        if load.processors.is_some() || load.ensemble.is_some() {
            return Err(format!("version {} has processors or is an ensemble", load.version));
        }
    }
    let (before, now) = (&old.settings, &new.settings);
    let inputs = |of: &LoadedModel| -> Vec<_> {
        of.settings.inputs.iter().map(|i| (i.name.clone(), i.dtype, i.dims.clone(), i.optional)).collect()
    };
    let outputs = |of: &LoadedModel| -> Vec<_> {
        of.settings.outputs.iter().map(|o| (o.name.clone(), o.dtype, o.dims.clone())).collect()
    };
    if inputs(old) != inputs(new)
        || outputs(old) != outputs(new)
        || before.max_batch_size.min(1) != now.max_batch_size.min(1)
    {
        return Err("its inputs or outputs are others".to_owned());
    }
    if before.features != now.features {
        return Err("its features are others".to_owned());
    }
    Ok(())
}

/// Checks that sequences of one load can continue on another. The error says why they cannot.
pub(super) fn fits(old: &LoadedModel, new: &LoadedModel) -> Result<(), String> {
    takes_same(old, new)?;
    for state in &old.states {
        let name = &state.input;
        match new.states.iter().find(|of| of.input == *name) {
            None => return Err(format!("it has no state \"{name}\"")),
            Some(of) if of.dtype != state.dtype || of.dims != state.dims => {
                let (was, is) = (format!("{} {}", state.dtype, state.dims), format!("{} {}", of.dtype, of.dims));
                return Err(format!("state \"{name}\" was {was} and is {is}"));
            }
            Some(_) => {}
        }
    }
    match new.states.iter().find(|of| old.states.iter().all(|state| state.input != of.input)) {
        Some(more) => Err(format!("state \"{}\" is new", more.input)),
        None => Ok(()),
    }
}
