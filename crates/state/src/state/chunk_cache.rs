//! Keeps freed state memory for ten seconds, so that the next sequence reuses it instead of faulting in new pages.
//!
//! Kept memory is in addition to the states in use. No START is refused because of it: [`ChunkCache::trim`] releases what exceeds
//! `limits.state` together with the states, [`ChunkCache::release_due`] memory that has been kept long enough. Free slots beside used ones
//! count as kept, too, as far as they were written. Only their instance can give their pages back, which it does when it next rests.
//! [`ChunkCache::unwanted_idle`] says whether instances must be woken for that. The contents of kept memory are undefined: a store writes a
//! state before anything reads it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::Time;

use crate::device::{Buffer, Device, DeviceError, DeviceId};

use super::budget::Budget;

/// How long freed memory is kept.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(10);

/// Freed memory of all stores. Clones share it.
#[derive(Clone)]
pub struct ChunkCache(Arc<ChunkCacheState>);

struct ChunkCacheState {
    budget: Budget,
    clock: Box<dyn Fn() -> Time + Send + Sync>,
    /// In the order in which the chunks were freed.
    kept: Mutex<Vec<KeptChunk>>,
    bytes: AtomicU64,
    /// Written bytes of free slots in chunks that are in use.
    idle: AtomicU64,
}

/// The memory of a chunk of slots, or of a batch.
#[derive(Debug, Default)]
pub(super) struct ChunkMemory {
    pub(super) buffers: Vec<Buffer>,
    /// Bytes that were written at least once. The pages beyond them are not resident yet.
    pub(super) touched: u64,
    /// Whether an earlier owner wrote to it. Then it is not zeroed.
    pub(super) is_reused: bool,
}

/// The written bytes of a chunk's free slots. The cache counts them as long as this exists.
#[derive(Debug)]
pub(super) struct IdleBytes {
    cache: ChunkCache,
    bytes: u64,
}

impl IdleBytes {
    pub(super) fn new(cache: &ChunkCache) -> IdleBytes {
        IdleBytes { cache: cache.clone(), bytes: 0 }
    }

    pub(super) fn set(&mut self, bytes: u64) {
        // The addition wraps if the sum decreases, which gives the right result.
        let change = bytes.wrapping_sub(std::mem::replace(&mut self.bytes, bytes));
        self.cache.0.idle.fetch_add(change, Ordering::Relaxed);
    }
}

impl Drop for IdleBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

struct KeptChunk {
    memory: ChunkMemory,
    device: DeviceKey,
    since: Time,
}

/// Identifies the order of work in which memory was used. Memory is reused only in the same one. The host has one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeviceKey {
    place: DeviceId,
    address: usize,
}

impl DeviceKey {
    fn new(device: &Arc<dyn Device>) -> DeviceKey {
        let place = device.place();
        let address = if place == DeviceId::Host { 0 } else { Arc::as_ptr(device).cast::<()>().addr() };
        DeviceKey { place, address }
    }
}

