//! The exports of a component: conversions between the generated types of the contract and those of this kit.

use super::bindings::exports::sequor::plugin::state_initializer as contract;
use super::instance::{Answer, Instance};
use super::{Initializer, Ports};
use crate::processor::wasm::{facts, file, given, model_of, port, refused, taken};

pub fn configure<P: Initializer>(
    instance: &mut Instance<P>,
    config: &str,
    model: contract::Model,
    ports: contract::Ports,
    files: Vec<contract::File>,
) -> Result<(), String> {
    crate::processor::wasm::log_panics();
    let contract::Ports { states, request, step } = ports;
    let [states, request, step] = [states, request, step].map(|ports| ports.into_iter().map(port).collect());
    let files = crate::processor::Files::new(files.into_iter().map(|of| file(of.name, of.content)).collect());
    instance.configure(config, model_of(model), Ports { states, request, step }, &files)
}

pub fn initialize<P: Initializer>(
    instance: &mut Instance<P>,
    call: contract::Call,
    inputs: Vec<contract::Value>,
) -> Result<contract::FirstState, contract::Refusal> {
    let (facts, _) = facts(call);
    Ok(match instance.initialize(&facts, taken(inputs)).map_err(refused)? {
        Answer::Default => contract::FirstState::Default,
        Answer::States(states) => contract::FirstState::States(given(states)),
        Answer::CopyOf(id) => contract::FirstState::CopyOf(id),
        Answer::Kept(name) => contract::FirstState::Kept(name),
    })
}

pub fn steps<P: Initializer>(
    instance: &mut Instance<P>,
    name: &str,
    call: contract::Call,
    inputs: Vec<contract::Value>,
) -> Result<Vec<Vec<contract::Value>>, contract::Refusal> {
    let (facts, _) = facts(call);
    let steps = instance.steps(name, &facts, taken(inputs)).map_err(refused)?;
    Ok(steps.into_iter().map(given).collect())
}
