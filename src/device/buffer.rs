//! Memory of ours on some device, owned by one thread at a time, and moves of rows between such buffers.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::{Device, DeviceError, Owned, Place, RawMove, Span, SpanMut};

/// Memory on a device, zeroed when it is made, aligned to 64 bytes.
pub struct Buffer {
    device: Arc<dyn Device>,
    place: Place,
    address: u64,
    len: usize,
    /// One thread at a time: moves write through shared references.
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

    pub fn place(&self) -> Place {
        self.place
    }

    /// Makes the buffer at least this large. What it held is lost if it had to grow.
    pub fn ensure(&mut self, len: usize) -> Result<(), DeviceError> {
        if self.len < len {
            *self = Buffer::new(&self.device, len.next_power_of_two())?;
        }
        Ok(())
    }

    /// The bytes, if they lie on the host.
    pub fn host(&mut self) -> Option<&mut [u8]> {
        // SAFETY: host memory of `len` bytes, initialised by the allocation; the exclusive borrow keeps everybody else away.
        (self.place() == Place::Host)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) })
    }

    /// Part of the buffer, for a backend to read.
    ///
    /// # Safety
    /// Nothing may be moved into this part, and the buffer may not be dropped, while the span is in use.
    pub unsafe fn read<'a>(&self, part: Range<usize>) -> Result<Span<'a>, DeviceError> {
        let (address, len) = self.part(&part)?;
        // SAFETY: within the buffer, which is initialised; the rest is the caller's promise.
        Ok(unsafe { Span::from_raw(self.place(), address, len) })
    }

    /// Part of the buffer, for a backend to write.
    ///
    /// # Safety
    /// Nobody else may read or write this part, and the buffer may not be dropped, while the span is in use; except that a backend may be
    /// told to read it too, where the model is known to allow that.
    pub unsafe fn write<'a>(&self, part: Range<usize>) -> Result<SpanMut<'a>, DeviceError> {
        let (address, len) = self.part(&part)?;
        // SAFETY: within the buffer; the rest is the caller's promise.
        Ok(unsafe { SpanMut::from_raw(self.place(), address, len) })
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
        // SAFETY: allocated in `new` with the same size; whoever borrowed parts has promised to be done.
        unsafe { self.device.release(self.address, self.len.max(1)) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, {} bytes)", self.place(), self.len)
    }
}

/// Whether a move changes the element type on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Convert {
    #[default]
    No,
    /// FP32 is read and FP16 written.
    Narrow,
    /// FP16 is read and FP32 written.
    Widen,
}

impl Convert {
    /// Bytes written for so many read.
    pub fn written(self, read: usize) -> usize {
        match self {
            Convert::No => read,
            Convert::Narrow => read / 2,
            Convert::Widen => read.saturating_mul(2),
        }
    }
}

/// One end of a move: a row that lies in pieces, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Strip<'a> {
    pub memory: Memory<'a>,
    pub at: usize,
    pub stride: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    Ours(&'a Buffer),
    Theirs(&'a Owned),
}

impl<'a> Strip<'a> {
    pub fn of(buffer: &'a Buffer, at: usize, stride: usize) -> Strip<'a> {
        Strip { memory: Memory::Ours(buffer), at, stride }
    }

    pub fn of_owned(owned: &'a Owned, at: usize, stride: usize) -> Strip<'a> {
        Strip { memory: Memory::Theirs(owned), at, stride }
    }

    /// Where it starts, if `outer` pieces of `inner` bytes lie within.
    fn start(&self, outer: usize, inner: usize, on: Place) -> Result<u64, DeviceError> {
        let (place, address, size) = match self.memory {
            Memory::Ours(buffer) => (buffer.place(), buffer.address, buffer.len),
            Memory::Theirs(owned) => (owned.span().place(), owned.span().address(), owned.len()),
        };
        if place != on {
            return Err(DeviceError::WrongPlace { got: place, want: on });
        }
        let last = self.stride.checked_mul(outer.saturating_sub(1)).and_then(|n| n.checked_add(inner));
        match last.and_then(|n| n.checked_add(self.at)) {
            Some(end) if end <= size => Ok(address + self.at as u64),
            _ => Err(DeviceError::OutOfBounds { at: self.at, len: inner, size }),
        }
    }
}

/// A row on its way from one place to another.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// `None` writes zeros.
    pub from: Option<Strip<'a>>,
    pub to: Strip<'a>,
    pub outer: usize,
    /// Bytes of a piece where it is read (where it is written, if zeros are).
    pub inner: usize,
    pub convert: Convert,
}

/// Does these moves, which must not overlap in what they write. Nothing is done if one of them leaves its buffer.
pub fn run<'a>(
    device: &dyn Device,
    moves: impl IntoIterator<Item = Move<'a>>,
    scratch: &mut Vec<RawMove>,
) -> Result<(), DeviceError> {
    scratch.clear();
    let place = device.place();
    for m in moves {
        if let Memory::Theirs(_) = m.to.memory {
            return Err(DeviceError::OutOfBounds { at: m.to.at, len: m.inner, size: 0 });
        }
        let from = m.from.map(|strip| strip.start(m.outer, m.inner, place)).transpose()?;
        let written = if from.is_some() { m.convert.written(m.inner) } else { m.inner };
        scratch.push(RawMove {
            from,
            from_stride: m.from.map_or(0, |s| s.stride),
            to: m.to.start(m.outer, written, place)?,
            to_stride: m.to.stride,
            outer: m.outer,
            inner: m.inner,
            convert: m.convert,
        });
    }
    // SAFETY: every move stays within a living buffer of this place; buffers are used by one thread at a time, and spans of them are
    // in use only while a backend runs, which is never while this is called.
    unsafe { device.run(scratch) };
    Ok(())
}
