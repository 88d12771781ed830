//! Copies bytes within one device's memory.

use super::{Convert, Device, DeviceError, MemorySpan, MemorySpanMut, RawRow, RawSet, formula};

/// Submits a copy from one part of a device's memory to another part.
///
/// # Safety
/// Until the copy is done, both parts must stay alive and unchanged by others. They must not overlap.
pub unsafe fn copy(device: &dyn Device, from: &MemorySpan<'_>, to: &MemorySpanMut<'_>) -> Result<(), DeviceError> {
    let (want, len) = (device.place(), to.len());
    if let Some(got) = [from.place(), to.place()].into_iter().find(|place| *place != want) {
        return Err(DeviceError::WrongPlace { got, want });
    }
    if from.len() != len {
        return Err(DeviceError::OutOfBounds { at: 0, len, size: from.len() });
    }
    if len == 0 {
        return Ok(());
    }
    let (from, to) = (from.address(), to.address());
    let unit = formula::unit(from | len as u64, to | len as u64, Convert::No);
    let (inner, convert) = (len as u64, Convert::No);
    let set = RawSet { from_stride: 0, to_stride: 0, outer: 1, inner, first: 0, count: 1, convert, unit };
    // SAFETY: both have the same length; the rest is the caller's promise.
    unsafe { device.run(&[set], &[RawRow { from, to }]) }
}
