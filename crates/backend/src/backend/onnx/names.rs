//! Names in the form of the C API: an array of pointers to C strings, built once.

use std::ffi::{CString, c_char};

use crate::backend::BackendError;

#[derive(Debug)]
pub(super) struct Names {
    pointers: Vec<*const c_char>,
    /// The strings behind the pointers; each has its own allocation.
    _owned: Vec<CString>,
}

// SAFETY: the pointers point to strings that this owns and never changes.
unsafe impl Send for Names {}
// SAFETY: as above.
unsafe impl Sync for Names {}

impl Names {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Result<Names, BackendError> {
        let owned = names
            .map(|name| CString::new(name).map_err(|_| BackendError(format!("{name:?} is not a name: it holds a NUL"))))
            .collect::<Result<Vec<CString>, BackendError>>()?;
        Ok(Names { pointers: owned.iter().map(|name| name.as_ptr()).collect(), _owned: owned })
    }

    pub(super) fn len(&self) -> usize {
        self.pointers.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = *const c_char> + '_ {
        self.pointers.iter().copied()
    }

    pub(super) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}
