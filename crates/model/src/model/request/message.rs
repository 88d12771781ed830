//! A request and its answer, as all APIs exchange them with models: decoded, in host memory, independent of the protocol.

use std::time::Duration;

use sequor_core::{Dialect, Id};

use super::answer_room::CountedAnswer;
use crate::tensor::NamedTensor;

/// One inference request: the contents of its message. A `RequestOrigin` has the facts about its call.
#[derive(Debug, Clone)]
pub struct InferRequest {
    pub model: String,
    /// The client's text; if it is empty, the server chooses.
    pub version: String,
    /// The client's own id of the request, which the answer repeats; may be empty.
    pub id: String,
    pub sequence: SequenceStep,
    /// 0 stands for the model's default.
    pub priority: u32,
    /// How long the request may wait (the `timeout` parameter).
    pub timeout: Option<Duration>,
    pub inputs: Vec<NamedTensor>,
    /// Names of the requested outputs; empty means all.
    pub outputs: Vec<String>,
    /// Parameters without a meaning to the server. Policies and processors see them.
    pub parameters: Vec<(String, Parameter)>,
    pub dialect: Dialect,
}

/// Where a request stands in its sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceStep {
    pub id: Id,
    pub start: bool,
    pub end: bool,
    /// The client's number of this step, if it numbers them.
    pub step: Option<u64>,
    /// The idle time that a START asks for, up to the model's `idle_longest`.
    pub idle: Option<Duration>,
    /// The live sequence whose state a START copies.
    pub from: Option<Id>,
}

/// A custom parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
}

/// One inference answer.
#[derive(Debug, Clone)]
pub struct InferAnswer {
    pub model: String,
    pub version: u64,
    /// The client's own id of the request.
    pub id: String,
    /// In the order of the request, or of the configuration if it names no outputs.
    pub outputs: Vec<NamedTensor>,
    pub parameters: Vec<(String, Parameter)>,
    /// Counts its bytes until it is written for its connection, which counts what it takes. `None` for a small answer.
    pub held: Option<CountedAnswer>,
}

impl InferAnswer {
    /// Bytes of all outputs.
    pub fn tensor_bytes(&self) -> usize {
        self.outputs.iter().map(|output| output.tensor.data.len()).sum()
    }
}
