//! The inputs that a graph declares, for checks of a configuration without the runtime.

use std::collections::BTreeMap;

use sequor_core::{Dim, Dims};

use super::fields::{graph, model, value};
use super::wire::{Message, NotAMessage};

/// The whole shapes of a graph's inputs, by name. An input that is not a tensor has none.
pub fn input_dims(bytes: &[u8]) -> Result<BTreeMap<String, Dims>, NotAMessage> {
    let file = Message::parse(bytes)?;
    let graph = Message::parse(file.last(model::GRAPH).ok_or(NotAMessage)?)?;
    let mut inputs = BTreeMap::new();
    for bytes in graph.all(graph::INPUT) {
        let info = Message::parse(bytes)?;
        if let Some(dims) = dims(&info)? {
            inputs.insert(info.text(value::NAME), dims);
        }
    }
    Ok(inputs)
}

fn within(message: Option<&[u8]>) -> Result<Option<Message<'_>>, NotAMessage> {
    message.map(Message::parse).transpose()
}

fn dims(info: &Message<'_>) -> Result<Option<Dims>, NotAMessage> {
    let Some(kind) = within(info.last(value::TYPE))? else { return Ok(None) };
    let Some(tensor) = within(kind.last(value::TENSOR))? else { return Ok(None) };
    let Some(shape) = within(tensor.last(value::SHAPE))? else { return Ok(None) };
    let mut dims = Vec::new();
    for bytes in shape.all(value::DIM) {
        dims.push(Message::parse(bytes)?.number(value::DIM_VALUE).map_or(Dim::Any, Dim::Fixed));
    }
    Ok(Some(Dims(dims)))
}
