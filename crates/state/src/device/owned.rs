//! Read-only memory that a runtime or a pool allocated, kept alive by reference counting.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{Buffer, Device, DeviceError, DeviceId, MemorySpan, MemorySpanMut, copy};

/// Read-only, shareable memory that `keeper` keeps alive.
#[derive(Clone)]
pub struct Owned {
    place: DeviceId,
    address: u64,
    len: usize,
    #[allow(dead_code, reason = "only its drop matters")]
    keeper: Arc<dyn Any + Send + Sync>,
}

impl Owned {
    /// # Safety
    /// `address..address + len` must be initialised memory at `place`. It must not move or be written until `keeper` is dropped.
    pub unsafe fn from_raw(place: DeviceId, address: u64, len: usize, keeper: Arc<dyn Any + Send + Sync>) -> Owned {
        Owned { place, address, len, keeper }
    }

    pub fn from_vec(bytes: Vec<u8>) -> Owned {
        let keeper = Arc::new(bytes);
        Owned { place: DeviceId::Host, address: keeper.as_ptr() as u64, len: keeper.len(), keeper }
    }

    /// Submits a copy of this memory on its device, in the device's order of work, and returns the copy.
    ///
    /// # Safety
    /// The source memory must stay alive and unchanged until the copy is done.
    pub unsafe fn copied(device: &Arc<dyn Device>, from: &MemorySpan<'_>) -> Result<Owned, DeviceError> {
        let buffer = Buffer::new(device, from.len())?;
        // SAFETY: no other code has the buffer; the rest is the caller's promise.
        let room = unsafe { buffer.write(0..from.len()) }?;
        // SAFETY: as above.
        unsafe { copy(&**device, from, &room) }?;
        Ok(Owned::new(buffer))
    }

    /// Wraps a buffer that only work in flight may still write.
    pub fn new(buffer: Buffer) -> Owned {
        let (place, address, len) = (buffer.place(), buffer.address(), buffer.len());
        // A buffer is not `Sync`, so a mutex holds it; no thread ever locks it.
        Owned { place, address, len, keeper: Arc::new(parking_lot::Mutex::new(buffer)) }
    }

    pub fn span(&self) -> MemorySpan<'_> {
        // SAFETY: the caller of `from_raw` promised this for as long as the keeper is alive.
        unsafe { MemorySpan::from_raw(self.place, self.address, self.len) }
    }

    pub fn place(&self) -> DeviceId {
        self.place
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Submits a copy of all bytes to host memory.
    ///
    /// # Safety
    /// Until the copy is done, this memory must stay alive, and the memory of `to` may not be touched or freed.
    pub unsafe fn download(&self, from: &dyn Device, to: &MemorySpanMut<'_>) -> Result<(), DeviceError> {
        if self.place != from.place() || to.place() != DeviceId::Host {
            return Err(DeviceError::WrongPlace { got: self.place, want: from.place() });
        }
        if to.len() != self.len {
            return Err(DeviceError::OutOfBounds { at: 0, len: to.len(), size: self.len });
        }
        // SAFETY: both have the same length; the rest is the caller's promise.
        unsafe { from.download(self.address, to.address(), self.len) }
    }
}

impl AsRef<[u8]> for Owned {
    /// Empty if the memory is not on the host.
    fn as_ref(&self) -> &[u8] {
        self.span().as_host().unwrap_or(&[])
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:?}, {} bytes)", self.place, self.len)
    }
}
