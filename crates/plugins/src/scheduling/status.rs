//! Creates a binding, and shows it to operators.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::model::LoadFacts;
use crate::sync::Mutex;
use sequor_core::LoadId;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::room;

use super::binding::{BindingOptions, Decider, Saved, SchedulerBinding};
use super::cpu_share::CpuShare;
use super::guest::Source;
use super::health::Health;
use super::key_interner::KeyInterner;
use super::port::SchedulerPort;
use super::recent::Recent;
use super::report::{Attached, BindingState};
use super::scheduler_host::{Alarm, Clock};
use crate::executor::InlineGate;
use crate::telemetry::{GaugePart, Meter, PluginMetrics};

/// Services that all bindings of a server share.
#[derive(Debug, Clone)]
pub struct BindingServices {
    pub clock: Arc<dyn Clock>,
    pub alarm: Arc<dyn Alarm>,
    pub texts: Arc<KeyInterner>,
    /// The folder for failed questions.
    pub rounds: Option<PathBuf>,
}

impl SchedulerBinding {
    /// A binding that does not decide until it is opened.
    pub fn new(
        shared: &BindingServices,
        (journal, metrics, source): (Arc<Journal>, Arc<PluginMetrics>, Arc<dyn Source>),
        facts: LoadFacts,
        port: Arc<SchedulerPort<Decider>>,
        options: BindingOptions,
    ) -> SchedulerBinding {
        let memory = GaugePart::new(metrics.memory_at(&facts.name));
        let parked = GaugePart::new(metrics.parked_at(&facts.name));
        SchedulerBinding {
            facts,
            port,
            clock: Arc::clone(&shared.clock),
            alarm: Arc::clone(&shared.alarm),
            journal,
            texts: Arc::clone(&shared.texts),
            memory,
            metrics,
            source: Mutex::new(source),
            health: Mutex::new(Health::new(options.shadow, options.strikes).shown_by(parked)),
            meter: Mutex::new(Meter::default()),
            cpu_share: CpuShare::new(options.cpu_share),
            inline_gate: InlineGate::default(),
            recent: Mutex::new(Recent::default()),
            saved: Mutex::new(Saved::default()),
            last_fault: Mutex::new(None),
            share: Mutex::new(None),
            making: Mutex::new(()),
            full: AtomicBool::new(false),
            unreported: AtomicBool::new(false),
            wrong: Mutex::default(),
            rounds: shared.rounds.clone(),
            from_file: AtomicBool::new(options.from_file),
            options,
        }
    }

    /// Whether its load still exists.
    pub fn is_there(&self) -> bool {
        self.port.is_there()
    }

    /// Records that a table of the model's file sets this binding up.
    pub fn is_saved(&self) {
        self.from_file.store(true, Ordering::Release);
    }

    pub fn plugin(&self) -> &str {
        self.journal.plugin()
    }

    pub fn model(&self) -> &str {
        &self.facts.name
    }

    pub fn load(&self) -> LoadId {
        self.port.load()
    }

    pub fn options(&self) -> &BindingOptions {
        &self.options
    }

    pub fn state(&self) -> BindingState {
        self.health.lock().state()
    }

    pub fn show(&self) -> Attached {
        let now = self.clock.now();
        let given = self.options.limits.memory.unwrap_or(room(0));
        let (memory, memory_limit) = self.active().map_or((0, given), |active| (active.memory(), active.memory_limit));
        let (state, strikes) = {
            let health = self.health.lock();
            (health.state(), health.strikes(now))
        };
        let meter = self.meter.lock();
        Attached {
            model: self.facts.name.clone(),
            version: self.facts.version,
            state,
            from_file: self.from_file.load(Ordering::Acquire),
            calls: meter.calls,
            calls_per_second: meter.per_second(now),
            p50_us: meter.quantile_us(0.5),
            p99_us: meter.quantile_us(0.99),
            fallbacks: meter.fallbacks,
            stale: meter.stale,
            strikes,
            last_fault: self.last_fault.lock().clone(),
            differs: self.options.shadow.then_some(meter.differs),
            memory,
            memory_limit,
            time_us: u64::try_from(self.options.limits.time.as_micros()).unwrap_or(u64::MAX),
            config: self.options.config.clone(),
        }
    }
}
