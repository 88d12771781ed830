//! Host memory for the tensors that ONNX Runtime allocates. ONNX Runtime's own arena would keep the memory of the largest batch for as long
//! as a model is loaded. This allocator returns blocks to the system that were not used for ten seconds, and bounds all blocks together.
//!
//! The bound is for the tensors of runs. Weights do not count, nor do outputs that outlive their run: states and answers have bounds of their
//! own ([`leave`]).
//!
//! ONNX Runtime does not check the address that an allocator returns: it writes to null. An allocation that fails must throw C++'s
//! `std::bad_alloc`, as ONNX Runtime's own allocators do. The run then fails with an error, and the process goes on.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ort::AsPointer;
use ort::environment::Environment;
use ort::sys::{OrtAllocator, OrtMemoryInfo};
use parking_lot::Mutex;
use sequor_core::Time;

use super::bad_alloc::{BadAlloc, can_throw};
use super::status::check;
use super::value::memory_info;
use super::weights::loads_weights;
use crate::backend::BackendError;
use crate::device::{Device, DeviceId, Host};

const UNUSED_FOR: Duration = Duration::from_secs(10);

/// Bytes in front of every block for its size; a cache line of its own.
const HEADER: usize = 64;

/// Smaller blocks go back to the process's allocator at once.
const LARGE: usize = 64 << 10;

/// The blocks of this process. All sessions share them.
static MEMORY: BlockPool = BlockPool::new();

struct BlockPool {
    large: Mutex<LargeBlocks>,
    /// Bytes of the large blocks that count: free ones, and those in use by runs.
    held: AtomicU64,
    /// Maximum of `held`.
    limit: AtomicU64,
    /// The time of the last release, in nanoseconds; it advances about once a second.
    now: AtomicU64,
}

struct LargeBlocks {
    /// Free blocks by size, in the order in which they were freed.
    free: BTreeMap<usize, Vec<Block>>,
    /// Blocks in use, by their addresses.
    used: BTreeMap<u64, UsedBlock>,
}

#[derive(Clone, Copy)]
struct UsedBlock {
    size: usize,
    /// Whether it is in `held`.
    counts: bool,
}

/// A large block that is not in use.
struct Block {
    address: u64,
    since: Time,
}

/// The allocator in the layout of the C API.
#[repr(C)]
struct Allocator {
    /// The first field, so that a pointer to it is a pointer to the whole.
    calls: OrtAllocator,
    info: *const OrtMemoryInfo,
}

/// Registers this allocator for every session of the environment that asks for shared allocators. Call it once a process.
///
/// Without a way to throw `std::bad_alloc` it registers nothing, and sessions keep ONNX Runtime's own arena.
pub(super) fn register(environment: &Environment) -> Result<(), BackendError> {
    if let Err(reason) = can_throw() {
        tracing::warn!(%reason, "ONNX Runtime keeps its own memory arena; limits.tensors has no effect");
        return Ok(());
    }
    // Both live as long as the environment, which is never released.
    let info = Box::leak(Box::new(memory_info(DeviceId::Host)?));
    // SAFETY: a table of functions; the missing ones are set below.
    let mut calls = unsafe { OrtAllocator::default() };
    // SAFETY: both types have the same calling convention. They differ in that `allocate` and `reserve` may unwind, and their caller is
    // ONNX Runtime, which expects that of an allocator.
    calls.Alloc = Some(unsafe { std::mem::transmute::<Allocate, NeverUnwinds<*mut OrtAllocator>>(allocate) });
    calls.Free = Some(free);
    calls.Info = Some(describe);
    // SAFETY: as above.
    calls.Reserve = Some(unsafe { std::mem::transmute::<Reserve, NeverUnwinds<*const OrtAllocator>>(reserve) });
    let allocator = Box::leak(Box::new(Allocator { calls, info: info.ptr() }));
    // SAFETY: the environment is alive, and the allocator is never freed.
    check(unsafe { (ort::api().RegisterAllocator)(environment.ptr().cast_mut(), &raw mut allocator.calls) })
}

/// Sets the maximum bytes of all blocks together, for the whole process.
pub(super) fn set_limit(bytes: u64) {
    MEMORY.limit.store(bytes, Ordering::Relaxed);
}

/// Releases blocks that were not used for ten seconds. Returns whether there were any.
pub(super) fn release(now: Time) -> bool {
    MEMORY.release(now)
}

/// Takes the block of this tensor out of the limit, until it is freed: its tensor outlives the run, and counts elsewhere. Ignores memory of other
/// allocators.
pub(super) fn leave(tensor: u64, bytes: usize) {
    if block_size(bytes).is_some_and(|size| size >= LARGE) {
        MEMORY.leave(tensor.saturating_sub(HEADER as u64));
    }
}

