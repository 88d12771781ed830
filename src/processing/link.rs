//! One processor of a load: what it sees of requests and runs, what it answers, and what happens if it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sequor_wasm::call_error::CallFault;
use sequor_wasm::journal::Journal;

use super::calls::{self, CallFacts, GivenAction, GuestRefusal, LoadFacts, Passing};
use super::fit::{KnownMemory, check_passed, have_like_shapes, join_runs, placed, shown};
use super::health::{PlaceGauges, PlaceHealth};
use super::manifest::ProcessorManifest;
use super::outgoing::OutgoingCalls;
use super::ports::{PortTensors, TensorSignature, place};
use super::refusal::{ProcessorRefusal, RefusedBy};
use super::source::{OnFailure, ProcessorSource};
use super::version::{LinkSite, LinkVersion};
use crate::telemetry::Hook;
use crate::tensor::Tensor;

/// CPU time of a call beyond its base, for each KiB that the call is about.
const PER_KIB: Duration = Duration::from_micros(20);
/// Maximum number of runs of one request.
pub(super) const RUNS: usize = 4096;
/// Maximum bytes of the inputs of all runs of one request, and of their outputs.
pub const RUN_BYTES: usize = 256 << 20;

/// A processor at its place in a chain.
#[derive(Debug)]
pub struct ChainLink {
    pub(super) name: String,
    pub(super) outer: TensorSignature,
    pub(super) site: Arc<LinkSite>,
    pub(super) journal: Arc<Journal>,
    pub(super) current: ArcSwap<LinkVersion>,
    pub(super) health: PlaceHealth,
    /// Whether its load takes no new sequences.
    pub(super) retired: AtomicBool,
}

/// The plan for a request, by the inputs or outputs of the signatures.
#[derive(Debug)]
pub(super) enum LinkPlan {
    /// Inner runs once for each of these inputs. This version finishes the request.
    Run(Arc<LinkVersion>, Vec<PortTensors>),
    /// The request is answered with these outputs.
    Reply(PortTensors),
    /// The request goes on without the processor.
    Bypass(PortTensors),
}

/// Why an answer of `pre` is not followed.
enum PlanFault {
    /// The guest broke a rule.
    Guest(String),
    /// An input of the request, which passes the guest by, does not fit what is behind.
    Request(String),
    /// The request needs more runs, or more bytes of inputs, than one request may have.
    TooLarge(String),
}

impl ChainLink {
    /// Configures a processor in front of `inner`. `guests` is the maximum number of its guests. The error is a sentence.
    pub(super) fn new(
        source: ProcessorSource,
        facts: &LoadFacts,
        inner: TensorSignature,
        guests: usize,
    ) -> Result<ChainLink, String> {
        let ProcessorSource { name, component, options, services, metrics, journal, clock } = source;
        let gauges = PlaceGauges::new(metrics.memory_at(&facts.name), metrics.parked_at(&facts.name));
        let health = PlaceHealth::new(clock, options.strikes, gauges);
        let guests = options.instances.unwrap_or(guests);
        let site = Arc::new(LinkSite { facts: facts.clone(), inner, options, services, metrics, guests });
        let (version, answered) = LinkVersion::start(&component, &site)?;
        let outer = if site.options.is_model { site.inner.clone() } else { answered };
        let (current, retired) = (ArcSwap::from_pointee(version), AtomicBool::new(false));
        Ok(ChainLink { name, outer, site, journal, current, health, retired })
    }

    pub(super) fn posts(&self) -> bool {
        self.current.load().manifest.post
    }

