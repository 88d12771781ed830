//! Room for the arguments of a call. The server asks for it list by list before it calls, and all of it is free again once the call is over: so
//! what is asked for is laid end to end, and nothing is looked for or given back one by one.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::UnsafeCell;

/// Bytes: more than the columns of some hundred candidates. What does not fit is allocated like anything else.
const ROOM: usize = 32 << 10;

struct Room(UnsafeCell<State>);

/// No list is aligned to more than 8, and the bytes come first.
#[repr(C, align(8))]
struct State {
    bytes: [u8; ROOM],
    used: usize,
    /// What did not fit.
    beside: Vec<(*mut u8, Layout)>,
}

// SAFETY: a component has one thread, and neither of the two functions here calls the other or anything that comes back to them.
unsafe impl Sync for Room {}

static ROOM_OF_ALL: Room = Room(UnsafeCell::new(State { bytes: [0; ROOM], used: 0, beside: Vec::new() }));

/// Room for `len` bytes, holding what the `old_len` at `old` held: `cabi_realloc` of the canonical ABI, for what is exported.
///
/// # Safety
///
/// Only the server calls this, before a call whose end is said by [`release`]. `old` is from here since then, or `old_len` is 0.
pub unsafe fn give(old: *const u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    if len == 0 {
        return std::ptr::without_provenance_mut(align);
    }
    // SAFETY: nobody else is in here (see `Room`).
    let state = unsafe { &mut *ROOM_OF_ALL.0.get() };
    let at = state.used.next_multiple_of(align);
    let to = if at + len <= ROOM {
        state.used = at + len;
        // SAFETY: `at` lies within the bytes.
        unsafe { state.bytes.as_mut_ptr().add(at) }
    } else {
        beside(&mut state.beside, align, len)
    };
    // SAFETY: both are as long, and what is new overlaps nothing.
    unsafe { std::ptr::copy_nonoverlapping(old, to, old_len.min(len)) };
    to
}

#[cold]
fn beside(kept: &mut Vec<(*mut u8, Layout)>, align: usize, len: usize) -> *mut u8 {
    let Ok(layout) = Layout::from_size_align(len, align) else { out_of_memory() };
    // SAFETY: `len` is not 0.
    let at = unsafe { alloc(layout) };
    if at.is_null() {
        out_of_memory();
    }
    kept.push((at, layout));
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
    // SAFETY: nobody else is in here (see `Room`).
    let state = unsafe { &mut *ROOM_OF_ALL.0.get() };
    state.used = 0;
    for (at, layout) in state.beside.drain(..) {
        // SAFETY: they were allocated so, and are taken out.
        unsafe { dealloc(at, layout) };
    }
}
