//! Changes to ONNX files that need no runtime.
//!
//! # Layout
//!
//! - `wire`: a protobuf message as its fields, of which the ones we do not know stay as they are.
//! - `fields`: the field numbers of ONNX's messages that we read or write · `node`: a node of a graph.
//! - [`inputs`]: the shapes of a graph's inputs.
//! - [`low_latency`]: the states of recurrent nodes become inputs and outputs.

mod fields;
pub mod inputs;
pub mod low_latency;
mod node;
#[cfg(test)]
mod tests;
mod wire;

pub use inputs::input_dims;
pub use low_latency::{LowLatencyError, NamedState, Transformed, transform};
