//! Checks of a guest's answers to `pre` and `post` against the processor's ports: the plan for the runs, the outputs, and the scratch to
//! keep.

use std::sync::Arc;

use bytes::Bytes;

use super::calls::{self, CallFacts, GivenAction};
use super::fit::{KnownMemory, have_like_shapes, join_runs, placed};
use super::manifest::ProcessorManifest;
use super::ports::{PortTensors, TensorSignature, place};
use super::version::LinkVersion;

/// Maximum number of runs of one request.
pub(super) const RUNS: usize = 4096;
/// Maximum bytes of the inputs of all runs of one request. The same maximum holds for their outputs.
pub const RUN_BYTES: usize = 256 << 20;

/// The plan for a request. Tensors are by the index of their port.
#[derive(Debug)]
pub(super) enum LinkPlan {
    /// The part behind the processor runs once for each of these inputs. This version finishes the request.
    Run(Arc<LinkVersion>, Vec<PortTensors>),
    /// Answer the request with these outputs.
    Reply(PortTensors),
    /// Continue the request without the processor.
    Bypass(PortTensors),
}

/// Why the server rejects an answer of `pre`.
pub(super) enum PlanFault {
    /// The guest broke a rule of the interface.
    Guest(String),
    /// An input of the request bypasses the guest and does not fit the port behind it.
    Request(String),
    /// The request needs more runs, or more bytes of inputs, than one request may have.
    TooLarge(String),
}

/// The ports of a processor: those in front of it (`outer`), and those behind it (`inner`).
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkPorts<'a> {
    pub(super) outer: &'a TensorSignature,
    pub(super) inner: &'a TensorSignature,
    /// Whether the plug-in is the model, so that nothing runs behind it.
    pub(super) is_model: bool,
}

impl LinkPorts<'_> {
    /// Checks and completes the plan that `pre` answered.
    pub(super) fn plan(
        self,
        version: &Arc<LinkVersion>,
        action: GivenAction,
        inputs: &PortTensors,
    ) -> Result<LinkPlan, PlanFault> {
        let entries = match action {
            GivenAction::Reply(outputs) => {
                return placed(&self.outer.outputs, outputs).map(LinkPlan::Reply).map_err(PlanFault::Guest);
            }
            GivenAction::Run(entries) => entries,
        };
        let broken = |what: String| Err(PlanFault::Guest(what));
        if self.is_model {
            return broken("answered runs, and a model without a graph has none".to_owned());
        }
        if entries.is_empty() {
            return broken(format!("answered 0 runs; a request has 1 to {RUNS}"));
        }
        if entries.len() > RUNS {
            return Err(PlanFault::TooLarge(format!("{} runs; the maximum is {RUNS}", entries.len())));
        }
        let inner = &self.inner.inputs;
        let passed = if inputs.is_empty() { vec![None; inner.len()] } else { version.pass(inputs) };
        // An input that bypasses the guest shares the same memory in every run.
        let (mut known, mut bytes) = (KnownMemory::new(inputs), 0);
        let mut runs = Vec::<PortTensors>::with_capacity(entries.len());
        for (n, entry) in entries.into_iter().enumerate() {
            let given = placed(inner, entry);
            let mut run = given.map_err(|what| PlanFault::Guest(format!("answered run {n}: {what}")))?;
            for ((tensor, port), passed) in run.iter_mut().zip(inner).zip(&passed) {
                if let (None, Some(passes)) = (&tensor, passed) {
                    port.check(passes).map_err(PlanFault::Request)?;
                    *tensor = Some(passes.clone());
                }
                if tensor.is_none() && !port.optional {
                    return broken(format!("answered run {n} without \"{}\"", port.name));
                }
            }
            bytes += known.add([&run]);
            if runs.first().is_some_and(|first| !have_like_shapes(first, &run)) {
                return broken(format!("answered run {n} with other shapes than run 0"));
            }
            runs.push(run);
        }
        if bytes > RUN_BYTES as u64 {
            return Err(PlanFault::TooLarge(format!("runs with {bytes} bytes of inputs; the maximum is {RUN_BYTES}")));
        }
        Ok(LinkPlan::Run(Arc::clone(version), runs))
    }

    /// Checks and completes the answer of `post`.
    pub(super) fn outputs(
        self,
        manifest: &ProcessorManifest,
        facts: &CallFacts,
        runs: &[PortTensors],
        outputs: Vec<calls::Given>,
    ) -> Result<PortTensors, String> {
        let outputs = placed(&self.outer.outputs, outputs).and_then(|given| self.joined(manifest, runs, given))?;
        let missing = facts.outputs.iter().find(|at| outputs.get(**at as usize).is_none_or(Option::is_none));
        match missing.and_then(|at| self.outer.outputs.get(*at as usize)) {
            Some(port) => Err(format!("answered without \"{}\"", port.name)),
            None => Ok(outputs),
        }
    }

    /// Combines the outputs of `post` with the inner outputs that it did not see, joined over the runs.
    pub(super) fn joined(
        self,
        manifest: &ProcessorManifest,
        runs: &[PortTensors],
        given: PortTensors,
    ) -> Result<PortTensors, String> {
        let mut given = given.into_iter();
        let mut all = PortTensors::with_capacity(self.outer.outputs.len());
        for port in &self.outer.outputs {
            let tensor = given.next().flatten();
            let is_seen = manifest.post && manifest.sees(&port.name);
            all.push(match tensor {
                None if !is_seen => join_runs(runs, place(&self.inner.outputs, &port.name))
                    .and_then(|joined| {
                        joined.as_ref().map_or(Ok(()), |tensor| port.check(tensor))?;
                        Ok(joined)
                    })
                    .map_err(|what| format!("output \"{}\": {what}", port.name))?,
                tensor => tensor,
            });
        }
        Ok(all)
    }
}

/// The scratch to keep. `None` if it does not change or there is no sequence.
pub(super) fn checked_scratch(
    manifest: &ProcessorManifest,
    facts: &CallFacts,
    scratch: Option<Vec<u8>>,
) -> Result<Option<Bytes>, String> {
    let Some(scratch) = scratch.filter(|_| facts.sequence != 0) else { return Ok(None) };
    let (len, most) = (scratch.len() as u64, manifest.scratch);
    if len > most {
        return Err(format!("left {len} bytes of scratch; plugin.toml says {most}"));
    }
    // Frees the unused part of a larger allocation.
    Ok(Some(Bytes::from(scratch.into_boxed_slice())))
}
