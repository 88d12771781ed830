//! One version of a processor at its position in a chain: its guests, and the tensors that bypass it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::limits::is_full;
use sequor_wasm::room::{RoomPurpose, RoomTicket};
use sequor_wasm::services::Services;

use super::calls;
use super::files::ProcessorFile;
use super::fit::{check_outputs, passed};
use super::guests::{GuestQueue, GuestTurn};
use super::manifest::ProcessorManifest;
use super::place::Misfit;
use super::ports::{PortTensors, TensorPort, TensorSignature};
use super::source::{OnFailure, ProcessorOptions};
use super::tensors::HeldTensors;
use super::world::{ProcessorComponent, ProcessorGuest};
use crate::config::fault::did_you_mean;
use crate::config::model::LoadFacts;
use crate::telemetry::kinds::Gauge;
use crate::telemetry::{Hook, PluginMetrics};

/// A position in a chain: the data that configures every version there.
#[derive(Debug)]
pub(super) struct LinkSite {
    pub(super) facts: LoadFacts,
    pub(super) inner: TensorSignature,
    pub(super) options: ProcessorOptions,
    pub(super) services: Arc<dyn Services>,
    pub(super) metrics: Arc<PluginMetrics>,
    /// Maximum number of guests.
    pub(super) guests: usize,
}

/// A version of a processor, configured.
#[derive(Debug)]
pub struct LinkVersion {
    pub(super) sha256: String,
    pub(super) manifest: ProcessorManifest,
    guests: GuestQueue<WarmGuest>,
    /// For each inner input: the processor's input that goes to it, unless `pre` gives another tensor.
    passed: Vec<Option<usize>>,
    /// Bytes of memory that the most recently called guest uses, and its maximum.
    memory: AtomicU64,
    memory_maximum: AtomicU64,
}

/// A guest for one call. If it is dropped without [`CalledGuest::give_back`], the guest ends.
#[derive(Debug)]
pub(super) struct CalledGuest<'a> {
    turn: GuestTurn<'a, WarmGuest>,
    version: &'a LinkVersion,
}

impl CalledGuest<'_> {
    pub(super) fn guest(&mut self) -> &mut ProcessorGuest {
        &mut self.turn.guest().guest
    }

    /// Gives the guest back after a call. A guest whose call failed is not used again.
    pub(super) fn give_back(mut self, failed: bool) {
        self.version.memory.store(self.guest().memory_used(), Ordering::Relaxed);
        if failed { self.turn.end_failed() } else { self.turn.give_back() }
    }
}

/// A configured guest.
#[derive(Debug)]
struct WarmGuest {
    guest: ProcessorGuest,
    /// Bytes of the guest's memory right after `configure`.
    at_start: u64,
    /// Bytes of the files that the guest may keep.
    files: u64,
    #[allow(dead_code, reason = "only its drop matters")]
    counted: CountedInstance,
    /// Dropped after the guest.
    #[allow(dead_code, reason = "only its drop matters")]
    room: RoomTicket,
}

/// Counts an instance until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedInstance(Gauge);

impl CountedInstance {
    pub(crate) fn new(instances: Gauge) -> CountedInstance {
        instances.add(1);
        CountedInstance(instances)
    }
}

impl Drop for CountedInstance {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl LinkVersion {
    /// Configures a version, in a share of its own. Returns it with the signature that it shows in place of `inner`.
    pub(super) fn start(
        component: &Arc<ProcessorComponent>,
        site: &Arc<LinkSite>,
        purpose: RoomPurpose,
    ) -> Result<(LinkVersion, TensorSignature), Misfit> {
        let manifest = component.declared().manifest.clone();
        check_features(&manifest.features, &site.facts)?;
        let (share, of, sha256) = (component.open_share(purpose)?, Arc::clone(site), component.sha256().to_owned());
        let component = Arc::clone(component);
        let start = move || WarmGuest::start(&component, &of, share.ticket()?);
        let (warm, outer) = start()?;
        outer.check()?;
        if site.options.is_model {
            check_model(&manifest, &outer, &site.inner)?;
        }
        let expected = outer.clone();
        let start = move || {
            let (guest, is) = start()?;
            if is == expected {
                return Ok(guest);
            }
            let what = "configure answered another signature than before".to_owned();
            Err(CallError { fault: CallFault::Trap, what })
        };
        let guests = GuestQueue::new(site.guests, start, WarmGuest::is_spent);
        let (used, maximum) = (warm.guest.memory_used(), warm.guest.memory_maximum());
        guests.add(warm);
        let passed = passed(&manifest, &outer, &site.inner)?;
        check_outputs(&manifest, &outer, &site.inner)?;
        if site.options.on_failure == OnFailure::Bypass && !outer.is_like(&site.inner) {
            let what = "on_failure = \"bypass\" needs a processor whose inputs and outputs have the names and types of those behind it";
            return Err(what.to_owned().into());
        }
        let (memory, memory_maximum) = (AtomicU64::new(used), AtomicU64::new(maximum));
        Ok((LinkVersion { sha256, manifest, guests, passed, memory, memory_maximum }, outer))
    }

