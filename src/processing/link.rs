//! One processor of a load: its guests, what it sees of requests and runs, its limits, and what happens if it fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::GuestPool;
use sequor_wasm::limits::is_full;
use sequor_wasm::services::Services;

use super::calls::{self, CallFacts, Given, GivenAction, GuestRefusal, LoadFacts, Passing};
use super::files::ProcessorFile;
use super::join::join;
use super::manifest::ProcessorManifest;
use super::ports::{PortTensors, TensorPort, TensorSignature, place};
use super::refusal::{ProcessorRefusal, RefusedBy};
use super::source::{OnFailure, ProcessorOptions, ProcessorSource};
use super::tensors::HeldTensors;
use super::world::{ProcessorComponent, ProcessorGuest};
use crate::config::fault::did_you_mean;
use crate::telemetry::{Hook, PluginMetrics};
use crate::tensor::Tensor;

/// CPU time of a call beyond its base, for each KiB that the call is about.
const PER_KIB: Duration = Duration::from_micros(20);
/// Maximum number of runs of one request.
pub(super) const RUNS: usize = 4096;
/// Maximum bytes of the inputs of all runs of one request.
const RUN_BYTES: usize = 256 << 20;

/// A processor in its place in a chain.
#[derive(Debug)]
pub(super) struct ChainLink {
    pub(super) name: String,
    pub(super) outer: TensorSignature,
    inner: TensorSignature,
    manifest: ProcessorManifest,
    on_failure: OnFailure,
    time: Duration,
    guests: GuestPool<WarmGuest>,
    metrics: Arc<PluginMetrics>,
    /// For each input of `inner`: the input of `outer` that goes to it unless `pre` gives another.
    passed: Vec<Option<usize>>,
}

/// A configured guest.
#[derive(Debug)]
struct WarmGuest {
    guest: ProcessorGuest,
    /// Bytes of its memory once it was configured.
    at_start: u64,
    /// Bytes of the files that it may keep.
    files: u64,
}

/// The plan for a request, by the inputs or outputs of the signatures.
#[derive(Debug)]
pub(super) enum LinkPlan {
    /// Inner runs once for each of these inputs.
    Run(Vec<PortTensors>),
    /// The request is answered with these outputs.
    Reply(PortTensors),
    /// It failed, and the request goes on without it.
    Bypass(PortTensors),
}

impl ChainLink {
    /// Configures a processor in front of `inner`. `guests` is the maximum number of its guests. The error is a sentence.
    pub(super) fn new(
        source: ProcessorSource,
        facts: &LoadFacts,
        inner: TensorSignature,
        guests: usize,
    ) -> Result<ChainLink, String> {
        let ProcessorSource { name, component, options, services, metrics } = source;
        let manifest = component.declared().manifest.clone();
        let ProcessorOptions { on_failure, ref limits, .. } = options;
        let time = limits.time;
        let (facts, before) = (facts.clone(), inner.clone());
        let count = Arc::clone(&metrics);
        let start = move || {
            let began = Instant::now();
            let started = WarmGuest::start(&component, &services, &options, &facts, &before);
            count.called(Hook::Configure, began.elapsed());
            started
        };
        let (_, outer) = start().map_err(|e| e.what)?;
        outer.check()?;
        let expected = outer.clone();
        let start = move || {
            let (guest, is) = start()?;
            if is == expected {
                return Ok(guest);
            }
            let what = "configure answered another signature than before".to_owned();
            Err(CallError { fault: CallFault::Trap, what })
        };
        let pool = GuestPool::new(guests, start).recycling(WarmGuest::is_spent);
        // The first request finds a guest.
        pool.call(|_| Ok(())).map_err(|e| e.what)?;
        let passed = passed(&manifest, &outer, &inner)?;
        check_outputs(&manifest, &outer, &inner)?;
        if on_failure == OnFailure::Bypass && !outer.is_like(&inner) {
            let what = "on_failure = \"bypass\" needs a processor whose inputs and outputs have the names and types of those behind it";
            return Err(what.to_owned());
        }
        Ok(ChainLink { name, outer, inner, manifest, on_failure, time, guests: pool, metrics, passed })
    }

