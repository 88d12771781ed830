//! Memory that a runtime or a pool allocated, kept alive as long as it is referenced.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{Buffer, Device, DeviceError, DeviceId, MemorySpan, MemorySpanMut, copy};

/// Memory that a runtime or a pool allocated, kept alive by `keeper`, read-only and shareable.
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
    /// `address..address + len` must be initialised memory at `place` that stays where it is and is not written until `keeper` is dropped.
    pub unsafe fn from_raw(place: DeviceId, address: u64, len: usize, keeper: Arc<dyn Any + Send + Sync>) -> Owned {
        Owned { place, address, len, keeper }
    }

    pub fn from_vec(bytes: Vec<u8>) -> Owned {
        let keeper = Arc::new(bytes);
        Owned { place: DeviceId::Host, address: keeper.as_ptr() as u64, len: keeper.len(), keeper }
    }

    /// A copy of this memory, on its device: asked for here, done in the device's order of work.
    ///
    /// # Safety
    /// The memory must stay as it is until that is done.
    pub unsafe fn copied(device: &Arc<dyn Device>, from: &MemorySpan<'_>) -> Result<Owned, DeviceError> {
        let buffer = Buffer::new(device, from.len())?;
        // SAFETY: nothing else knows of the buffer; the rest is the caller's promise.
        let room = unsafe { buffer.write(0..from.len()) }?;
        // SAFETY: as above.
        unsafe { copy(&**device, from, &room) }?;
        Ok(Owned::of(buffer))
    }

    /// A buffer that only work in flight still writes.
    pub fn of(buffer: Buffer) -> Owned {
        let (place, address, len) = (buffer.place(), buffer.address(), buffer.len());
        // A buffer is used by one thread at a time; here by none.
        Owned { place, address, len, keeper: Arc::new(parking_lot::Mutex::new(buffer)) }
    }

    pub fn span(&self) -> MemorySpan<'_> {
        // SAFETY: what `from_raw` was promised, for as long as the keeper is here.
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

    /// Asks for all of it to be copied to where `to` is, on the host.
    ///
    /// # Safety
    /// It must be kept, and what `to` leads to not be touched or freed, before that is done.
    pub unsafe fn download(&self, from: &dyn Device, to: &MemorySpanMut<'_>) -> Result<(), DeviceError> {
        if self.place != from.place() || to.place() != DeviceId::Host {
            return Err(DeviceError::WrongPlace { got: self.place, want: from.place() });
        }
        if to.len() != self.len {
            return Err(DeviceError::OutOfBounds { at: 0, len: to.len(), size: self.len });
        }
        // SAFETY: as long as the span; the rest is the caller's promise.
        unsafe { from.download(self.address, to.address(), self.len) }
    }
}

impl AsRef<[u8]> for Owned {
    /// Empty for memory that does not lie on the host.
    fn as_ref(&self) -> &[u8] {
        self.span().as_host().unwrap_or(&[])
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:?}, {} bytes)", self.place, self.len)
    }
}
