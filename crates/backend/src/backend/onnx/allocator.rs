//! ONNX Runtime's default allocator, for values that the C API returns.

use std::ptr;

use ort::sys::OrtAllocator;

use super::status::check;
use crate::backend::BackendError;

/// ONNX Runtime's own allocator for host memory. It belongs to the process and is never released.
pub(super) fn default_allocator() -> Result<*mut OrtAllocator, BackendError> {
    let mut allocator = ptr::null_mut();
    // SAFETY: `allocator` may be written to.
    check(unsafe { (ort::api().GetAllocatorWithDefaultOptions)(&raw mut allocator) })?;
    Ok(allocator)
}
