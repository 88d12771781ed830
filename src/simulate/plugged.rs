//! A plug-in as a policy. Its component runs in the engine that counts instructions, so that every run gives the same answers. Failures
//! have the same effects as in the server: strikes, a new instance after a while, parking after too many. So have its growth and its saved
//! state.

use std::collections::BTreeMap;
use std::sync::Arc;

use sequor_core::{
    Admission, Columns, Decision, FEATURES, Hooks, Observed, ObservedKind, Picks, Policy, PolicyFault, Time,
};
use sequor_wasm::cache::Cache;
use sequor_wasm::call_error::CallError;
use sequor_wasm::counter::CounterName;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::{Limits, is_full};
use sequor_wasm::services::Services;

use super::decider::SimPolicy;
use crate::config::model::LoadFacts;
use crate::config::units::human;
use crate::scheduling::guest::{Events, Guest, Source, fault_of};
use crate::scheduling::key_interner::KeyInterner;
use crate::scheduling::{AT_ONCE, Health, SAVES, SchedulerComponent, SchedulerGuest, Verdict};

/// Strikes within a minute that park the plug-in: the server's default.
const STRIKES: u32 = 3;
/// Maximum number of sentences about a run.
const REPORT_LINES: usize = 8;

/// A component and its settings.
#[derive(Debug, Clone)]
pub struct PluginSpec {
    component: Arc<SchedulerComponent>,
    /// JSON, a table.
    config: String,
    limits: Limits,
}

impl PluginSpec {
    /// From the bytes of a component; `file` is its name in refusals. It gets every grant, because here time is virtual and random numbers
    /// repeat. Compiled code may be cached.
    pub fn new(
        file: &str,
        bytes: &[u8],
        config: &str,
        limits: Limits,
        cache: Option<&Cache>,
    ) -> Result<PluginSpec, String> {
        let engine = Arc::new(Engine::new(Mode::Simulation).map_err(|e| e.to_string())?);
        let grants = Grants { clock: true, random: true, sequence_text: true, ..Grants::default() };
        let component = SchedulerComponent::new(&engine, file, bytes, grants, cache).map_err(|e| e.to_string())?;
        Ok(PluginSpec { component: Arc::new(component), config: config.to_owned(), limits })
    }

    /// Checks that an instance starts and accepts its configuration, with these features of requests.
    pub fn try_out(&self, facts: &LoadFacts) -> Result<(), String> {
        let has: Vec<&String> = facts.numbers.iter().chain(&facts.keys).collect();
        if let Some(feature) = self.component.manifest().features.iter().find(|name| !has.contains(name)) {
            return Err(format!("it needs the feature \"{feature}\"; name it in `features` of what arrives"));
        }
        self.start(facts, Arc::new(Listener::default())).map(drop)
    }

    fn start(&self, facts: &LoadFacts, listener: Arc<Listener>) -> Result<SchedulerGuest, String> {
        let mut instance = self.component.guest(listener, self.limits).map_err(|error| error.what)?;
        match instance.configure(&self.config, facts) {
            Ok(Ok(())) => Ok(instance),
            Ok(Err(what)) => Err(format!("configure: {what}")),
            Err(error) => Err(error.what),
        }
    }

    fn hooks(&self, facts: &LoadFacts) -> Hooks {
        let count = |names: &[String]| u8::try_from(names.len()).unwrap_or(u8::MAX);
        Hooks { keys: count(&facts.keys), numbers: count(&facts.numbers), ..self.component.manifest().hooks }
    }
}

/// Host functions for a guest in the simulator. Its log is dropped: the report is about requests.
#[derive(Debug, Default)]
struct Listener(KeyInterner);

impl Services for Listener {
    fn log(&self, _: u32, _: &str) {}

    fn metric_add(&self, _: &CounterName, _: f64) {}

    fn key_text(&self, key: u64) -> Option<String> {
        self.0.text(key)
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        Some(sequence.to_string())
    }
}

