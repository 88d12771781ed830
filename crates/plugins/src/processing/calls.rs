//! One call into a guest: passes tensors by value or by handle, and turns the results into tensors.

use std::time::Duration;

use sequor_core::Dims;
use sequor_wasm::call_error::{Call, CallError};
use sequor_wasm::host::{HostState, cut};
use sequor_wasm::suspension::{BegunCall, at_once};
use wasmtime::{Error, Result};

use super::contract::processor::{Action, File};
use super::contract::sequor::plugin::calls;
use super::contract::sequor::plugin::tensors::{
    ContentParam, ContentResult, FlatParam, PortParam, PortResult, SignatureParam, SignatureResult, ValueParam,
    ValueResult,
};
use super::contract::sequor::plugin::types;
use super::dtypes::{code_of, dtype_of};
use super::files::ProcessorFile;
use super::outgoing::{CallingRequest, OutgoingCalls};
use super::ports::{TensorPort, TensorSignature};
use super::refusal::{ProcessorRefusal, RefusedBy};
use super::tensors::{HeldTensors, from_flat};
use super::world::ProcessorGuest;
use crate::config::model::LoadFacts;
use crate::tensor::Tensor;

/// The facts of one request that processors see, besides its tensors.
#[derive(Debug, Clone, Default)]
pub struct CallFacts {
    /// The handle of the request's sequence; 0 without a sequence.
    pub sequence: u64,
    pub step: u64,
    pub start: bool,
    pub end: bool,
    pub numbers: Vec<f64>,
    pub keys: Vec<u64>,
    /// Outputs that the client asked for, as indices.
    pub outputs: Vec<u32>,
    /// The request on whose behalf the guest calls other models, if it may call any.
    pub calling: Option<CallingRequest>,
}

/// A tensor, and the index of its port.
pub(crate) type Given = (usize, Tensor);

/// A refusal in the guest's own words.
#[derive(Debug)]
pub(crate) struct GuestRefusal {
    pub(super) code: u32,
    pub(super) text: String,
    pub(super) retry: Option<Duration>,
    pub(super) ends: bool,
}

impl GuestRefusal {
    /// The refusal of a request by this plug-in.
    pub(crate) fn by(self, world: &'static str, plugin: &str) -> ProcessorRefusal {
        let GuestRefusal { code, text, retry, ends } = self;
        ProcessorRefusal { world, plugin: plugin.to_owned(), why: RefusedBy::Plugin { code, text, retry }, ends }
    }
}

/// An answer of `pre`, not yet checked against the signature.
#[derive(Debug)]
pub(super) enum GivenAction {
    Run(Vec<Vec<Given>>),
    Reply(Vec<Given>),
}

/// An answer, with the new scratch if it changes.
pub(super) type WithScratch<T> = (T, Option<Vec<u8>>);

/// How a call passes its tensors, and its limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passing {
    /// A tensor larger than this many bytes is passed by handle.
    pub(crate) by_value: u64,
    pub(crate) limit: Duration,
    /// KiB that the call passes, for messages.
    pub(crate) kib: u32,
}

/// Configures a guest. Its answer is the signature that replaces `inner` for what is in front of it.
pub(super) fn configure(
    guest: &mut ProcessorGuest,
    config: &str,
    facts: &LoadFacts,
    inner: &TensorSignature,
    files: &[ProcessorFile],
) -> Result<Result<TensorSignature, String>, CallError> {
    let numbers: Vec<&str> = facts.numbers.iter().map(String::as_str).collect();
    let keys: Vec<&str> = facts.keys.iter().map(String::as_str).collect();
    let model = types::Model {
        name: &facts.name,
        version: facts.version,
        strategy: facts.strategy,
        max_batch: facts.max_batch,
        instances: facts.instances,
        slots: facts.slots,
        numbers: &numbers,
        keys: &keys,
    };
    let (input_dims, output_dims) = (wire_dims(&inner.inputs), wire_dims(&inner.outputs));
    let (inputs, outputs) = (as_params(&inner.inputs, &input_dims), as_params(&inner.outputs, &output_dims));
    guest.call_configure(config, |to, store, config| {
        let held = store.data_mut().world_data::<HeldTensors>()?;
        let mut given = Vec::with_capacity(files.len());
        for file in files {
            given.push(File { name: &file.name, content: held.give(file.tensor())? });
        }
        let inner = SignatureParam { inputs: &inputs, outputs: &outputs };
        let configured = to.sequor_plugin_processor().call_configure(store, config, model, inner, &given);
        let configured = at_once(configured).unwrap_or_else(|| Err(Error::msg("configure must not wait")));
        match configured? {
            Ok(answer) => Ok(Ok(signature(answer)?)),
            Err(what) => Ok(Err(what)),
        }
    })
}

