//! Mock graphs on a stand-in for an accelerator: a run only submits its computation. A graph that looks for poison first lets the device
//! catch up, like a real graph whose next operator depends on a tensor's values.

use std::sync::Arc;

use sequor_core::{DataType, Shape};

use super::context::{MockContext, in_place, misfit};
use super::rows::{self, Inputs, check_poison};
use crate::backend::{BackendError, Feed, Fetch, Port, Produced};
use crate::device::{Buffer, Device, DeviceId, MemorySpan, MemorySpanMut, Owned, stand_in};

/// A tensor to read or to write, on any device.
struct TensorView {
    dtype: DataType,
    shape: Shape,
    address: u64,
    len: usize,
}

impl TensorView {
    /// A feed for a graph on the host.
    fn feed(&self) -> Feed<'_> {
        // SAFETY: the caller's promise: the memory stays alive and unchanged until the run is done.
        let data = unsafe { MemorySpan::from_raw(DeviceId::Host, self.address, self.len) };
        Feed { dtype: self.dtype, shape: &self.shape, data }
    }
}

pub(super) fn run(
    context: &MockContext,
    device: &Arc<dyn Device>,
    feeds: &[Feed<'_>],
    outputs: &mut [Fetch<'_>],
) -> Result<(), BackendError> {
    if context.program.dtype == DataType::Bytes {
        return Err(BackendError("texts are not computed on a stand-in".to_owned()));
    }
    let stream = device.stream().ok_or_else(|| BackendError("a graph runs on a device without a stream".to_owned()))?;
    let fed: Vec<TensorView> = feeds.iter().map(|feed| fed(feed, device.place())).collect::<Result<_, _>>()?;
    let seen: Vec<Feed<'_>> = fed.iter().map(TensorView::feed).collect();
    let inputs = Inputs::check(&context.inputs, &seen)?;
    context.begin(&inputs)?;
    if context.program.poison.is_some() {
        // SAFETY: the device is alive, and a stand-in, as `MockBackend::with_stand_ins` requires.
        unsafe { stand_in::catch_up(stream) };
        check_poison(&context.program, inputs.get("INPUT")?.1)?;
    }
    let shape = rows::shape(&context.program, &inputs)?;
    let elements = shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let len = elements * context.program.dtype.zero_size();
    let to = context.outputs.iter().zip(outputs).map(|(port, fetch)| place(port, (&shape, len), device, fetch));
    let to = to.collect::<Result<Vec<u64>, _>>()?;
    let (program, ports) = (Arc::clone(&context.program), context.inputs.clone());
    let compute = move || {
        std::thread::sleep(program.cost);
        let seen: Vec<Feed<'_>> = fed.iter().map(TensorView::feed).collect();
        let result = Inputs::check(&ports, &seen).and_then(|inputs| rows::compute(&program, &inputs));
        for address in to {
            // SAFETY: memory of this size, by the caller's promise or because it was just allocated.
            let mut room = unsafe { MemorySpanMut::from_raw(DeviceId::Host, address, len) };
            if let (Some(room), Ok(result)) = (room.as_host_mut(), &result) {
                room.copy_from_slice(result);
            }
        }
    };
    // SAFETY: as above; as for every backend, inputs and outputs stay until the run is done.
    unsafe { stand_in::ask(stream, compute) };
    Ok(())
}

fn fed(feed: &Feed<'_>, place: DeviceId) -> Result<TensorView, BackendError> {
    if feed.data.place() != place && feed.data.place() != DeviceId::Host {
        return Err(BackendError(format!("{:?} is not memory of {place}", feed.data)));
    }
    let (dtype, shape) = (feed.dtype, feed.shape.clone());
    Ok(TensorView { dtype, shape, address: feed.data.address(), len: feed.data.len() })
}

/// The address to which an output is written. Allocates it if the caller gave none.
fn place(
    port: &Port,
    (shape, len): (&Shape, usize),
    device: &Arc<dyn Device>,
    fetch: &mut Fetch<'_>,
) -> Result<u64, BackendError> {
    match fetch {
        Fetch::New(answer) => {
            let made = Buffer::new(device, len).map_err(|error| BackendError(error.to_string()))?;
            let data = Owned::new(made);
            let address = data.span().address();
            *answer = Some(Produced { dtype: port.dtype, shape: shape.clone(), data });
            Ok(address)
        }
        Fetch::Into { .. } if port.dtype == DataType::Bytes => Err(in_place(port)),
        Fetch::Into { shape: room, data } => {
            let fits = *room == shape && data.len() == len && data.place() == device.place();
            if fits { Ok(data.address()) } else { Err(misfit(port, shape, room, data)) }
        }
    }
}
