//! Reads utilization and power of a GPU from NVIDIA's management library. The library comes with the driver; without it these gauges are
//! missing.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use parking_lot::Mutex;

use crate::device::Reading;

type NvmlDevice = *mut c_void;

/// `nvmlUtilization_t` of the library.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// The library functions in use; each returns 0 on success.
struct Nvml {
    handle_by_uuid: unsafe extern "C" fn(*const c_char, *mut NvmlDevice) -> c_int,
    utilization: unsafe extern "C" fn(NvmlDevice, *mut Utilization) -> c_int,
    milliwatts: unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> c_int,
    milliwatts_at_most: unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> c_int,
    millijoules: unsafe extern "C" fn(NvmlDevice, *mut c_ulonglong) -> c_int,
    /// Handles by UUID, kept as addresses; `None` if the library does not know the GPU.
    handles: Mutex<HashMap<String, Option<usize>>>,
}

/// Loaded at the first reading of a GPU's gauges, and never unloaded.
static NVML: OnceLock<Option<Nvml>> = OnceLock::new();

/// Fills in the gauges that the library knows for this GPU.
pub(super) fn read(uuid: &str, reading: Reading) -> Reading {
    let Some(nvml) = NVML.get_or_init(load) else { return reading };
    let Some(handle) = nvml.handle(uuid) else { return reading };
    let mut busy = Utilization::default();
    // SAFETY: the handle is the library's own, and `busy` is writable.
    let asked = unsafe { (nvml.utilization)(handle, &raw mut busy) };
    let milli = |call: unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> c_int| {
        let mut value = 0;
        // SAFETY: as above.
        (unsafe { call(handle, &raw mut value) } == 0).then(|| f64::from(value) / 1e3)
    };
    let mut millijoules = 0;
    // SAFETY: as above.
    let metered = unsafe { (nvml.millijoules)(handle, &raw mut millijoules) } == 0;
    Reading {
        utilization: (asked == 0).then(|| f64::from(busy.gpu) / 100.0),
        watts: milli(nvml.milliwatts),
        watts_at_most: milli(nvml.milliwatts_at_most),
        joules: metered.then_some(millijoules as f64 / 1e3),
        ..reading
    }
}

impl Nvml {
    fn handle(&self, uuid: &str) -> Option<NvmlDevice> {
        let find = || {
            let name = CString::new(uuid).ok()?;
            let mut handle = ptr::null_mut();
            // SAFETY: the name is a C string, and `handle` is writable.
            (unsafe { (self.handle_by_uuid)(name.as_ptr(), &raw mut handle) } == 0).then_some(handle as usize)
        };
        let mut handles = self.handles.lock();
        let known = handles.entry(uuid.to_owned()).or_insert_with(find);
        known.map(|address| address as NvmlDevice)
    }
}

fn load() -> Option<Nvml> {
    // SAFETY: NVIDIA's own library; loading it runs nothing before it is initialised. It is never unloaded.
    let library = Box::leak(Box::new(unsafe { Library::new("libnvidia-ml.so.1") }.ok()?));
    // SAFETY: all these types are as the library's header declares them.
    unsafe {
        let init = library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
        if init() != 0 {
            return None;
        }
        Some(Nvml {
            handle_by_uuid: *library.get(b"nvmlDeviceGetHandleByUUID\0").ok()?,
            utilization: *library.get(b"nvmlDeviceGetUtilizationRates\0").ok()?,
            milliwatts: *library.get(b"nvmlDeviceGetPowerUsage\0").ok()?,
            milliwatts_at_most: *library.get(b"nvmlDeviceGetEnforcedPowerLimit\0").ok()?,
            millijoules: *library.get(b"nvmlDeviceGetTotalEnergyConsumption\0").ok()?,
            handles: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With and without a driver: an unknown GPU has no gauges, and nothing panics.
    #[test]
    fn an_absent_gpu_adds_no_nvml_readings() {
        let memory = Reading { free_bytes: 1, total_bytes: 2, ..Reading::default() };
        assert_eq!(read("GPU-00000000-0000-0000-0000-000000000000", memory), memory);
    }
}