pub(crate) fn wire_dims(ports: &[TensorPort]) -> Vec<Vec<i64>> {
    ports.iter().map(|port| port.dims.to_wire()).collect()
}

pub(crate) fn as_params<'a>(ports: &'a [TensorPort], dims: &'a [Vec<i64>]) -> Vec<PortParam<'a>> {
    let each = ports.iter().zip(dims);
    each.map(|(TensorPort { name, dtype, optional, .. }, shape)| PortParam {
        name,
        dtype: code_of(*dtype),
        shape,
        optional: *optional,
    })
    .collect()
}

fn signature(given: SignatureResult) -> Result<TensorSignature> {
    let ports = |ports: Vec<PortResult>| ports.into_iter().map(port).collect::<Result<Vec<_>>>();
    Ok(TensorSignature { inputs: ports(given.inputs)?, outputs: ports(given.outputs)? })
}

fn port(given: PortResult) -> Result<TensorPort> {
    let PortResult { name, dtype, shape, optional } = given;
    let dtype = dtype_of(dtype).ok_or_else(|| Error::msg(format!("\"{name}\": {dtype} is no type of tensors")))?;
    Ok(TensorPort { name, dtype, dims: Dims::from_wire(&shape), optional })
}

/// Calls `pre`. The guest may wait for other models during the call.
pub(super) async fn pre(
    guest: &mut ProcessorGuest,
    facts: &CallFacts,
    scratch: &[u8],
    inputs: &[(u32, &Tensor)],
    (passing, outgoing): (Passing, Option<OutgoingCalls>),
) -> Result<Result<WithScratch<GivenAction>, GuestRefusal>, CallError> {
    let asked = Call { name: "pre", of: Some((passing.kib, "KiB")) };
    let BegunCall { bindings, store, meter } = guest.begin(passing.limit);
    let answer = async {
        let held = begin_with(store.data_mut(), outgoing, passing)?;
        let inputs = values(held, inputs, passing.by_value)?;
        let exports = bindings.sequor_plugin_processor();
        let answer = exports.call_pre(&mut *store, call(facts, scratch), &inputs).await?;
        let prepared = match answer {
            Ok(prepared) => prepared,
            Err(refusal) => return Ok(Err(refused(refusal))),
        };
        let held = store.data_mut().world_data::<HeldTensors>()?;
        let action = match prepared.action {
            Action::Run(entries) => {
                GivenAction::Run(entries.into_iter().map(|entry| taken(held, entry)).collect::<Result<_>>()?)
            }
            Action::Reply(outputs) => GivenAction::Reply(taken(held, outputs)?),
        };
        Ok(Ok((action, prepared.scratch)))
    };
    let answer = meter.run(answer).await;
    let answer = guest.end(asked, passing.limit, answer);
    forget_calls(guest);
    answer
}

