//! An attachment as it is made, and as operators are shown it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use sequor_core::Load;

use super::attachment::{Attachment, Saved, Terms};
use super::driver::{Alarm, Clock};
use super::guest::{ModelFacts, Source, room};
use super::health::Health;
use super::journal::Journal;
use super::load_link::LoadLink;
use super::meter::Meter;
use super::recent::Recent;
use super::report::{Attached, State};
use super::texts::Texts;
use crate::telemetry::{InlineGate, PluginMetrics};

/// What all attachments of a server share.
#[derive(Debug, Clone)]
pub struct Shared {
    pub clock: Arc<dyn Clock>,
    pub alarm: Arc<dyn Alarm>,
    pub texts: Arc<Texts>,
    /// Where questions that went wrong are written down.
    pub rounds: Option<PathBuf>,
}

impl Attachment {
    /// Decides nothing until it is opened.
    pub fn new(
        shared: &Shared,
        (journal, metrics, source): (Arc<Journal>, Arc<PluginMetrics>, Arc<dyn Source>),
        facts: ModelFacts,
        link: Arc<LoadLink>,
        terms: Terms,
    ) -> Attachment {
        let memory = metrics.memory_at(&facts.name);
        Attachment {
            facts,
            link,
            clock: Arc::clone(&shared.clock),
            alarm: Arc::clone(&shared.alarm),
            journal,
            texts: Arc::clone(&shared.texts),
            memory,
            metrics,
            source: Mutex::new(source),
            lane: ArcSwapOption::empty(),
            health: Mutex::new(Health::new(terms.shadow, terms.strikes)),
            meter: Mutex::new(Meter::default()),
            inline_gate: InlineGate::default(),
            recent: Mutex::new(Recent::default()),
            saved: Mutex::new(Saved::default()),
            last_fault: Mutex::new(None),
            making: Mutex::new(()),
            full: AtomicBool::new(false),
            wrong: Mutex::default(),
            rounds: shared.rounds.clone(),
            closed: AtomicBool::new(false),
            from_file: AtomicBool::new(terms.from_file),
            terms,
        }
    }

    /// Whether its load is there still.
    pub fn is_there(&self) -> bool {
        self.link.is_there()
    }

    /// A table of the model's file says so from now on.
    pub fn is_saved(&self) {
        self.from_file.store(true, Ordering::Release);
    }

    pub fn plugin(&self) -> &str {
        self.journal.plugin()
    }

    pub fn model(&self) -> &str {
        &self.facts.name
    }

    pub fn load(&self) -> Load {
        self.link.load()
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    pub fn state(&self) -> State {
        self.health.lock().state()
    }

    pub fn show(&self) -> Attached {
        let now = self.clock.now();
        let given = self.terms.limits.memory.unwrap_or(room(0));
        let (memory, memory_limit) =
            self.lane.load().as_ref().map_or((0, given), |lane| (lane.memory(), lane.memory_limit));
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
            differs: self.terms.shadow.then_some(meter.differs),
            memory,
            memory_limit,
            time_us: u64::try_from(self.terms.limits.time.as_micros()).unwrap_or(u64::MAX),
            config: self.terms.config.clone(),
        }
    }
}
