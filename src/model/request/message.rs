//! A request and its answer as every surface hands them over: decoded, on host memory, in no wire's terms.

use std::time::Duration;

use sequor_core::{Dialect, Id};

use crate::tensor::NamedTensor;

/// One inference request, as its message says. What its call says stands in a `RequestOrigin`.
#[derive(Debug, Clone)]
pub struct InferRequest {
    pub model: String,
    /// As the client wrote it; empty leaves the choice to the server.
    pub version: String,
    /// The client's own mark, echoed; may be empty.
    pub id: String,
    pub sequence: SequenceStep,
    /// 0 is the model's default.
    pub priority: u32,
    /// How long the request may wait (the `timeout` parameter).
    pub timeout: Option<Duration>,
    pub inputs: Vec<NamedTensor>,
    /// Names of the outputs wanted; empty means all.
    pub outputs: Vec<String>,
    /// Parameters the server gives no meaning to, for policies and processors.
    pub parameters: Vec<(String, Parameter)>,
    pub dialect: Dialect,
}

/// Where a request stands in its sequence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SequenceStep {
    pub id: Id,
    pub start: bool,
    pub end: bool,
    /// The client's number of this step, if it counts them.
    pub step: Option<u64>,
    /// The idle time that a START asks for, up to the model's `idle_longest`.
    pub idle: Option<Duration>,
    /// The live sequence whose state a START begins with a copy of.
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
    /// The request's mark, echoed.
    pub id: String,
    /// In the order asked for, or of the configuration.
    pub outputs: Vec<NamedTensor>,
    pub parameters: Vec<(String, Parameter)>,
}

impl InferAnswer {
    /// Bytes of all outputs.
    pub(crate) fn tensor_bytes(&self) -> usize {
        self.outputs.iter().map(|output| output.tensor.data.len()).sum()
    }
}
