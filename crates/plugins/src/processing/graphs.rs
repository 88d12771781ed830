//! The objects of wasi-nn that a guest holds, besides tensors.

#![allow(unreachable_pub, reason = "the generated code exports these types again")]

use super::outgoing::InferFailure;
use super::tensors::HeldEntry;

/// A model that a guest has loaded by name.
#[derive(Debug)]
pub struct NamedGraph {
    pub(super) model: String,
}

/// An execution context of that model.
#[derive(Debug)]
pub struct GraphContext {
    pub(super) model: String,
}

/// An error that a guest holds.
#[derive(Debug)]
pub enum GraphError {
    Call(InferFailure),
    /// wasi-nn does not have it, or the server does not support it.
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
