//! Runs with outputs that ONNX Runtime allocates on an accelerator and leaves there. A plain run would copy them to the host and wait for
//! that.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort::AsPointer;
use ort::memory::MemoryInfo;
use ort::sys::{OrtIoBinding, OrtValue};

use super::allocator::default_allocator;
use super::names::Names;
use super::session::Session;
use super::status::check;
use super::value::{OnnxValue, memory_info};
use crate::backend::BackendError;
use crate::device::DeviceId;

/// A session's inputs and outputs, bound by name. It is cleared after every run.
#[derive(Debug)]
pub(super) struct Binding {
    pointer: NonNull<OrtIoBinding>,
    session: Arc<Session>,
    away: MemoryInfo<'static>,
    host: MemoryInfo<'static>,
}

// SAFETY: only the owner of a binding uses it, on one thread at a time.
unsafe impl Send for Binding {}

impl Binding {
    pub(super) fn new(session: &Arc<Session>, place: DeviceId) -> Result<Binding, BackendError> {
        let (away, host) = (memory_info(place)?, memory_info(DeviceId::Host)?);
        let mut pointer = ptr::null_mut();
        // SAFETY: the session is alive, and `pointer` may be written to.
        check(unsafe { (ort::api().CreateIoBinding)(session.pointer().cast_mut(), &raw mut pointer) })?;
        let pointer = NonNull::new(pointer).ok_or_else(|| BackendError("ONNX Runtime made no binding".to_owned()))?;
        Ok(Binding { pointer, session: Arc::clone(session), away, host })
    }

    /// Runs the graph. ONNX Runtime allocates outputs that are null: on the accelerator, or on the host for those with `texts` set.
    ///
    /// # Safety
    /// As for [`Session::run`].
    pub(super) unsafe fn run(
        &mut self,
        (input_names, inputs): (&Names, &[*const OrtValue]),
        (output_names, outputs): (&Names, &mut [*mut OrtValue]),
        texts: &[bool],
    ) -> Result<(), BackendError> {
        // SAFETY: the caller's promise; the run before `take` made the values that it takes.
        let ran = unsafe {
            self.bind(input_names, inputs, output_names, outputs, texts)
                .and_then(|()| self.session.run_bound(self.pointer.as_ptr()))
                .and_then(|()| self.take(outputs))
        };
        // Bound memory is only valid during the run.
        // SAFETY: the binding is alive and owned by `self`.
        unsafe {
            (ort::api().ClearBoundInputs)(self.pointer.as_ptr());
            (ort::api().ClearBoundOutputs)(self.pointer.as_ptr());
        }
        ran
    }

    /// # Safety
    /// As for [`Session::run`].
    unsafe fn bind(
        &self,
        input_names: &Names,
        inputs: &[*const OrtValue],
        output_names: &Names,
        outputs: &[*mut OrtValue],
        texts: &[bool],
    ) -> Result<(), BackendError> {
        let binding = self.pointer.as_ptr();
        for (name, value) in input_names.iter().zip(inputs) {
            // SAFETY: the name is a C string, the value is alive.
            check(unsafe { (ort::api().BindInput)(binding, name, *value) })?;
        }
        for ((name, value), text) in output_names.iter().zip(outputs).zip(texts) {
            let info = if *text { &self.host } else { &self.away };
            let bound = match value.is_null() {
                // SAFETY: as above.
                false => unsafe { (ort::api().BindOutput)(binding, name, *value) },
                // SAFETY: as above; the memory information lives as long as the binding.
                true => unsafe { (ort::api().BindOutputToDevice)(binding, name, info.ptr()) },
            };
            check(bound)?;
        }
        Ok(())
    }

    /// Stores the outputs that the run allocated in the places that were null.
    ///
    /// # Safety
    /// A run with these outputs must just have succeeded.
    unsafe fn take(&self, outputs: &mut [*mut OrtValue]) -> Result<(), BackendError> {
        let (allocator, mut values, mut count) = (default_allocator()?, ptr::null_mut::<*mut OrtValue>(), 0usize);
        let binding = self.pointer.as_ptr();
        // SAFETY: the binding and the allocator are alive, the others may be written to.
        check(unsafe { (ort::api().GetBoundOutputValues)(binding, allocator, &raw mut values, &raw mut count) })?;
        if values.is_null() {
            return Err(BackendError("ONNX Runtime gave no outputs".to_owned()));
        }
        // SAFETY: an array of `count` values, in the order of binding; the caller owns each of them.
        let made = unsafe { std::slice::from_raw_parts(values, count) };
        for (n, value) in made.iter().enumerate() {
            match outputs.get_mut(n).filter(|place| place.is_null()) {
                Some(place) => *place = *value,
                // SAFETY: no other code has this value.
                None => drop(unsafe { OnnxValue::from_raw(*value) }),
            }
        }
        // SAFETY: the allocator allocated the array, which is not used any more.
        check(unsafe { (ort::api().AllocatorFree)(allocator, values.cast()) })
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        // SAFETY: this is the only owner; the session is released after it.
        unsafe { (ort::api().ReleaseIoBinding)(self.pointer.as_ptr()) }
    }
}
