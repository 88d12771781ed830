//! A plug-in at one load, on the request path. The binding puts the core's question to the active guest and checks the answer. If the call fails or
//! the answer is wrong, the built-in policy decides that round. No request fails because of a plug-in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use sequor_core::{Asked, Decision, Fault, Observed, Req, Round, Said, Time};

use super::active_guest::{ActiveGuest, GuestCell};
use super::guest::{ModelFacts, Source, Strike};
use super::health::{Health, Verdict};
use super::invalid_answer;
use super::key_interner::KeyInterner;
use super::meter::Meter;
use super::port::SchedulerPort;
use super::recent::Recent;
use super::report::LastFault;
use super::round_file::{RoundFile, Wrong};
use super::scheduler_host::{Alarm, Clock};
use crate::telemetry::kinds::Gauge;
use crate::telemetry::{Hook, InlineGate, OwnTime, PluginMetrics};
use crate::wasm::journal::{Journal, Level};
use crate::wasm::limits::Limits;

/// Where a call may take longer, none is made by a thread that has others to look after: one may take that long now and then.
const MAY_HOLD_UP: Duration = Duration::from_millis(10);
/// Questions that went wrong and wait to be written down, at most.
const WRONG: usize = 4;

/// How a plug-in decides at a model.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingOptions {
    /// JSON, a table.
    pub config: String,
    pub limits: Limits,
    /// Strikes within a minute that park it.
    pub strikes: u32,
    /// It is asked, and what it says is only counted.
    pub shadow: bool,
    /// A table of the model's `sequor.toml` says so.
    pub from_file: bool,
}

/// A plug-in at a load.
#[derive(Debug)]
pub struct SchedulerBinding {
    pub(super) facts: ModelFacts,
    pub(super) port: Arc<SchedulerPort>,
    pub(super) options: BindingOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) alarm: Arc<dyn Alarm>,
    pub(super) journal: Arc<Journal>,
    pub(super) texts: Arc<KeyInterner>,
    pub(super) metrics: Arc<PluginMetrics>,
    /// Memory of the guest, as metrics show it.
    pub(super) memory: Gauge,
    /// The version that shall decide.
    pub(super) source: Mutex<Arc<dyn Source>>,
    /// The guest that decides now. One store replaces it; a call that is under way ends where it began. Stored only under `health`, so that the two
    /// agree: while `health` says that it serves there is an active guest, and a strike removes only the guest that it is against.
    pub(super) active: ArcSwapOption<ActiveGuest>,
    pub(super) health: Mutex<Health>,
    pub(super) meter: Mutex<Meter>,
    /// Whether a connection's thread may ask it.
    pub(super) inline_gate: InlineGate,
    pub(super) recent: Mutex<Recent>,
    pub(super) saved: Mutex<Saved>,
    pub(super) last_fault: Mutex<Option<LastFault>>,
    /// HostState while an instance is made: one after the other.
    pub(super) making: Mutex<()>,
    /// The guest has grown so much that a new one shall take its place.
    pub(super) full: AtomicBool,
    /// Questions that went wrong, to be written down.
    pub(super) wrong: Mutex<Vec<RoundFile>>,
    pub(super) rounds: Option<PathBuf>,
    /// It was detached, or another decides in its place: nothing is made any more, and the core is nothing to it.
    pub(super) closed: AtomicBool,
    pub(super) from_file: AtomicBool,
}

/// What a guest left to the one that replaces it.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) at: Time,
}

/// What is said to the core, and, of a shadow, what would have been.
#[derive(Debug)]
pub struct Answer {
    pub said: Said,
    pub shadow: Option<Shadow>,
}

/// What a shadow would have had done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shadow {
    /// What the built-in policy does.
    Default,
    /// Nothing now.
    Wait,
    /// These run, and whether any are refused.
    Fire(Vec<Req>, bool),
}

/// Why the guest gave no answer.
enum NoAnswer {
    /// There is none just now.
    Absent,
    /// The guest was being called for too long.
    Busy,
    Failed(Strike),
}

impl SchedulerBinding {
    /// Puts a question to the guest. Takes no longer than a call may, and waits for others no longer than that.
    pub fn ask(&self, round: &mut Round) -> Answer {
        self.take_news(round);
        let Some(active) = self.active_for(round) else { return self.no_answer(round, &NoAnswer::Absent) };
        let answer = match active.enter(self.options.limits.time) {
            Some(cell) => self.put(&active, cell, round),
            None => Err(NoAnswer::Busy),
        };
        self.judge(&active, round, answer)
    }

