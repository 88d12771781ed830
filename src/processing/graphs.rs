//! What a guest holds of wasi-nn besides tensors.

#![allow(unreachable_pub, reason = "the generated code exports these types again")]

use super::outgoing::InferFailure;
use super::tensors::HeldEntry;

/// A model that a guest has loaded by its name.
#[derive(Debug)]
pub struct NamedGraph {
    pub(super) model: String,
}

/// Its means of running that model.
#[derive(Debug)]
pub struct GraphContext {
    pub(super) model: String,
}

/// An error that a guest holds.
#[derive(Debug)]
pub enum GraphError {
    Call(InferFailure),
    /// wasi-nn has no such thing, or the server does not serve it.
    Unsupported(String),
}

impl HeldEntry for NamedGraph {
    fn bytes(&self) -> u64 {
        self.model.len() as u64
    }
}

impl HeldEntry for GraphContext {
    fn bytes(&self) -> u64 {
        self.model.len() as u64
    }
}

impl HeldEntry for GraphError {
    fn bytes(&self) -> u64 {
        match self {
            GraphError::Call(failure) => failure.text.len() as u64,
            GraphError::Unsupported(text) => text.len() as u64,
        }
    }
}
