//! Room for the arguments of a call. The server asks for it list by list before it calls, and all of it is free again once the call is over: so
//! what is asked for is laid end to end, and nothing is looked for or given back one by one.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;

/// Bytes: more than the columns of some hundred candidates. What does not fit is allocated like anything else.
const ROOM: usize = 32 << 10;

/// Memory that one call at a time uses.
struct Alone<T>(UnsafeCell<T>);

// SAFETY: a component has one thread, and neither of the two functions here calls the other or anything that comes back to them.
unsafe impl<T> Sync for Alone<T> {}

/// No list is aligned to more than 8, and the bytes come first.
#[repr(C, align(8))]
struct Room {
    bytes: [u8; ROOM],
    used: usize,
}

// All zeros, which take no place in the file.
static LAID: Alone<Room> = Alone(UnsafeCell::new(Room { bytes: [0; ROOM], used: 0 }));
/// What did not fit.
static BESIDE: Alone<Vec<(*mut u8, Layout)>> = Alone(UnsafeCell::new(Vec::new()));

/// Room for `len` bytes, holding what the `old_len` at `old` held: `cabi_realloc` of the canonical ABI, for what is exported.
///
/// # Safety
///
/// Only the server calls this, before a call whose end is said by [`release`]. `old` is from here since then, or `old_len` is 0.
pub unsafe fn give(old: *const u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    if len == 0 {
        return std::ptr::without_provenance_mut(align);
    }
    // SAFETY: nothing else runs here (see `Alone`).
    let room = unsafe { &mut *LAID.0.get() };
    let at = room.used.next_multiple_of(align);
    let to = if len <= ROOM.saturating_sub(at) {
        room.used = at + len;
        // SAFETY: `at` lies within the bytes.
        unsafe { room.bytes.as_mut_ptr().add(at) }
    } else {
        beside(align, len)
    };
    // SAFETY: both are as long, and what is new overlaps nothing.
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

/// A trap, and nothing said: the server may not be called from here.
fn out_of_memory() -> ! {
    std::arch::wasm32::unreachable()
}

/// The call is over: its arguments are not looked at any more.
///
/// # Safety
///
/// They are not.
pub unsafe fn release() {
    // SAFETY: nothing else runs here (see `Alone`).
    let (room, beside) = unsafe { (&mut *LAID.0.get(), &mut *BESIDE.0.get()) };
    room.used = 0;
    for (at, layout) in beside.drain(..) {
        // SAFETY: they were allocated so, and are taken out.
        unsafe { dealloc(at, layout) };
    }
}
