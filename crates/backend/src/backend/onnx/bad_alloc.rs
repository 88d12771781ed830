//! Throws C++'s `std::bad_alloc`, for callbacks of ONNX Runtime that cannot return an error. Nothing else may throw through Rust code.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_NOW};

/// The C++ library that ONNX Runtime is linked with. Loading ONNX Runtime has loaded it.
const LIBRARY: &str = "libstdc++.so.6";

/// Finds only libraries that are loaded already (`dlfcn.h` of Linux).
const RTLD_NOLOAD: c_int = 4;

/// The name of `void std::__throw_bad_alloc()`.
const SYMBOL: &[u8] = b"_ZSt17__throw_bad_allocv\0";

static THROW: OnceLock<BadAlloc> = OnceLock::new();

/// A function that throws `std::bad_alloc`.
#[derive(Debug, Clone, Copy)]
pub(super) struct BadAlloc(unsafe extern "C-unwind" fn() -> *mut c_void);

impl BadAlloc {
    /// Throws. Callers are `extern "C-unwind"`, and hold no value with a destructor. Returns null if [`can_throw`] has not succeeded.
    pub(super) fn throw() -> *mut c_void {
        match THROW.get() {
            // SAFETY: the function takes nothing and does not return. Its library is never unloaded.
            Some(function) => unsafe { function.0() },
            None => std::ptr::null_mut(),
        }
    }
}

/// Finds the function. Call it once ONNX Runtime is loaded.
pub(super) fn can_throw() -> Result<(), String> {
    if THROW.get().is_some() {
        return Ok(());
    }
    // SAFETY: with NOLOAD, nothing is loaded and no initialiser runs.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_NOLOAD) }
        .map_err(|error| format!("ONNX Runtime is not linked with {LIBRARY}: {error}"))?;
    // SAFETY: the symbol's type: no argument; it never returns, so the type of its result does not matter.
    let function = unsafe { library.get::<unsafe extern "C-unwind" fn() -> *mut c_void>(SYMBOL) }
        .map(|symbol| *symbol)
        .map_err(|error| format!("{LIBRARY} cannot throw std::bad_alloc: {error}"))?;
    // ONNX Runtime needs the library for as long as the process lives, and so does the function.
    std::mem::forget(library);
    let _ = THROW.set(BadAlloc(function));
    Ok(())
}