    /// Gets a guest for one call. Waits for its turn if all guests are in use.
    pub(super) async fn guest(&self) -> Result<CalledGuest<'_>, CallError> {
        Ok(CalledGuest { turn: self.guests.turn().await?, version: self })
    }

    /// Guests that did not stay after a call.
    pub(super) fn replaced(&self) -> ReplacedGuests {
        self.guests.replaced()
    }

    pub(super) fn release_unused(&self) {
        self.guests.release_unused();
    }

    pub(super) fn release_free(&self) {
        self.guests.release_free();
    }

    /// The inner inputs that come unchanged from the request.
    pub(super) fn pass(&self, inputs: &PortTensors) -> PortTensors {
        let of = |at: &Option<usize>| at.and_then(|at| inputs.get(at)?.clone());
        self.passed.iter().map(of).collect()
    }

    /// Bytes of memory that the most recently called guest uses, and its maximum.
    pub(super) fn memory(&self) -> (u64, u64) {
        (self.memory.load(Ordering::Relaxed), self.memory_maximum.load(Ordering::Relaxed))
    }
}

/// Checks that the model has the features that a plug-in needs.
pub(crate) fn check_features(needed: &[String], facts: &LoadFacts) -> Result<(), String> {
    let all = || facts.numbers.iter().chain(&facts.keys);
    match needed.iter().find(|feature| !all().any(|name| name == *feature)) {
        Some(feature) => {
            let near = did_you_mean(feature, all().map(String::as_str));
            Err(format!("it needs the feature \"{feature}\", which no [[feature]] names{near}"))
        }
        None => Ok(()),
    }
}

/// Checks that a plug-in can be the model that the configuration describes.
fn check_model(
    manifest: &ProcessorManifest,
    outer: &TensorSignature,
    configured: &TensorSignature,
) -> Result<(), String> {
    if !manifest.pre {
        return Err("it has no pre, which answers the requests of a model without a graph".to_owned());
    }
    for (what, is, declared) in
        [("inputs", &outer.inputs, &configured.inputs), ("outputs", &outer.outputs, &configured.outputs)]
    {
        let ports = |ports: &[TensorPort]| {
            ports.iter().map(|port| format!("{} {}", port.name, port.dtype)).collect::<Vec<_>>().join(", ")
        };
        let (is, declared) = (ports(is), ports(declared));
        if is != declared {
            return Err(format!("its {what} are {is}; config.pbtxt says {declared}"));
        }
    }
    Ok(())
}

impl WarmGuest {
    /// Starts and configures a guest. Returns it with the signature that it shows in place of `inner`.
    fn start(
        component: &ProcessorComponent,
        site: &LinkSite,
        room: RoomTicket,
    ) -> Result<(WarmGuest, TensorSignature), CallError> {
        let LinkSite { facts, inner, options, services, metrics, .. } = site;
        let began = Instant::now();
        let mut guest = component.guest(Arc::clone(services), options.limits)?;
        let counted = CountedInstance::new(metrics.instances_at(&facts.name));
        let configured = calls::configure(&mut guest, &options.config, facts, inner, &options.files)?;
        metrics.called(Hook::Configure, began.elapsed());
        let outer = configured.map_err(|what| CallError { fault: CallFault::Trap, what })?;
        let files = options.files.iter().map(ProcessorFile::size).sum();
        let at_start = guest.memory_used();
        Ok((WarmGuest { guest, at_start, files, counted, room }, outer))
    }

    /// Whether another guest should replace this one.
    fn is_spent(&mut self) -> bool {
        let WarmGuest { guest, at_start, files, .. } = self;
        let holds_too_much = guest.world_data::<HeldTensors>().is_ok_and(|held| held.is_too_much(*files));
        holds_too_much || is_full(*at_start, guest.memory_maximum(), guest.memory_used())
    }
}