    pub(super) fn posts(&self) -> bool {
        self.manifest.post
    }

    /// Maximum bytes of scratch of one sequence.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.manifest.scratch
    }

    // === before the runs ===

    /// Prepares a request. `scratch` is changed only if this is `Ok`.
    pub(super) fn pre(
        &self,
        facts: &CallFacts,
        scratch: &mut Bytes,
        inputs: PortTensors,
    ) -> Result<LinkPlan, ProcessorRefusal> {
        if !self.manifest.pre {
            // An END without inputs stays one.
            let inner = if inputs.is_empty() { PortTensors::new() } else { self.pass(&inputs) };
            return Ok(LinkPlan::Run(vec![inner]));
        }
        let shown: Vec<(u32, &Tensor)> = shown(&self.manifest, &self.outer.inputs, &inputs);
        let passing = self.passing(shown.iter().map(|(_, tensor)| tensor.data.len()).sum::<usize>() + scratch.len());
        let began = Instant::now();
        let called = self.guests.call(|warm| calls::pre(&mut warm.guest, facts, scratch, &shown, passing));
        self.metrics.called(Hook::Pre, began.elapsed());
        let (action, new_scratch) = match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(refused)) => return Err(self.refused(refused)),
            Err(error) => return self.failed(error.fault, error.what, inputs),
        };
        let checked = self.checked_plan(action, &inputs).and_then(|plan| {
            let kept = self.checked_scratch(facts, new_scratch)?;
            Ok((plan, kept))
        });
        match checked {
            Ok((plan, kept)) => {
                *scratch = kept.unwrap_or_else(|| scratch.clone());
                Ok(plan)
            }
            Err(what) => self.failed(CallFault::Trap, format!("pre {what}"), inputs),
        }
    }

    fn checked_plan(&self, action: GivenAction, inputs: &PortTensors) -> Result<LinkPlan, String> {
        let entries = match action {
            GivenAction::Reply(outputs) => return Ok(LinkPlan::Reply(placed(&self.outer.outputs, outputs)?)),
            GivenAction::Run(entries) => entries,
        };
        if entries.is_empty() || entries.len() > RUNS {
            return Err(format!("answered {} runs; a request has 1 to {RUNS}", entries.len()));
        }
        let passed = if inputs.is_empty() { vec![None; self.inner.inputs.len()] } else { self.pass(inputs) };
        let (mut runs, mut bytes) = (Vec::<PortTensors>::with_capacity(entries.len()), 0usize);
        for (n, entry) in entries.into_iter().enumerate() {
            let mut run = placed(&self.inner.inputs, entry).map_err(|what| format!("answered run {n}: {what}"))?;
            for ((tensor, port), passed) in run.iter_mut().zip(&self.inner.inputs).zip(&passed) {
                if tensor.is_none() {
                    tensor.clone_from(passed);
                    if let Some(tensor) = passed {
                        port.check(tensor).map_err(|what| format!("passes on what does not fit: {what}"))?;
                    }
                }
                if tensor.is_none() && !port.optional {
                    return Err(format!("answered run {n} without \"{}\"", port.name));
                }
                bytes += tensor.as_ref().map_or(0, |tensor| tensor.data.len());
            }
            if let Some(first) = runs.first()
                && !have_like_shapes(first, &run)
            {
                return Err(format!("answered run {n} with other shapes than run 0"));
            }
            runs.push(run);
        }
        if bytes > RUN_BYTES {
            return Err(format!("answered runs of {bytes} bytes; the maximum is {RUN_BYTES}"));
        }
        Ok(LinkPlan::Run(runs))
    }

    /// The inputs of inner that come from the request as they are.
    fn pass(&self, inputs: &PortTensors) -> PortTensors {
        let of = |at: &Option<usize>| at.and_then(|at| inputs.get(at)?.clone());
        self.passed.iter().map(of).collect()
    }

    // === after the runs ===

    /// Finishes a request from inner's outputs of each run. `scratch` is changed only if this is `Ok`.
    pub(super) fn post(
        &self,
        facts: &CallFacts,
        scratch: &mut Bytes,
        runs: &[PortTensors],
    ) -> Result<PortTensors, ProcessorRefusal> {
        // Nothing ran: an END without inputs.
        if runs.iter().all(Vec::is_empty) {
            return Ok(PortTensors::new());
        }
        if !self.manifest.post {
            return self.joined(runs, PortTensors::new()).map_err(|what| self.failure(CallFault::Trap, what));
        }
        let shown: Vec<Vec<(u32, &Tensor)>> =
            runs.iter().map(|run| shown(&self.manifest, &self.inner.outputs, run)).collect();
        let bytes = shown.iter().flatten().map(|(_, tensor)| tensor.data.len()).sum::<usize>() + scratch.len();
        let passing = self.passing(bytes);
        let began = Instant::now();
        let called = self.guests.call(|warm| calls::post(&mut warm.guest, facts, scratch, &shown, passing));
        self.metrics.called(Hook::Post, began.elapsed());
        drop(shown);
        let (outputs, new_scratch) = match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(refused)) => return Err(self.refused(refused)),
            Err(error) if self.on_failure == OnFailure::Bypass => {
                self.note_failure(error.fault, &error.what);
                return self.bypassed(runs);
            }
            Err(error) => return Err(self.failure(error.fault, error.what)),
        };
        let finished = placed(&self.outer.outputs, outputs).and_then(|given| self.joined(runs, given));
        let checked = finished.and_then(|outputs| {
            let missing = facts.outputs.iter().find(|at| outputs.get(**at as usize).is_none_or(Option::is_none));
            match missing.and_then(|at| self.outer.outputs.get(*at as usize)) {
                Some(port) => Err(format!("answered without \"{}\"", port.name)),
                None => Ok((outputs, self.checked_scratch(facts, new_scratch)?)),
            }
        });
        let (outputs, kept) = checked.map_err(|what| self.failure(CallFault::Trap, format!("post {what}")))?;
        *scratch = kept.unwrap_or_else(|| scratch.clone());
        Ok(outputs)
    }

    /// Outputs of several runs of inner, passed on as if the processor were not there.
    pub(super) fn bypassed(&self, runs: &[PortTensors]) -> Result<PortTensors, ProcessorRefusal> {
        let mut all = PortTensors::new();
        for port in &self.outer.outputs {
            let at = place(&self.inner.outputs, &port.name);
            let joined = join_runs(runs, at).map_err(|what| self.failure(CallFault::Trap, what))?;
            all.push(joined);
        }
        Ok(all)
    }

    /// What `post` gave, and inner's outputs that it did not see, joined over the runs.
    fn joined(&self, runs: &[PortTensors], given: PortTensors) -> Result<PortTensors, String> {
        let mut given = given.into_iter();
        let mut all = PortTensors::with_capacity(self.outer.outputs.len());
        for port in &self.outer.outputs {
            let tensor = given.next().flatten();
            let is_seen = self.manifest.post && self.manifest.sees(&port.name);
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

    // === limits and failures ===

    fn passing(&self, bytes: usize) -> Passing {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        Passing { by_value: self.manifest.by_value, limit: self.time + PER_KIB.saturating_mul(kib), kib }
    }

    /// The scratch to keep; nothing, where there is no sequence.
    fn checked_scratch(&self, facts: &CallFacts, scratch: Option<Vec<u8>>) -> Result<Option<Bytes>, String> {
        let Some(scratch) = scratch.filter(|_| facts.sequence != 0) else { return Ok(None) };
        let (len, most) = (scratch.len() as u64, self.manifest.scratch);
        if len > most {
            return Err(format!("left {len} bytes of scratch; plugin.toml says {most}"));
        }
        // The unused part of a larger allocation is not kept.
        Ok(Some(Bytes::from(scratch.into_boxed_slice())))
    }

    fn refused(&self, refused: GuestRefusal) -> ProcessorRefusal {
        let GuestRefusal { code, text, retry, ends } = refused;
        ProcessorRefusal { plugin: self.name.clone(), why: RefusedBy::Plugin { code, text, retry }, ends }
    }

    fn failed(&self, fault: CallFault, what: String, inputs: PortTensors) -> Result<LinkPlan, ProcessorRefusal> {
        if self.on_failure == OnFailure::Fail {
            return Err(self.failure(fault, what));
        }
        self.note_failure(fault, &what);
        let places = self.inner.inputs.iter().map(|port| place(&self.outer.inputs, &port.name));
        let of = |at: Option<usize>| at.and_then(|at| inputs.get(at)?.clone());
        // An END without inputs stays one.
        Ok(LinkPlan::Bypass(if inputs.is_empty() { inputs } else { places.map(of).collect() }))
    }

    fn failure(&self, fault: CallFault, what: String) -> ProcessorRefusal {
        self.note_failure(fault, &what);
        ProcessorRefusal::failure(&self.name, what)
    }

    fn note_failure(&self, fault: CallFault, what: &str) {
        self.metrics.struck(match fault {
            CallFault::Trap => "trap",
            CallFault::Time => "time",
            CallFault::Memory => "memory",
        });
        tracing::warn!(plugin = self.name, "a call failed: {what}");
    }
}

impl WarmGuest {
    /// Starts and configures a guest, and says what is seen in its place.
    fn start(
        component: &ProcessorComponent,
        services: &Arc<dyn Services>,
        options: &ProcessorOptions,
        facts: &LoadFacts,
        inner: &TensorSignature,
    ) -> Result<(WarmGuest, TensorSignature), CallError> {
        let mut guest = component.guest(Arc::clone(services), options.limits)?;
        let configured = calls::configure(&mut guest, &options.config, facts, inner, &options.files)?;
        let outer = configured.map_err(|what| CallError { fault: CallFault::Trap, what })?;
        let files = options.files.iter().map(ProcessorFile::size).sum();
        let at_start = guest.memory_used();
        Ok((WarmGuest { guest, at_start, files }, outer))
    }

    /// Whether another guest should take its place.
    fn is_spent(&mut self) -> bool {
        let WarmGuest { guest, at_start, files } = self;
        let holds_too_much = guest.world_data::<HeldTensors>().is_ok_and(|held| held.is_too_much(*files));
        holds_too_much || is_full(*at_start, guest.memory_maximum(), guest.memory_used())
    }
}

/// The tensors that the plug-in sees.
fn shown<'a>(manifest: &ProcessorManifest, ports: &[TensorPort], tensors: &'a PortTensors) -> Vec<(u32, &'a Tensor)> {
    let each = (0u32..).zip(ports).zip(tensors);
    each.filter(|((_, port), _)| manifest.sees(&port.name))
        .filter_map(|((n, _), tensor)| Some((n, tensor.as_ref()?)))
        .collect()
}

