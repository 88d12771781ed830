//! The initializer of a load: its guests, the inputs that it sees, its limits, and the handling of its failures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::journal::Journal;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::Services;

use super::calls::{self, InitializeAnswer};
use super::kept::KeptStates;
use super::manifest::InitializerManifest;
use super::ports::InitializerPorts;
use super::version::{InitializerOptions, InitializerSite, InitializerVersion};
use super::world::{InitializerComponent, InitializerGuest};
use crate::config::model::LoadFacts;
use crate::processing::calls::{CallFacts, GuestRefusal, Passing};
use crate::processing::fit::placed;
use crate::processing::health::{PlaceGauges, PlaceHealth, ProcessorClock};
use crate::processing::place::Misfit;
use crate::processing::ports::PortTensors;
use crate::processing::{ProcessorRefusal, RefusedBy};
use crate::telemetry::{Hook, PluginMetrics};
use crate::tensor::Tensor;

/// CPU time added to a call's base limit for each KiB of tensors.
const PER_KIB: Duration = Duration::from_micros(20);
/// Maximum number of steps.
const STEPS: usize = 4096;
/// Maximum bytes of the inputs of all steps.
const STEP_BYTES: usize = 256 << 20;
/// Maximum bytes of the name of kept states.
const NAME: usize = 256;
/// The word for an initializer in refusals.
const WORLD: &str = "initializer";

/// An initializer of a model, ready to be configured.
pub struct InitializerSource {
    pub name: String,
    pub component: Arc<InitializerComponent>,
    pub options: InitializerOptions,
    pub services: Arc<dyn Services>,
    pub metrics: Arc<PluginMetrics>,
    pub journal: Arc<Journal>,
    pub clock: ProcessorClock,
    /// The table of the states that its steps produce.
    pub kept: Arc<KeptStates>,
    pub purpose: RoomPurpose,
}

/// A checked answer of the plug-in.
#[derive(Debug, PartialEq)]
pub enum FirstAnswer {
    /// The initial state of config.pbtxt.
    Default,
    /// Values by the index of the state. `None` is the initial state of config.pbtxt.
    States(PortTensors),
    /// A copy of the state of the sequence with this id.
    CopyOf(String),
    /// The states that the steps of this name produce.
    Kept(KeptName),
}

/// A name of kept states, with the version of the plug-in that answered it. Another version may give other steps for the name.
#[derive(Debug, Clone)]
pub struct KeptName {
    name: String,
    version: Arc<InitializerVersion>,
}

impl KeptName {
    pub(super) fn new(name: String, version: Arc<InitializerVersion>) -> KeptName {
        KeptName { name, version }
    }

    /// The name that the plug-in answered. States of the empty name are not kept.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of the kept states.
    pub fn key(&self) -> String {
        let version = self.version.sha256.get(..16).unwrap_or_default();
        format!("{version}/{}", self.name)
    }
}

impl PartialEq for KeptName {
    fn eq(&self, other: &KeptName) -> bool {
        self.key() == other.key()
    }
}

/// The initializer of a load.
#[derive(Debug)]
pub struct Initializer {
    pub name: String,
    pub kept: Arc<KeptStates>,
    pub(super) site: Arc<InitializerSite>,
    pub(super) journal: Arc<Journal>,
    pub(super) current: ArcSwap<InitializerVersion>,
    pub(super) health: PlaceHealth,
    /// Whether the load takes no more new sequences.
    pub(super) retired: AtomicBool,
}

impl Initializer {
    /// Configures an initializer. `guests` is the maximum number of its guests.
    pub fn new(
        source: InitializerSource,
        facts: &LoadFacts,
        ports: InitializerPorts,
        guests: usize,
    ) -> Result<Initializer, Misfit> {
        let InitializerSource { name, component, options, services, metrics, journal, clock, kept, purpose } = source;
        let gauges = PlaceGauges::new(metrics.memory_at(&facts.name), metrics.parked_at(&facts.name));
        let health = PlaceHealth::new(clock, options.strikes, gauges);
        let site = Arc::new(InitializerSite { facts: facts.clone(), ports, options, services, metrics, guests });
        let current = ArcSwap::from_pointee(InitializerVersion::start(&component, &site, purpose)?);
        Ok(Initializer { name, kept, site, journal, current, health, retired: AtomicBool::new(false) })
    }

    /// Guests that did not stay after a call.
    pub fn replaced(&self) -> ReplacedGuests {
        self.current.load().replaced()
    }

    /// Asks for the first state of the sequence of a START.
    pub fn initialize(&self, facts: &CallFacts, inputs: &PortTensors) -> Result<FirstAnswer, ProcessorRefusal> {
        if let Some(what) = self.parked() {
            return Err(self.refused_by(RefusedBy::Unavailable { what }));
        }
        let version = self.current.load_full();
        let (facts, shown) = (for_guest(facts), self.shown(&version.manifest, inputs));
        let passing = self.passing(&version.manifest, &shown);
        let called = self.call(Hook::Initialize, &version, |guest| calls::initialize(guest, &facts, &shown, passing));
        match self.answered(called)? {
            InitializeAnswer::Default => Ok(FirstAnswer::Default),
            InitializeAnswer::States(given) => placed(&self.site.ports.states, given)
                .map(FirstAnswer::States)
                .map_err(|what| self.failure(CallFault::Trap, format!("initialize {what}"))),
            InitializeAnswer::CopyOf(id) => Ok(FirstAnswer::CopyOf(id)),
            InitializeAnswer::Kept(name) if name.len() > NAME => {
                let what = format!("initialize answered a name of {} bytes; the maximum is {NAME}", name.len());
                Err(self.failure(CallFault::Trap, what))
            }
            InitializeAnswer::Kept(name) => Ok(FirstAnswer::Kept(KeptName::new(name, version))),
        }
    }

