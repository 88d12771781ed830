//! Implements [`Device`] for the host's own memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;

use half::slice::HalfFloatSliceExt;
#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{Convert, Device, DeviceError, DeviceId, Fence, RawRow, RawSet};

const ALIGN: usize = 64;

/// Memory of at least this size is mapped, not allocated: it comes zeroed, and the kernel has it back at once after a release. An allocator
/// keeps freed memory until its next activity, which may never come on a quiet server.
const MAPPED: usize = 256 << 10;

/// Memory of at least this size is mapped in pages of 2 MiB, if the kernel offers them on request. The first write to a page costs a fault,
/// and a batch with large states writes tens of thousands of small pages.
const HUGE: usize = 4 << 20;

/// A multiple of every size of a page.
#[cfg(target_os = "linux")]
const PAGES: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Device for Host {
    fn place(&self) -> DeviceId {
        DeviceId::Host
    }

    fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let failed = DeviceError::OutOfMemory { place: DeviceId::Host, bytes };
        if bytes >= MAPPED {
            // SAFETY: the kernel picks a free address.
            let mapped = unsafe {
                mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
            };
            if bytes >= HUGE {
                mapped.iter().for_each(|memory| prefer_huge_pages(*memory, bytes));
            }
            return mapped.map(|memory| memory as u64).map_err(|_| failed);
        }
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).map_err(|_| failed.clone())?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() { Err(failed) } else { Ok(memory as u64) }
    }

    unsafe fn release(&self, address: u64, bytes: usize) {
        if bytes >= MAPPED {
            // SAFETY: the caller's promise: `allocate` mapped exactly this range. Unmapping a whole mapping does not fail.
            let _ = unsafe { munmap(address as *mut _, bytes) };
            return;
        }
        if let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) {
            // SAFETY: the caller's promise: `allocate` returned this address for this size.
            unsafe { dealloc(address as *mut u8, layout) };
        }
    }

    unsafe fn run(&self, sets: &[RawSet], rows: &[RawRow]) -> Result<(), DeviceError> {
        for set in sets {
            let at = set.first as usize;
            for row in rows.get(at..at + set.count as usize).unwrap_or_default() {
                // SAFETY: the caller's promise: live memory of this size, not used by others, not overlapping.
                unsafe { one(set, row) };
            }
        }
        Ok(())
    }

    unsafe fn upload(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise: `len` bytes on either side, in separate buffers.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(from as *const u8, len) };
        Ok(())
    }

    unsafe fn download(&self, from: u64, to: u64, len: usize) -> Result<(), DeviceError> {
        // SAFETY: as for an upload; on the host both are the same.
        unsafe { self.upload(from, to, len) }
    }

    fn fence(&self) -> Result<Fence, DeviceError> {
        Ok(Fence(0))
    }

    fn wait(&self, _mark: Fence) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Gives the whole pages of a part of an allocation of `bytes` back to the kernel, which zeroes them. Returns their bytes: 0 if the memory is not
/// mapped.
///
/// # Safety
/// The part must be within memory from [`Host::allocate`] that nothing else reads or writes.
#[cfg(target_os = "linux")]
pub(super) unsafe fn release_pages((address, len): (u64, usize), bytes: usize) -> usize {
    if bytes < MAPPED {
        return 0;
    }
    let (first, end) = (address.next_multiple_of(PAGES), (address + len as u64) / PAGES * PAGES);
    let whole = usize::try_from(end.saturating_sub(first)).unwrap_or(0);
    if whole == 0 {
        return 0;
    }
    // SAFETY: the caller's promise; the pages are within a private mapping of this process.
    let released = unsafe { madvise(first as *mut c_void, whole, Advice::LinuxDontNeed) };
    if released.is_ok() { whole } else { 0 }
}

#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn release_pages(_: (u64, usize), _: usize) -> usize {
    0
}

#[cfg(target_os = "linux")]
fn prefer_huge_pages(memory: *mut c_void, bytes: usize) {
    // SAFETY: this process owns the mapping, and the advice does not change its contents. A kernel without huge pages refuses; small pages
    // then stay.
    let _ = unsafe { madvise(memory, bytes, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: *mut c_void, _: usize) {}

/// # Safety
/// As for [`Device::run`].
#[inline]
unsafe fn one(set: &RawSet, row: &RawRow) {
    let from = (row.from != 0).then_some(row.from);
    let inner = set.inner as usize;
    for piece_of in 0..set.outer {
        let from = from.map(|at| at + piece_of * set.from_stride);
        // SAFETY: the caller's promise.
        unsafe { piece(from, row.to + piece_of * set.to_stride, inner, set.convert) };
    }
}

/// # Safety
/// `from` must be readable and `to` writable for a piece of `inner` bytes at the element sizes of `convert`, without overlap. If `convert`
/// is not `No`, both must be aligned to their elements.
#[inline]
unsafe fn piece(from: Option<u64>, to: u64, inner: usize, convert: Convert) {
    let to = to as *mut u8;
    let Some(from) = from else {
        // SAFETY: the caller promised this many writable bytes.
        return unsafe { to.write_bytes(0, convert.written(inner)) };
    };
    // SAFETY: the caller's promise. Rows of states start at multiples of their element's size, in buffers aligned to 64 bytes.
    unsafe {
        match convert {
            Convert::No => to.copy_from_nonoverlapping(from as *const u8, inner),
            Convert::Fp32ToFp16 => {
                slice_mut::<half::f16>(to, inner / 4).convert_from_f32_slice(slice(from, inner / 4));
            }
            Convert::Fp16ToFp32 => {
                slice::<half::f16>(from, inner / 2).convert_to_f32_slice(slice_mut(to, inner / 2));
            }
            Convert::Fp32ToBf16 => {
                slice_mut::<half::bf16>(to, inner / 4).convert_from_f32_slice(slice(from, inner / 4));
            }
            Convert::Bf16ToFp32 => {
                slice::<half::bf16>(from, inner / 2).convert_to_f32_slice(slice_mut(to, inner / 2));
            }
        }
    }
}

/// # Safety
/// `at` must point to `len` aligned elements, and nothing may write them.
unsafe fn slice<'a, T>(at: u64, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at as *const T, len) }
}

/// # Safety
/// `at` must point to `len` aligned elements, and nothing else may touch them.
unsafe fn slice_mut<'a, T>(at: *mut u8, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    #[test]
    fn large_memory_costs_few_page_faults() {
        const BYTES: usize = 64 << 20;
        let faults = || getrusage(UsageWho::RUSAGE_THREAD).unwrap().minor_page_faults();
        let before = faults();
        let address = Host.allocate(BYTES).unwrap();
        let pages = (BYTES / 4096) as i64;
        for page in 0..BYTES / 4096 {
            // SAFETY: within the memory that was allocated above.
            unsafe { (address as *mut u8).add(page * 4096).write(1) };
        }
        let taken = faults() - before;
        // SAFETY: allocated above with this size.
        unsafe { Host.release(address, BYTES) };
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        // Without huge pages, every small page costs a fault.
        let has_huge = enabled.contains("[madvise]") || enabled.contains("[always]");
        assert!(!has_huge || taken < pages / 4, "{taken} faults for {pages} pages");
    }
}