impl ChunkCache {
    pub fn new(budget: Budget, clock: impl Fn() -> Time + Send + Sync + 'static) -> ChunkCache {
        let (clock, kept) = (Box::new(clock), Mutex::default());
        let (bytes, idle) = (AtomicU64::new(0), AtomicU64::new(0));
        ChunkCache(Arc::new(ChunkCacheState { budget, clock, kept, bytes, idle }))
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Kept bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Written bytes of free slots in chunks that are in use. Kept chunks give way to them.
    pub fn idle(&self) -> u64 {
        self.0.idle.load(Ordering::Relaxed)
    }

    /// The idle bytes, if some of them must be given back to stay within the limit.
    pub fn unwanted_idle(&self) -> u64 {
        if self.is_over() { self.idle() } else { 0 }
    }

    /// Whether states in use, kept chunks and free slots have more than the limit.
    pub(super) fn is_over(&self) -> bool {
        self.excess() > 0
    }

    fn excess(&self) -> u64 {
        let ChunkCacheState { budget, .. } = &*self.0;
        self.bytes().saturating_add(self.idle()).saturating_sub(budget.limit().saturating_sub(budget.used()))
    }

    /// Memory of these sizes: kept memory if any fits, otherwise new memory. If the device is full, kept memory is released first.
    pub(super) fn allocate(&self, device: &Arc<dyn Device>, sizes: &[usize]) -> Result<ChunkMemory, DeviceError> {
        if let Some(memory) = self.take(device, sizes) {
            return Ok(memory);
        }
        let new = || sizes.iter().map(|size| Buffer::new(device, *size)).collect::<Result<Vec<_>, _>>();
        let buffers = match new() {
            Err(DeviceError::OutOfMemory { place, .. }) if self.release(|kept| kept.device.place == place) => new()?,
            buffers => buffers?,
        };
        Ok(ChunkMemory { buffers, touched: 0, is_reused: false })
    }

    /// Takes the most recently freed memory of these sizes.
    fn take(&self, device: &Arc<dyn Device>, sizes: &[usize]) -> Option<ChunkMemory> {
        let device = DeviceKey::new(device);
        let fits = |kept: &KeptChunk| {
            kept.device == device && kept.memory.buffers.iter().map(Buffer::len).eq(sizes.iter().copied())
        };
        let mut kept = self.0.kept.lock();
        let at = kept.iter().rposition(fits)?;
        let memory = kept.remove(at).memory;
        self.0.bytes.fetch_sub(memory.touched, Ordering::Relaxed);
        Some(memory)
    }

    /// Keeps memory that is no longer in use.
    pub(super) fn keep(&self, device: &Arc<dyn Device>, memory: ChunkMemory) {
        if memory.buffers.is_empty() {
            return;
        }
        let (device, since) = (DeviceKey::new(device), (self.0.clock)());
        let bytes = memory.touched;
        let mut kept = self.0.kept.lock();
        // Added before another thread can take the memory, which subtracts its bytes.
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        kept.push(KeptChunk { memory: ChunkMemory { is_reused: true, ..memory }, device, since });
        drop(kept);
        self.trim();
    }

    /// Releases memory, oldest first, until kept memory and memory in use are within the limit. Call it without a lock, because it may take
    /// long.
    pub fn trim(&self) {
        let mut excess = self.excess();
        if excess == 0 || self.bytes() == 0 {
            return;
        }
        self.release(|kept| {
            let goes = excess > 0;
            excess = excess.saturating_sub(if goes { kept.memory.touched } else { 0 });
            goes
        });
    }

    /// Releases memory that has been kept for `KEPT_FOR`. Returns whether there was any.
    pub fn release_due(&self, now: Time) -> bool {
        self.bytes() > 0 && self.release(|kept| now >= kept.since + KEPT_FOR)
    }

    /// Releases all memory of a device that is about to be closed.
    pub(super) fn release_device(&self, device: &Arc<dyn Device>) {
        let device = DeviceKey::new(device);
        self.release(|kept| kept.device == device);
    }

    fn release(&self, mut goes: impl FnMut(&KeptChunk) -> bool) -> bool {
        let mut kept = self.0.kept.lock();
        let released: Vec<KeptChunk> = kept.extract_if(.., |kept| goes(kept)).collect();
        drop(kept);
        let bytes = released.iter().map(|kept| kept.memory.touched).sum();
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        !released.is_empty()
    }
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChunkCache({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Host;

    fn host() -> Arc<dyn Device> {
        Arc::new(Host)
    }

    /// A cache, and the clock that it reads, in nanoseconds.
    fn cache(budget: &Budget) -> (ChunkCache, Arc<AtomicU64>) {
        let clock = Arc::new(AtomicU64::new(0));
        let reads = Arc::clone(&clock);
        (ChunkCache::new(budget.clone(), move || Time(reads.load(Ordering::Relaxed))), clock)
    }

    fn freed(cache: &ChunkCache, bytes: usize) -> u64 {
        let memory = cache.allocate(&host(), &[bytes]).unwrap();
        let address = memory.buffers[0].address_for_tests();
        cache.keep(&host(), ChunkMemory { touched: bytes as u64, ..memory });
        address
    }

    #[test]
    fn freed_memory_is_kept_for_ten_seconds() {
        let (cache, clock) = cache(&Budget::new(1 << 20));
        let address = freed(&cache, 4096);
        assert_eq!(freed(&cache, 4096), address, "the same memory again");
        clock.store(1_000, Ordering::Relaxed);
        assert_eq!(freed(&cache, 4096), address);
        assert!(!cache.release_due(Time(10_000_000_999)));
        assert_eq!(cache.bytes(), 4096);
        assert!(cache.release_due(Time(10_000_001_000)));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn memory_of_another_size_or_device_is_not_taken() {
        let (cache, _) = cache(&Budget::new(1 << 20));
        freed(&cache, 4096);
        assert!(!cache.allocate(&host(), &[2048]).unwrap().is_reused);
        assert!(!cache.allocate(&host(), &[2048, 2048]).unwrap().is_reused);
        let accelerator = crate::device::stand_in::StandIns::new(1, 1 << 20);
        let accelerator = crate::device::Accelerators::open(&accelerator, 0).unwrap();
        assert!(!cache.allocate(&accelerator, &[4096]).unwrap().is_reused);
        assert!(cache.allocate(&host(), &[4096]).unwrap().is_reused);
    }

    #[test]
    fn cached_memory_is_freed_for_sequences_and_never_causes_a_refusal() {
        let budget = Budget::new(10_000);
        let (cache, _) = cache(&budget);
        let first = budget.take(6_000).unwrap();
        drop(first);
        for bytes in [3_000, 1_000, 2_000] {
            freed(&cache, bytes);
        }
        assert_eq!(cache.bytes(), 6_000);
        let _second = budget.take(5_500).unwrap();
        cache.trim();
        assert_eq!(cache.bytes(), 3_000, "the oldest went");
        let _third = budget.take(4_500).unwrap();
        cache.trim();
        assert_eq!((budget.used(), cache.bytes()), (10_000, 0));
        freed(&cache, 1);
        assert_eq!(cache.bytes(), 0, "at the limit nothing is kept");
    }

    #[test]
    fn a_full_device_takes_kept_memory_back() {
        let (cache, _) = cache(&Budget::new(1 << 20));
        let accelerators = crate::device::stand_in::StandIns::new(1, 4096);
        let open = || crate::device::Accelerators::open(&accelerators, 0).unwrap();
        let (one, other) = (open(), open());
        let memory = cache.allocate(&one, &[4096]).unwrap();
        cache.keep(&one, ChunkMemory { touched: 4096, ..memory });
        let _full = cache.allocate(&other, &[4096]).unwrap();
        assert!(matches!(cache.allocate(&other, &[1]), Err(DeviceError::OutOfMemory { .. })));
    }
}