    /// Asks the version that answered a name for the steps of that name: the inputs of each.
    pub fn steps(
        &self,
        KeptName { name, version }: &KeptName,
        facts: &CallFacts,
        inputs: &PortTensors,
    ) -> Result<Vec<PortTensors>, ProcessorRefusal> {
        let (facts, shown) = (for_guest(facts), self.shown(&version.manifest, inputs));
        let passing = self.passing(&version.manifest, &shown);
        let called = self.call(Hook::Steps, version, |guest| calls::steps(guest, name, &facts, &shown, passing));
        let given = self.answered(called)?;
        self.checked_steps(given).map_err(|what| self.failure(CallFault::Trap, format!("steps {what}")))
    }

    fn checked_steps(&self, given: Vec<Vec<(usize, Tensor)>>) -> Result<Vec<PortTensors>, String> {
        if given.is_empty() || given.len() > STEPS {
            return Err(format!("answered {} steps; there may be 1 to {STEPS}", given.len()));
        }
        let (mut steps, mut bytes) = (Vec::with_capacity(given.len()), 0usize);
        for (n, given) in given.into_iter().enumerate() {
            let step = placed(&self.site.ports.step, given).map_err(|what| format!("answered step {n}: {what}"))?;
            for (tensor, port) in step.iter().zip(&self.site.ports.step) {
                if tensor.is_none() && !port.optional {
                    return Err(format!("answered step {n} without \"{}\"", port.name));
                }
                bytes += tensor.as_ref().map_or(0, |tensor| tensor.data.len());
            }
            steps.push(step);
        }
        if bytes > STEP_BYTES {
            return Err(format!("answered steps of {bytes} bytes; the maximum is {STEP_BYTES}"));
        }
        Ok(steps)
    }

    /// The inputs that the plug-in sees.
    fn shown<'a>(&self, manifest: &InitializerManifest, inputs: &'a PortTensors) -> Vec<(u32, &'a Tensor)> {
        let each = (0u32..).zip(&self.site.ports.request).zip(inputs);
        each.filter(|((_, port), _)| manifest.reads.contains(&port.name))
            .filter_map(|((n, _), tensor)| Some((n, tensor.as_ref()?)))
            .collect()
    }

    fn passing(&self, manifest: &InitializerManifest, shown: &[(u32, &Tensor)]) -> Passing {
        let bytes: usize = shown.iter().map(|(_, tensor)| tensor.data.len()).sum();
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let limit = self.site.options.limits.time + PER_KIB.saturating_mul(kib);
        Passing { by_value: manifest.by_value, limit, kib }
    }

    /// Ends the guests that were not used since the last call.
    pub fn release_unused(&self) {
        self.current.load().release_unused();
    }

    /// Ends the free guests, except one.
    pub fn release_free(&self) {
        self.current.load().release_free();
    }

    /// Makes one call with a free guest, and counts it. Its time contains neither the wait for a guest nor the guest's start.
    fn call<T>(
        &self,
        hook: Hook,
        version: &InitializerVersion,
        call: impl FnOnce(&mut InitializerGuest) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        version.call(|guest| {
            let began = Instant::now();
            let answer = call(guest);
            let took = began.elapsed();
            self.site.metrics.called(hook, took);
            self.health.called(took, guest.memory_used());
            answer
        })
    }

    fn answered<T>(&self, called: Result<Result<T, GuestRefusal>, CallError>) -> Result<T, ProcessorRefusal> {
        match called {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refused)) => Err(refused.by(WORLD, &self.name)),
            Err(CallError { fault: CallFault::Full, what }) => Err(self.refused_by(RefusedBy::Unavailable { what })),
            Err(error) => Err(self.failure(error.fault, error.what)),
        }
    }

    fn failure(&self, fault: CallFault, what: String) -> ProcessorRefusal {
        let kind = match fault {
            CallFault::Trap => "trap",
            CallFault::Time => "time",
            CallFault::Memory | CallFault::Full => "memory",
        };
        self.site.metrics.add_strike(kind);
        self.health.add_strike(&self.journal, &self.site.facts.name, (kind, &what), false, SystemTime::now());
        self.refusal(what)
    }

    /// The reason why the initializer refuses all STARTs; `None` if it does not.
    pub fn parked(&self) -> Option<String> {
        self.health.parked()
    }

    /// Records that the load takes no more new sequences. Drops the kept states.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.kept.clear();
    }

    /// The refusal of a START because the server cannot use the plug-in's answer.
    pub fn refusal(&self, what: String) -> ProcessorRefusal {
        self.refused_by(RefusedBy::Failure { what })
    }

    /// The refusal of a START in the plug-in's name, with a code of the contract.
    pub fn refusal_with(&self, code: u32, text: String) -> ProcessorRefusal {
        self.refused_by(RefusedBy::Plugin { code, text, retry: None })
    }

    /// The refusal of a START because of a lack of capacity.
    pub fn unavailable(&self, what: String) -> ProcessorRefusal {
        self.refused_by(RefusedBy::Unavailable { what })
    }

    fn refused_by(&self, why: RefusedBy) -> ProcessorRefusal {
        ProcessorRefusal { world: WORLD, ..ProcessorRefusal::new(&self.name, why) }
    }
}

/// Removes the facts that only processors get.
fn for_guest(facts: &CallFacts) -> CallFacts {
    CallFacts { outputs: Vec::new(), ..facts.clone() }
}

impl fmt::Debug for InitializerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitializerSource").field("name", &self.name).finish_non_exhaustive()
    }
}
