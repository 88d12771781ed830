//! The allocator of the program: mimalloc, called without an alignment where its blocks are aligned anyway.
//!
//! `mi_malloc_aligned`, which [`MiMalloc`] calls for every allocation, adds the alignment to most sizes above 1 KiB and rounds up in the block
//! that it gets.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{mi_free, mi_malloc, mi_realloc, mi_zalloc};
use mimalloc::MiMalloc;

/// Every block begins at a multiple of this.
const ALIGNED: usize = size_of::<usize>();

/// Allocates for the whole program. Small allocations on many threads are most of what a server does beside its models' runs.
#[derive(Debug, Default, Clone, Copy)]
pub struct ProgramAllocator;

// SAFETY: mimalloc's functions. Each block is aligned to at least `ALIGNED`, and all functions take each other's blocks.
unsafe impl GlobalAlloc for ProgramAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= ALIGNED {
            // SAFETY: any size is valid.
            true => unsafe { mi_malloc(layout.size()) }.cast(),
            // SAFETY: the caller's layout.
            false => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.align() <= ALIGNED {
            // SAFETY: any size is valid.
            true => unsafe { mi_zalloc(layout.size()) }.cast(),
            // SAFETY: the caller's layout.
            false => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's block, which came from here.
        unsafe { mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match layout.align() <= ALIGNED {
            // SAFETY: the caller's block, which came from here. Any size is valid.
            true => unsafe { mi_realloc(block.cast(), size) }.cast(),
            // SAFETY: the caller's block and its layout.
            false => unsafe { MiMalloc.realloc(block, layout, size) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a block, so that overlapping blocks would be noticed.
    fn fill(block: *mut u8, layout: Layout, with: u8) {
        // SAFETY: the block has this size.
        unsafe { block.write_bytes(with, layout.size()) };
    }

    fn is_filled(block: *const u8, bytes: usize, with: u8) -> bool {
        // SAFETY: the block has at least this size.
        unsafe { std::slice::from_raw_parts(block, bytes) }.iter().all(|byte| *byte == with)
    }

    #[test]
    fn blocks_of_every_size_are_aligned_and_apart() {
        for align in [1, 2, 4, 8, 16, 64, 4096] {
            let layouts = (1..3000).step_by(7).map(|size| Layout::from_size_align(size, align).unwrap());
            let blocks: Vec<_> = layouts
                .enumerate()
                .map(|(n, layout)| {
                    // SAFETY: the size is not 0.
                    let block = unsafe { ProgramAllocator.alloc(layout) };
                    assert!(!block.is_null() && block.addr() % align == 0, "{layout:?}");
                    fill(block, layout, n as u8);
                    (block, layout)
                })
                .collect();
            for (n, (block, layout)) in blocks.into_iter().enumerate() {
                let (before, after) = (layout.size(), 2 * layout.size() + 1);
                // SAFETY: the block came from here with this layout.
                let grown = unsafe { ProgramAllocator.realloc(block, layout, after) };
                assert!(grown.addr() % align == 0 && is_filled(grown, before, n as u8), "{layout:?}");
                // SAFETY: the block came from here and has this size now.
                unsafe { ProgramAllocator.dealloc(grown, Layout::from_size_align(after, align).unwrap()) };
            }
        }
    }

    #[test]
    fn zeroed_blocks_are_zero_although_their_memory_was_used() {
        for align in [1, 8, 64] {
            for size in [8, 24, 1152, 100_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                for _ in 0..100 {
                    // SAFETY: the size is not 0, and the block is given back with its layout.
                    unsafe {
                        let block = ProgramAllocator.alloc_zeroed(layout);
                        assert!(is_filled(block, size, 0), "{layout:?}");
                        fill(block, layout, 0xff);
                        ProgramAllocator.dealloc(block, layout);
                    }
                }
            }
        }
    }
}
