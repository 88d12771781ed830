//! The initializer of a load: its guests, what it sees of a START, its limits, and what happens if it fails.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sequor_wasm::call_error::{CallError, CallFault};
use sequor_wasm::instances::GuestPool;
use sequor_wasm::limits::{Limits, is_full};
use sequor_wasm::services::Services;
use sequor_wasm::strikes::{Strikes, WINDOW};

use super::calls::{self, InitializeAnswer};
use super::manifest::InitializerManifest;
use super::ports::InitializerPorts;
use super::world::{InitializerComponent, InitializerGuest};
use crate::config::fault::did_you_mean;
use crate::processing::calls::{CallFacts, GuestRefusal, LoadFacts, Passing};
use crate::processing::files::ProcessorFile;
use crate::processing::fit::placed;
use crate::processing::health::ProcessorClock;
use crate::processing::ports::{PortTensors, place};
use crate::processing::tensors::HeldTensors;
use crate::processing::{ProcessorRefusal, RefusedBy};
use crate::telemetry::{Hook, PluginMetrics};
use crate::tensor::Tensor;

/// CPU time of a call beyond its base, for each KiB that the call is about.
const PER_KIB: Duration = Duration::from_micros(20);
/// Maximum number of steps.
const STEPS: usize = 4096;
/// Maximum bytes of the inputs of all steps.
const STEP_BYTES: usize = 256 << 20;
/// Maximum bytes of the name that states are kept under.
const NAME: usize = 256;
/// How refusals call an initializer.
const WORLD: &str = "initializer";

/// What the server's settings say about all initializers.
#[derive(Debug, Clone, Default)]
pub struct InitializerRules {
    /// The plug-in folder.
    pub dir: Option<PathBuf>,
    /// Whether a model's file must name the hash of its initializer.
    pub require_sha256: bool,
    /// Maximum bytes of memory of a guest, if the model names none.
    pub memory: Option<u64>,
    /// Strikes within a minute that park an initializer.
    pub strikes: u32,
}

/// How a model uses an initializer.
#[derive(Debug, Clone)]
pub struct InitializerOptions {
    /// JSON, a table.
    pub config: String,
    /// CPU time of a call without tensors, and memory of a guest.
    pub limits: Limits,
    pub files: Vec<ProcessorFile>,
    /// Strikes within a minute that park it.
    pub strikes: u32,
}

/// An initializer that a model names, ready to be configured.
pub struct InitializerSource {
    pub name: String,
    pub component: Arc<InitializerComponent>,
    pub options: InitializerOptions,
    pub services: Arc<dyn Services>,
    pub metrics: Arc<PluginMetrics>,
    pub clock: ProcessorClock,
}

/// An answer of the plug-in, checked.
#[derive(Debug, PartialEq)]
pub enum FirstAnswer {
    /// What config.pbtxt says.
    Default,
    /// Values by the places of the states; `None` is what config.pbtxt says.
    States(PortTensors),
    /// A copy of the state of the sequence with this id.
    CopyOf(String),
    /// The states that the steps of this name lead to.
    Kept(String),
}

/// The initializer of a load.
#[derive(Debug)]
pub struct Initializer {
    pub name: String,
    ports: InitializerPorts,
    manifest: InitializerManifest,
    time: Duration,
    guests: GuestPool<WarmInitializer>,
    metrics: Arc<PluginMetrics>,
    clock: ProcessorClock,
    /// So many strikes within a minute park it.
    most: u32,
    standing: Mutex<Standing>,
}

/// Its strikes, and why it is parked, if it is.
#[derive(Debug, Default)]
struct Standing {
    strikes: Strikes,
    parked: Option<String>,
}

/// A configured guest.
#[derive(Debug)]
struct WarmInitializer {
    guest: InitializerGuest,
    /// Bytes of its memory once it was configured.
    at_start: u64,
    /// Bytes of the files that it may keep.
    files: u64,
}

