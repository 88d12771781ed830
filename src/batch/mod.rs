//! A batch's inputs and outputs: maps graph ports to sources, lays rows out in aligned memory, and splits outputs back into rows.
//!
//! Nothing here knows when sequences start or end, or how requests are answered.
//!
//! # Layout
//!
//! - [`wiring`]: where each input of a graph comes from, and where each output goes.
//! - [`staging`]: the memory a run reads its inputs from.
//! - [`padded`], [`crop`]: inputs padded to one length, outputs without the padding.
//! - [`describe`]: inputs that describe a batch.
//! - [`outputs`]: what a run gives, row by row.

pub mod crop;
pub mod describe;
pub mod outputs;
pub mod padded;
pub mod staging;
pub mod wiring;

pub use staging::{BatchRow, Staging};
pub use wiring::{InputSource, Sink, Wiring};

/// Why a batch cannot be put together or taken apart. The text is Triton's where clients know it.
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
    /// The checks before the queue let something through.
    #[error("input '{input}' does not fit its batch")]
    Unfit { input: String },
}

/// The product of dimensions. 0 if it does not fit: then the tensor has no bytes, for another dimension is 0.
fn product(dims: &[u64]) -> usize {
    dims.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?)).unwrap_or(0)
}