/// The guest of one run.
#[derive(Debug)]
pub(super) struct Plugged {
    spec: PluginSpec,
    facts: LoadFacts,
    listener: Arc<Listener>,
    guest: Option<SchedulerGuest>,
    /// Bytes of its memory once it was ready.
    at_start: u64,
    /// The state that a guest saved last, for its successor, and the time of that.
    saved: Vec<u8>,
    saved_at: Time,
    /// Its strikes, and the time at which a new guest may start.
    health: Health,
    /// The live sequences with steps and keys of each, for a later guest that observes.
    live: BTreeMap<u64, (u64, [u64; FEATURES])>,
    /// Events for the next question.
    news: Events,
    /// A failure of the guest between two questions.
    fell: Option<PolicyFault>,
    /// The latest failure of a guest, or the fault of its latest answer, in a sentence.
    sentence: String,
    spent: u64,
    policy_lines: Vec<String>,
}

impl Plugged {
    pub(super) fn new<'a>(spec: &PluginSpec, facts: &LoadFacts, texts: impl Iterator<Item = &'a str>) -> Plugged {
        let listener = Listener::default();
        for text in texts {
            listener.0.key(text);
        }
        Plugged {
            spec: spec.clone(),
            facts: facts.clone(),
            listener: Arc::new(listener),
            guest: None,
            at_start: 0,
            saved: Vec::new(),
            saved_at: Time::ZERO,
            health: Health::new(false, STRIKES),
            live: BTreeMap::new(),
            news: Events::default(),
            fell: None,
            sentence: String::new(),
            spent: 0,
            policy_lines: Vec::new(),
        }
    }

    /// The guest, if there is one at this time.
    fn ready(&mut self, now: Time) -> Result<&mut SchedulerGuest, PolicyFault> {
        if let Some(fell) = self.fell.take() {
            return Err(fell);
        }
        if self.guest.is_none() && self.health.due().is_some_and(|due| due <= now) {
            let guest = self.fresh()?;
            self.put_in_place(guest);
            self.health.serves();
        }
        self.guest.as_mut().ok_or(PolicyFault::Busy)
    }

    /// A new guest, which gets the saved state and the live sequences. As in the server, a state that cannot be restored is dropped, and
    /// the guest starts from nothing. The server starts guests beside the requests, so their instructions do not count.
    fn fresh(&mut self) -> Result<SchedulerGuest, PolicyFault> {
        let mut guest = self.started()?;
        if !self.saved.is_empty() {
            let restored = guest.restore(&self.saved);
            if !matches!(restored, Ok(Ok(()))) {
                self.saved.clear();
            }
            if restored.is_err() {
                guest = self.started()?;
            }
        }
        let mut events = Events::default();
        for (seq, (steps, keys)) in &self.live {
            let began = Observed { seq: *seq, what: ObservedKind::Began { steps: *steps }, keys: *keys };
            events.add(&began, self.facts.keys.len());
        }
        if !events.is_empty() {
            guest.observe(&events).map_err(|error| self.note_failure(error))?;
        }
        Ok(guest)
    }

    /// Lets a new guest decide.
    fn put_in_place(&mut self, guest: SchedulerGuest) {
        // The live sequences that it has include all earlier events.
        self.news.clear();
        self.at_start = guest.memory();
        self.guest = Some(guest);
    }

    fn started(&mut self) -> Result<SchedulerGuest, PolicyFault> {
        self.spec.start(&self.facts, Arc::clone(&self.listener)).map_err(|what| {
            self.sentence = what;
            PolicyFault::Trap
        })
    }

    fn note_failure(&mut self, error: CallError) -> PolicyFault {
        self.sentence = error.what;
        fault_of(error.fault)
    }

    fn drop_guest(&mut self, error: CallError) -> PolicyFault {
        self.guest = None;
        self.note_failure(error)
    }

    /// Counts the instructions of the last call. If the call failed, drops the guest.
    fn close<R>(&mut self, result: Result<R, CallError>) -> Result<R, PolicyFault> {
        self.spent += self.guest.as_ref().map_or(0, SchedulerGuest::fuel);
        result.map_err(|error| self.drop_guest(error))
    }

    /// Does what the server does between two questions: saves the guest's state, or replaces a grown guest.
    fn look_after(&mut self, now: Time) {
        let Some(guest) = &self.guest else { return };
        let is_full = is_full(self.at_start, guest.memory_limit(), guest.memory());
        if is_full && self.health.recycles_at(now) <= now {
            self.health.recycled(now);
            self.save(now);
            // If no new guest starts, the grown one goes on.
            let (used, limit) = self.guest.as_ref().map_or((0, 0), |guest| (guest.memory(), guest.memory_limit()));
            if self.guest.is_some()
                && let Ok(guest) = self.fresh()
            {
                self.put_in_place(guest);
                let after = (now - Time::ZERO).as_secs_f64();
                let of = format!("{} of {} in use", human(used), human(limit));
                self.report(format!("instance replaced after {after:.3} s: {of}"));
            }
        } else if now - self.saved_at >= SAVES {
            self.save(now);
        }
    }

    /// Saves the guest's state for its successor. A failure is one of the next question.
    fn save(&mut self, now: Time) {
        self.saved_at = now;
        let Some(guest) = &mut self.guest else { return };
        let saved = guest.save();
        match self.close(saved) {
            Ok(saved) => self.saved = saved,
            Err(fault) => self.fell = Some(fault),
        }
    }

    /// Adds a line about the plug-in to the report.
    fn report(&mut self, line: String) {
        if self.policy_lines.len() < REPORT_LINES {
            self.policy_lines.push(line);
        }
    }

    fn take_news(&mut self) -> Events {
        std::mem::take(&mut self.news)
    }

    fn follow(&mut self, one: &Observed) {
        match one.what {
            ObservedKind::Began { steps } => drop(self.live.insert(one.seq, (steps, one.keys))),
            ObservedKind::Done { .. } => {
                if let Some((steps, _)) = self.live.get_mut(&one.seq) {
                    *steps += 1;
                }
            }
            ObservedKind::Ended(_) => drop(self.live.remove(&one.seq)),
            ObservedKind::Slotted { .. } | ObservedKind::Failed { .. } | ObservedKind::BatchRan { .. } => {}
        }
    }
}

