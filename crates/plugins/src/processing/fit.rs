//! Checks of tensors and signatures: what a processor sees, what it answers, and what bypasses it.

use std::collections::BTreeSet;

use super::calls::Given;
use super::join::join;
use super::manifest::ProcessorManifest;
use super::ports::{PortTensors, TensorPort, TensorSignature, place};
use crate::config::fault::did_you_mean;
use crate::tensor::Tensor;

/// The tensors that the plug-in sees.
pub(super) fn shown<'a>(
    manifest: &ProcessorManifest,
    ports: &[TensorPort],
    tensors: &'a PortTensors,
) -> Vec<(u32, &'a Tensor)> {
    let each = (0u32..).zip(ports).zip(tensors);
    each.filter(|((_, port), _)| manifest.sees(&port.name))
        .filter_map(|((n, _), tensor)| Some((n, tensor.as_ref()?)))
        .collect()
}

/// Puts tensors at the indices of their ports, and checks each.
pub(crate) fn placed(ports: &[TensorPort], given: Vec<Given>) -> Result<PortTensors, String> {
    let mut placed: PortTensors = vec![None; ports.len()];
    for (at, tensor) in given {
        let (Some(port), Some(to)) = (ports.get(at), placed.get_mut(at)) else {
            return Err(format!("answered for port {at} of {}", ports.len()));
        };
        port.check(&tensor)?;
        if to.replace(tensor).is_some() {
            return Err(format!("answered twice for \"{}\"", port.name));
        }
    }
    Ok(placed)
}

/// Checks the inputs that bypass a processor against the ports behind it. The error names the input that does not fit.
pub(super) fn check_passed(ports: &[TensorPort], inputs: &PortTensors) -> Result<(), String> {
    for (port, tensor) in ports.iter().zip(inputs) {
        match tensor {
            Some(tensor) => port.check(tensor)?,
            None if port.optional => {}
            None => return Err(format!("\"{}\" is missing", port.name)),
        }
    }
    Ok(())
}

pub(super) fn have_like_shapes(one: &PortTensors, other: &PortTensors) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| a.as_ref().map(|a| &a.shape) == b.as_ref().map(|b| &b.shape))
}

/// Addresses of tensor bytes that are already counted.
#[derive(Debug, Default)]
pub struct KnownMemory(BTreeSet<(usize, usize)>);

impl KnownMemory {
    pub fn new(tensors: &PortTensors) -> KnownMemory {
        let mut addresses = KnownMemory::default();
        addresses.add([tensors]);
        addresses
    }

    /// Adds tensors. Returns the bytes of those that were not yet counted.
    pub fn add<'a>(&mut self, tensors: impl IntoIterator<Item = &'a PortTensors>) -> u64 {
        let all = tensors.into_iter().flatten().flatten();
        all.filter(|tensor| self.0.insert((tensor.data.as_ptr().addr(), tensor.data.len())))
            .map(|tensor| tensor.data.len() as u64)
            .sum()
    }
}

/// Joins one output of all runs. `None` if a run does not have it.
pub(super) fn join_runs(runs: &[PortTensors], at: Option<usize>) -> Result<Option<Tensor>, String> {
    let parts: Option<Vec<Tensor>> = at.and_then(|at| runs.iter().map(|run| run.get(at)?.clone()).collect());
    parts.map_or(Ok(None), join)
}

// === at load ===

/// For each input of `inner`: the index of the processor's input that is passed to it unchanged. The error names the input that has no
/// destination.
pub(super) fn passed(
    manifest: &ProcessorManifest,
    outer: &TensorSignature,
    inner: &TensorSignature,
) -> Result<Vec<Option<usize>>, String> {
    for name in manifest.reads.iter().flatten() {
        if place(&outer.inputs, name).is_none() && place(&inner.outputs, name).is_none() {
            let known = outer.inputs.iter().chain(&inner.outputs).map(|port| port.name.as_str());
            let near = did_you_mean(name, known);
            return Err(format!(
                "reads names \"{name}\", which is no input of requests and no output of the model{near}"
            ));
        }
    }
    let is_unseen = |port: &TensorPort| !manifest.pre || !manifest.sees(&port.name);
    for port in outer.inputs.iter().filter(|port| is_unseen(port)) {
        let fits = |to: &TensorPort| to.name == port.name && to.dtype == port.dtype;
        if !inner.inputs.iter().any(fits) {
            return Err(format!(
                "input \"{}\" is not read, and the model has no input of that name and type to pass it to",
                port.name
            ));
        }
    }
    let from = |port: &TensorPort| {
        let at = place(&outer.inputs, &port.name)?;
        outer.inputs.get(at).is_some_and(&is_unseen).then_some(at)
    };
    let passed: Vec<Option<usize>> = inner.inputs.iter().map(from).collect();
    let missing = inner.inputs.iter().zip(&passed).find(|(port, from)| from.is_none() && !port.optional);
    match missing.filter(|_| !manifest.pre) {
        Some((port, _)) => Err(format!("it has no pre, and no request brings \"{}\"", port.name)),
        None => Ok(passed),
    }
}

/// Without `post`, every output must have an output of the same name and type behind the processor.
pub(super) fn check_outputs(
    manifest: &ProcessorManifest,
    outer: &TensorSignature,
    inner: &TensorSignature,
) -> Result<(), String> {
    if manifest.post {
        return Ok(());
    }
    let fits = |port: &&TensorPort| !inner.outputs.iter().any(|p| p.name == port.name && p.dtype == port.dtype);
    match outer.outputs.iter().find(fits) {
        Some(port) => Err(format!("it has no post, and the model has no output \"{}\" of that type", port.name)),
        None => Ok(()),
    }
}
