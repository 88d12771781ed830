//! Makes the states of recurrent nodes inputs and outputs of their graph, so that a sequence may come in parts.
//!
//! OVMS calls this the low latency transformation. It changes every LSTM, GRU and RNN node outside of subgraphs. The node gets its first
//! state from a new input, and writes its last state to an output. If the graph itself has a first state for the node, that one is used at
//! START.
//!
//! A state has one row unless the graph defines another number. An open batch that feeds such a node is therefore fixed to one row. A
//! request with more rows is refused before it runs.

use std::collections::{BTreeMap, BTreeSet};

use sequor_core::DataType;

use super::fields::{element, graph, model, tensor, value};
use super::node::GraphNode;
use super::wire::{Message, NotAMessage, WireField, WireValue};

/// Why a graph cannot be transformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowLatencyError {
    #[error(transparent)]
    NotAMessage(#[from] NotAMessage),
    #[error("the file is not an ONNX model: it has no graph")]
    NoGraph,
    #[error(
        "the graph has no LSTM, GRU or RNN node outside of subgraphs; export the model with its states as inputs and outputs"
    )]
    NoRecurrentNode,
    #[error(
        "node '{node}' ({op}) is {direction}: it reads a sequence from its end, which is not there yet when the sequence comes in parts"
    )]
    Direction { node: String, op: String, direction: String },
    #[error("node '{node}' ({op}) has layout 1, which ONNX Runtime does not run; export it with layout 0")]
    Layout { node: String, op: String },
    #[error("node '{node}' ({op}) does not say its hidden_size")]
    NoSize { node: String, op: String },
    #[error("node '{node}' ({op}) computes with elements of type {element}, which states cannot have")]
    Element { node: String, op: String, element: u64 },
}

/// A state that became an input and an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedState {
    pub input: String,
    pub output: String,
    pub dtype: DataType,
    /// The whole shape; -1 for an open dimension.
    pub dims: Vec<i64>,
}

/// A graph with its states as inputs and outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transformed {
    /// The bytes of the new ONNX file.
    pub model: Vec<u8>,
    pub states: Vec<NamedState>,
    /// The BOOL input `[1]` that is true at START, if the graph gives first states.
    pub start: Option<String>,
}

/// Transforms the bytes of an ONNX file.
pub fn transform(bytes: &[u8]) -> Result<Transformed, LowLatencyError> {
    let file = Message::parse(bytes)?;
    let graph_bytes = file.last(model::GRAPH).ok_or(LowLatencyError::NoGraph)?;
    let mut transformation = Transformation::new(Message::parse(graph_bytes)?)?;
    transformation.run()?;
    let Transformation { mut fields, states, start, single_rows, .. } = transformation;
    if !single_rows.is_empty() {
        replace_messages(&mut fields, &[graph::INPUT, graph::OUTPUT, graph::VALUE_INFO], &|field| {
            with_single_rows(field, &DIMENSION, &single_rows)
        })?;
    }
    if states.is_empty() {
        return Err(LowLatencyError::NoRecurrentNode);
    }
    let graph = Message(fields).encode();
    let mut file = file.clone();
    file.0.retain(|field| field.number != model::GRAPH);
    file.0.push(WireField::bytes(model::GRAPH, graph));
    Ok(Transformed { model: file.encode(), states, start })
}

/// For a recurrent operator: the input of each first state, the output of the last state, and a letter.
fn states_of(op: &str) -> Option<&'static [(usize, usize, &'static str)]> {
    match op {
        "LSTM" => Some(&[(5, 1, "h"), (6, 2, "c")]),
        "GRU" | "RNN" => Some(&[(5, 1, "h")]),
        _ => None,
    }
}

/// A tensor as the graph declares it: its element type, and its dimensions, with `None` for an open one.
#[derive(Debug, Clone, Default)]
struct KnownTensor {
    element: Option<u64>,
    dims: Vec<Option<u64>>,
    /// The names of the dimensions; empty for one without a name.
    names: Vec<String>,
}

struct Transformation<'a> {
    graph: Message<'a>,
    known: BTreeMap<String, KnownTensor>,
    /// Names of tensors and nodes that are taken.
    names: BTreeSet<String>,
    outputs: BTreeSet<String>,
    /// The fields of the new graph.
    fields: Vec<WireField<'a>>,
    states: Vec<NamedState>,
    start: Option<String>,
    /// The names of open dimensions that are the batch of a state with one row.
    single_rows: BTreeSet<String>,
}