    /// Puts a question to the guest for a thread that has other work: it never waits for another call. `None`: the guest is called just now. Nothing
    /// has happened then, and the question is as it was.
    pub fn try_ask(&self, round: &mut Round) -> Option<Answer> {
        let Some(active) = self.active_for(round) else {
            self.take_news(round);
            return Some(self.no_answer(round, &NoAnswer::Absent));
        };
        let cell = active.try_enter()?;
        self.take_news(round);
        if !self.is_served_by(&active) {
            // It missed an event, and a new guest takes its place.
            return Some(self.no_answer(round, &NoAnswer::Absent));
        }
        let answer = self.put(&active, cell, round);
        Some(self.judge(&active, round, answer))
    }

    /// Whether a connection's thread may ask: no guest is there, or the guest answers quickly and is not being called.
    pub fn is_quick(&self) -> bool {
        let answers = self.options.limits.time <= MAY_HOLD_UP && self.inline_gate.is_open(self.clock.now());
        self.active.load().as_ref().is_none_or(|active| answers && !active.is_busy())
    }

    /// What happened, from this serial number on; `lost`: something before it is missing for good.
    pub fn tell(&self, first: u64, news: Vec<Observed>, lost: bool) {
        let losses = self.port.put(first, news, lost);
        if let Some(active) = self.active.load_full().filter(|active| active.has_missed(losses)) {
            self.renew(&active);
        }
    }

    /// The built-in policy took a round that was the guest's.
    pub fn fell_back(&self) {
        self.meter.lock().fallbacks += 1;
        self.metrics.fell_back();
    }

    /// So many picks of the guest did not stand any more.
    pub fn went_stale(&self, picks: u32) {
        self.meter.lock().stale += u64::from(picks);
        self.metrics.went_stale(picks);
    }

    /// Holds what a shadow would have had done against what was done; `ran` are the requests that run now, if any do.
    pub fn compare(&self, shadow: &Shadow, ran: Option<&[Req]>) {
        let same = match (shadow, ran) {
            (Shadow::Default, _) | (Shadow::Wait, None) => true,
            (Shadow::Fire(fire, rejects), ran) => {
                let ran = ran.unwrap_or_default();
                !rejects && fire.len() == ran.len() && fire.iter().all(|req| ran.contains(req))
            }
            (Shadow::Wait, Some(_)) => false,
        };
        let (differs, all) = &mut self.meter.lock().differs;
        *differs += u64::from(!same);
        *all += 1;
    }

    // === inside ===

    /// Hands the events that ride with a question to the feed.
    fn take_news(&self, round: &mut Round) {
        let (news, lost) = (std::mem::take(&mut round.news), std::mem::take(&mut round.lost));
        self.tell(round.first, news, lost);
    }

    /// The guest, if the question was made for it.
    fn active_for(&self, round: &Round) -> Option<Arc<ActiveGuest>> {
        self.active.load_full().filter(|active| active.fits(round.hooks))
    }

    /// The answer for the core; a failed call is a strike.
    fn judge(&self, active: &Arc<ActiveGuest>, round: &mut Round, answer: Result<Said, NoAnswer>) -> Answer {
        match answer {
            Ok(said) => self.accept_answer(active, round, said),
            Err(why) => {
                if let NoAnswer::Failed(strike) = &why {
                    self.record(round, None, strike);
                    self.strike(Some(active), strike);
                }
                self.no_answer(round, &why)
            }
        }
    }

    fn put(
        &self,
        active: &ActiveGuest,
        mut cell: MutexGuard<'_, GuestCell>,
        round: &mut Round,
    ) -> Result<Said, NoAnswer> {
        let (entered, own_time) = (self.clock.now(), OwnTime::begin());
        let told = cell.catch_up().ok_or(NoAnswer::Absent)?.map_err(|error| NoAnswer::Failed(error.into()))?;
        let began = if told { self.timed(Hook::Observe, entered) } else { entered };
        let answer = cell.answer(round).ok_or(NoAnswer::Absent)?;
        let now = self.clock.now();
        let memory = cell.memory();
        drop(cell);
        self.inline_gate.note(own_time.elapsed().min(now - entered), now);
        active.remember(memory);
        let hook = if matches!(round.asked, Asked::Plan(_)) { Hook::Plan } else { Hook::Admit };
        self.meter.lock().called(now, now - began);
        self.metrics.called(hook, now - began);
        if !self.is_closed() {
            self.shows_memory(memory);
        }
        if active.is_full(memory) {
            self.outgrown();
        }
        if active.hooks().plan && matches!(hook, Hook::Plan) {
            self.recent.lock().keep(now, round);
        }
        answer.map_err(|error| NoAnswer::Failed(error.into()))
    }

