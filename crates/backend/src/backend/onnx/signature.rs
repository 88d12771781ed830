//! A session's inputs and outputs, read once when it is loaded. Ports that cannot be served are refused here, by name.

use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};

use ort::sys::{ONNXType, OrtAllocator, OrtSession, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtTypeInfo};
use sequor_core::Dims;

use super::allocator::default_allocator;
use super::element::{foreign_name, from_onnx};
use super::session::Session;
use super::status::check;
use crate::backend::{BackendError, Port, Signature};

/// The functions of the C API for one side of a graph.
struct Side {
    what: &'static str,
    count: unsafe extern "system" fn(*const OrtSession, *mut usize) -> OrtStatusPtr,
    name: unsafe extern "system" fn(*const OrtSession, usize, *mut OrtAllocator, *mut *mut c_char) -> OrtStatusPtr,
    type_info: unsafe extern "system" fn(*const OrtSession, usize, *mut *mut OrtTypeInfo) -> OrtStatusPtr,
}

pub(super) fn read(session: &Session) -> Result<Signature, BackendError> {
    let api = ort::api();
    let inputs = Side {
        what: "input",
        count: api.SessionGetInputCount,
        name: api.SessionGetInputName,
        type_info: api.SessionGetInputTypeInfo,
    };
    let outputs = Side {
        what: "output",
        count: api.SessionGetOutputCount,
        name: api.SessionGetOutputName,
        type_info: api.SessionGetOutputTypeInfo,
    };
    let optional = Side {
        what: "input",
        count: api.SessionGetOverridableInitializerCount,
        name: api.SessionGetOverridableInitializerName,
        type_info: api.SessionGetOverridableInitializerTypeInfo,
    };
    // An initializer of an unserved type cannot be overridden and keeps its own value.
    let optional = optional.each(session)?.filter_map(Result::ok).collect();
    let (inputs, outputs) = (inputs.ports(session)?, outputs.ports(session)?);
    Ok(Signature { inputs, optional, outputs, description: description(session)? })
}

/// The description of the graph; empty if the file has none.
fn description(session: &Session) -> Result<String, BackendError> {
    let (api, allocator) = (ort::api(), default_allocator()?);
    let mut metadata = ptr::null_mut();
    // SAFETY: the session is alive, `metadata` may be written to.
    check(unsafe { (api.SessionGetModelMetadata)(session.pointer(), &raw mut metadata) })?;
    let mut text = ptr::null_mut();
    // SAFETY: the metadata is alive, the allocator is the process's own, and `text` may be written to.
    let asked =
        check(unsafe { (api.ModelMetadataGetGraphDescription)(metadata, allocator, &raw mut text) }).and_then(|()| {
            // SAFETY: the call above gave a C string, which stays until it is freed below.
            let description = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
            // SAFETY: `text` is from this allocator and is not used any more.
            check(unsafe { (api.AllocatorFree)(allocator, text.cast()) }).map(|()| description)
        });
    // SAFETY: this function owns the metadata, and nothing points into it.
    unsafe { (api.ReleaseModelMetadata)(metadata) };
    asked
}

impl Side {
    fn ports(&self, session: &Session) -> Result<Vec<Port>, BackendError> {
        self.each(session)?.collect()
    }

