//! NVIDIA GPUs, over the driver's own interface. Nothing of CUDA is needed to build; the driver is loaded when a GPU is asked for, and
//! a machine without one gets a sentence.
//!
//! # Layout
//!
//! - `driver`: which GPUs there are, or why none can be used.
//! - `gpu`: one GPU with a stream of its own: memory, copies, moves of rows, marks · `primary`: its context · `pinned`: host memory that it reads and writes itself.
//! - `nvml`: what the maker's own tools tell of a GPU.
//! - `kernels.cu`, `kernels.ptx`: what runs on it; `cargo xtask ptx` makes the second of the first · `kernels`: what is known of them here.

mod driver;
mod gpu;
pub mod kernels;
mod nvml;
mod pinned;
mod primary;

use cudarc::driver::DriverError;

pub use driver::CudaDriver;

use super::{DeviceError, DeviceId};

/// What the driver says of a call that failed.
fn failed(ordinal: u16, what: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| DeviceError::Failed { place: DeviceId::Cuda(ordinal), what, why: text(error) }
}

/// `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`.
fn text(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
        Err(_) => format!("{:?}", error.0),
    }
}