impl Initializer {
    /// Configures an initializer. `guests` is the maximum number of its guests. The error is a sentence.
    pub fn new(
        source: InitializerSource,
        facts: &LoadFacts,
        ports: InitializerPorts,
        guests: usize,
    ) -> Result<Initializer, String> {
        let InitializerSource { name, component, options, services, metrics, clock } = source;
        let most = options.strikes.max(1);
        let manifest = component.declared().manifest.clone();
        for read in &manifest.reads {
            if place(&ports.request, read).is_none() {
                let near = did_you_mean(read, ports.request.iter().map(|port| port.name.as_str()));
                return Err(format!("reads names \"{read}\", which is no input of requests{near}"));
            }
        }
        let time = options.limits.time;
        let (facts, of_model) = (facts.clone(), ports.clone());
        let count = Arc::clone(&metrics);
        let start = move || {
            let began = Instant::now();
            let started = WarmInitializer::start(&component, &services, &options, &facts, &of_model);
            count.called(Hook::Configure, began.elapsed());
            started
        };
        let pool = GuestPool::new(guests, start).recycling(WarmInitializer::is_spent);
        // The first START finds a guest.
        pool.call(|_| Ok(())).map_err(|e| e.what)?;
        Ok(Initializer { name, ports, manifest, time, guests: pool, metrics, clock, most, standing: Mutex::default() })
    }

    /// Asks what the sequence of a START begins with.
    pub fn initialize(&self, facts: &CallFacts, inputs: &PortTensors) -> Result<FirstAnswer, ProcessorRefusal> {
        if let Some(what) = self.parked() {
            return Err(self.refused_by(RefusedBy::Unavailable { what }));
        }
        let (facts, shown) = (for_guest(facts), self.shown(inputs));
        let passing = self.passing(&shown);
        let began = Instant::now();
        let called = self.guests.call(|warm| calls::initialize(&mut warm.guest, &facts, &shown, passing));
        self.metrics.called(Hook::Initialize, began.elapsed());
        match self.answered(called)? {
            InitializeAnswer::Default => Ok(FirstAnswer::Default),
            InitializeAnswer::States(given) => placed(&self.ports.states, given)
                .map(FirstAnswer::States)
                .map_err(|what| self.failure(CallFault::Trap, format!("initialize {what}"))),
            InitializeAnswer::CopyOf(id) => Ok(FirstAnswer::CopyOf(id)),
            InitializeAnswer::Kept(name) if name.len() > NAME => {
                let what = format!("initialize answered a name of {} bytes; the maximum is {NAME}", name.len());
                Err(self.failure(CallFault::Trap, what))
            }
            InitializeAnswer::Kept(name) => Ok(FirstAnswer::Kept(name)),
        }
    }

    /// Asks for the steps of a name: the inputs of each.
    pub fn steps(
        &self,
        name: &str,
        facts: &CallFacts,
        inputs: &PortTensors,
    ) -> Result<Vec<PortTensors>, ProcessorRefusal> {
        let (facts, shown) = (for_guest(facts), self.shown(inputs));
        let passing = self.passing(&shown);
        let began = Instant::now();
        let called = self.guests.call(|warm| calls::steps(&mut warm.guest, name, &facts, &shown, passing));
        self.metrics.called(Hook::Steps, began.elapsed());
        let given = self.answered(called)?;
        self.checked_steps(given).map_err(|what| self.failure(CallFault::Trap, format!("steps {what}")))
    }

