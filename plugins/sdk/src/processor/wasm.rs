//! The exports of a component: conversions between the generated types of the contract and those of this kit.

use super::Processor;
use super::bindings::exports::sequor::plugin::processor as contract;
use super::bindings::sequor::plugin::tensors::{
    Content as ContractContent, Flat, Port as ContractPort, Tensor as ContractTensor, Value as ContractValue,
};
use super::call::CallFacts;
use super::dtype::Dtype;
use super::files::Files;
use super::held::Held;
use super::instance::{Action, Instance, Value};
use super::refusal::Refusal;
use super::signature::{Port, Signature};
use super::tensor::{Content, Tensor};
use crate::model::Model;

pub fn configure<P: Processor>(
    instance: &mut Instance<P>,
    config: &str,
    model: contract::Model,
    inner: contract::Signature,
    files: Vec<contract::File>,
) -> Result<contract::Signature, String> {
    log_panics();
    let model = model_of(model);
    let files = Files::new(files.into_iter().map(|of| file(of.name, of.content)).collect());
    let ports = |ports: Vec<ContractPort>| ports.into_iter().map(port).collect();
    let inner = Signature { inputs: ports(inner.inputs), outputs: ports(inner.outputs) };
    let outer = instance.configure(config, model, inner, &files)?;
    let ports = |ports: Vec<Port>| ports.into_iter().map(contract_port).collect();
    Ok(contract::Signature { inputs: ports(outer.inputs), outputs: ports(outer.outputs) })
}

pub fn pre<P: Processor>(
    instance: &mut Instance<P>,
    call: contract::Call,
    inputs: Vec<contract::Value>,
) -> Result<contract::Prepared, contract::Refusal> {
    let (facts, scratch) = facts(call);
    let (action, scratch) = instance.pre(&facts, &scratch, taken(inputs)).map_err(refused)?;
    let action = match action {
        Action::Run(runs) => contract::Action::Run(runs.into_iter().map(given).collect()),
        Action::Reply(outputs) => contract::Action::Reply(given(outputs)),
    };
    Ok(contract::Prepared { action, scratch })
}

pub fn post<P: Processor>(
    instance: &mut Instance<P>,
    call: contract::Call,
    runs: Vec<Vec<contract::Value>>,
) -> Result<contract::Answered, contract::Refusal> {
    let (facts, scratch) = facts(call);
    let runs = runs.into_iter().map(taken).collect();
    let (outputs, scratch) = instance.post(&facts, &scratch, runs).map_err(refused)?;
    Ok(contract::Answered { outputs: given(outputs), scratch })
}

/// A trap carries no message, so a panic writes its own to the log first.
pub(crate) fn log_panics() {
    std::panic::set_hook(Box::new(|panic| crate::host::error(&panic.to_string())));
}

pub(crate) fn model_of(model: contract::Model) -> Model {
    let contract::Model { name, version, strategy, max_batch, instances, slots, numbers, keys } = model;
    Model { name, version, strategy, max_batch, instances, slots, numbers, keys }
}

pub(crate) fn file(name: String, content: ContractTensor) -> (String, Tensor) {
    (name, Tensor::of_held(Held(content)))
}

pub(crate) fn facts(call: contract::Call) -> (CallFacts, Vec<u8>) {
    let contract::Call { sequence, step, start_end, numbers, keys, outputs, scratch } = call;
    let (start, end) = (start_end & 1 != 0, start_end & 2 != 0);
    (CallFacts { sequence, step, start, end, numbers, keys, outputs }, scratch)
}

pub(crate) fn refused(refusal: Refusal) -> contract::Refusal {
    let Refusal { code, text, retry_us, ends } = refusal;
    contract::Refusal { code, text, retry_us, ends }
}

pub(crate) fn taken(values: Vec<ContractValue>) -> Vec<Value> {
    values.into_iter().map(|value| (value.port, taken_content(value.content))).collect()
}

pub(super) fn taken_content(content: ContractContent) -> Tensor {
    match content {
        ContractContent::Flat(Flat { dtype, shape, bytes }) => Tensor::from_bytes(Dtype(dtype), &shape, bytes),
        ContractContent::Handle(held) => Tensor::of_held(Held(held)),
    }
}

pub(crate) fn given(values: Vec<Value>) -> Vec<ContractValue> {
    values.into_iter().map(|(port, tensor)| ContractValue { port, content: given_content(tensor) }).collect()
}

pub(super) fn given_content(tensor: Tensor) -> ContractContent {
    match tensor.into_content() {
        Content::Flat { dtype, shape, bytes } => ContractContent::Flat(Flat { dtype: dtype.0, shape, bytes }),
        Content::Held(Held(held)) => ContractContent::Handle(held),
    }
}

pub(crate) fn port(port: ContractPort) -> Port {
    let ContractPort { name, dtype, shape, optional } = port;
    Port { name, dtype: Dtype(dtype), shape, optional }
}

fn contract_port(port: Port) -> ContractPort {
    let Port { name, dtype, shape, optional } = port;
    ContractPort { name, dtype: dtype.0, shape, optional }
}
