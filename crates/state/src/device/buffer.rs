//! Memory on a device, owned by one thread at a time.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{Device, DeviceError, DeviceId, MemorySpan, MemorySpanMut};

/// Zeroed memory on a device, aligned to 64 bytes.
pub struct Buffer {
    device: Arc<dyn Device>,
    place: DeviceId,
    address: u64,
    len: usize,
    /// Not `Sync`: moves write through shared references.
    alone: PhantomData<Cell<u8>>,
}

impl Buffer {
    pub fn new(device: &Arc<dyn Device>, len: usize) -> Result<Buffer, DeviceError> {
        let address = device.allocate(len.max(1))?;
        Ok(Buffer { device: Arc::clone(device), place: device.place(), address, len, alone: PhantomData })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn place(&self) -> DeviceId {
        self.place
    }

    /// Makes the buffer at least `len` bytes large. If it has to grow, its contents are lost.
    pub fn ensure(&mut self, len: usize) -> Result<(), DeviceError> {
        if self.len < len {
            *self = Buffer::new(&self.device, len.next_power_of_two())?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn address_for_tests(&self) -> u64 {
        self.address
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Allocates a buffer that holds these bytes.
    pub fn holding(device: &Arc<dyn Device>, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        let mut buffer = Buffer::new(device, bytes.len())?;
        buffer.write_bytes(bytes)?;
        Ok(buffer)
    }

    /// Copies bytes to the beginning of the buffer and waits for the copy.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        let (address, len) = self.part(&(0..bytes.len()))?;
        // SAFETY: `part` checked that the buffer has this many bytes, and it is borrowed exclusively; both sides outlive the wait.
        unsafe { self.device.upload(bytes.as_ptr() as u64, address, len) }?;
        self.device.wait(self.device.fence()?)
    }

    /// Copies out a part of the buffer. Waits for the copy and for all work submitted before it.
    pub fn get(&self, part: Range<usize>) -> Result<Vec<u8>, DeviceError> {
        let (address, len) = self.part(&part)?;
        let mut bytes = vec![0; len];
        // SAFETY: `part` checked that the buffer has these bytes, and nothing writes them before the wait; the vector outlives it.
        unsafe { self.device.download(address, bytes.as_mut_ptr() as u64, len) }?;
        let waited = self.device.fence().and_then(|fence| self.device.wait(fence));
        if let Err(error) = waited {
            // After a failed wait the device may still write to the vector.
            bytes.leak();
            return Err(error);
        }
        Ok(bytes)
    }

    /// Gives the whole pages of this part back to the system, if they were mapped from it. They are zeros afterwards. Returns their bytes.
    pub fn release_pages(&mut self, part: Range<usize>) -> usize {
        match self.part(&part) {
            // SAFETY: the memory belongs to this buffer, which is borrowed exclusively.
            Ok((address, len)) if self.place == DeviceId::Host => unsafe {
                super::host::release_pages((address, len), self.len)
            },
            _ => 0,
        }
    }

    /// Submits a copy of the first `len` bytes of `from`, which must be host memory, into this buffer.
    ///
    /// # Safety
    /// Neither buffer may be changed or dropped before the copy is done.
    pub unsafe fn upload(&mut self, from: &Buffer, len: usize) -> Result<(), DeviceError> {
        if from.place() != DeviceId::Host {
            return Err(DeviceError::WrongPlace { got: from.place(), want: DeviceId::Host });
        }
        let ((source, _), (target, _)) = (from.part(&(0..len))?, self.part(&(0..len))?);
        // SAFETY: both parts are within their buffers; the rest is the caller's promise.
        unsafe { self.device.upload(source, target, len) }
    }

    /// Submits a copy of the first `to.len()` bytes of the buffer to host memory.
    ///
    /// # Safety
    /// Before the copy is done, the buffer may not be changed or dropped, and the memory of `to` may not be touched or freed.
    pub unsafe fn download(&self, to: &MemorySpanMut<'_>) -> Result<(), DeviceError> {
        if to.place() != DeviceId::Host {
            return Err(DeviceError::WrongPlace { got: to.place(), want: DeviceId::Host });
        }
        let (source, len) = self.part(&(0..to.len()))?;
        // SAFETY: `part` is within the buffer and has the span's length; the rest is the caller's promise.
        unsafe { self.device.download(source, to.address(), len) }
    }

    /// The bytes, if this is host memory.
    pub fn host(&mut self) -> Option<&mut [u8]> {
        // SAFETY: host memory of `len` bytes, initialised by the allocation; the borrow is exclusive.
        (self.place() == DeviceId::Host)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) })
    }

    /// Part of the buffer, for a backend to read.
    ///
    /// # Safety
    /// Nothing may be moved into this part, and the buffer may not be dropped, while the span is in use.
    pub unsafe fn read<'a>(&self, part: Range<usize>) -> Result<MemorySpan<'a>, DeviceError> {
        let (address, len) = self.part(&part)?;
        // SAFETY: within the buffer, which is initialised; the rest is the caller's promise.
        Ok(unsafe { MemorySpan::from_raw(self.place(), address, len) })
    }

    /// Part of the buffer, for a backend to write.
    ///
    /// # Safety
    /// Nothing else may read or write this part, and the buffer may not be dropped, while the span is in use. Exception: a backend may also
    /// read it, if the model is known to allow that.
    pub unsafe fn write<'a>(&self, part: Range<usize>) -> Result<MemorySpanMut<'a>, DeviceError> {
        let (address, len) = self.part(&part)?;
        // SAFETY: within the buffer; the rest is the caller's promise.
        Ok(unsafe { MemorySpanMut::from_raw(self.place(), address, len) })
    }

    fn part(&self, part: &Range<usize>) -> Result<(u64, usize), DeviceError> {
        let len = part.end.saturating_sub(part.start);
        if part.start > part.end || part.end > self.len {
            return Err(DeviceError::OutOfBounds { at: part.start, len, size: self.len });
        }
        Ok((self.address + part.start as u64, len))
    }
}

// SAFETY: the memory belongs to the buffer alone, and devices are usable from every thread.
unsafe impl Send for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same size; the users of its parts have promised not to use them any more.
        unsafe { self.device.release(self.address, self.len.max(1)) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, {} bytes)", self.place(), self.len)
    }
}