/// Tensors at the places of their ports, each checked.
fn placed(ports: &[TensorPort], given: Vec<Given>) -> Result<PortTensors, String> {
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

fn have_like_shapes(one: &PortTensors, other: &PortTensors) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| a.as_ref().map(|a| &a.shape) == b.as_ref().map(|b| &b.shape))
}

/// One output of all runs; `None` if a run has none.
fn join_runs(runs: &[PortTensors], at: Option<usize>) -> Result<Option<Tensor>, String> {
    let parts: Option<Vec<Tensor>> = at.and_then(|at| runs.iter().map(|run| run.get(at)?.clone()).collect());
    parts.map_or(Ok(None), join)
}

// === at load ===

/// For each input of inner: the input of the processor that goes there as it is. The error says which input goes nowhere.
fn passed(
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

/// Every output that `post` does not give has one of the model behind it.
fn check_outputs(manifest: &ProcessorManifest, outer: &TensorSignature, inner: &TensorSignature) -> Result<(), String> {
    if manifest.post {
        return Ok(());
    }
    let fits = |port: &&TensorPort| !inner.outputs.iter().any(|p| p.name == port.name && p.dtype == port.dtype);
    match outer.outputs.iter().find(fits) {
        Some(port) => Err(format!("it has no post, and the model has no output \"{}\" of that type", port.name)),
        None => Ok(()),
    }
}
