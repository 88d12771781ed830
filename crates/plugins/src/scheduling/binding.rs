//! A plug-in at one load: its options, its counts and its strikes. `asking` asks it the core's questions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::model::LoadFacts;
use crate::sync::Mutex;
use sequor_core::{PolicyAnswer, PolicyFault, Round, Time};
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomShare;

use super::active_guest::ActiveGuest;
use super::cpu_share::CpuShare;
use super::guest::{Source, Strike};
use super::health::{Health, Verdict};
use super::invalid_answer;
use super::key_interner::KeyInterner;
use super::port::SchedulerPort;
use super::recent::Recent;
use super::report::LastFault;
use super::round_file::{RoundFile, Wrong};
use super::scheduler_host::{Alarm, Clock};
use crate::executor::InlineGate;
use crate::telemetry::{GaugePart, Hook, Meter, PluginMetrics};

/// Maximum number of failed questions that wait to be written to disk.
const WRONG: usize = 4;

/// The options of a plug-in at a model.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingOptions {
    /// JSON, a table.
    pub config: String,
    pub limits: Limits,
    /// Strikes within a minute that park the plug-in.
    pub strikes: u32,
    /// Whether the plug-in is a shadow: it is asked, and its answers are only counted.
    pub shadow: bool,
    /// How long it may pass over a ready request, in place of the default.
    pub max_wait: Option<Duration>,
    /// Maximum percent of a core that its calls may take.
    pub cpu_share: Option<u32>,
    /// Whether a table of the model's `sequor.toml` set this binding up.
    pub from_file: bool,
}

/// A plug-in that decides for a load, with the guest that answers. The table beside the core keeps it, and hands it out with each question
/// and each notice.
#[derive(Debug, Clone)]
pub struct Decider {
    pub(super) binding: Arc<SchedulerBinding>,
    /// `None` while no guest runs. A call that runs when this changes ends with its old guest.
    pub(super) guest: Option<Arc<ActiveGuest>>,
}

/// A plug-in at a load.
#[derive(Debug)]
pub struct SchedulerBinding {
    pub(super) facts: LoadFacts,
    pub(super) port: Arc<SchedulerPort<Decider>>,
    pub(super) options: BindingOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) alarm: Arc<dyn Alarm>,
    pub(super) journal: Arc<Journal>,
    pub(super) texts: Arc<KeyInterner>,
    pub(super) metrics: Arc<PluginMetrics>,
    /// Memory of the guest, for the metrics. Other loads of the model have parts of their own.
    pub(super) memory: GaugePart,
    /// The version that must decide.
    pub(super) source: Mutex<Arc<dyn Source>>,
    /// Changed together with its guest, under the lock of the core's table. While it is in a serving state, there is a guest.
    pub(super) health: Mutex<Health>,
    pub(super) meter: Mutex<Meter>,
    pub(super) cpu_share: CpuShare,
    /// Whether a connection's thread may ask the guest.
    pub(super) inline_gate: InlineGate,
    pub(super) recent: Mutex<Recent>,
    pub(super) saved: Mutex<Saved>,
    pub(super) last_fault: Mutex<Option<LastFault>>,
    /// The room that the binding owns, so that its guest can start again at any time. Changed together with the guest.
    pub(super) share: Mutex<Option<RoomShare>>,
    /// Locked while a guest starts, so that starts run one after the other.
    pub(super) making: Mutex<()>,
    /// Whether the guest has grown so much that a new one must take its place.
    pub(super) full: AtomicBool,
    /// Whether events wait for the maintenance thread, to report them to a guest that gets no questions.
    pub(super) unreported: AtomicBool,
    /// Failed questions, to be written to disk.
    pub(super) wrong: Mutex<Vec<RoundFile>>,
    pub(super) rounds: Option<PathBuf>,
    pub(super) from_file: AtomicBool,
}

/// The state that a guest saved for its successor.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) at: Time,
}

impl SchedulerBinding {
    /// Counts a round of the guest that the built-in policy took.
    pub fn fell_back(&self) {
        self.meter.lock().fallbacks += 1;
        self.metrics.fell_back();
    }

    /// Counts picks of the guest that were no longer valid.
    pub fn went_stale(&self, picks: u32) {
        self.meter.lock().stale += u64::from(picks);
        self.metrics.went_stale(picks);
    }

    // === inside ===

    /// Counts a call that began at `began`, and returns the time now.
    pub(super) fn timed(&self, hook: Hook, began: Time) -> Time {
        let now = self.clock.now();
        self.metrics.called(hook, now - began);
        now
    }

    pub(super) fn shows_memory(&self, bytes: u64) {
        self.memory.set(bytes);
    }

    pub(super) fn outgrown(&self) {
        if !self.full.swap(true, Ordering::AcqRel) {
            self.alarm.raise();
        }
    }