/// Calls `post` with the outputs of each run. The guest may wait for other models during the call.
pub(super) async fn post(
    guest: &mut ProcessorGuest,
    facts: &CallFacts,
    scratch: &[u8],
    runs: &[Vec<(u32, &Tensor)>],
    (passing, outgoing): (Passing, Option<OutgoingCalls>),
) -> Result<Result<WithScratch<Vec<Given>>, GuestRefusal>, CallError> {
    let asked = Call { name: "post", of: Some((passing.kib, "KiB")) };
    let BegunCall { bindings, store, meter } = guest.begin(passing.limit);
    let answer = async {
        let held = begin_with(store.data_mut(), outgoing, passing)?;
        let runs = runs.iter().map(|run| values(held, run, passing.by_value)).collect::<Result<Vec<_>>>()?;
        let runs: Vec<&[ValueParam<'_>]> = runs.iter().map(Vec::as_slice).collect();
        let exports = bindings.sequor_plugin_processor();
        let answer = exports.call_post(&mut *store, call(facts, scratch), &runs).await?;
        let answered = match answer {
            Ok(answered) => answered,
            Err(refusal) => return Ok(Err(refused(refusal))),
        };
        let held = store.data_mut().world_data::<HeldTensors>()?;
        Ok(Ok((taken(held, answered.outputs)?, answered.scratch)))
    };
    let answer = meter.run(answer).await;
    let answer = guest.end(asked, passing.limit, answer);
    forget_calls(guest);
    answer
}

/// Begins a call, and sets which models the guest may call during it.
fn begin_with(state: &mut HostState, calls: Option<OutgoingCalls>, passing: Passing) -> Result<&mut HeldTensors> {
    let held = begin(state)?;
    (held.calls, held.by_value) = (calls, passing.by_value);
    Ok(held)
}

/// Ends the rights of a call. A guest that waits for its next request keeps nothing of the last one.
fn forget_calls(guest: &mut ProcessorGuest) {
    if let Ok(held) = guest.world_data::<HeldTensors>() {
        held.calls = None;
    }
}

pub(crate) fn begin(state: &mut HostState) -> Result<&mut HeldTensors> {
    let held = state.world_data::<HeldTensors>()?;
    held.begin_call();
    Ok(held)
}

pub(crate) fn call<'a>(facts: &'a CallFacts, scratch: &'a [u8]) -> calls::Call<'a> {
    let CallFacts { sequence, step, start, end, numbers, keys, outputs, .. } = facts;
    let start_end = u32::from(*start) | u32::from(*end) << 1;
    calls::Call { sequence: *sequence, step: *step, start_end, numbers, keys, outputs, scratch }
}

/// Passes tensors to a guest: small ones by value, large ones by handle.
pub(crate) fn values<'a>(
    held: &mut HeldTensors,
    tensors: &'a [(u32, &Tensor)],
    by_value: u64,
) -> Result<Vec<ValueParam<'a>>> {
    let value = |(port, tensor): &'a (u32, &Tensor)| {
        let content = if tensor.data.len() as u64 <= by_value {
            let (dtype, shape, bytes) = (code_of(tensor.dtype), tensor.shape.0.as_slice(), &*tensor.data);
            ContentParam::Flat(FlatParam { dtype, shape, bytes })
        } else {
            ContentParam::Handle(held.give((*tensor).clone())?)
        };
        Ok(ValueParam { port: *port, content })
    };
    tensors.iter().map(value).collect()
}

/// Takes tensors back from a guest.
pub(crate) fn taken(held: &mut HeldTensors, values: Vec<ValueResult>) -> Result<Vec<Given>> {
    let value = |ValueResult { port, content }| {
        let tensor = match content {
            ContentResult::Flat(flat) => from_flat(flat.dtype, flat.shape, flat.bytes)?,
            ContentResult::Handle(handle) => held.take(handle)?,
        };
        Ok((usize::try_from(port)?, tensor))
    };
    values.into_iter().map(value).collect()
}

pub(crate) fn refused(refusal: calls::Refusal) -> GuestRefusal {
    let calls::Refusal { code, text, retry_us, ends } = refusal;
    GuestRefusal { code, text: cut(text), retry: retry_us.map(Duration::from_micros), ends }
}
