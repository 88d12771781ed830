//! The primary context of a GPU. All users of the GPU in this process share it.

use cudarc::driver::result::{ctx, device, primary_ctx};
use cudarc::driver::sys::{CUcontext, CUdevice};

use super::failed;
use crate::device::DeviceError;

/// The primary context of a GPU, shared with ONNX Runtime and all other users in this process.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) ordinal: u16,
    /// The UUID in the format of NVIDIA's tools.
    pub(super) uuid: Option<String>,
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: any thread may use a context after it has made it current.
unsafe impl Send for Primary {}
// SAFETY: as above; the driver does its own locking.
unsafe impl Sync for Primary {}

impl Primary {
    pub(super) fn retain(ordinal: u16) -> Result<Primary, DeviceError> {
        let device = device::get(i32::from(ordinal)).map_err(failed(ordinal, "be opened"))?;
        // SAFETY: the device was just got.
        let context = unsafe { primary_ctx::retain(device) }.map_err(failed(ordinal, "be opened"))?;
        let uuid = device::get_uuid(device).ok().map(|uuid| uuid_text(&uuid.bytes));
        Ok(Primary { ordinal, uuid, device, context })
    }

    /// Makes this the current context of the calling thread.
    pub(super) fn bind(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until `self` is dropped.
        unsafe { ctx::set_current(self.context) }.map_err(failed(self.ordinal, "be used"))
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: retained once, released once.
        let _ = unsafe { primary_ctx::release(self.device) };
    }
}

/// Renders a UUID as `GPU-8-4-4-4-12` in hexadecimal.
pub(super) fn uuid_text<T: Copy>(bytes: &[T; 16]) -> String
where
    i32: From<T>,
{
    let mut out = String::from("GPU");
    for (n, byte) in bytes.iter().enumerate() {
        if matches!(n, 0 | 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push_str(&format!("{:02x}", i32::from(*byte) & 0xff));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_uuids_are_formatted_as_in_nvidia_smi() {
        let bytes: [i8; 16] = [-1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(uuid_text(&bytes), "GPU-ff010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