    /// Keeps a failed question, for the maintenance thread to write to disk.
    pub(super) fn record(&self, round: &Round, answer: Option<&PolicyAnswer>, strike: &Strike) {
        if self.rounds.is_none() {
            return;
        }
        let source = Arc::clone(&self.source.lock());
        let mut wrong = self.wrong.lock();
        if wrong.len() >= WRONG {
            return;
        }
        let what = Wrong { fault: strike.fault, what: &strike.what };
        let at = (&self.facts, self.options.config.as_str(), self.options.limits);
        wrong.push(RoundFile::new(round, answer, what, (source.manifest(), source.sha256()), at));
        self.alarm.raise();
    }

    /// Counts a strike against this guest, or against one that did not start. A guest that no longer decides gets none.
    pub(super) fn strike(&self, guest: Option<&Arc<ActiveGuest>>, strike: &Strike) {
        if strike.fault == PolicyFault::Busy {
            return;
        }
        let now = self.clock.now();
        let lost =
            guest.is_none() || matches!(strike.fault, PolicyFault::Trap | PolicyFault::Time | PolicyFault::Memory);
        let judged = self.port.change(|policy| {
            let decider = policy.decider_mut().filter(|decider| decider.is_of(self))?;
            if guest.is_some_and(|guest| !decider.is_served_by(guest)) {
                return None;
            }
            let mut health = self.health.lock();
            let verdict = health.add_strike(now, lost);
            let off = if verdict == Verdict::GoesOn { None } else { decider.retire_guest() };
            Some((verdict, health.strikes(now), off))
        });
        let Some((verdict, strikes, off)) = judged.flatten() else { return };
        drop(off);
        self.metrics.add_strike(invalid_answer::word(strike.fault));
        *self.last_fault.lock() = Some(LastFault {
            kind: invalid_answer::word(strike.fault).to_owned(),
            what: strike.what.clone(),
            at: std::time::SystemTime::now(),
        });
        if verdict != Verdict::GoesOn {
            self.alarm.raise();
        }
        self.log_strike(strike, verdict, strikes);
    }

    fn log_strike(&self, strike: &Strike, verdict: Verdict, strikes: u32) {
        let (what, most, model) = (&strike.what, self.options.strikes, &self.facts.name);
        let fallbacks = self.meter.lock().fallbacks + 1;
        let line = format!(
            "{what}; built-in used for this round (fallback {fallbacks}, strike {strikes} of {most}) on {model}"
        );
        self.journal.write(Level::Warn, &line);
        if verdict == Verdict::Parks {
            self.journal.write(Level::Error, &self.parked_because(strike, strikes));
        }
    }

    fn parked_because(&self, strike: &Strike, strikes: u32) -> String {
        let name = self.journal.plugin();
        format!(
            "{name} is parked on {} after {strikes} strikes in {} s ({}: {}). Requests go on with \"{}\". \
             sequor plugin show {name}; then unpark or rollback.",
            self.facts.name,
            super::health::WINDOW.as_secs(),
            invalid_answer::word(strike.fault),
            strike.what,
            self.facts.strategy,
        )
    }

    /// Replaces this guest by a new one that reads the live sequences. Not a strike.
    pub(super) fn renew(&self, guest: &Arc<ActiveGuest>) {
        let now = self.clock.now();
        let renewed = self.port.change(|policy| {
            let decider = policy.decider_mut().filter(|decider| decider.is_served_by(guest))?;
            self.health.lock().renew(now);
            decider.retire_guest()
        });
        if renewed.flatten().is_some() {
            self.alarm.raise();
        }
    }

    /// The guest that answers for this binding.
    pub(super) fn active(&self) -> Option<Arc<ActiveGuest>> {
        self.port.decider().filter(|decider| decider.is_of(self))?.guest
    }

    /// Whether this binding decides for its load, even if it is parked.
    pub(super) fn decides(&self) -> bool {
        self.port.decider().is_some_and(|decider| decider.is_of(self))
    }
}

impl Decider {
    pub fn binding(&self) -> &Arc<SchedulerBinding> {
        &self.binding
    }

    pub(super) fn is_of(&self, binding: &SchedulerBinding) -> bool {
        std::ptr::eq(&raw const *self.binding, binding)
    }

    pub(super) fn is_served_by(&self, guest: &Arc<ActiveGuest>) -> bool {
        self.guest.as_ref().is_some_and(|serves| Arc::ptr_eq(serves, guest))
    }

    /// Removes the guest, which no longer decides. The caller drops it after it has released the table's lock.
    pub(super) fn retire_guest(&mut self) -> Option<Arc<ActiveGuest>> {
        let guest = self.guest.take();
        if let Some(guest) = &guest {
            guest.retire();
            self.binding.memory.set(0);
        }
        guest
    }
}
