//! One processor of a load: the tensors that it sees, the checks of its answers, and the handling of its failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use sequor_wasm::call_error::CallFault;
use sequor_wasm::journal::Journal;

use super::calls::{self, CallFacts, GuestRefusal, Passing};
use super::fit::{check_passed, join_runs, shown};
use super::health::{PlaceGauges, PlaceHealth};
use super::link_answer::{LinkPlan, LinkPorts, PlanFault, checked_scratch};
use super::manifest::ProcessorManifest;
use super::outgoing::OutgoingCalls;
use super::place::Misfit;
use super::ports::{PortTensors, TensorSignature, place};
use super::refusal::{ProcessorRefusal, RefusedBy};
use super::source::{OnFailure, ProcessorSource};
use super::tensors::check_handles;
use super::version::{LinkSite, LinkVersion};
use crate::config::model::LoadFacts;
use crate::telemetry::Hook;
use crate::tensor::Tensor;

/// CPU time added to a call's base limit for each KiB of tensors and scratch.
const PER_KIB: Duration = Duration::from_micros(20);
/// A processor at its position in a chain.
#[derive(Debug)]
pub struct ChainLink {
    pub(super) name: String,
    pub(super) outer: TensorSignature,
    pub(super) site: Arc<LinkSite>,
    pub(super) journal: Arc<Journal>,
    pub(super) current: ArcSwap<LinkVersion>,
    pub(super) health: PlaceHealth,
    /// Whether the load takes no more new sequences.
    pub(super) retired: AtomicBool,
}

impl ChainLink {
    /// Configures a processor in front of `inner`. `guests` is the maximum number of its guests.
    pub(super) fn new(
        source: ProcessorSource,
        facts: &LoadFacts,
        inner: TensorSignature,
        guests: usize,
    ) -> Result<ChainLink, Misfit> {
        let ProcessorSource { name, component, options, services, metrics, journal, clock, purpose } = source;
        let gauges = PlaceGauges::new(metrics.memory_at(&facts.name), metrics.parked_at(&facts.name));
        let health = PlaceHealth::new(clock, options.strikes, gauges);
        let guests = options.instances.unwrap_or(guests);
        let site = Arc::new(LinkSite { facts: facts.clone(), inner, options, services, metrics, guests });
        let (version, answered) = LinkVersion::start(&component, &site, purpose)?;
        let outer = if site.options.is_model { site.inner.clone() } else { answered };
        let (current, retired) = (ArcSwap::from_pointee(version), AtomicBool::new(false));
        Ok(ChainLink { name, outer, site, journal, current, health, retired })
    }