    fn each<'a>(
        &'a self,
        session: &'a Session,
    ) -> Result<impl Iterator<Item = Result<Port, BackendError>> + 'a, BackendError> {
        let mut count = 0;
        // SAFETY: the session is alive, `count` may be written to.
        check(unsafe { (self.count)(session.pointer(), &raw mut count) })?;
        Ok((0..count).map(move |index| self.port(session, index)))
    }

    fn port(&self, session: &Session, index: usize) -> Result<Port, BackendError> {
        let name = self.name(session, index)?;
        let mut info = ptr::null_mut();
        // SAFETY: the session is alive, the index below its count, and `info` may be written to.
        check(unsafe { (self.type_info)(session.pointer(), index, &raw mut info) })?;
        let info = TypeInfo(NonNull::new(info).ok_or_else(|| self.refusal(&name, "has no type"))?);
        let tensor =
            info.tensor().map_err(|kind| self.refusal(&name, &format!("is {kind}; only tensors are served")))?;
        let (element, dims) = tensor_type(tensor)?;
        let dtype = from_onnx(element).ok_or_else(|| {
            self.refusal(&name, &format!("has elements of type {}, which is not served", foreign_name(element)))
        })?;
        Ok(Port { name, dtype, dims: Dims::from_wire(&dims) })
    }

    fn name(&self, session: &Session, index: usize) -> Result<String, BackendError> {
        let allocator = default_allocator()?;
        let mut text = ptr::null_mut();
        // SAFETY: the session is alive, the index below its count, the allocator is the process's own, and `text` may be written to.
        check(unsafe { (self.name)(session.pointer(), index, allocator, &raw mut text) })?;
        // SAFETY: the call above gave a C string, which stays until it is freed below.
        let name = unsafe { CStr::from_ptr(text) }.to_str().map(str::to_owned);
        // SAFETY: `text` is from this allocator and is not used any more.
        check(unsafe { (ort::api().AllocatorFree)(allocator, text.cast()) })?;
        name.map_err(|_| BackendError(format!("the name of {} {index} is not UTF-8", self.what)))
    }

    fn refusal(&self, name: &str, why: &str) -> BackendError {
        BackendError(format!("{} '{name}' {why}", self.what))
    }
}

struct TypeInfo(NonNull<OrtTypeInfo>);

impl TypeInfo {
    /// The tensor's part of the type, or the kind of another type. It lives as long as `self`.
    fn tensor(&self) -> Result<NonNull<OrtTensorTypeAndShapeInfo>, &'static str> {
        let mut kind = ONNXType::ONNX_TYPE_UNKNOWN as i32;
        let mut tensor = ptr::null();
        // SAFETY: the info is alive; `kind` has the size of the C enum and is not read as a Rust one, as a newer runtime may know more kinds.
        let asked = check(unsafe { (ort::api().GetOnnxTypeFromTypeInfo)(self.0.as_ptr(), (&raw mut kind).cast()) });
        if asked.is_err() || kind != ONNXType::ONNX_TYPE_TENSOR as i32 {
            return Err(kind_name(kind));
        }
        // SAFETY: the info is alive, `tensor` may be written to.
        let asked = check(unsafe { (ort::api().CastTypeInfoToTensorInfo)(self.0.as_ptr(), &raw mut tensor) });
        asked.ok().and_then(|()| NonNull::new(tensor.cast_mut())).ok_or("of a kind unknown here")
    }
}

impl Drop for TypeInfo {
    fn drop(&mut self) {
        // SAFETY: this owns the info, and pointers into it do not outlive `port`.
        unsafe { (ort::api().ReleaseTypeInfo)(self.0.as_ptr()) }
    }
}

fn kind_name(kind: i32) -> &'static str {
    match kind {
        2 => "a sequence",
        3 => "a map",
        4 => "opaque",
        5 => "a sparse tensor",
        6 => "optional",
        _ => "of a kind unknown here",
    }
}

/// Element type and dimensions; an open dimension is negative. The caller keeps `info` alive.
pub(super) fn tensor_type(info: NonNull<OrtTensorTypeAndShapeInfo>) -> Result<(i32, Vec<i64>), BackendError> {
    let api = ort::api();
    let (mut element, mut rank) = (0i32, 0);
    // SAFETY: the info is alive; `element` has the size of the C enum and is not read as a Rust one.
    check(unsafe { (api.GetTensorElementType)(info.as_ptr(), (&raw mut element).cast()) })?;
    // SAFETY: the info is alive, `rank` may be written to.
    check(unsafe { (api.GetDimensionsCount)(info.as_ptr(), &raw mut rank) })?;
    let mut dims = vec![0i64; rank];
    // SAFETY: the info is alive, and there is room for `rank` dimensions.
    check(unsafe { (api.GetDimensions)(info.as_ptr(), dims.as_mut_ptr(), rank) })?;
    Ok((element, dims))
}
