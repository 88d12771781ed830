//! Tensors of ONNX Runtime: descriptions of our memory, or tensors with memory of their own.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ort::AsPointer;
use ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ort::sys::{OrtMemoryInfoDeviceType, OrtValue};
use sequor_core::{DataType, Shape};

use super::allocator::default_allocator;
use super::element::to_onnx;
use super::signature::tensor_type;
use super::status::{check, describe};
use crate::backend::BackendError;
use crate::device::DeviceId;

/// Owns one OrtValue.
#[derive(Debug)]
pub(super) struct OnnxValue(NonNull<OrtValue>);

// SAFETY: a value may be used and released on any thread; shared references only read.
unsafe impl Send for OnnxValue {}
// SAFETY: as above.
unsafe impl Sync for OnnxValue {}

impl OnnxValue {
    /// Takes ownership of a value that ONNX Runtime gave away.
    ///
    /// # Safety
    /// The pointer must be null or a value that nothing else releases.
    pub(super) unsafe fn from_raw(pointer: *mut OrtValue) -> Option<OnnxValue> {
        NonNull::new(pointer).map(OnnxValue)
    }

    /// Describes `len` bytes at `address` without reading them. The memory only has to be valid when a run uses the value.
    pub(super) fn describing(
        place: DeviceId,
        address: u64,
        len: usize,
        dtype: DataType,
        shape: &Shape,
    ) -> Result<OnnxValue, BackendError> {
        let info = memory_info(place)?;
        let dims = wire_dims(shape)?;
        let data =
            usize::try_from(address).map_err(|_| BackendError(format!("{address:#x} is not an address here")))?;
        let mut value = ptr::null_mut();
        // SAFETY: info and dims live through the call, which copies them; the data is not touched.
        check(unsafe {
            (ort::api().CreateTensorWithDataAsOrtValue)(
                info.ptr(),
                ptr::with_exposed_provenance_mut::<c_void>(data),
                len,
                dims.as_ptr(),
                dims.len(),
                to_onnx(dtype),
                &raw mut value,
            )
        })?;
        wrap_value(value)
    }

    /// Creates a tensor of empty strings.
    pub(super) fn strings(shape: &Shape) -> Result<OnnxValue, BackendError> {
        let dims = wire_dims(shape)?;
        let mut value = ptr::null_mut();
        // SAFETY: the allocator is the process's own, the dims live through the call, and `value` may be written to.
        check(unsafe {
            (ort::api().CreateTensorAsOrtValue)(
                default_allocator()?,
                dims.as_ptr(),
                dims.len(),
                to_onnx(DataType::Bytes),
                &raw mut value,
            )
        })?;
        wrap_value(value)
    }

    pub(super) fn as_ptr(&self) -> *mut OrtValue {
        self.0.as_ptr()
    }

    /// The element type, by ONNX Runtime's number, and the shape.
    pub(super) fn tensor_type(&self) -> Result<(i32, Shape), BackendError> {
        let mut info = ptr::null_mut();
        // SAFETY: the value is alive, `info` may be written to.
        check(unsafe { (ort::api().GetTensorTypeAndShape)(self.as_ptr(), &raw mut info) })?;
        let info = NonNull::new(info).ok_or_else(|| BackendError("ONNX Runtime gave a tensor no shape".to_owned()))?;
        let read = tensor_type(info);
        // SAFETY: this function owns the info, which is not used any more.
        unsafe { (ort::api().ReleaseTensorTypeAndShapeInfo)(info.as_ptr()) };
        let (element, dims) = read?;
        let dims = dims.into_iter().map(u64::try_from).collect::<Result<Vec<u64>, _>>();
        dims.map(|dims| (element, Shape(dims)))
            .map_err(|_| BackendError("ONNX Runtime gave a tensor a negative dimension".to_owned()))
    }

    /// The address of the elements. Not for strings.
    pub(super) fn address(&self) -> Result<u64, BackendError> {
        let mut data = ptr::null_mut();
        // SAFETY: the value is alive, `data` may be written to.
        check(unsafe { (ort::api().GetTensorMutableData)(self.as_ptr(), &raw mut data) })?;
        Ok(data.expose_provenance() as u64)
    }

    /// Whether the host can read the elements.
    pub(super) fn on_host(&self) -> Result<bool, BackendError> {
        let (mut info, mut device) = (ptr::null(), 0i32);
        // SAFETY: the value is alive, `info` may be written to; the value owns the info.
        check(unsafe { (ort::api().GetTensorMemoryInfo)(self.as_ptr(), &raw mut info) })?;
        // SAFETY: the info is alive; `device` has the size of the C enum and is not read as a Rust one.
        unsafe { (ort::api().MemoryInfoGetDeviceType)(info, (&raw mut device).cast()) };
        Ok(device == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU as i32)
    }
}

impl Drop for OnnxValue {
    fn drop(&mut self) {
        // SAFETY: this is the only owner.
        unsafe { (ort::api().ReleaseValue)(self.as_ptr()) }
    }
}

fn wrap_value(value: *mut OrtValue) -> Result<OnnxValue, BackendError> {
    // SAFETY: callers pass the value that a call of the C API just made for them.
    unsafe { OnnxValue::from_raw(value) }.ok_or_else(|| BackendError("ONNX Runtime made no tensor".to_owned()))
}

pub(super) fn memory_info(place: DeviceId) -> Result<MemoryInfo<'static>, BackendError> {
    let (device, ordinal) = match place {
        DeviceId::Host => (AllocationDevice::CPU, 0),
        DeviceId::Cuda(ordinal) => (AllocationDevice::CUDA, i32::from(ordinal)),
    };
    MemoryInfo::new(device, ordinal, AllocatorType::Device, MemoryType::Default).map_err(|error| describe(&error))
}

fn wire_dims(shape: &Shape) -> Result<Vec<i64>, BackendError> {
    let dims = shape.0.iter().map(|dim| i64::try_from(*dim)).collect::<Result<Vec<i64>, _>>();
    dims.map_err(|_| BackendError(format!("no tensor has the shape {shape}")))
}
