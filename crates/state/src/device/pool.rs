//! A pool of host memory for answers. A run writes into a buffer, and the answers are slices of it until they are sent.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Buffer, Device, DeviceError, Host, MemorySpanMut};

/// Free buffers by size class, with a limit on the bytes kept. Clones share them.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<PoolMemory>,
}

struct PoolMemory {
    device: Arc<dyn Device>,
    free: Mutex<Free>,
    /// Maximum free bytes kept; buffers returned beyond that go to the allocator.
    keep: usize,
}

#[derive(Default)]
struct Free {
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl Pool {
    pub fn new(keep: usize) -> Pool {
        Pool::over(Arc::new(Host), keep)
    }

    /// A pool over this device, whose memory must be host memory.
    pub fn over(device: Arc<dyn Device>, keep: usize) -> Pool {
        Pool { shared: Arc::new(PoolMemory { device, free: Mutex::default(), keep }) }
    }

    /// Takes a buffer of at least this size. It may hold bytes of an earlier use.
    pub fn take(&self, len: usize) -> Result<Pooled, DeviceError> {
        let size = len.max(64).next_power_of_two();
        let mut free = self.shared.free.lock();
        let found = free.buffers.iter().position(|b| b.len() == size).map(|at| free.buffers.swap_remove(at));
        if let Some(buffer) = &found {
            free.bytes -= buffer.len();
        }
        drop(free);
        let buffer = match found {
            Some(buffer) => buffer,
            None => Buffer::new(&self.shared.device, size)?,
        };
        Ok(Pooled { buffer: Some(buffer), len, home: Arc::clone(&self.shared) })
    }

    /// A copy of these bytes in the pool's memory.
    pub fn copy(&self, bytes: &[u8]) -> Result<Pooled, DeviceError> {
        let mut pooled = self.take(bytes.len())?;
        if let Some(target) = pooled.buffer.as_mut().and_then(Buffer::host).and_then(|b| b.get_mut(..bytes.len())) {
            target.copy_from_slice(bytes);
        }
        Ok(pooled)
    }

    /// Bytes of free buffers in the pool.
    pub fn idle_bytes(&self) -> usize {
        self.shared.free.lock().bytes
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} bytes free)", self.idle_bytes())
    }
}

/// Memory of a pool. Dropping it returns it to the pool.
pub struct Pooled {
    buffer: Option<Buffer>,
    len: usize,
    home: Arc<PoolMemory>,
}

// SAFETY: a shared reference only reads the memory ([`AsRef`]); writing needs an exclusive one.
unsafe impl Sync for Pooled {}

impl Pooled {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the whole buffer.
    pub fn capacity(&self) -> usize {
        self.buffer.as_ref().map_or(0, Buffer::len)
    }

    /// The pool that it came from.
    pub fn pool(&self) -> Pool {
        Pool { shared: Arc::clone(&self.home) }
    }

    /// The memory, for a backend to write.
    pub fn write(&mut self) -> Result<MemorySpanMut<'_>, DeviceError> {
        let size = self.len;
        match &self.buffer {
            // SAFETY: the exclusive borrow lasts as long as the span.
            Some(buffer) => unsafe { buffer.write(0..size) },
            None => Err(DeviceError::OutOfBounds { at: 0, len: size, size: 0 }),
        }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        let span = self.buffer.as_ref().and_then(|buffer| {
            // SAFETY: nothing writes while this shared borrow lasts.
            unsafe { buffer.read(0..self.len) }.ok()
        });
        span.and_then(|span| span.as_host()).unwrap_or(&[])
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut free = self.home.free.lock();
        if free.bytes.saturating_add(buffer.len()) <= self.home.keep {
            free.bytes += buffer.len();
            free.buffers.push(buffer);
        }
    }
}

impl fmt::Debug for Pooled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pooled({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_buffers_are_reused_and_kept_only_up_to_the_limit() {
        let pool = Pool::new(256);
        let first = pool.take(100).unwrap();
        let at = first.as_ref().as_ptr();
        drop(first);
        assert_eq!(pool.idle_bytes(), 128);
        let again = pool.take(128).unwrap();
        assert_eq!((again.as_ref().as_ptr(), pool.idle_bytes()), (at, 0));
        drop(pool.take(1 << 20).unwrap());
        drop(again);
        assert_eq!(pool.idle_bytes(), 128);
    }
}
