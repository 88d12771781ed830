//! Borrowed memory that backends read and write: an address, a length and a place.

use std::fmt;
use std::marker::PhantomData;

use super::DeviceId;

/// Borrowed memory to read. Host memory can be turned into a slice; memory of a device is only an address.
#[derive(Clone, Copy)]
pub struct MemorySpan<'a> {
    place: DeviceId,
    address: u64,
    len: usize,
    borrow: PhantomData<&'a [u8]>,
}

/// Borrowed memory to write.
pub struct MemorySpanMut<'a> {
    place: DeviceId,
    address: u64,
    len: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> MemorySpan<'a> {
    pub fn host(bytes: &'a [u8]) -> MemorySpan<'a> {
        MemorySpan { place: DeviceId::Host, address: bytes.as_ptr() as u64, len: bytes.len(), borrow: PhantomData }
    }

    /// # Safety
    /// `address..address + len` must be initialised memory at `place` that is neither freed nor written for as long as `'a`.
    pub unsafe fn from_raw(place: DeviceId, address: u64, len: usize) -> MemorySpan<'a> {
        MemorySpan { place, address, len, borrow: PhantomData }
    }

    pub fn place(&self) -> DeviceId {
        self.place
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, if this is host memory.
    pub fn as_host(&self) -> Option<&'a [u8]> {
        if self.place != DeviceId::Host {
            return None;
        }
        if self.len == 0 {
            return Some(&[]);
        }
        // SAFETY: the constructors guarantee `len` initialised, borrowed bytes at a non-null host address.
        Some(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) })
    }
}

impl<'a> MemorySpanMut<'a> {
    pub fn host(bytes: &'a mut [u8]) -> MemorySpanMut<'a> {
        MemorySpanMut {
            place: DeviceId::Host,
            address: bytes.as_mut_ptr() as u64,
            len: bytes.len(),
            borrow: PhantomData,
        }
    }

    /// # Safety
    /// `address..address + len` must be memory at `place` that nothing else reads, writes or frees for as long as `'a`.
    pub unsafe fn from_raw(place: DeviceId, address: u64, len: usize) -> MemorySpanMut<'a> {
        MemorySpanMut { place, address, len, borrow: PhantomData }
    }

    pub fn place(&self) -> DeviceId {
        self.place
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, if this is host memory.
    pub fn as_host_mut(&mut self) -> Option<&mut [u8]> {
        if self.place != DeviceId::Host {
            return None;
        }
        if self.len == 0 {
            return Some(&mut []);
        }
        // SAFETY: the constructors guarantee `len` exclusively borrowed bytes at a non-null host address.
        Some(unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) })
    }
}

impl fmt::Debug for MemorySpan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:?}, {:#x}, {})", self.place, self.address, self.len)
    }
}

impl fmt::Debug for MemorySpanMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanMut({:?}, {:#x}, {})", self.place, self.address, self.len)
    }
}
