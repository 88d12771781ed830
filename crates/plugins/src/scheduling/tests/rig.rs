//! A core with virtual time behind the driver's trait, one instance that pulls, and a plug-in under a test's control.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::policy::columns;
use sequor_core::*;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;

use crate::config::model::LoadFacts;
use crate::scheduling::active_guest::ActiveGuest;
use crate::scheduling::guest::Source;
use crate::scheduling::stand_in::StandInVersion;
use crate::scheduling::{
    Alarm, BindingOptions, BindingServices, Clock, Decider, LoadPolicy, SchedulerBinding, SchedulerHost, SchedulerPort,
    Shadow, key_interner::KeyInterner,
};
use crate::telemetry::Metrics;

pub(super) const LOAD: LoadId = LoadId::FIRST;
pub(super) use crate::scheduling::stand_in::MS;

#[derive(Debug, Default)]
pub(super) struct Ticker(pub(super) AtomicU64);

impl Clock for Ticker {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub(super) struct Alarms(AtomicBool);

impl Alarm for Alarms {
    fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The core behind a lock, as in the server.
#[derive(Debug, Default)]
pub(super) struct SharedCore {
    clock: Arc<Ticker>,
    pub(super) core: Mutex<Core>,
    /// Changed under the core's lock.
    policy: Mutex<LoadPolicy<Decider>>,
    effects: Mutex<Vec<Effect>>,
}

impl SharedCore {
    fn apply(&self, event: Event) {
        let mut out = Vec::new();
        self.core.lock().apply(self.clock.now(), event, &mut out);
        self.effects.lock().extend(out);
    }
}

impl SchedulerHost<Decider> for SharedCore {
    fn change(&self, load: LoadId, change: &mut dyn FnMut(&mut LoadPolicy<Decider>)) {
        let mut out = Vec::new();
        let mut core = self.core.lock();
        let before = self.policy.lock().clone();
        let mut after = before.clone();
        change(&mut after);
        if let Some(event) = after.event_since(&before, load) {
            core.apply(self.clock.now(), event, &mut out);
        }
        *self.policy.lock() = after;
        drop(core);
        self.effects.lock().extend(out);
    }

    fn decider(&self, _: LoadId) -> Option<Decider> {
        self.policy.lock().decider().cloned()
    }

    fn is_there(&self, _: LoadId) -> bool {
        true
    }

    fn live(&self, load: LoadId, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion> {
        Some(self.core.lock().live(load, from, room))
    }

    fn sequence_text(&self, handle: u64) -> Option<String> {
        self.core.lock().id_of(Seq::of_handle(handle)?).map(ToString::to_string)
    }
}

/// A binding with everything around it.
pub(super) struct Rig {
    pub(super) metrics: Metrics,
    pub(super) desk: Arc<SharedCore>,
    pub(super) clock: Arc<Ticker>,
    pub(super) alarms: Arc<Alarms>,
    pub(super) binding: Arc<SchedulerBinding>,
    pub(super) version: Arc<StandInVersion>,
    next_req: u32,
    pub(super) answers: BTreeMap<u32, Result<(), Refusal>>,
    pub(super) notes: Vec<Note>,
}

pub(super) fn plans() -> Hooks {
    Hooks { plan: true, observe: true, columns: columns::ALL, ..Hooks::default() }
}

pub(super) fn admits() -> Hooks {
    Hooks { admit: true, ..plans() }
}

fn spec(slots: u32, max_batch: u32) -> LoadSpec {
    let strategy = Strategy::Oldest { slots, preferred: vec![], delay: Duration::ZERO, in_order: false };
    LoadSpec::new(1, strategy, max_batch)
}

impl Rig {
    pub(super) fn new(hooks: Hooks, change: impl FnOnce(&mut BindingOptions)) -> Rig {
        Rig::of(StandInVersion::new("3f2a91c", hooks), change)
    }

    pub(super) fn of(version: Arc<StandInVersion>, change: impl FnOnce(&mut BindingOptions)) -> Rig {
        Rig::around(version.clone(), version, change)
    }

    /// With a plug-in other than the stand-in.
    pub(super) fn around(
        source: Arc<dyn Source>,
        version: Arc<StandInVersion>,
        change: impl FnOnce(&mut BindingOptions),
    ) -> Rig {
        let (clock, alarms) = (Arc::<Ticker>::default(), Arc::<Alarms>::default());
        let desk = Arc::new(SharedCore { clock: Arc::clone(&clock), ..SharedCore::default() });
        desk.apply(Event::Loaded(LOAD, spec(8, 4)));
        let shared = BindingServices {
            clock: clock.clone(),
            alarm: alarms.clone(),
            texts: Arc::<KeyInterner>::default(),
            rounds: None,
        };
        let mut options = BindingOptions {
            config: "{}".to_owned(),
            limits: Limits { time: Duration::ZERO, memory: Some(1000) },
            strikes: 3,
            shadow: false,
            max_wait: None,
            cpu_share: None,
            from_file: false,
        };
        change(&mut options);
        let facts = LoadFacts {
            name: "encoder".to_owned(),
            version: 1,
            strategy: "oldest",
            max_batch: 4,
            instances: 1,
            slots: 8,
            numbers: vec![],
            keys: vec!["tenant".to_owned()],
        };
        let metrics = Metrics::new(false);
        let whom = (Arc::new(Journal::new("puppet")), metrics.plugin("puppet"), source);
        let port = SchedulerPort::new(LOAD, desk.clone());
        let binding = Arc::new(SchedulerBinding::new(&shared, whom, facts, port, options));
        let (answers, notes) = (BTreeMap::new(), Vec::new());
        Rig { metrics, desk, clock, alarms, binding, version, next_req: 0, answers, notes }
    }

