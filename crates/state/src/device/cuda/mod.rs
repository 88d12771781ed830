//! NVIDIA GPUs, through the driver API. A build needs no CUDA. The driver is loaded when a GPU is requested; on a machine without a driver,
//! the error says so.
//!
//! # Layout
//!
//! - `driver`: lists the usable GPUs, or says why there is none.
//! - `gpu`: one GPU with its own stream: memory, copies, moves of rows, fences · `primary`: its context · `pinned`: host memory that it
//!   accesses directly.
//! - `nvml`: gauges of a GPU from NVIDIA's management library.
//! - `kernels.cu`, `kernels.ptx`: the kernels; `cargo xtask ptx` compiles the first to the second · `kernels`: both as constants.

mod driver;
mod gpu;
pub mod kernels;
mod nvml;
mod pinned;
mod primary;

use cudarc::driver::DriverError;

pub use driver::CudaDriver;

use super::{DeviceError, DeviceId};

/// The error for a driver call that failed.
fn failed(ordinal: u16, what: &'static str) -> impl FnOnce(DriverError) -> DeviceError {
    move |error| DeviceError::Failed { place: DeviceId::Cuda(ordinal), what, why: text(error) }
}

/// Renders an error as `out of memory (CUDA_ERROR_OUT_OF_MEMORY)`.
fn text(error: DriverError) -> String {
    match error.error_string() {
        Ok(text) => format!("{} ({:?})", text.to_string_lossy(), error.0),
        Err(_) => format!("{:?}", error.0),
    }
}
