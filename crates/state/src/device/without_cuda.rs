//! Replaces the module `cuda` in a build without the feature `cuda`: there is no GPU, and the error has the reason.

use std::sync::Arc;

use super::{Accelerator, Accelerators, Device, DeviceError, DeviceId, NoAccelerator};

const WHY: &str = "this build of sequor has no support for NVIDIA GPUs (feature `cuda`)";

/// The driver that this build does not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct CudaDriver;

impl Accelerators for CudaDriver {
    fn usable(&self) -> Result<Vec<Accelerator>, NoAccelerator> {
        Err(NoAccelerator(WHY.to_owned()))
    }

    fn open(&self, ordinal: u16) -> Result<Arc<dyn Device>, DeviceError> {
        Err(DeviceError::Failed { place: DeviceId::Cuda(ordinal), what: "be opened", why: WHY.to_owned() })
    }
}