    /// The same plug-in at another load of the model, where it does not decide yet.
    pub(super) fn binding_of_another_load(&self) -> SchedulerBinding {
        let shared = BindingServices {
            clock: self.clock.clone(),
            alarm: self.alarms.clone(),
            texts: Arc::<KeyInterner>::default(),
            rounds: None,
        };
        let source: Arc<dyn Source> = self.version.clone();
        let whom = (Arc::new(Journal::new("puppet")), self.metrics.plugin("puppet"), source);
        let port = SchedulerPort::new(LoadId::new(1, std::num::NonZeroU32::MIN), self.desk.clone());
        SchedulerBinding::new(&shared, whom, self.binding.facts.clone(), port, self.binding.options.clone())
    }

    /// With a binding that decides.
    pub(super) fn open(hooks: Hooks, change: impl FnOnce(&mut BindingOptions)) -> Rig {
        let rig = Rig::new(hooks, change);
        rig.binding.open().unwrap();
        rig
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.clock.0.fetch_add(ms * MS, Ordering::Relaxed);
        self.desk.apply(Event::Tick);
    }

    /// Delivers the core's events to the plug-in, as the server does once many wait.
    pub(super) fn hand_over_events(&self) {
        let (first, news, lost) = self.desk.core.lock().observed(LOAD);
        self.decider().notify(first, news, lost);
    }

    /// Runs the maintenance that is due, as the maintenance thread does.
    pub(super) fn keep(&self) -> Option<Time> {
        self.alarms.0.store(false, Ordering::Relaxed);
        self.binding.maintain()
    }

    pub(super) fn rang(&self) -> bool {
        self.alarms.0.load(Ordering::Relaxed)
    }

    pub(super) fn submit(&mut self, id: u64, start: bool, end: bool) -> u32 {
        let req = Req::new(self.next_req, std::num::NonZeroU32::MIN);
        self.next_req += 1;
        self.desk.apply(Event::Submit(Submit {
            req,
            id: Id::from(id),
            fresh_id: 0,
            start,
            end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: None,
            version: None,
            dialect: Dialect::TRITON,
            deadline: None,
            backlog_until: None,
            queue_until: None,
            idle: None,
            priority: 0,
            meta: RequestMeta { keys: [id * 100, 0, 0, 0], ..RequestMeta::default() },
            queue: QueueTerms::default(),
            origin: 0,
        }));
        req.ix
    }

    pub(super) fn starts(&mut self, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            self.submit(id, true, false);
        }
    }

    /// The guest that decides.
    pub(super) fn active(&self) -> Option<Arc<ActiveGuest>> {
        self.desk.decider(LOAD)?.guest
    }

    /// The plug-in that gets a question now.
    pub(super) fn decider(&self) -> Decider {
        self.desk.decider(LOAD).unwrap()
    }

    /// One step of the instance's thread. Returns the size of the batch it runs. `None`: it sleeps.
    pub(super) fn turn(&mut self) -> Option<usize> {
        let who = Instance { load: LOAD, n: 0 };
        let now = self.clock.now();
        let mut out = Vec::new();
        let consult = self.desk.core.lock().consult(now, LOAD);
        let mut next = match consult {
            Some(round) => Next::Ask(round),
            None => self.desk.core.lock().next(now, who, &mut out),
        };
        loop {
            next = match next {
                Next::Ask(mut round) => {
                    let answer = self.decider().ask(&mut round);
                    let admits = matches!(answer.answer, PolicyAnswer::Admit(_));
                    let mut core = self.desk.core.lock();
                    let after = core.answer(now, round, answer.answer, &mut out);
                    let after = if admits { core.next(now, who, &mut out) } else { after };
                    drop(core);
                    self.compare(answer.shadow, &after);
                    after
                }
                Next::Tidy(_) => self.desk.core.lock().next(now, who, &mut out),
                Next::Run(batch) => {
                    let rows: Vec<RowEnd> =
                        batch.real().map(|_| RowEnd::Done { state_shape: 0, state_bytes: 4 }).collect();
                    let size = rows.len();
                    self.desk.core.lock().apply(now, Event::Ran { batch: batch.id, rows }, &mut out);
                    self.take(out);
                    return Some(size);
                }
                Next::Sleep(_) | Next::Gone => {
                    self.take(out);
                    return None;
                }
            };
        }
    }

    fn compare(&self, shadow: Option<Shadow>, after: &Next) {
        let Some(shadow) = shadow else { return };
        let ran: Option<Vec<Req>> = match after {
            Next::Run(batch) => Some(batch.real().map(|row| row.req).collect()),
            _ => None,
        };
        self.binding.compare(&shadow, ran.as_deref());
    }

    pub(super) fn drain(&mut self) -> Vec<usize> {
        std::iter::from_fn(|| self.turn()).collect()
    }

    pub(super) fn take(&mut self, out: Vec<Effect>) {
        let earlier = std::mem::take(&mut *self.desk.effects.lock());
        for effect in earlier.into_iter().chain(out) {
            match effect {
                Effect::Refuse { req, refusal, .. } => assert_eq!(self.answers.insert(req.ix, Err(refusal)), None),
                Effect::Release(req) => assert_eq!(self.answers.insert(req.ix, Ok(())), None),
                Effect::Note(Note::Fallback(_)) => self.binding.fell_back(),
                Effect::Note(Note::Stale(_, n)) => self.binding.went_stale(n),
                Effect::Note(note) => self.notes.push(note),
                _ => {}
            }
        }
    }

    /// Every request that was sent has been answered.
    pub(super) fn all_answered(&self) -> bool {
        (0..self.next_req).all(|req| self.answers.get(&req) == Some(&Ok(())))
    }
}
