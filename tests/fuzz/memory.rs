//! Counts what the process has allocated, so that a target can fail beyond a ceiling.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// No input needs as much. An allocation beyond it fails, and with it the process, before the machine runs out of memory.
const MOST: usize = 2 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) -> bool {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
    live <= MOST
}

// SAFETY: memory is the system's own; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            LIVE.fetch_sub(layout.size(), Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are the system's conditions.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            LIVE.fetch_sub(layout.size(), Relaxed);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Bytes that are allocated now. From now on the peak is counted anew.
pub(crate) fn begin() -> usize {
    let live = LIVE.load(Relaxed);
    PEAK.store(live, Relaxed);
    live
}

/// The most bytes that were allocated at once since [`begin`].
pub(crate) fn peak() -> usize {
    PEAK.load(Relaxed)
}
