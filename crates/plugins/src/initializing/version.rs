//! One version of an initializer at its model: its guests and the calls to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::{GuestPool, ReplacedGuests};
use sequor_wasm::limits::{Limits, is_full};
use sequor_wasm::room::{RoomPurpose, RoomTicket};
use sequor_wasm::services::Services;

use super::calls;
use super::manifest::InitializerManifest;
use super::ports::InitializerPorts;
use super::world::{InitializerComponent, InitializerGuest};
use crate::config::fault::did_you_mean;
use crate::config::model::LoadFacts;
use crate::processing::files::ProcessorFile;
use crate::processing::place::Misfit;
use crate::processing::ports::place;
use crate::processing::tensors::HeldTensors;
use crate::processing::version::{CountedInstance, check_features};
use crate::telemetry::{Hook, PluginMetrics};

/// The options of an initializer at a model.
#[derive(Debug, Clone)]
pub struct InitializerOptions {
    /// Settings of the plug-in: a table, as JSON.
    pub config: String,
    /// CPU time of a call without tensors, and memory of a guest.
    pub limits: Limits,
    pub files: Vec<ProcessorFile>,
    /// Number of strikes within a minute that park the initializer.
    pub strikes: u32,
}

/// A load of a model: the data that configures every version there.
#[derive(Debug)]
pub(super) struct InitializerSite {
    pub(super) facts: LoadFacts,
    pub(super) ports: InitializerPorts,
    pub(super) options: InitializerOptions,
    pub(super) services: Arc<dyn Services>,
    pub(super) metrics: Arc<PluginMetrics>,
    /// Maximum number of guests.
    pub(super) guests: usize,
}

/// A version of an initializer, configured.
#[derive(Debug)]
pub struct InitializerVersion {
    pub(super) sha256: String,
    pub(super) manifest: InitializerManifest,
    guests: GuestPool<WarmInitializer>,
    /// Bytes of memory that the most recently called guest uses, and its maximum.
    memory: AtomicU64,
    memory_maximum: AtomicU64,
}

/// A configured guest.
#[derive(Debug)]
struct WarmInitializer {
    guest: InitializerGuest,
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

impl InitializerVersion {
    /// Configures a version, in a share of its own.
    pub(super) fn start(
        component: &Arc<InitializerComponent>,
        site: &Arc<InitializerSite>,
        purpose: RoomPurpose,
    ) -> Result<InitializerVersion, Misfit> {
        let manifest = component.declared().manifest.clone();
        check_features(&manifest.features, &site.facts)?;
        for read in &manifest.reads {
            if place(&site.ports.request, read).is_none() {
                let near = did_you_mean(read, site.ports.request.iter().map(|port| port.name.as_str()));
                return Err(format!("reads names \"{read}\", which is no input of requests{near}").into());
            }
        }
        let (sha256, component, of) = (component.sha256().to_owned(), Arc::clone(component), Arc::clone(site));
        let share = component.open_share(purpose)?;
        let start = move || WarmInitializer::start(&component, &of, share.ticket()?);
        let guests = GuestPool::new(site.guests, start).recycling(WarmInitializer::is_spent);
        // Starts the first guest, so that the first START does not have to.
        let at_start = guests.call(|warm| Ok((warm.guest.memory_used(), warm.guest.memory_maximum())));
        let (used, maximum) = at_start?;
        let (memory, memory_maximum) = (AtomicU64::new(used), AtomicU64::new(maximum));
        Ok(InitializerVersion { sha256, manifest, guests, memory, memory_maximum })
    }

    /// Makes one call with a free guest.
    pub(super) fn call<T>(
        &self,
        call: impl FnOnce(&mut InitializerGuest) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        self.guests.call(|warm| {
            let answer = call(&mut warm.guest);
            self.memory.store(warm.guest.memory_used(), Ordering::Relaxed);
            answer
        })
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

    /// Bytes of memory that the most recently called guest uses, and its maximum.
    pub(super) fn memory(&self) -> (u64, u64) {
        (self.memory.load(Ordering::Relaxed), self.memory_maximum.load(Ordering::Relaxed))
    }
}

impl WarmInitializer {
    fn start(
        component: &InitializerComponent,
        site: &InitializerSite,
        room: RoomTicket,
    ) -> Result<WarmInitializer, CallError> {
        let InitializerSite { facts, ports, options, services, metrics, .. } = site;
        let began = Instant::now();
        let mut guest = component.guest(Arc::clone(services), options.limits)?;
        let counted = CountedInstance::new(metrics.instances_at(&facts.name));
        let configured = calls::configure(&mut guest, &options.config, facts, ports, &options.files)?;
        metrics.called(Hook::Configure, began.elapsed());
        configured.map_err(|what| CallError { fault: CallFault::Trap, what })?;
        let files = options.files.iter().map(ProcessorFile::size).sum();
        let at_start = guest.memory_used();
        Ok(WarmInitializer { guest, at_start, files, counted, room })
    }

    /// Whether another guest should replace this one.
    fn is_spent(&mut self) -> bool {
        let WarmInitializer { guest, at_start, files, .. } = self;
        let holds_too_much = guest.world_data::<HeldTensors>().is_ok_and(|held| held.is_too_much(*files));
        holds_too_much || is_full(*at_start, guest.memory_maximum(), guest.memory_used())
    }
}
