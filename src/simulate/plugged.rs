//! A plug-in as a policy. Its component runs in the engine that counts instructions, so that every run gives the same answers. Failures
//! have the same effects as in the server: strikes, a new instance after a while, parking after too many.

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
use crate::scheduling::guest::{Events, Guest, Source, fault_of};
use crate::scheduling::key_interner::KeyInterner;
use crate::scheduling::{AT_ONCE, Health, SchedulerComponent, SchedulerGuest, Verdict};

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
    /// Bytes of its memory once it was ready. `saved` is its predecessor's state.
    at_start: u64,
    saved: Vec<u8>,
    /// Its strikes, and the time at which a new guest may start.
    health: Health,
    /// The live sequences with steps and keys of each, for a later guest that observes.
    live: BTreeMap<u64, (u64, [u64; FEATURES])>,
    /// Events for the next question.
    news: Events,
    /// A failure of the guest between two questions.
    fell: Option<PolicyFault>,
    what: String,
    /// The fault of an answer, in a sentence, if the guest itself did not fail.
    wrong: String,
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
            health: Health::new(false, STRIKES),
            live: BTreeMap::new(),
            news: Events::default(),
            fell: None,
            what: String::new(),
            wrong: String::new(),
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
            self.guest = Some(self.fresh()?);
            self.health.serves();
        }
        self.guest.as_mut().ok_or(PolicyFault::Busy)
    }

    /// A new guest, which gets the live sequences.
    fn fresh(&mut self) -> Result<SchedulerGuest, PolicyFault> {
        let mut events = Events::default();
        // The live sequences are as of now and include all earlier events.
        self.news.clear();
        for (seq, (steps, keys)) in &self.live {
            let began = Observed { seq: *seq, what: ObservedKind::Began { steps: *steps }, keys: *keys };
            events.add(&began, self.facts.keys.len());
        }
        let started = self.spec.start(&self.facts, Arc::clone(&self.listener)).map_err(|what| {
            self.what = what;
            PolicyFault::Trap
        });
        let mut guest = started?;
        if !self.saved.is_empty() {
            // An inner error is the guest's own sentence. It then starts from nothing.
            let _ = guest.restore(&self.saved).map_err(|error| self.drop_guest(error))?;
        }
        if !events.is_empty() {
            guest.observe(&events).map_err(|error| self.drop_guest(error))?;
        }
        self.at_start = guest.memory();
        Ok(guest)
    }

    fn drop_guest(&mut self, error: CallError) -> PolicyFault {
        self.guest = None;
        self.what = error.what;
        fault_of(error.fault)
    }

    /// Counts the instructions of the last call. If the call failed, drops the guest.
    fn close<R>(&mut self, result: Result<R, CallError>) -> Result<R, PolicyFault> {
        self.spent += self.guest.as_ref().map_or(0, SchedulerGuest::fuel);
        result.map_err(|error| self.drop_guest(error))
    }

    /// Replaces a grown instance before the next question.
    fn renew(&mut self, now: Time) {
        let Some(guest) = &mut self.guest else { return };
        if is_full(self.at_start, guest.memory_limit(), guest.memory()) {
            if let Ok(saved) = guest.save() {
                self.saved = saved;
            }
            self.guest = None;
            self.health.renew(now);
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
        self.renew(Time(see.now));
        self.ready(Time(see.now))?;
        let news = self.take_news();
        let result = self.ready(Time(see.now))?.plan(0, see, &news, picks);
        self.close(result)
    }

    fn admit(&mut self, see: &Columns, room: &[u32], victims: &Columns) -> Result<Vec<Admission>, PolicyFault> {
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
        let what = match fault {
            PolicyFault::Busy => return,
            PolicyFault::Trap | PolicyFault::Time | PolicyFault::Memory => std::mem::take(&mut self.what),
            other if self.wrong.is_empty() => crate::scheduling::word(other).to_owned(),
            _ => std::mem::take(&mut self.wrong),
        };
        let parked = self.health.add_strike(now, self.guest.is_none()) == Verdict::Parks;
        let count = self.health.strikes(now);
        if parked {
            self.guest = None;
        }
        if self.policy_lines.len() < REPORT_LINES {
            let end = if parked { "; it is parked, oldest goes on" } else { "" };
            self.policy_lines
                .push(format!("strike {count} after {:.3} s: {what}{end}", (now - Time::ZERO).as_secs_f64()));
        }
    }

    fn explain(&mut self, what: String) {
        self.wrong = what;
    }

    fn report_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.policy_lines)
    }
}