    fn checked_steps(&self, given: Vec<Vec<(usize, Tensor)>>) -> Result<Vec<PortTensors>, String> {
        if given.is_empty() || given.len() > STEPS {
            return Err(format!("answered {} steps; there may be 1 to {STEPS}", given.len()));
        }
        let (mut steps, mut bytes) = (Vec::with_capacity(given.len()), 0usize);
        for (n, given) in given.into_iter().enumerate() {
            let step = placed(&self.ports.step, given).map_err(|what| format!("answered step {n}: {what}"))?;
            for (tensor, port) in step.iter().zip(&self.ports.step) {
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
    fn shown<'a>(&self, inputs: &'a PortTensors) -> Vec<(u32, &'a Tensor)> {
        let each = (0u32..).zip(&self.ports.request).zip(inputs);
        each.filter(|((_, port), _)| self.manifest.reads.contains(&port.name))
            .filter_map(|((n, _), tensor)| Some((n, tensor.as_ref()?)))
            .collect()
    }

    fn passing(&self, shown: &[(u32, &Tensor)]) -> Passing {
        let bytes: usize = shown.iter().map(|(_, tensor)| tensor.data.len()).sum();
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        Passing { by_value: self.manifest.by_value, limit: self.time + PER_KIB.saturating_mul(kib), kib }
    }

    fn answered<T>(&self, called: Result<Result<T, GuestRefusal>, CallError>) -> Result<T, ProcessorRefusal> {
        match called {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(refused)) => Err(refused.by(WORLD, &self.name)),
            Err(error) => Err(self.failure(error.fault, error.what)),
        }
    }

    fn failure(&self, fault: CallFault, what: String) -> ProcessorRefusal {
        let kind = match fault {
            CallFault::Trap => "trap",
            CallFault::Time => "time",
            CallFault::Memory => "memory",
        };
        self.metrics.struck(kind);
        let mut standing = self.standing.lock();
        let strikes = standing.strikes.add(Duration::from_nanos(self.clock.now().0));
        let parks = strikes >= self.most && standing.parked.is_none();
        if parks {
            let why =
                format!("{} is parked after {strikes} strikes in {} s ({kind}: {what})", self.name, WINDOW.as_secs());
            standing.parked = Some(why);
        }
        drop(standing);
        tracing::warn!(plugin = self.name, strikes, parks, "a call failed: {what}");
        self.refusal(what)
    }

    /// Why it refuses all STARTs, if it does. A load of the model ends that.
    pub fn parked(&self) -> Option<String> {
        self.standing.lock().parked.clone()
    }

    /// The refusal of a START whose answer the server cannot follow.
    pub fn refusal(&self, what: String) -> ProcessorRefusal {
        self.refused_by(RefusedBy::Failure { what })
    }

    fn refused_by(&self, why: RefusedBy) -> ProcessorRefusal {
        ProcessorRefusal { world: WORLD, ..ProcessorRefusal::new(&self.name, why) }
    }
}

/// A guest is not shown what belongs to processors.
fn for_guest(facts: &CallFacts) -> CallFacts {
    CallFacts { outputs: Vec::new(), ..facts.clone() }
}

impl WarmInitializer {
    fn start(
        component: &InitializerComponent,
        services: &Arc<dyn Services>,
        options: &InitializerOptions,
        facts: &LoadFacts,
        ports: &InitializerPorts,
    ) -> Result<WarmInitializer, CallError> {
        let mut guest = component.guest(Arc::clone(services), options.limits)?;
        let configured = calls::configure(&mut guest, &options.config, facts, ports, &options.files)?;
        configured.map_err(|what| CallError { fault: CallFault::Trap, what })?;
        let files = options.files.iter().map(ProcessorFile::size).sum();
        let at_start = guest.memory_used();
        Ok(WarmInitializer { guest, at_start, files })
    }

    /// Whether another guest should take its place.
    fn is_spent(&mut self) -> bool {
        let WarmInitializer { guest, at_start, files } = self;
        let holds_too_much = guest.world_data::<HeldTensors>().is_ok_and(|held| held.is_too_much(*files));
        holds_too_much || is_full(*at_start, guest.memory_maximum(), guest.memory_used())
    }
}

impl fmt::Debug for InitializerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitializerSource").field("name", &self.name).finish_non_exhaustive()
    }
}
