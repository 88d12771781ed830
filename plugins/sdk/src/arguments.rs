//! Memory for the arguments of a call. The server asks for it list by list before it calls, and all of it is free again after the call. So
//! lists are placed end to end, and none is freed by itself.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;

/// Bytes of the area: more than the columns of some hundred candidates need. Lists that do not fit are allocated separately.
const ROOM: usize = 32 << 10;

/// Memory that only one call at a time uses.
struct Alone<T>(UnsafeCell<T>);

// SAFETY: a component has one thread. Neither of the two functions here calls the other, or code that could call them.
unsafe impl<T> Sync for Alone<T> {}

/// No list needs an alignment above 8, and the bytes come first.
#[repr(C, align(8))]
struct Room {
    bytes: [u8; ROOM],
    used: usize,
}

// All zeros, which take no space in the file.
static LAID: Alone<Room> = Alone(UnsafeCell::new(Room { bytes: [0; ROOM], used: 0 }));
/// Lists that did not fit.
static BESIDE: Alone<Vec<(*mut u8, Layout)>> = Alone(UnsafeCell::new(Vec::new()));

/// Memory for `len` bytes, with the content of the `old_len` bytes at `old`. It is `cabi_realloc` of the canonical ABI for the exports.
///
/// # Safety
///
/// Only the server calls this, before a call that ends with [`release`]. `old` was allocated here for the same call, or `old_len` is 0.
pub unsafe fn give(old: *const u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    if len == 0 {
        return std::ptr::without_provenance_mut(align);
    }
    // SAFETY: nothing else runs here (see `Alone`).
    let room = unsafe { &mut *LAID.0.get() };
    let at = room.used.next_multiple_of(align);
    let to = if len <= ROOM.saturating_sub(at) {
        room.used = at + len;
        // SAFETY: `at` is within the bytes.
        unsafe { room.bytes.as_mut_ptr().add(at) }
    } else {
        beside(align, len)
    };
    // SAFETY: both are at least as long as the copy, and new memory overlaps nothing.
    unsafe { std::ptr::copy_nonoverlapping(old, to, old_len.min(len)) };
    to
}

#[cold]
fn beside(align: usize, len: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(len, align) else { out_of_memory() };
    // SAFETY: `len` is not 0.
    let at = unsafe { alloc(layout) };
    if at.is_null() {
        out_of_memory();
    }
    // SAFETY: nothing else runs here (see `Alone`).
    unsafe { &mut *BESIDE.0.get() }.push((at, layout));
    at
}

/// Traps without a message, because the server may not be called from here.
fn out_of_memory() -> ! {
    std::arch::wasm32::unreachable()
}

/// Frees the arguments after a call.
///
/// # Safety
///
/// The arguments of the call are not used any more.
pub unsafe fn release() {
    // SAFETY: nothing else runs here (see `Alone`).
    let (room, beside) = unsafe { (&mut *LAID.0.get(), &mut *BESIDE.0.get()) };
    room.used = 0;
    for (at, layout) in beside.drain(..) {
        // SAFETY: they were allocated with this layout, and leave the list here.
        unsafe { dealloc(at, layout) };
    }
}
