//! A loaded graph as ONNX Runtime holds it. Runs of one session may overlap, on any threads.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use ort::AsPointer;
use ort::environment::Environment;
use ort::session::builder::SessionBuilder;
use ort::sys::{OrtSession, OrtValue};

use super::names::Names;
use super::status::{check, describe};
use crate::backend::{BackendError, LoadOptions};
use crate::device::Place;

/// Made over the C API and not as `ort`'s own session: that one reads the types of inputs and outputs while it is made, and panics at
/// those it does not know.
#[derive(Debug)]
pub(super) struct Session {
    pointer: NonNull<OrtSession>,
    /// Where it runs.
    place: Place,
    _environment: Environment,
}

// SAFETY: ONNX Runtime promises that a session may be run and asked from any threads at once; the one call that must be alone,
// the release, is in `drop`.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    pub(super) fn open(environment: &Environment, file: &Path, options: &LoadOptions) -> Result<Session, BackendError> {
        let path = CString::new(file.as_os_str().as_bytes())
            .map_err(|_| BackendError(format!("{} is not a file name", file.display())))?;
        let builder = SessionBuilder::new(environment)
            .map_err(|error| describe(&error))?
            .with_intra_threads(usize::from(options.threads))
            .map_err(|error| describe(&error))?
            .with_intra_op_spinning(options.spinning)
            .map_err(|error| describe(&error))?;
        let mut pointer = ptr::null_mut();
        // SAFETY: environment, path and options live through the call, and `pointer` may be written to.
        check(unsafe {
            (ort::api().CreateSession)(environment.ptr(), path.as_ptr(), builder.ptr(), &raw mut pointer)
        })?;
        let pointer = NonNull::new(pointer).ok_or_else(|| BackendError("ONNX Runtime made no session".to_owned()))?;
        Ok(Session { pointer, place: Place::Host, _environment: environment.clone() })
    }

    /// Whether a run may be given memory at this place. ONNX Runtime does not ask: it would read a device's address on the host.
    pub(super) fn takes(&self, place: Place) -> bool {
        place == Place::Host || place == self.place
    }

    pub(super) fn pointer(&self) -> *const OrtSession {
        self.pointer.as_ptr()
    }

    /// Runs the graph on the caller's thread. Outputs that are null are made by ONNX Runtime and are the caller's to release.
    ///
    /// # Safety
    /// There must be as many values as names. The inputs, and the outputs that are not null, must be values whose memory is there, and
    /// for the outputs is nobody else's to read or write, until this returns.
    pub(super) unsafe fn run(
        &self,
        input_names: &Names,
        inputs: &[*const OrtValue],
        output_names: &Names,
        outputs: &mut [*mut OrtValue],
    ) -> Result<(), BackendError> {
        debug_assert_eq!((input_names.len(), output_names.len()), (inputs.len(), outputs.len()));
        // SAFETY: the caller's promise; the session is alive and its Run may overlap with others. No options: null.
        check(unsafe {
            (ort::api().Run)(
                self.pointer.as_ptr(),
                ptr::null(),
                input_names.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                output_names.as_ptr(),
                outputs.len(),
                outputs.as_mut_ptr(),
            )
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, so nothing runs it and nothing uses it later.
        unsafe { (ort::api().ReleaseSession)(self.pointer.as_ptr()) }
    }
}
