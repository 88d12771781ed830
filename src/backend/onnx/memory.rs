//! Host memory for the tensors that ONNX Runtime allocates. ONNX Runtime's own arena would keep the memory of the largest batch for as long
//! as a model is loaded. This allocator returns blocks to the system that were not used for ten seconds.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ort::AsPointer;
use ort::environment::Environment;
use ort::sys::{OrtAllocator, OrtMemoryInfo};
use parking_lot::Mutex;
use sequor_core::Time;

use super::status::check;
use super::value::memory_info;
use crate::backend::BackendError;
use crate::device::{Device, DeviceId, Host};

const UNUSED_FOR: Duration = Duration::from_secs(10);

/// Bytes in front of every block for its size; a cache line of its own.
const HEADER: usize = 64;

/// Smaller blocks go back to the process's allocator at once.
const LARGE: usize = 64 << 10;

/// The blocks of this process. All sessions share them.
static MEMORY: BlockPool = BlockPool { free: Mutex::new(BTreeMap::new()), now: AtomicU64::new(0) };

struct BlockPool {
    /// Free blocks by size, in the order in which they were freed.
    free: Mutex<BTreeMap<usize, Vec<Block>>>,
    /// The time of the last release, in nanoseconds; it advances about once a second.
    now: AtomicU64,
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
pub(super) fn register(environment: &Environment) -> Result<(), BackendError> {
    // Both live as long as the environment, which is never released.
    let info = Box::leak(Box::new(memory_info(DeviceId::Host)?));
    // SAFETY: a table of functions; the missing ones are set below.
    let mut calls = unsafe { OrtAllocator::default() };
    calls.Alloc = Some(allocate);
    calls.Free = Some(free);
    calls.Info = Some(describe);
    calls.Reserve = Some(reserve);
    let allocator = Box::leak(Box::new(Allocator { calls, info: info.ptr() }));
    // SAFETY: the environment is alive, and the allocator is never freed.
    check(unsafe { (ort::api().RegisterAllocator)(environment.ptr().cast_mut(), &raw mut allocator.calls) })
}

/// Releases blocks that were not used for ten seconds. Returns whether there were any.
pub(super) fn release(now: Time) -> bool {
    MEMORY.release(now)
}

impl BlockPool {
    /// Returns a block with room for `bytes` bytes, and its size.
    fn allocate(&self, bytes: usize) -> Option<(u64, usize)> {
        let size = block_size(bytes)?;
        if size < LARGE {
            // SAFETY: the layout is not empty.
            let address = unsafe { alloc(layout(size)?) } as u64;
            return (address != 0).then_some((address, size));
        }
        self.take(size).or_else(|| Host.allocate(size).ok().map(|address| (address, size)))
    }

    /// Takes the smallest free block that fits and is at most twice as large, so that a model's batches of all sizes share their blocks.
    fn take(&self, size: usize) -> Option<(u64, usize)> {
        let mut free = self.free.lock();
        let (size, blocks) = free.range_mut(size..=size.checked_mul(2)?).find(|(_, blocks)| !blocks.is_empty())?;
        blocks.pop().map(|block| (block.address, *size))
    }

    /// # Safety
    /// The block must have this size, come from [`BlockPool::allocate`], and not be in use any more.
    unsafe fn free(&self, address: u64, size: usize) {
        if size >= LARGE {
            let since = Time(self.now.load(Ordering::Relaxed));
            self.free.lock().entry(size).or_default().push(Block { address, since });
        } else if let Some(layout) = layout(size) {
            // SAFETY: the caller's promise: allocated with this layout.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    fn release(&self, now: Time) -> bool {
        self.now.store(now.0, Ordering::Relaxed);
        let mut released = Vec::new();
        let mut free = self.free.lock();
        for (size, blocks) in free.iter_mut() {
            let due = blocks.extract_if(.., |block| now >= block.since + UNUSED_FOR);
            released.extend(due.map(|block| (*size, block.address)));
        }
        drop(free);
        for (size, address) in &released {
            // SAFETY: allocated with this size, and no other code has the address.
            unsafe { Host.release(*address, *size) };
        }
        !released.is_empty()
    }
}

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
/// ONNX Runtime calls it.
unsafe extern "system" fn allocate(_: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    let Some((address, size)) = MEMORY.allocate(bytes) else { return ptr::null_mut() };
    // SAFETY: the block begins with aligned room for its size.
    unsafe { (address as *mut usize).write(size) };
    (address + HEADER as u64) as *mut c_void
}

/// # Safety
/// ONNX Runtime calls it.
unsafe extern "system" fn reserve(_: *const OrtAllocator, bytes: usize) -> *mut c_void {
    // SAFETY: the first argument is not used.
    unsafe { allocate(ptr::null_mut(), bytes) }
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
        let memory = BlockPool { free: Mutex::default(), now: AtomicU64::new(0) };
        let (first, size) = memory.allocate(1 << 20).unwrap();
        // SAFETY: allocated above.
        unsafe { memory.free(first, size) };
        assert_eq!(memory.allocate(600 << 10), Some((first, size)), "a smaller batch takes it too");
        // SAFETY: as above.
        unsafe { memory.free(first, size) };
        assert!(!memory.release(Time(9_999_999_999)));
        assert!(memory.release(Time(10_000_000_000)));
        assert!(memory.free.lock().values().all(Vec::is_empty));
        let (small, size) = memory.allocate(100).unwrap();
        assert_eq!(small % 64, 0);
        // SAFETY: allocated above.
        unsafe { memory.free(small, size) };
        assert_eq!(memory.allocate(usize::MAX), None);
    }

    #[test]
    fn blocks_are_at_most_a_quarter_larger_than_asked_for() {
        for bytes in (17..34).flat_map(|power| [1usize << power, (1 << power) + 1, (3 << power) / 2]) {
            let size = block_size(bytes).unwrap();
            assert!(size >= bytes + HEADER && size <= (bytes + HEADER) / 4 * 5 + 4096, "{bytes}: {size}");
        }
    }
}