    fn ports(&self) -> LinkPorts<'_> {
        LinkPorts { outer: &self.outer, inner: &self.site.inner, is_model: self.site.options.is_model }
    }

    pub(super) fn posts(&self) -> bool {
        self.current.load().manifest.post
    }

    /// Maximum bytes of scratch per sequence.
    pub(super) fn scratch_bytes(&self) -> u64 {
        self.current.load().manifest.scratch
    }

    /// The reason why the processor refuses requests, if it is parked and cannot be bypassed.
    pub(super) fn refuses(&self) -> Option<String> {
        self.health.parked().filter(|_| self.site.options.on_failure == OnFailure::Fail)
    }

    /// Records that the load takes no more new sequences.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    // === before the runs ===

    /// Prepares a request. `scratch` changes only if the result is `Ok`.
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
            // An END without inputs stays without inputs.
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
        let checked = self.ports().plan(&version, action, &inputs).and_then(|plan| {
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

    /// Checks the inputs that bypass the processor against the ports behind it. The client chooses them, so a mismatch is no strike.
    fn check_request(&self, run: &PortTensors) -> Result<(), ProcessorRefusal> {
        check_passed(&self.site.inner.inputs, run).map_err(|what| self.wrong_request(&what))
    }

    fn wrong_request(&self, what: &str) -> ProcessorRefusal {
        let text = format!("an input does not fit the model behind: {what}");
        self.refusal(RefusedBy::Plugin { code: 1, text, retry: None })
    }

    /// The refusal of a request that needs too much. The client decides that, so it is no strike.
    pub(super) fn too_large(&self, what: &str) -> ProcessorRefusal {
        let text = format!("the request needs {what}. Send less in one request");
        self.refusal(RefusedBy::Plugin { code: 1, text, retry: None })
    }

    /// Passes the request on without this processor.
    fn bypass(&self, inputs: PortTensors) -> Result<LinkPlan, ProcessorRefusal> {
        self.site.metrics.fell_back();
        self.health.bypassed();
        // An END without inputs stays without inputs.
        if inputs.is_empty() {
            return Ok(LinkPlan::Bypass(inputs));
        }
        let places = self.site.inner.inputs.iter().map(|port| place(&self.outer.inputs, &port.name));
        let run: PortTensors = places.map(|at| at.and_then(|at| inputs.get(at)?.clone())).collect();
        self.check_request(&run)?;
        Ok(LinkPlan::Bypass(run))
    }

    // === after the runs ===

    /// Finishes a request from the outputs of each run behind the processor. `scratch` changes only if the result is `Ok`.
    pub(super) async fn post(
        &self,
        version: &LinkVersion,
        facts: &CallFacts,
        scratch: &mut Bytes,
        runs: &[PortTensors],
    ) -> Result<PortTensors, ProcessorRefusal> {
        // An END without inputs: nothing ran.
        if runs.iter().all(Vec::is_empty) {
            return Ok(PortTensors::new());
        }
        let manifest = &version.manifest;
        if !manifest.post {
            let joined = self.ports().joined(manifest, runs, PortTensors::new());
            return joined.map_err(|what| self.failure(CallFault::Trap, what));
        }
        let shown: Vec<Vec<(u32, &Tensor)>> =
            runs.iter().map(|run| shown(manifest, &self.site.inner.outputs, run)).collect();
        let handed = check_handles(shown.iter().flatten().map(|(_, tensor)| *tensor), manifest.by_value);
        handed.map_err(|what| self.too_large(&what))?;
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
            Ok(Ok((outputs, new_scratch))) => match self.ports().outputs(manifest, facts, runs, outputs) {
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

    /// Passes on the outputs of all runs, as if the processor did not exist. If they cannot be joined, the model is the cause, so it is no
    /// strike.
    pub(super) fn bypassed(&self, runs: &[PortTensors]) -> Result<PortTensors, ProcessorRefusal> {
        let mut all = PortTensors::new();
        for port in &self.outer.outputs {
            let at = place(&self.site.inner.outputs, &port.name);
            all.push(join_runs(runs, at).map_err(|what| self.refusal(RefusedBy::Failure { what }))?);
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

    /// The models that the processor's guests may call.
    pub(super) fn may_call(&self) -> &[String] {
        self.site.options.calls.as_ref().map_or(&[], |rights| &rights.models)
    }

    /// Ends the guests that were not used since the last call.
    pub fn release_unused(&self) {
        self.current.load().release_unused();
    }

    /// Ends the free guests, except one.
    pub fn release_free(&self) {
        self.current.load().release_free();
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

    /// Handles a failure before the runs: refuses the request, or passes it on without the processor.
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

    /// Handles a request while the processor cannot be called. This is no strike.
    fn unavailable(&self, what: String, inputs: PortTensors) -> Result<LinkPlan, ProcessorRefusal> {
        match self.site.options.on_failure {
            OnFailure::Bypass => self.bypass(inputs),
            OnFailure::Fail => Err(self.refusal(RefusedBy::Unavailable { what })),
        }
    }

    /// Counts a strike, and returns the refusal. A lack of capacity for an instance is no strike.
    pub(super) fn failure(&self, fault: CallFault, what: String) -> ProcessorRefusal {
        if fault == CallFault::Full {
            return self.refusal(RefusedBy::Unavailable { what });
        }
        let word = match fault {
            CallFault::Trap => "trap",
            CallFault::Time => "time",
            CallFault::Memory | CallFault::Full => "memory",
        };
        self.site.metrics.add_strike(word);
        let bypasses = self.site.options.on_failure == OnFailure::Bypass;
        self.health.add_strike(&self.journal, &self.site.facts.name, (word, &what), bypasses, SystemTime::now());
        self.refusal(RefusedBy::Failure { what })
    }
}
