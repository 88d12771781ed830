//! A loaded ONNX Runtime session. Its runs may overlap, on any threads.

use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ort::AsPointer;
use ort::environment::Environment;
use ort::session::RunOptions;
use ort::session::builder::SessionBuilder;
use ort::sys::{OrtIoBinding, OrtRunOptions, OrtSession, OrtValue};

use super::cuda;
use super::names::Names;
use super::status::{check, describe};
use super::tuning::{builder, on_host};
use super::weights::WeightLoading;
use crate::backend::{BackendError, LoadOptions};
use crate::device::{Device, DeviceId};

/// One of this many runs waits for the accelerator. Kernels copy small tables from pinned host memory, and ONNX Runtime frees these only at
/// the end of a run that waits. Without such runs, the tables would accumulate for as long as the session is loaded.
const AWAITED: u32 = 64;

/// Options of runs that do not wait for the accelerator.
struct Unawaited {
    options: RunOptions,
    runs: AtomicU32,
}

impl Unawaited {
    fn new() -> Result<Unawaited, BackendError> {
        let mut options = RunOptions::new().map_err(|error| describe(&error))?;
        options.disable_device_sync().map_err(|error| describe(&error))?;
        Ok(Unawaited { options, runs: AtomicU32::new(0) })
    }

    /// The options of the next run; null for a run that waits.
    fn next(&self) -> *const OrtRunOptions {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        if run % AWAITED == AWAITED - 1 { ptr::null() } else { self.options.ptr() }
    }
}

/// A session created through the C API. `ort`'s own session reads the types of inputs and outputs at creation, and panics at unknown ones.
pub(super) struct Session {
    pointer: NonNull<OrtSession>,
    /// The device on which the session runs.
    place: DeviceId,
    /// Only for a session on an accelerator.
    unawaited: Option<Unawaited>,
    /// The accelerator whose stream the session uses. It is released after the session.
    device: Option<Arc<dyn Device>>,
    _environment: Environment,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.place)
    }
}

// SAFETY: ONNX Runtime allows runs and queries of a session from any threads at once. Only the release must be alone; it is in `drop`.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl Session {
    pub(super) fn open(environment: &Environment, file: &Path, options: &LoadOptions) -> Result<Session, BackendError> {
        let pointer = create(environment, file, &on_host(environment, options)?)?;
        let (place, environment) = (DeviceId::Host, environment.clone());
        Ok(Session { pointer, place, unawaited: None, device: None, _environment: environment })
    }

    /// Opens a session on an accelerator, in its order of work. Fails without the provider: it never uses the CPU instead.
    pub(super) fn open_on(
        environment: &Environment,
        file: &Path,
        options: &LoadOptions,
        device: &Arc<dyn Device>,
    ) -> Result<Session, BackendError> {
        let builder = cuda::on(builder(environment, options)?, device)?;
        let pointer = create(environment, file, &builder)?;
        let (place, environment) = (device.place(), environment.clone());
        // From here on, dropping `session` releases the pointer.
        let device = Some(Arc::clone(device));
        let mut session = Session { pointer, place, unawaited: None, device, _environment: environment };
        session.unawaited = Some(Unawaited::new()?);
        Ok(session)
    }

    /// Whether a run may use memory at this place. ONNX Runtime does not check: it would read a device's address on the host.
    pub(super) fn takes(&self, place: DeviceId) -> bool {
        place == DeviceId::Host || place == self.place
    }

    pub(super) fn pointer(&self) -> *const OrtSession {
        self.pointer.as_ptr()
    }

    /// The accelerator on which the session runs, if any.
    pub(super) fn device(&self) -> Option<&Arc<dyn Device>> {
        self.device.as_ref()
    }

    /// Runs the graph on the caller's thread. ONNX Runtime allocates outputs that are null, and the caller releases them.
    ///
    /// # Safety
    /// There must be as many values as names. The memory of the inputs and of the outputs that are not null must be alive until this
    /// returns. Nothing else may read or write the memory of those outputs.
    pub(super) unsafe fn run(
        &self,
        input_names: &Names,
        inputs: &[*const OrtValue],
        output_names: &Names,
        outputs: &mut [*mut OrtValue],
    ) -> Result<(), BackendError> {
        // Outputs that ONNX Runtime allocates here are host memory, so such a run must wait for them.
        let all_given = outputs.iter().all(|value| !value.is_null());
        let run_options = self.unawaited.as_ref().filter(|_| all_given).map_or(ptr::null(), Unawaited::next);
        debug_assert_eq!((input_names.len(), output_names.len()), (inputs.len(), outputs.len()));
        // SAFETY: the caller's promise; the session is alive and its runs may overlap. Options are null or alive.
        check(unsafe {
            (ort::api().Run)(
                self.pointer.as_ptr(),
                run_options,
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

impl Session {
    /// Runs the bound values. One of [`AWAITED`] runs waits for the accelerator.
    ///
    /// # Safety
    /// The binding must belong to this session, and its values must meet the conditions of [`Session::run`].
    pub(super) unsafe fn run_bound(&self, binding: *mut OrtIoBinding) -> Result<(), BackendError> {
        let run_options = self.unawaited.as_ref().map_or(ptr::null(), Unawaited::next);
        // SAFETY: the caller's promise; options are null or alive.
        check(unsafe { (ort::api().RunWithBinding)(self.pointer.as_ptr(), run_options, binding) })
    }
}

fn create(
    environment: &Environment,
    file: &Path,
    builder: &SessionBuilder,
) -> Result<NonNull<OrtSession>, BackendError> {
    let path = CString::new(file.as_os_str().as_bytes())
        .map_err(|_| BackendError(format!("{} is not a file name", file.display())))?;
    // ONNX Runtime would name only the number of the system's error.
    File::open(file).map_err(|error| BackendError(error.to_string()))?;
    let mut pointer = ptr::null_mut();
    let _loading = WeightLoading::begin();
    // SAFETY: environment, path and options live through the call, and `pointer` may be written to.
    check(unsafe { (ort::api().CreateSession)(environment.ptr(), path.as_ptr(), builder.ptr(), &raw mut pointer) })?;
    NonNull::new(pointer).ok_or_else(|| BackendError("ONNX Runtime made no session".to_owned()))
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: this is the only owner, so nothing runs the session now or later.
        unsafe { (ort::api().ReleaseSession)(self.pointer.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::onnx::tests::backend;

    #[test]
    fn only_every_nth_run_on_an_accelerator_waits_for_it() {
        let _runtime = backend();
        let unawaited = Unawaited::new().unwrap();
        let waits: Vec<bool> = (0..3 * AWAITED).map(|_| unawaited.next().is_null()).collect();
        for runs in waits.chunks(AWAITED as usize) {
            assert_eq!(runs.iter().filter(|waits| **waits).count(), 1);
        }
        assert!(!waits[0], "the first run of a model waits for nothing");
    }
}