impl<'a> Transformation<'a> {
    fn new(graph: Message<'a>) -> Result<Transformation<'a>, LowLatencyError> {
        let mut known = BTreeMap::new();
        for number in [graph::INPUT, graph::OUTPUT, graph::VALUE_INFO] {
            for bytes in graph.all(number) {
                let info = Message::parse(bytes)?;
                known.insert(info.text(value::NAME), tensor_of(&info)?);
            }
        }
        for bytes in graph.all(graph::INITIALIZER) {
            let constant = Message::parse(bytes)?;
            let dims = constant.numbers(tensor::DIMS)?.into_iter().map(Some).collect();
            let element = constant.number(tensor::DATA_TYPE);
            known.insert(constant.text(tensor::NAME), KnownTensor { element, dims, names: Vec::new() });
        }
        let mut names: BTreeSet<String> = known.keys().cloned().collect();
        for bytes in graph.all(graph::NODE) {
            let node = GraphNode::parse(bytes)?;
            names.extend(node.inputs.into_iter().chain(node.outputs).chain([node.name]));
        }
        let infos: Result<Vec<_>, NotAMessage> = graph.all(graph::OUTPUT).map(Message::parse).collect();
        let outputs = infos?.iter().map(|info| info.text(value::NAME)).collect();
        let (fields, states, start, single_rows) = (Vec::new(), Vec::new(), None, BTreeSet::new());
        Ok(Transformation { graph, known, names, outputs, fields, states, start, single_rows })
    }

    /// Copies the graph in order. A new node is added in front of the node that reads it.
    fn run(&mut self) -> Result<(), LowLatencyError> {
        let mut count = 0;
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for field in self.graph.0.clone() {
            let WireValue::Bytes(bytes) = &field.value else {
                self.fields.push(field);
                continue;
            };
            if field.number != graph::NODE {
                self.fields.push(field);
                continue;
            }
            let node = GraphNode::parse(bytes)?;
            let Some(ports) = states_of(&node.op).filter(|_| node.is_standard) else {
                self.fields.push(field);
                continue;
            };
            count += 1;
            let node = self.recurrent(&node.encode(), count, ports, (&mut inputs, &mut outputs))?;
            self.fields.push(WireField::bytes(graph::NODE, node));
        }
        if let Some(start) = &self.start {
            inputs.push(WireField::bytes(graph::INPUT, info(start, element::BOOL, &[1])));
        }
        self.fields.extend(inputs.into_iter().chain(outputs));
        Ok(())
    }

    /// Makes the states of one node inputs and outputs. Returns the node's new message.
    fn recurrent(
        &mut self,
        bytes: &[u8],
        count: usize,
        ports: &[(usize, usize, &str)],
        (inputs, outputs): (&mut Vec<WireField<'a>>, &mut Vec<WireField<'a>>),
    ) -> Result<Vec<u8>, LowLatencyError> {
        let mut node = GraphNode::parse(bytes)?;
        let base = match node.name.as_str() {
            "" => format!("{}_{count}", node.op.to_lowercase()),
            name => name.trim_matches('/').replace(['/', ' '], "_"),
        };
        let (of, op) = (base.clone(), node.op.clone());
        let direction = node.text("direction").unwrap_or_else(|| "forward".to_owned());
        if direction != "forward" {
            return Err(LowLatencyError::Direction { node: of, op, direction });
        }
        if node.int("layout").is_some_and(|layout| layout != 0) {
            return Err(LowLatencyError::Layout { node: of, op });
        }
        let weights = |at: usize| node.input(at).and_then(|name| self.known.get(name));
        let from_weights = weights(2).and_then(|tensor| tensor.dims.get(2).copied().flatten());
        let size = node.int("hidden_size").or(from_weights);
        let size = size.ok_or_else(|| LowLatencyError::NoSize { node: of.clone(), op: op.clone() })?;
        let element = [1, 2, 0].into_iter().find_map(|at| weights(at)?.element).unwrap_or(element::FLOAT);
        let dtype = dtype_of(element).ok_or(LowLatencyError::Element { node: of, op, element })?;
        for (at, last, kind) in ports {
            let given = node.input(*at).map(str::to_owned);
            let rows = self.rows(&node, given.as_deref());
            let dims = vec![1, rows, i64::try_from(size).unwrap_or(i64::MAX)];
            let input = self.free_name(&format!("{base}_{kind}_in"));
            let output = match node.output(*last) {
                Some(name) => name.to_owned(),
                None => self.free_name(&format!("{base}_{kind}_out")),
            };
            node.set_output(*last, &output);
            let first = match given {
                None => input.clone(),
                Some(given) => self.chosen(&base, kind, &given, &input),
            };
            node.set_input(*at, &first);
            inputs.push(WireField::bytes(graph::INPUT, info(&input, element, &dims)));
            if self.outputs.insert(output.clone()) {
                outputs.push(WireField::bytes(graph::OUTPUT, info(&output, element, &dims)));
            }
            self.states.push(NamedState { input, output, dtype, dims });
        }
        Ok(node.encode())
    }

    /// Adds a node that chooses the graph's own first state at START, and the kept state otherwise. Returns the name of its output.
    fn chosen(&mut self, base: &str, kind: &str, given: &str, kept: &str) -> String {
        let start = match &self.start {
            Some(start) => start.clone(),
            None => {
                let name = self.free_name("sequor_start");
                self.start.insert(name).clone()
            }
        };
        let output = self.free_name(&format!("{base}_{kind}_first"));
        let name = self.free_name(&format!("{base}_{kind}_choice"));
        let node = GraphNode::new(&name, "Where", &[&start, given, kept], &output);
        self.fields.push(WireField::bytes(graph::NODE, node.encode()));
        output
    }

    /// The batch dimension of a node's states: that of its first state, otherwise that of its sequence. If the graph has no first state and
    /// names the open batch of the sequence, that batch gets one row. -1 otherwise.
    fn rows(&mut self, node: &GraphNode<'_>, given: Option<&str>) -> i64 {
        let of = |name: &str| self.known.get(name)?.dims.get(1).copied().flatten();
        let rows = given.and_then(of).or_else(|| of(node.input(0)?));
        if let Some(rows) = rows.and_then(|rows| i64::try_from(rows).ok()) {
            return rows;
        }
        let names = node.input(0).and_then(|name| self.known.get(name)).map(|sequence| sequence.names.as_slice());
        match names {
            Some([time, batch, ..]) if given.is_none() && !batch.is_empty() && time != batch => {
                self.single_rows.insert(batch.clone());
                1
            }
            _ => -1,
        }
    }

    fn free_name(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut count = 1;
        while !self.names.insert(name.clone()) {
            count += 1;
            name = format!("{wanted}_{count}");
        }
        name
    }
}

fn dtype_of(element: u64) -> Option<DataType> {
    match element {
        element::FLOAT => Some(DataType::Fp32),
        element::FLOAT16 => Some(DataType::Fp16),
        element::BFLOAT16 => Some(DataType::Bf16),
        element::DOUBLE => Some(DataType::Fp64),
        _ => None,
    }
}

fn tensor_of(info: &Message<'_>) -> Result<KnownTensor, NotAMessage> {
    let Some(bytes) = info.last(value::TYPE) else { return Ok(KnownTensor::default()) };
    let kind = Message::parse(bytes)?;
    let Some(bytes) = kind.last(value::TENSOR) else { return Ok(KnownTensor::default()) };
    let of = Message::parse(bytes)?;
    let (mut dims, mut names) = (Vec::new(), Vec::new());
    if let Some(bytes) = of.last(value::SHAPE) {
        for bytes in Message::parse(bytes)?.all(value::DIM) {
            let dim = Message::parse(bytes)?;
            dims.push(dim.number(value::DIM_VALUE));
            names.push(dim.text(value::DIM_NAME));
        }
    }
    Ok(KnownTensor { element: of.number(value::ELEMENT), dims, names })
}

/// The fields that lead from a `ValueInfoProto` to its dimensions.
const DIMENSION: [u32; 4] = [value::TYPE, value::TENSOR, value::SHAPE, value::DIM];

/// Rewrites a message with dimensions at this path. Dimensions with one of these names get the size 1.
fn with_single_rows(bytes: &[u8], path: &[u32], names: &BTreeSet<String>) -> Result<Vec<u8>, NotAMessage> {
    let mut message = Message::parse(bytes)?;
    let Some((next, rest)) = path.split_first() else {
        let is_named = names.contains(&message.text(value::DIM_NAME));
        let single = Message(vec![WireField::number(value::DIM_VALUE, 1)]);
        return Ok(if is_named { single.encode() } else { bytes.to_vec() });
    };
    replace_messages(&mut message.0, &[*next], &|field| with_single_rows(field, rest, names))?;
    Ok(message.encode())
}

/// A function that rewrites a message.
type Rewrite<'r> = dyn Fn(&[u8]) -> Result<Vec<u8>, NotAMessage> + 'r;

/// Rewrites the messages in the fields with these numbers.
fn replace_messages(fields: &mut [WireField<'_>], numbers: &[u32], replaced: &Rewrite<'_>) -> Result<(), NotAMessage> {
    for field in fields.iter_mut().filter(|field| numbers.contains(&field.number)) {
        let WireValue::Bytes(bytes) = &field.value else { continue };
        let bytes = replaced(bytes)?;
        *field = WireField::bytes(field.number, bytes);
    }
    Ok(())
}

/// A `ValueInfoProto`. A dimension of -1 gets a name, which keeps it open.
fn info(name: &str, element: u64, dims: &[i64]) -> Vec<u8> {
    let dim = |(n, dim): (usize, &i64)| {
        let field = match u64::try_from(*dim) {
            Ok(size) => WireField::number(value::DIM_VALUE, size),
            Err(_) => WireField::text(value::DIM_NAME, &format!("{name}_{n}")),
        };
        WireField::bytes(value::DIM, Message(vec![field]).encode())
    };
    let shape = Message(dims.iter().enumerate().map(dim).collect()).encode();
    let of = Message(vec![WireField::number(value::ELEMENT, element), WireField::bytes(value::SHAPE, shape)]).encode();
    let kind = Message(vec![WireField::bytes(value::TENSOR, of)]).encode();
    Message(vec![WireField::text(value::NAME, name), WireField::bytes(value::TYPE, kind)]).encode()
}
