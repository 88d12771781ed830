//! One call into a guest: passes tensors by value or by handle, and turns the results into tensors.

use sequor_wasm::call_error::{Call, CallError};
use sequor_wasm::host::cut;

use super::contract::sequor::plugin::types;
use super::contract::state_initializer::{File, FirstState, Ports};
use super::ports::InitializerPorts;
use super::world::InitializerGuest;
use crate::config::model::LoadFacts;
use crate::processing::calls::{
    CallFacts, Given, GuestRefusal, Passing, as_params, begin, call, refused, taken, values, wire_dims,
};
use crate::processing::files::ProcessorFile;
use crate::processing::tensors::HeldTensors;
use crate::tensor::Tensor;

/// An answer of `initialize`, not yet checked against the states.
#[derive(Debug)]
pub(super) enum InitializeAnswer {
    Default,
    States(Vec<Given>),
    CopyOf(String),
    Kept(String),
}

/// Configures a guest. An error of the inner result is the guest's own sentence.
pub(super) fn configure(
    guest: &mut InitializerGuest,
    config: &str,
    facts: &LoadFacts,
    ports: &InitializerPorts,
    files: &[ProcessorFile],
) -> Result<Result<(), String>, CallError> {
    let numbers: Vec<&str> = facts.numbers.iter().map(String::as_str).collect();
    let keys: Vec<&str> = facts.keys.iter().map(String::as_str).collect();
    let model = types::Model {
        name: &facts.name,
        version: facts.version,
        strategy: facts.strategy,
        max_batch: facts.max_batch,
        instances: facts.instances,
        slots: facts.slots,
        numbers: &numbers,
        keys: &keys,
    };
    let InitializerPorts { states, request, step } = ports;
    let dims = [states, request, step].map(|ports| wire_dims(ports));
    let [state_dims, request_dims, step_dims] = &dims;
    let states = as_params(states, state_dims);
    let (request, step) = (as_params(request, request_dims), as_params(step, step_dims));
    guest.call_configure(config, |to, store, config| {
        let held = store.data_mut().world_data::<HeldTensors>()?;
        let mut given = Vec::with_capacity(files.len());
        for file in files {
            given.push(File { name: &file.name, content: held.give(file.tensor())? });
        }
        let ports = Ports { states: &states, request: &request, step: &step };
        to.sequor_plugin_state_initializer().call_configure(store, config, model, ports, &given)
    })
}

/// Calls `initialize`.
pub(super) fn initialize(
    guest: &mut InitializerGuest,
    facts: &CallFacts,
    inputs: &[(u32, &Tensor)],
    passing: Passing,
) -> Result<Result<InitializeAnswer, GuestRefusal>, CallError> {
    let asked = Call { name: "initialize", of: Some((passing.kib, "KiB")) };
    guest.call(asked, passing.limit, |to, store| {
        let held = begin(store.data_mut())?;
        let inputs = values(held, inputs, passing.by_value)?;
        let answer = to.sequor_plugin_state_initializer().call_initialize(&mut *store, call(facts, &[]), &inputs)?;
        let first = match answer {
            Ok(first) => first,
            Err(refusal) => return Ok(Err(refused(refusal))),
        };
        let held = store.data_mut().world_data::<HeldTensors>()?;
        Ok(Ok(match first {
            FirstState::Default => InitializeAnswer::Default,
            FirstState::States(given) => InitializeAnswer::States(taken(held, given)?),
            FirstState::CopyOf(id) => InitializeAnswer::CopyOf(cut(id)),
            FirstState::Kept(name) => InitializeAnswer::Kept(name),
        }))
    })
}

/// Calls `steps`.
pub(super) fn steps(
    guest: &mut InitializerGuest,
    name: &str,
    facts: &CallFacts,
    inputs: &[(u32, &Tensor)],
    passing: Passing,
) -> Result<Result<Vec<Vec<Given>>, GuestRefusal>, CallError> {
    let asked = Call { name: "steps", of: Some((passing.kib, "KiB")) };
    guest.call(asked, passing.limit, |to, store| {
        let held = begin(store.data_mut())?;
        let inputs = values(held, inputs, passing.by_value)?;
        let answer = to.sequor_plugin_state_initializer().call_steps(&mut *store, name, call(facts, &[]), &inputs)?;
        let steps = match answer {
            Ok(steps) => steps,
            Err(refusal) => return Ok(Err(refused(refusal))),
        };
        let held = store.data_mut().world_data::<HeldTensors>()?;
        Ok(Ok(steps.into_iter().map(|step| taken(held, step)).collect::<wasmtime::Result<_>>()?))
    })
}