impl BlockPool {
    const fn new() -> BlockPool {
        let (held, limit, now) = (AtomicU64::new(0), AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let large = LargeBlocks { free: BTreeMap::new(), used: BTreeMap::new() };
        BlockPool { large: Mutex::new(large), held, limit, now }
    }

    /// Returns a block for weights, and its size. It does not count against the limit.
    fn allocate_weights(&self, bytes: usize) -> Option<(u64, usize)> {
        let size = block_size(bytes)?;
        if size < LARGE {
            return self.allocate(bytes);
        }
        let address = Host.allocate(size).ok()?;
        self.large.lock().used.insert(address, UsedBlock { size, counts: false });
        Some((address, size))
    }

    fn leave(&self, address: u64) {
        let mut large = self.large.lock();
        if let Some(block) = large.used.get_mut(&address).filter(|block| block.counts) {
            block.counts = false;
            self.held.fetch_sub(block.size as u64, Ordering::Relaxed);
        }
    }

    /// Returns a block with room for `bytes` bytes, and its size.
    fn allocate(&self, bytes: usize) -> Option<(u64, usize)> {
        let size = block_size(bytes)?;
        if size < LARGE {
            // SAFETY: the layout is not empty.
            let address = unsafe { alloc(layout(size)?) } as u64;
            return (address != 0).then_some((address, size));
        }
        self.take(size).or_else(|| Some((self.new_block(size)?, size)))
    }

    /// Allocates a block within the limit. If it does not fit, free blocks are released first.
    fn new_block(&self, size: usize) -> Option<u64> {
        if !self.reserve(size) {
            self.release_if(|_| true);
            if !self.reserve(size) {
                return None;
            }
        }
        let Ok(address) = Host.allocate(size) else {
            self.held.fetch_sub(size as u64, Ordering::Relaxed);
            return None;
        };
        self.large.lock().used.insert(address, UsedBlock { size, counts: true });
        Some(address)
    }

    /// Counts a new block, unless it exceeds the limit.
    fn reserve(&self, size: usize) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |held: u64| held.checked_add(size as u64).filter(|held| *held <= limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Takes the smallest free block that fits and is at most twice as large, so that a model's batches of all sizes share their blocks.
    fn take(&self, size: usize) -> Option<(u64, usize)> {
        let mut large = self.large.lock();
        let mut larger = large.free.range_mut(size..=size.checked_mul(2)?);
        let (size, blocks) = larger.find(|(_, blocks)| !blocks.is_empty())?;
        let (size, address) = (*size, blocks.pop()?.address);
        large.used.insert(address, UsedBlock { size, counts: true });
        Some((address, size))
    }

    /// # Safety
    /// The block must have this size, come from [`BlockPool::allocate`], and not be in use any more.
    unsafe fn free(&self, address: u64, size: usize) {
        if size >= LARGE {
            let since = Time(self.now.load(Ordering::Relaxed));
            let mut large = self.large.lock();
            let counted = large.used.remove(&address).is_none_or(|block| block.counts);
            if counted || self.reserve(size) {
                large.free.entry(size).or_default().push(Block { address, since });
                return;
            }
            drop(large);
            // SAFETY: allocated with this size, and not in use any more, as the caller promises.
            unsafe { Host.release(address, size) };
        } else if let Some(layout) = layout(size) {
            // SAFETY: the caller's promise: allocated with this layout.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn release(&self, now: Time) -> bool {
        self.now.store(now.0, Ordering::Relaxed);
        self.release_if(|block| now >= block.since + UNUSED_FOR)
    }

    /// Returns free blocks to the system. Returns whether there were any.
    fn release_if(&self, is_due: impl Fn(&Block) -> bool) -> bool {
        let mut released = Vec::new();
        let mut large = self.large.lock();
        for (size, blocks) in &mut large.free {
            released.extend(blocks.extract_if(.., |block| is_due(block)).map(|block| (*size, block.address)));
        }
        drop(large);
        for (size, address) in &released {
            // SAFETY: allocated with this size, and no other code has the address.
            unsafe { Host.release(*address, *size) };
            self.held.fetch_sub(*size as u64, Ordering::Relaxed);
        }
        !released.is_empty()
    }
}

/// The types of [`allocate`] and [`reserve`], and the type of both in the C API.
type Allocate = unsafe extern "C-unwind" fn(*mut OrtAllocator, usize) -> *mut c_void;
type Reserve = unsafe extern "C-unwind" fn(*const OrtAllocator, usize) -> *mut c_void;
type NeverUnwinds<This> = unsafe extern "system" fn(This, usize) -> *mut c_void;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, HEADER).ok()
}

/// The size of a new block for a tensor of `bytes` bytes. Large sizes have four steps between two powers of two, so that blocks fit again.
fn block_size(bytes: usize) -> Option<usize> {
    let size = bytes.checked_add(HEADER)?;
    if size < LARGE {
        return Some(size);
    }
    size.checked_next_multiple_of((size.checked_next_power_of_two()? / 8).max(4096))
}

/// # Safety
/// ONNX Runtime calls it, and catches the exception of a failed allocation. No value with a destructor may live while it is thrown.
unsafe extern "C-unwind" fn allocate(_: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    let block = if loads_weights() { MEMORY.allocate_weights(bytes) } else { MEMORY.allocate(bytes) };
    // SAFETY: the block is of `MEMORY`.
    unsafe { hand_out(block) }
}

/// # Safety
/// As for [`allocate`]. The block must come from [`MEMORY`].
unsafe fn hand_out(block: Option<(u64, usize)>) -> *mut c_void {
    match block {
        Some((address, size)) => {
            // SAFETY: the block begins with aligned room for its size.
            unsafe { (address as *mut usize).write(size) };
            (address + HEADER as u64) as *mut c_void
        }
        None => BadAlloc::throw(),
    }
}

/// # Safety
/// As for [`allocate`].
unsafe extern "C-unwind" fn reserve(_: *const OrtAllocator, bytes: usize) -> *mut c_void {
    // SAFETY: as for `allocate`.
    unsafe { hand_out(MEMORY.allocate_weights(bytes)) }
}

/// # Safety
/// ONNX Runtime calls it with null, or with an address from [`allocate`].
unsafe extern "system" fn free(_: *mut OrtAllocator, memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    let address = memory as u64 - HEADER as u64;
    // SAFETY: `allocate` wrote the size; the address is as the caller promises.
    unsafe { MEMORY.free(address, (address as *const usize).read()) };
}

/// # Safety
/// ONNX Runtime calls it with the registered allocator.
unsafe extern "system" fn describe(this: *const OrtAllocator) -> *const OrtMemoryInfo {
    // SAFETY: the caller's promise; the table of functions is the first field.
    unsafe { (*this.cast::<Allocator>()).info }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_and_released_when_nothing_used_them_for_ten_seconds() {
        let memory = BlockPool::new();
        let (first, size) = memory.allocate(1 << 20).unwrap();
        // SAFETY: allocated above.
        unsafe { memory.free(first, size) };
        assert_eq!(memory.allocate(600 << 10), Some((first, size)), "a smaller batch takes it too");
        // SAFETY: as above.
        unsafe { memory.free(first, size) };
        assert!(!memory.release(Time(9_999_999_999)));
        assert!(memory.release(Time(10_000_000_000)));
        assert!(memory.large.lock().free.values().all(Vec::is_empty));
        let (small, size) = memory.allocate(100).unwrap();
        assert_eq!(small % 64, 0);
        // SAFETY: allocated above.
        unsafe { memory.free(small, size) };
        assert_eq!(memory.allocate(usize::MAX), None);
    }

    #[test]
    fn blocks_in_use_stay_below_the_limit_and_free_ones_make_room() {
        let memory = BlockPool::new();
        memory.limit.store(4 << 20, Ordering::Relaxed);
        let (first, size) = memory.allocate(1 << 20).unwrap();
        assert_eq!(memory.allocate(3 << 20), None, "the limit counts block sizes, a little more than was asked for");
        // SAFETY: allocated above.
        unsafe { memory.free(first, size) };
        let (large, large_size) = memory.allocate(3 << 20).unwrap();
        assert_eq!(memory.held.load(Ordering::Relaxed), large_size as u64, "the free block was released");
        // SAFETY: allocated above.
        unsafe { memory.free(large, large_size) };
        memory.release_if(|_| true);
        assert_eq!(memory.held.load(Ordering::Relaxed), 0);
        memory.limit.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(memory.allocate(1 << 60), None, "more than the address space");
        assert_eq!(memory.held.load(Ordering::Relaxed), 0, "what the system refused is not counted");
    }

    #[test]
    fn weights_and_tensors_that_outlive_their_run_do_not_count() {
        let memory = BlockPool::new();
        memory.limit.store(4 << 20, Ordering::Relaxed);
        let held = || memory.held.load(Ordering::Relaxed);
        let (weights, weights_size) = memory.allocate_weights(8 << 20).unwrap();
        assert_eq!(held(), 0);
        let outlives = |_| {
            let (address, size) = memory.allocate(1 << 20).unwrap();
            memory.leave(address);
            memory.leave(address);
            (address, size)
        };
        let outlive: Vec<_> = (0..8).map(outlives).collect();
        memory.leave(weights);
        memory.leave(12_345);
        assert_eq!(held(), 0);
        // SAFETY: allocated above.
        outlive.into_iter().for_each(|(address, size)| unsafe { memory.free(address, size) });
        assert!(held() > 0 && held() <= 4 << 20, "free blocks count as far as they fit: {}", held());
        // SAFETY: as above.
        unsafe { memory.free(weights, weights_size) };
        assert!(memory.allocate(3 << 20).is_some(), "free blocks make room");
        assert!(held() <= 4 << 20);
    }

    #[test]
    fn blocks_are_at_most_a_quarter_larger_than_asked_for() {
        for bytes in (17..34).flat_map(|power| [1usize << power, (1 << power) + 1, (3 << power) / 2]) {
            let size = block_size(bytes).unwrap();
            assert!(size >= bytes + HEADER && size <= (bytes + HEADER) / 4 * 5 + 4096, "{bytes}: {size}");
        }
    }
}
