//! A batch's inputs and outputs: maps graph ports to sources, lays rows out in aligned memory, and splits outputs back into rows.
//!
//! This module does not know when sequences start or end, or how requests are answered.
//!
//! # Layout
//!
//! - [`wiring`]: the source of each input of a graph, and the destination of each output.
//! - [`staging`]: the memory a run reads its inputs from.
//! - [`padded`], [`crop`]: inputs padded to one length, outputs without the padding.
//! - [`describe`]: inputs that describe a batch.
//! - [`outputs`]: splits a run's outputs into rows.

pub mod crop;
pub mod describe;
pub mod outputs;
pub mod padded;
pub mod staging;
pub mod wiring;

pub use staging::{BatchRow, Staging};
pub use wiring::{InputSource, Sink, Wiring};

/// Why a batch cannot be assembled or split. If clients know Triton's text for an error, the text is Triton's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    #[error(transparent)]
    Device(#[from] crate::device::DeviceError),
    #[error(
        "failed to split the output tensor '{output}' in responses: expected batch size of at least {want} in model output, got {got}"
    )]
    TooFewRows { output: String, want: u64, got: u64 },
    #[error(
        "failed to split the output tensor '{output}' in responses: the requests take {want} elements, model output has {got}"
    )]
    TooFewElements { output: String, want: u64, got: u64 },
    #[error("output tensor '{output}' is not found")]
    Missing { output: String },
    #[error("the states that '{input}' describes have different lengths in one row")]
    Lengths { input: String },
    /// Most of an input's memory would be padding. Its rows run alone instead.
    #[error("input '{input}' takes {bytes} bytes with the padding of {rows} rows, most of which is padding")]
    Padding { input: String, rows: usize, bytes: u64 },
    /// An input does not fit although it passed the checks before the queue. This is a bug.
    #[error("input '{input}' does not fit its batch")]
    Unfit { input: String },
}

/// The product of dimensions. 0 on overflow: such a shape has another dimension of 0, so the tensor has no bytes.
fn product(dims: &[u64]) -> usize {
    dims.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?)).unwrap_or(0)
}