impl Policy for Plugged {
    fn hooks(&self) -> Hooks {
        self.spec.hooks(&self.facts)
    }

    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault> {
        // Instances are equal, so the plug-in does not learn which of them asks.
        self.look_after(Time(see.now));
        self.ready(Time(see.now))?;
        let news = self.take_news();
        let result = self.ready(Time(see.now))?.plan(0, see, &news, picks);
        self.close(result)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], victims: &Columns) -> Result<Vec<Admission>, PolicyFault> {
        self.look_after(Time(see.now));
        self.ready(Time(see.now))?;
        let news = self.take_news();
        let result = self.ready(Time(see.now))?.admit(see, room, victims, &news);
        self.close(result)
    }

    fn observe(&mut self, news: &[Observed]) {
        if self.guest.is_some() {
            news.iter().for_each(|one| self.news.add(one, self.facts.keys.len()));
        }
        // As in the server: fewer events go with a question.
        if self.news.len() >= AT_ONCE {
            let events = self.take_news();
            if let Some(guest) = self.guest.as_mut() {
                let result = guest.observe(&events);
                self.fell = self.close(result).err();
            }
        }
        news.iter().for_each(|one| self.follow(one));
    }
}

impl SimPolicy for Plugged {
    fn spent(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.spent))
    }

    fn faulted(&mut self, now: Time, fault: PolicyFault) {
        if fault == PolicyFault::Busy {
            return;
        }
        let what = match std::mem::take(&mut self.sentence) {
            what if what.is_empty() => crate::scheduling::word(fault).to_owned(),
            what => what,
        };
        let parked = self.health.add_strike(now, self.guest.is_none()) == Verdict::Parks;
        let count = self.health.strikes(now);
        if parked {
            self.guest = None;
        }
        let end = match (parked, self.guest.is_none()) {
            (true, _) => "; it is parked, oldest goes on",
            (false, true) => "; another instance takes its place",
            (false, false) => "",
        };
        self.report(format!("strike {count} after {:.3} s: {what}{end}", (now - Time::ZERO).as_secs_f64()));
    }

    fn explain(&mut self, what: String) {
        self.sentence = what;
    }

    fn report_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.policy_lines)
    }
}
