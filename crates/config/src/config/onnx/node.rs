//! A node of a graph: its names, inputs, outputs and attributes.

use super::fields::{attribute, node};
use super::wire::{Message, NotAMessage, WireField};

/// A node, and all other fields of its message.
#[derive(Debug, Clone)]
pub(super) struct GraphNode<'a> {
    pub(super) name: String,
    pub(super) op: String,
    /// An empty name is an omitted input.
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) is_standard: bool,
    rest: Message<'a>,
}

impl<'a> GraphNode<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<GraphNode<'a>, NotAMessage> {
        let mut rest = Message::parse(bytes)?;
        let (inputs, outputs) = (rest.texts(node::INPUT), rest.texts(node::OUTPUT));
        let domain = rest.text(node::DOMAIN);
        let (name, op) = (rest.text(node::NAME), rest.text(node::OP_TYPE));
        rest.0.retain(|field| field.number != node::INPUT && field.number != node::OUTPUT);
        Ok(GraphNode { name, op, inputs, outputs, is_standard: domain.is_empty() || domain == "ai.onnx", rest })
    }

    /// A node without attributes.
    pub(super) fn new(name: &str, op: &str, inputs: &[&str], output: &str) -> GraphNode<'static> {
        let rest = Message(vec![WireField::text(node::NAME, name), WireField::text(node::OP_TYPE, op)]);
        GraphNode {
            name: name.to_owned(),
            op: op.to_owned(),
            inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
            outputs: vec![output.to_owned()],
            is_standard: true,
            rest,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let texts =
            |number: u32, texts: &[String]| texts.iter().map(|text| WireField::text(number, text)).collect::<Vec<_>>();
        let mut fields = texts(node::INPUT, &self.inputs);
        fields.extend(texts(node::OUTPUT, &self.outputs));
        fields.extend(self.rest.0.iter().cloned());
        Message(fields).encode()
    }

    /// The input at this position, if it is given.
    pub(super) fn input(&self, at: usize) -> Option<&str> {
        self.inputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    pub(super) fn set_input(&mut self, at: usize, name: &str) {
        set(&mut self.inputs, at, name);
    }

    pub(super) fn output(&self, at: usize) -> Option<&str> {
        self.outputs.get(at).map(String::as_str).filter(|name| !name.is_empty())
    }

    pub(super) fn set_output(&mut self, at: usize, name: &str) {
        set(&mut self.outputs, at, name);
    }

    fn attribute(&self, name: &str) -> Option<Message<'_>> {
        let all = self.rest.all(node::ATTRIBUTE).filter_map(|bytes| Message::parse(bytes).ok());
        all.into_iter().find(|attribute| attribute.text(attribute::NAME) == name)
    }

    pub(super) fn int(&self, name: &str) -> Option<u64> {
        self.attribute(name)?.number(attribute::INT)
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        Some(self.attribute(name)?.text(attribute::TEXT))
    }
}

fn set(names: &mut Vec<String>, at: usize, name: &str) {
    if names.len() <= at {
        names.resize(at + 1, String::new());
    }
    if let Some(place) = names.get_mut(at) {
        name.clone_into(place);
    }
}