    /// Maximum bytes of scratch of one sequence.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.current.load().manifest.scratch
    }

    /// Why it refuses requests, if it is parked and they cannot go on without it.
    pub(super) fn refuses(&self) -> Option<String> {
        self.health.parked().filter(|_| self.site.options.on_failure == OnFailure::Fail)
    }

    /// Notes that its load takes no new sequences any more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    // === before the runs ===

    /// Prepares a request. `scratch` is changed only if this is `Ok`.
    pub(super) async fn pre(
        &self,
        facts: &CallFacts,
        scratch: &mut Bytes,
        inputs: PortTensors,
    ) -> Result<LinkPlan, ProcessorRefusal> {
        if let Some(what) = self.health.parked() {
            return self.unavailable(what, inputs);
        }
        let version = self.current.load_full();
        if !version.manifest.pre {
            // An END without inputs stays one.
            let run = if inputs.is_empty() { PortTensors::new() } else { version.pass(&inputs) };
            self.check_request(&run)?;
            return Ok(LinkPlan::Run(version, vec![run]));
        }
        let shown: Vec<(u32, &Tensor)> = shown(&version.manifest, &self.outer.inputs, &inputs);
        let bytes = shown.iter().map(|(_, tensor)| tensor.data.len()).sum::<usize>() + scratch.len();
        let passing = self.passing(&version.manifest, bytes);
        let called = match version.guest().await {
            Ok(mut called) => {
                let (how, began) = ((passing, self.outgoing(facts)), Instant::now());
                let answer = calls::pre(called.guest(), facts, scratch, &shown, how).await;
                called.give_back(answer.is_err());
                self.called(Hook::Pre, began, &version);
                answer
            }
            Err(error) => Err(error),
        };
        drop(shown);
        let (action, new_scratch) = match called {
            Ok(Ok(answer)) => answer,
            Ok(Err(refused)) => return Err(self.refused(refused)),
            Err(error) => return self.failed(error.fault, error.what, inputs),
        };
        let checked = self.checked_plan(&version, action, &inputs).and_then(|plan| {
            let kept = checked_scratch(&version.manifest, facts, new_scratch).map_err(PlanFault::Guest)?;
            Ok((plan, kept))
        });
        match checked {
            Ok((plan, kept)) => {
                *scratch = kept.unwrap_or_else(|| scratch.clone());
                Ok(plan)
            }
            Err(PlanFault::Guest(what)) => self.failed(CallFault::Trap, format!("pre {what}"), inputs),
            Err(PlanFault::Request(what)) => Err(self.wrong_request(&what)),
            Err(PlanFault::TooLarge(what)) => Err(self.too_large(&what)),
        }
    }

    fn checked_plan(
        &self,
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
        if self.site.options.is_model {
            return broken("answered runs, and a model without a graph has none".to_owned());
        }
        if entries.is_empty() {
            return broken(format!("answered 0 runs; a request has 1 to {RUNS}"));
        }
        if entries.len() > RUNS {
            return Err(PlanFault::TooLarge(format!("{} runs; the maximum is {RUNS}", entries.len())));
        }
        let inner = &self.site.inner.inputs;
        let passed = if inputs.is_empty() { vec![None; inner.len()] } else { version.pass(inputs) };
        // An input that passes by is the same memory in every run.
        let (mut known, mut bytes) = (KnownMemory::of(inputs), 0);
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

    /// Whether inputs of a request that pass by fit what is behind. That is up to the client, so it is no strike.
    fn check_request(&self, run: &PortTensors) -> Result<(), ProcessorRefusal> {
        check_passed(&self.site.inner.inputs, run).map_err(|what| self.wrong_request(&what))
    }

    fn wrong_request(&self, what: &str) -> ProcessorRefusal {
        let text = format!("an input does not fit the model behind: {what}");
        self.refusal(RefusedBy::Plugin { code: 1, text, retry: None })
    }

    /// The refusal of a request that needs too much. How much a request needs is up to the client, so it is no strike.
    pub(super) fn too_large(&self, what: &str) -> ProcessorRefusal {
        let text = format!("the request needs {what}. Send less in one request");
        self.refusal(RefusedBy::Plugin { code: 1, text, retry: None })
    }

    /// The request without this processor.
    fn bypass(&self, inputs: PortTensors) -> Result<LinkPlan, ProcessorRefusal> {
        self.site.metrics.fell_back();
        self.health.bypassed();
        // An END without inputs stays one.
        if inputs.is_empty() {
            return Ok(LinkPlan::Bypass(inputs));
        }
        let places = self.site.inner.inputs.iter().map(|port| place(&self.outer.inputs, &port.name));
        let run: PortTensors = places.map(|at| at.and_then(|at| inputs.get(at)?.clone())).collect();
        self.check_request(&run)?;
        Ok(LinkPlan::Bypass(run))
    }

    // === after the runs ===

    /// Finishes a request from inner's outputs of each run. `scratch` is changed only if this is `Ok`.
    pub(super) async fn post(
        &self,
        version: &LinkVersion,
        facts: &CallFacts,
        scratch: &mut Bytes,
        runs: &[PortTensors],
    ) -> Result<PortTensors, ProcessorRefusal> {
        // Nothing ran: an END without inputs.
        if runs.iter().all(Vec::is_empty) {
            return Ok(PortTensors::new());
        }
        let manifest = &version.manifest;
        if !manifest.post {
            let joined = self.joined(manifest, runs, PortTensors::new());
            return joined.map_err(|what| self.failure(CallFault::Trap, what));
        }
        let shown: Vec<Vec<(u32, &Tensor)>> =
            runs.iter().map(|run| shown(manifest, &self.site.inner.outputs, run)).collect();
        let bytes = shown.iter().flatten().map(|(_, tensor)| tensor.data.len()).sum::<usize>() + scratch.len();
        let passing = self.passing(manifest, bytes);
        let called = match version.guest().await {
            Ok(mut called) => {
                let (how, began) = ((passing, self.outgoing(facts)), Instant::now());
                let answer = calls::post(called.guest(), facts, scratch, &shown, how).await;
                called.give_back(answer.is_err());
                self.called(Hook::Post, began, version);
                answer
            }
            Err(error) => Err(error),
        };
        drop(shown);
        let (fault, what) = match called {
            Ok(Ok((outputs, new_scratch))) => match self.finished(manifest, facts, runs, outputs) {
                Ok(outputs) => match checked_scratch(manifest, facts, new_scratch) {
                    Ok(kept) => {
                        *scratch = kept.unwrap_or_else(|| scratch.clone());
                        return Ok(outputs);
                    }
                    Err(what) => (CallFault::Trap, format!("post {what}")),
                },
                Err(what) => (CallFault::Trap, format!("post {what}")),
            },
            Ok(Err(refused)) => return Err(self.refused(refused)),
            Err(error) => (error.fault, error.what),
        };
        let failure = self.failure(fault, what);
        if self.site.options.on_failure == OnFailure::Fail {
            return Err(failure);
        }
        self.site.metrics.fell_back();
        self.health.bypassed();
        self.bypassed(runs)
    }

    /// The answer of `post`, checked and completed.
    fn finished(
        &self,
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

    /// Outputs of several runs of inner, passed on as if the processor were not there. If they cannot be joined, the model made them so: it is no
    /// strike.
    pub(super) fn bypassed(&self, runs: &[PortTensors]) -> Result<PortTensors, ProcessorRefusal> {
        let mut all = PortTensors::new();
        for port in &self.outer.outputs {
            let at = place(&self.site.inner.outputs, &port.name);
            all.push(join_runs(runs, at).map_err(|what| self.refusal(RefusedBy::Failure { what }))?);
        }
        Ok(all)
    }

    /// What `post` gave, and inner's outputs that it did not see, joined over the runs.
    fn joined(
        &self,
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
                None if !is_seen => join_runs(runs, place(&self.site.inner.outputs, &port.name))
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

    fn passing(&self, manifest: &ProcessorManifest, bytes: usize) -> Passing {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let limit = self.site.options.limits.time + PER_KIB.saturating_mul(kib);
        Passing { by_value: manifest.by_value, limit, kib }
    }

    /// The calls to other models that a guest may make for this request.
    fn outgoing(&self, facts: &CallFacts) -> Option<OutgoingCalls> {
        let (rights, request) = (self.site.options.calls.clone()?, facts.calling.clone()?);
        Some(OutgoingCalls { rights, request })
    }

    /// The models that its guests may call.
    pub(super) fn may_call(&self) -> &[String] {
        self.site.options.calls.as_ref().map_or(&[], |rights| &rights.models)
    }

    /// Ends the guests that nothing has used since the last time.
    pub(crate) fn release_unused(&self) {
        self.current.load().release_unused();
    }

    fn called(&self, hook: Hook, began: Instant, version: &LinkVersion) {
        let took = began.elapsed();
        self.site.metrics.called(hook, took);
        self.health.called(took, version.memory().0);
    }

    pub(super) fn refusal(&self, why: RefusedBy) -> ProcessorRefusal {
        ProcessorRefusal::new(&self.name, why)
    }

    fn refused(&self, refused: GuestRefusal) -> ProcessorRefusal {
        let GuestRefusal { code, text, retry, ends } = refused;
        ProcessorRefusal { ends, ..self.refusal(RefusedBy::Plugin { code, text, retry }) }
    }

    /// A processor failed before the runs: refuses the request, or lets it go on without the processor.
    pub(super) fn failed(
        &self,
        fault: CallFault,
        what: String,
        inputs: PortTensors,
    ) -> Result<LinkPlan, ProcessorRefusal> {
        if fault == CallFault::Full {
            return self.unavailable(what, inputs);
        }
        let failure = self.failure(fault, what);
        if self.site.options.on_failure == OnFailure::Fail { Err(failure) } else { self.bypass(inputs) }
    }

    /// The request, while the processor cannot be called. No strike.
    fn unavailable(&self, what: String, inputs: PortTensors) -> Result<LinkPlan, ProcessorRefusal> {
        match self.site.options.on_failure {
            OnFailure::Bypass => self.bypass(inputs),
            OnFailure::Fail => Err(self.refusal(RefusedBy::Unavailable { what })),
        }
    }

    /// Counts a strike, and says what failed. Without room for an instance there is no strike.
    pub(super) fn failure(&self, fault: CallFault, what: String) -> ProcessorRefusal {
        if fault == CallFault::Full {
            return self.refusal(RefusedBy::Unavailable { what });
        }
        let word = match fault {
            CallFault::Trap => "trap",
            CallFault::Time => "time",
            CallFault::Memory | CallFault::Full => "memory",
        };
        self.site.metrics.struck(word);
        let bypasses = self.site.options.on_failure == OnFailure::Bypass;
        self.health.struck(&self.journal, &self.site.facts.name, (word, &what), bypasses, SystemTime::now());
        self.refusal(RefusedBy::Failure { what })
    }
}

/// The scratch to keep; nothing, where there is no sequence.
fn checked_scratch(
    manifest: &ProcessorManifest,
    facts: &CallFacts,
    scratch: Option<Vec<u8>>,
) -> Result<Option<Bytes>, String> {
    let Some(scratch) = scratch.filter(|_| facts.sequence != 0) else { return Ok(None) };
    let (len, most) = (scratch.len() as u64, manifest.scratch);
    if len > most {
        return Err(format!("left {len} bytes of scratch; plugin.toml says {most}"));
    }
    // The unused part of a larger allocation is not kept.
    Ok(Some(Bytes::from(scratch.into_boxed_slice())))
}
