//! The host function of the `models` interface: a guest calls another model and is suspended until it answers.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use sequor_wasm::host::{HostState, cut};
use wasmtime::{Error, Result};

use super::contract::sequor::plugin::models::{self, Failure, NamedTensor as GuestTensor};
use super::contract::sequor::plugin::tensors::{ContentResult, FlatResult};
use super::dtypes::code_of;
use super::outgoing::{CallOutcome, InferFailure, code};
use super::tensors::{HeldTensors, from_flat};
use crate::tensor::NamedTensor;

/// CPU time that a guest's call gets for each answer of a model, and for each KiB of its inputs and outputs.
const PER_CALL: Duration = Duration::from_micros(50);
const PER_KIB: Duration = Duration::from_micros(20);
/// A guest yields its thread once in this many calls, even if all answers are immediate. The yield lets the server notice a cancelled
/// request.
const CALLS_AT_ONCE: u32 = 64;

/// Calls a model on behalf of a guest.
pub(super) async fn call(state: &mut HostState, model: &str, inputs: Vec<NamedTensor>) -> Result<CallOutcome> {
    state.check_time()?;
    let held = state.world_data::<HeldTensors>()?;
    if !held.is_configured() {
        return Err(Error::msg("configure must not call models"));
    }
    let Some(calls) = held.calls.clone() else {
        let text = format!("model '{model}': no server runs here that has it");
        return Ok(Err(InferFailure::new(code::ABSENT, cut(text))));
    };
    if held.count_model_call()?.is_multiple_of(CALLS_AT_ONCE) {
        give_way().await;
    }
    let mut bytes = size(&inputs);
    let outcome = calls.call(model, inputs).await;
    // Only answers extend the time. A failed call may take less time than the extension adds.
    if let Ok(outputs) = &outcome {
        bytes += size(outputs);
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        state.extend_time(PER_CALL + PER_KIB.saturating_mul(kib))?;
    }
    Ok(outcome.map_err(|failure| InferFailure { text: cut(failure.text), ..failure }))
}

/// Yields to the other tasks of the lane.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn size(tensors: &[NamedTensor]) -> usize {
    tensors.iter().map(|named| named.tensor.data.len()).sum()
}

impl models::Host for HostState {
    async fn infer(&mut self, model: String, inputs: Vec<GuestTensor>) -> Result<Result<Vec<GuestTensor>, Failure>> {
        let held = self.world_data::<HeldTensors>()?;
        let taken = inputs.into_iter().map(|GuestTensor { name, content }| {
            let tensor = match content {
                ContentResult::Flat(flat) => from_flat(flat.dtype, flat.shape, flat.bytes)?,
                ContentResult::Handle(handle) => held.take(handle)?,
            };
            Ok(NamedTensor { name, tensor })
        });
        let inputs = taken.collect::<Result<Vec<_>>>()?;
        let outputs = match call(self, &model, inputs).await? {
            Ok(outputs) => outputs,
            Err(InferFailure { code, text, retry }) => {
                let retry_us = retry.map(|retry| u64::try_from(retry.as_micros()).unwrap_or(u64::MAX));
                return Ok(Err(Failure { code, text, retry_us }));
            }
        };
        let held = self.world_data::<HeldTensors>()?;
        let given = outputs.into_iter().map(|NamedTensor { name, tensor }| {
            let content = if tensor.data.len() as u64 <= held.by_value {
                let (dtype, shape) = (code_of(tensor.dtype), tensor.shape.0);
                ContentResult::Flat(FlatResult { dtype, shape, bytes: tensor.data.to_vec() })
            } else {
                ContentResult::Handle(held.give_answer(tensor)?)
            };
            Ok(GuestTensor { name, content })
        });
        Ok(Ok(given.collect::<Result<_>>()?))
    }
}