    /// Counts a call that began then, and says what time it is now.
    pub(super) fn timed(&self, hook: Hook, began: Time) -> Time {
        let now = self.clock.now();
        self.metrics.called(hook, now - began);
        now
    }

    pub(super) fn shows_memory(&self, bytes: u64) {
        self.memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    fn outgrown(&self) {
        if !self.full.swap(true, Ordering::AcqRel) {
            self.alarm.raise();
        }
    }

    /// Holds an answer against what was shown.
    fn accept_answer(&self, active: &Arc<ActiveGuest>, round: &mut Round, said: Said) -> Answer {
        if let Err(fault) = round.check(&said) {
            let what = invalid_answer::sentence(round, &said, fault);
            let strike = Strike { fault, what };
            self.record(round, Some(&said), &strike);
            self.strike(Some(active), &strike);
            return self.no_answer(round, &NoAnswer::Failed(Strike { fault, what: String::new() }));
        }
        let Said::Plan(Ok(decision)) = said else { return Answer { said, shadow: None } };
        if !self.options.shadow {
            return Answer { said, shadow: None };
        }
        let shadow = match decision {
            Decision::Default => Shadow::Default,
            Decision::Wait(_) => Shadow::Wait,
            Decision::Fire => Shadow::Fire(round.fired().collect(), !round.picks.reject.is_empty()),
        };
        round.picks.clear();
        Answer { said: Said::Plan(Ok(Decision::Default)), shadow: Some(shadow) }
    }

    /// Keeps a question that went wrong, for the keeper to write down.
    fn record(&self, round: &Round, said: Option<&Said>, strike: &Strike) {
        let mut wrong = self.wrong.lock();
        if self.rounds.is_none() || wrong.len() >= WRONG {
            return;
        }
        let source = Arc::clone(&self.source.lock());
        let what = Wrong { fault: strike.fault, what: &strike.what };
        let at = (&self.facts, self.options.config.as_str(), self.options.limits);
        wrong.push(RoundFile::new(round, said, what, (source.manifest(), source.sha256()), at));
        self.alarm.raise();
    }

    /// What is said in the guest's place: the built-in policy decides, in this very round.
    fn no_answer(&self, round: &mut Round, why: &NoAnswer) -> Answer {
        round.picks.clear();
        let fault = match why {
            NoAnswer::Absent | NoAnswer::Busy => Fault::Busy,
            NoAnswer::Failed(strike) => strike.fault,
        };
        let said = match &round.asked {
            // A failed shadow costs no round.
            Asked::Plan(_) if self.options.shadow => Said::Plan(Ok(Decision::Default)),
            // The core counts the others: it knows whether the round still stands.
            Asked::Plan(_) => Said::Plan(Err(fault)),
            Asked::Admit { .. } => Said::Admit(Err(fault)),
        };
        Answer { said, shadow: None }
    }

    /// A strike against this active guest, or against one that did not start. A guest that was replaced meanwhile gets none.
    pub(super) fn strike(&self, active: Option<&Arc<ActiveGuest>>, strike: &Strike) {
        if strike.fault == Fault::Busy {
            return;
        }
        let now = self.clock.now();
        let lost = active.is_none() || matches!(strike.fault, Fault::Trap | Fault::Time | Fault::Memory);
        let (verdict, strikes, off) = {
            let mut health = self.health.lock();
            if active.is_some_and(|active| !self.is_served_by(active)) {
                return;
            }
            let verdict = health.struck(now, lost);
            let off = if verdict == Verdict::GoesOn { None } else { self.vacate() };
            (verdict, health.strikes(now), off)
        };
        drop(off);
        self.metrics.struck(invalid_answer::word(strike.fault));
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

    fn is_served_by(&self, active: &Arc<ActiveGuest>) -> bool {
        self.active.load().as_ref().is_some_and(|serves| Arc::ptr_eq(serves, active))
    }

    /// Removes the active guest. The caller holds `health`, and drops the guest after it.
    #[must_use]
    pub(super) fn vacate(&self) -> Option<Arc<ActiveGuest>> {
        self.memory.set(0);
        self.active.swap(None)
    }

    /// Replaces this guest by a new one that learns which sequences live. No strike.
    fn renew(&self, active: &Arc<ActiveGuest>) {
        let now = self.clock.now();
        let _off = {
            let mut health = self.health.lock();
            if !self.is_served_by(active) {
                return;
            }
            health.renew(now);
            self.vacate()
        };
        self.alarm.raise();
    }
}
