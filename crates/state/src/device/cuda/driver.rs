//! Lists the GPUs that can be used. The first query loads the driver's library.

use std::sync::Arc;

use cudarc::driver::result::{self, device};
use cudarc::driver::sys::{self, CUresult};

use super::gpu::Gpu;
use super::primary::uuid_text;
use super::text;
use crate::device::{Accelerator, Accelerators, Device, DeviceError, DeviceId, NoAccelerator};

/// The minimum CUDA version: that of driver 550, for which the kernels are compiled.
const OLDEST: (i32, i32) = (12, 4);

/// The driver of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaDriver;

impl Accelerators for CudaDriver {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        start()?;
        let count =
            device::get_count().map_err(|e| NoAccelerator(format!("the NVIDIA driver lists no GPUs: {}", text(e))))?;
        let found: Vec<Accelerator> = (0..u16::try_from(count).unwrap_or(0)).filter_map(describe).collect();
        if found.is_empty() { Err(NoAccelerator(NO_GPU.to_owned())) } else { Ok(found) }
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        let place = DeviceId::Cuda(ordinal);
        start().map_err(|e| DeviceError::Failed { place, what: "be opened", why: e.0 })?;
        Ok(Arc::new(Gpu::open(ordinal)?))
    }
}

const NO_GPU: &str = "the NVIDIA driver finds no GPU on this machine; look at nvidia-smi and at CUDA_VISIBLE_DEVICES";

/// Loads and starts the driver, if there is one.
fn start() -> Result<(), NoAccelerator> {
    // SAFETY: opens a library by its name, as cudarc does. If the library is missing, every call below panics.
    if !unsafe { sys::is_culib_present() } {
        let what =
            "there is no NVIDIA driver on this machine (libcuda.so.1 does not load); install driver 550 or newer";
        return Err(NoAccelerator(what.to_owned()));
    }
    match result::init() {
        Ok(()) => {}
        Err(e) if e.0 == CUresult::CUDA_ERROR_NO_DEVICE => return Err(NoAccelerator(NO_GPU.to_owned())),
        Err(e) => return Err(NoAccelerator(format!("the NVIDIA driver does not start: {}", text(e)))),
    }
    let mut version = 0;
    // SAFETY: `version` is writable.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result();
    asked.map_err(|e| NoAccelerator(format!("the NVIDIA driver does not say its version: {}", text(e))))?;
    recent(version)
}

/// Whether a driver of this version (1000 × major + 10 × minor) can run the kernels.
fn recent(version: i32) -> Result<(), NoAccelerator> {
    let (major, minor) = (version / 1000, version % 1000 / 10);
    if (major, minor) >= OLDEST {
        return Ok(());
    }
    let (oldest, point) = OLDEST;
    Err(NoAccelerator(format!(
        "the NVIDIA driver is too old: it speaks CUDA {major}.{minor}, and {oldest}.{point} is needed; install driver 550 or newer"
    )))
}

/// Describes a GPU; `None` if it does not answer.
fn describe(ordinal: u16) -> Option<Accelerator> {
    let device = device::get(i32::from(ordinal)).ok()?;
    let name = device::get_name(device).ok()?;
    let uuid = device::get_uuid(device).ok()?;
    // SAFETY: `device` comes from `device::get`.
    let total = unsafe { device::total_mem(device) }.ok()?;
    Some(Accelerator { ordinal, name, uuid: uuid_text(&uuid.bytes), total_bytes: total as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_cuda_driver_is_refused_with_the_version_needed() {
        assert!(recent(12040).is_ok() && recent(13000).is_ok());
        insta::assert_snapshot!(recent(12020).unwrap_err(), @"the NVIDIA driver is too old: it speaks CUDA 12.2, and 12.4 is needed; install driver 550 or newer");
        assert!(recent(11080).is_err());
    }

    /// Checks nothing on a machine with a driver.
    #[test]
    fn a_missing_nvidia_driver_is_reported_with_what_to_do() {
        match CudaDriver.usable() {
            Ok(found) => assert!(!found.is_empty()),
            Err(NoAccelerator(why)) => assert!(why.contains("NVIDIA driver"), "{why}"),
        }
        // SAFETY: as in `start`.
        if !unsafe { sys::is_culib_present() } {
            let what =
                "there is no NVIDIA driver on this machine (libcuda.so.1 does not load); install driver 550 or newer";
            assert_eq!(CudaDriver.usable().unwrap_err().to_string(), what);
            let error = CudaDriver.open(0).unwrap_err().to_string();
            assert_eq!(error, format!("GPU 0 failed to be opened: {what}"));
        }
    }
}
