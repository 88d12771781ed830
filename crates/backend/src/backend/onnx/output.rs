//! Takes over outputs that ONNX Runtime allocated: numbers without a copy, strings converted to wire format. Also copies inputs that only
//! pass through.

use std::sync::Arc;

use sequor_core::{DataType, Shape};

use super::element::from_onnx;
use super::memory;
use super::session::Session;
use super::strings;
use super::value::OnnxValue;
use crate::backend::{BackendError, Feed, Port, Produced};
use crate::device::{Device, DeviceId, MemorySpan, MemorySpanMut, Owned, copy};

/// Keeps an output's memory alive. The value is released first; it may need the session's allocators for that.
struct Kept {
    _value: OnnxValue,
    _session: Arc<Session>,
}

/// The output of one port.
pub(super) fn produced(
    port: &Port,
    value: Option<OnnxValue>,
    session: &Arc<Session>,
    inputs: &[Feed<'_>],
) -> Result<Produced, BackendError> {
    let value = value.ok_or_else(|| BackendError(format!("the run gave no output '{}'", port.name)))?;
    let (element, shape) = value.tensor_type()?;
    if from_onnx(element) != Some(port.dtype) {
        return Err(BackendError(format!("output '{}' is not {} as the model declares", port.name, port.dtype)));
    }
    let count = shape.elements().and_then(|n| usize::try_from(n).ok());
    let count = count.ok_or_else(|| BackendError(format!("output '{}' has the shape {shape}", port.name)))?;
    let data = if port.dtype == DataType::Bytes {
        Owned::from_vec(strings::wire(&value, count)?)
    } else {
        adopted(port, value, count * port.dtype.zero_size(), session, inputs)?
    };
    Ok(Produced { dtype: port.dtype, shape, data })
}

fn adopted(
    port: &Port,
    value: OnnxValue,
    len: usize,
    session: &Arc<Session>,
    inputs: &[Feed<'_>],
) -> Result<Owned, BackendError> {
    let place = match (value.on_host()?, session.device()) {
        (true, _) => DeviceId::Host,
        (false, Some(device)) => device.place(),
        (false, None) => return Err(BackendError(format!("output '{}' was left on a device", port.name))),
    };
    let address = value.address()?;
    if let Some(bytes) = inputs.iter().filter(|_| place == DeviceId::Host).find_map(|feed| within(feed, address, len)) {
        return Ok(Owned::from_vec(bytes.to_vec()));
    }
    // SAFETY: by its own type and shape, the value has this many bytes.
    let span = unsafe { MemorySpan::from_raw(place, address, len) };
    if let Some(device) = session.device().filter(|_| inputs.iter().any(|feed| overlaps(feed, &span))) {
        // SAFETY: the input does not change before the run is over, and the run ends after the copy.
        return unsafe { Owned::copied(device, &span) }.map_err(|error| BackendError(error.to_string()));
    }
    if place == DeviceId::Host {
        memory::leave(address, len);
    }
    let keeper = Arc::new(Kept { _value: value, _session: Arc::clone(session) });
    // SAFETY: the value owns this memory, because no input overlaps it; nothing writes to an output after its run.
    Ok(unsafe { Owned::from_raw(place, address, len, keeper) })
}

/// Whether an output on an accelerator is an input's memory there.
fn overlaps(feed: &Feed<'_>, output: &MemorySpan<'_>) -> bool {
    let (from, at) = (feed.data.address(), output.address());
    let meets = from < at + output.len() as u64 && at < from + feed.data.len() as u64;
    meets && feed.data.place() == output.place() && output.place() != DeviceId::Host
}

/// The bytes of an output that shares an input's memory. That memory is the caller's, who may change it later.
fn within<'a>(feed: &Feed<'a>, address: u64, len: usize) -> Option<&'a [u8]> {
    let start = usize::try_from(address.checked_sub(feed.data.address())?).ok()?;
    feed.data.as_host().filter(|_| len > 0)?.get(start..start.checked_add(len)?)
}

/// Copies an input that passes through to its output's memory.
pub(super) fn pass_through(
    port: &Port,
    device: Option<&Arc<dyn Device>>,
    feed: &Feed<'_>,
    shape: &Shape,
    room: &mut MemorySpanMut<'_>,
) -> Result<(), BackendError> {
    if feed.shape != shape || feed.data.len() != room.len() {
        let (name, is, len) = (&port.name, feed.shape, room.len());
        return Err(BackendError(format!("output '{name}' is {is}, but the room for it is {shape} in {len} bytes")));
    }
    if (feed.data.place(), feed.data.address()) == (room.place(), room.address()) {
        return Ok(());
    }
    if let Some(device) = device.filter(|device| [feed.data.place(), room.place()] == [device.place(); 2]) {
        // SAFETY: both have the same length, and nothing touches either before the run is over, which is after the copy.
        return unsafe { copy(&**device, &feed.data, room) }.map_err(|error| BackendError(error.to_string()));
    }
    match (feed.data.as_host(), room.as_host_mut()) {
        (Some(from), Some(to)) => {
            to.copy_from_slice(from);
            Ok(())
        }
        _ => Err(BackendError(format!("output '{}' is an input that lies elsewhere", port.name))),
    }
}
