//! What NVIDIA's management library tells of a GPU: how busy it is, and its power. It comes with the driver; without it these are missing.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use parking_lot::Mutex;

use crate::device::Reading;

type NvmlDevice = *mut c_void;

/// The library's own layout.
#[repr(C)]
#[derive(Default)]
struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

/// The calls that are made; each answers 0 if it went well.
struct Nvml {
    handle_by_uuid: unsafe extern "C" fn(*const c_char, *mut NvmlDevice) -> c_int,
    utilization: unsafe extern "C" fn(NvmlDevice, *mut Utilization) -> c_int,
    milliwatts: unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> c_int,
    milliwatts_at_most: unsafe extern "C" fn(NvmlDevice, *mut c_uint) -> c_int,
    millijoules: unsafe extern "C" fn(NvmlDevice, *mut c_ulonglong) -> c_int,
    /// By UUID, as addresses.
    handles: Mutex<HashMap<String, Option<usize>>>,
}

/// Loaded when the gauges of a GPU in use are read for the first time; it stays.
static NVML: OnceLock<Option<Nvml>> = OnceLock::new();

/// The reading with what can be told of this GPU filled in.
pub(super) fn read(uuid: &str, reading: Reading) -> Reading {
    let Some(nvml) = NVML.get_or_init(load) else { return reading };
    let Some(handle) = nvml.handle(uuid) else { return reading };
    let mut busy = Utilization::default();
    // SAFETY: the handle is the library's own, and there is room for what is asked.
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
            // SAFETY: the name is a C string, and `handle` may be written to.
            (unsafe { (self.handle_by_uuid)(name.as_ptr(), &raw mut handle) } == 0).then_some(handle as usize)
        };
        let mut handles = self.handles.lock();
        let known = handles.entry(uuid.to_owned()).or_insert_with(find);
        known.map(|address| address as NvmlDevice)
    }
}

fn load() -> Option<Nvml> {
    // SAFETY: NVIDIA's own library; it does nothing before it is initialised. It is never unloaded.
    let library = Box::leak(Box::new(unsafe { Library::new("libnvidia-ml.so.1") }.ok()?));
    // SAFETY: these are the types that its header declares, throughout.
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

    /// Wherever it runs, a GPU that is not there has no gauges, and nothing panics.
    #[test]
    fn what_is_not_told_is_missing() {
        let memory = Reading { free_bytes: 1, total_bytes: 2, ..Reading::default() };
        assert_eq!(read("GPU-00000000-0000-0000-0000-000000000000", memory), memory);
    }
}
