//! Pinned host memory: a GPU reads and writes it directly, without a copy through the driver's buffers.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;

use super::primary::Primary;
use crate::device::{Device, DeviceError, DeviceId, Fence, Host, RawRow, RawSet};

/// Allocates pinned host memory; everything else is as for [`Host`].
#[derive(Debug)]
pub(super) struct Pinned(pub(super) Arc<Primary>);

impl Device for Pinned {
    fn place(&self) -> DeviceId {
        DeviceId::Host
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let full = DeviceError::OutOfMemory { place: DeviceId::Host, bytes };
        self.0.bind()?;
        // SAFETY: the context is current; portable memory is usable from every thread and context.
        let memory = unsafe { result::malloc_host(bytes.max(1), CU_MEMHOSTALLOC_PORTABLE) }.map_err(|_| full)?;
        // SAFETY: this call just allocated these bytes.
        unsafe { memory.cast::<u8>().write_bytes(0, bytes) };
        Ok(memory as u64)
    }

    unsafe fn release(&self, address: u64, _bytes: usize) {
        if self.0.bind().is_ok() {
            // SAFETY: the caller's promise; the driver waits for its own copies. If it cannot free the memory, it leaks, which is safe.
            let _ = unsafe { result::free_host(address as *mut _) };
        }
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise; this is host memory.
        unsafe { Host.run(sets, rows) }
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { Host.upload(from, to, len) }
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { Host.download(from, to, len) }
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        Host.fence()
    }

    fn wait(&self, fence: Fence) -> Result<(), DeviceError> {
        Host.wait(fence)
    }
}
