//! The event loop: it drives the core in virtual time, in place of the server's threads and clock. Instances have entries on an agenda. A
//! batch takes the time that its cost gives, and an external policy takes time between question and answer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sequor_core::{
    Batch, Core, Dialect, Effect, Event, Id, Instance, LoadId, LoadSpec, Next, Note, PolicyAnswer, PolicyFault,
    PolicyQuestion, Preparation, QueueTerms, Req, RequestMeta, Round, RowEnd, Slab, Submit, Time,
};

use super::decider::SimPolicy;
use super::random::Random;
use super::serving::{Expire, Serving};
use super::tally::SimTally;
use super::workload::tenants;
use super::{Arrival, Costs, Workload};
use crate::scheduling::sentence;

/// One run: a workload on a load.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    pub workload: &'a Workload,
    pub serving: &'a Serving,
    pub spec: LoadSpec,
    pub costs: &'a Costs,
    pub seed: u64,
}

const LOAD: LoadId = LoadId::FIRST;
/// The random stream of costs. Flows use the streams from 1 on.
const COSTS: u64 = u64::MAX;

/// Runs until every arrival has been answered or refused, or nothing can happen any more.
pub fn run(setup: &Setup<'_>, policy: Option<&mut (dyn SimPolicy + '_)>) -> SimTally {
    let mut spec = setup.spec.clone();
    spec.external = policy.as_ref().map(|p| p.hooks());
    let mut driver = SimLoop::new(setup, policy, spec);
    while let Some(at) = driver.next_time() {
        driver.now = at;
        driver.happen();
        driver.pull_all();
        driver.tally.slots.set(at, driver.core.usage(LOAD).slots_used);
        if driver.is_through() {
            break;
        }
    }
    driver.tally.close(driver.now);
    driver.tally
}

struct SimLoop<'a, 'p> {
    setup: &'a Setup<'a>,
    policy: Option<&'a mut (dyn SimPolicy + 'p)>,
    core: Core,
    now: Time,
    /// Number of past arrivals.
    arrived: usize,
    /// Open requests, by their index in the workload.
    open: Slab<Req, u32>,
    agenda: BinaryHeap<Reverse<(Time, u64, SimEvent)>>,
    serial: u64,
    instances: Vec<SimInstance>,
    /// The policy is busy until this time: one round at a time.
    lane: Time,
    consult: bool,
    consulted: Option<(Box<Round>, PolicyAnswer)>,
    out: Vec<Effect>,
    random: Random,
    tenant_keys: Vec<u64>,
    tally: SimTally,
}

/// An event on the agenda.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimEvent {
    /// The instance's batch has run.
    Ran(u16),
    /// The policy has answered the instance's question.
    Answered(u16),
    /// The policy has answered an admission question.
    Admitted,
    /// A sleeping instance looks again, unless it was awake since then (its count of naps has changed).
    Look(u16, u32),
}

/// The state of an instance.
#[derive(Debug, Default)]
struct SimInstance {
    activity: InstanceActivity,
    naps: u32,
    /// Whether it pulls at the end of this moment.
    awake: bool,
}

#[derive(Debug, Default)]
enum InstanceActivity {
    #[default]
    Nothing,
    Running(Batch),
    Asking(Box<Round>, PolicyAnswer),
}

impl<'a, 'p> SimLoop<'a, 'p> {
    fn new(setup: &'a Setup<'a>, policy: Option<&'a mut (dyn SimPolicy + 'p)>, spec: LoadSpec) -> SimLoop<'a, 'p> {
        let (instances, slots) = (spec.instances, spec.all_slots());
        let mut core = Core::new();
        let mut out = Vec::new();
        core.apply(Time::ZERO, Event::Loaded(LOAD, spec), &mut out);
        SimLoop {
            setup,
            policy,
            core,
            now: Time::ZERO,
            arrived: 0,
            open: Slab::new(),
            agenda: BinaryHeap::new(),
            serial: 0,
            instances: (0..instances).map(|_| SimInstance { awake: true, ..SimInstance::default() }).collect(),
            lane: Time::ZERO,
            consult: false,
            consulted: None,
            out,
            random: Random::new(setup.seed, COSTS),
            tenant_keys: setup.workload.tenants.iter().map(|name| tenants::key(name)).collect(),
            tally: SimTally::new(setup.workload, slots),
        }
    }

    // === time ===

    fn next_arrival(&self) -> Option<&'a Arrival> {
        self.setup.workload.arrivals.get(self.arrived)
    }

    fn next_time(&self) -> Option<Time> {
        let arrival = self.next_arrival().map(|a| a.at);
        let task = self.agenda.peek().map(|Reverse((at, ..))| *at);
        // A deadline that was armed late is handled now, because time does not go back.
        [arrival, task, self.core.due()].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    fn is_through(&self) -> bool {
        self.next_arrival().is_none() && self.open.is_empty()
    }

    fn schedule(&mut self, after: Duration, task: SimEvent) {
        self.schedule_at(self.now + after, task);
    }

    fn schedule_at(&mut self, at: Time, task: SimEvent) {
        self.serial += 1;
        self.agenda.push(Reverse((at, self.serial, task)));
    }

    /// Handles everything of this moment: ends, deadlines, arrivals. Instances pull only afterwards, so that requests that arrive together
    /// can run together.
    fn happen(&mut self) {
        while let Some(Reverse((_, _, task))) = self.agenda.peek().filter(|Reverse((at, ..))| *at <= self.now).copied()
        {
            self.agenda.pop();
            self.do_task(task);
        }
        if self.core.due().is_some_and(|due| due <= self.now) {
            self.apply(Event::Tick);
        }
        while let Some(arrival) = self.next_arrival().filter(|a| a.at <= self.now) {
            let req = self.open.insert(u32::try_from(self.arrived).unwrap_or(u32::MAX));
            self.arrived += 1;
            let submit = self.submit(req, arrival);
            self.apply(Event::Submit(submit));
        }
    }

    fn do_task(&mut self, task: SimEvent) {
        match task {
            SimEvent::Ran(n) => {
                let InstanceActivity::Running(batch) = self.take_activity(n) else { return };
                let rows = batch.real().map(|_| RowEnd::Done { state_shape: 0, state_bytes: 0 }).collect();
                self.apply(Event::Ran { batch: batch.id, rows });
                self.wake(n);
            }
            SimEvent::Answered(n) => {
                let InstanceActivity::Asking(round, answer) = self.take_activity(n) else { return };
                self.explain(&round, &answer);
                let next = self.core.answer(self.now, round, answer, &mut self.out);
                self.apply_effects();
                self.follow(n, next);
            }
            SimEvent::Admitted => {
                let Some((round, answer)) = self.consulted.take() else { return };
                self.explain(&round, &answer);
                self.core.answer(self.now, round, answer, &mut self.out);
                self.apply_effects();
            }
            SimEvent::Look(n, naps) => {
                if self.instances.get(usize::from(n)).is_some_and(|instance| instance.naps == naps) {
                    self.wake(n);
                }
            }
        }
    }

    // === requests ===

    fn submit(&self, req: Req, arrival: &Arrival) -> Submit {
        let deadline = arrival.within.map(|within| arrival.at + within);
        let wait = self.setup.serving.backlog_timeout.filter(|_| arrival.start).map(|wait| arrival.at + wait);
        let key = self.tenant_keys.get(usize::from(arrival.tenant)).copied().unwrap_or(0);
        let (numbers, keys) = self.setup.workload.features.at(arrival.flow, key);
        Submit {
            req,
            id: Id::Int(u64::from(arrival.sequence) + 1),
            fresh_id: 0,
            start: arrival.start,
            end: arrival.end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: None,
            version: None,
            dialect: Dialect::TRITON,
            deadline,
            // As in the server: a deadline always refuses a request in the backlog.
            backlog_until: deadline.into_iter().chain(wait).min(),
            queue_until: deadline.filter(|_| self.setup.serving.expire == Expire::Reject),
            idle: None,
            priority: arrival.priority,
            meta: RequestMeta { rows: 1, bytes: arrival.bytes, shape: arrival.shape, keys, numbers },
            queue: QueueTerms { level: self.setup.serving.level(arrival.priority), ..QueueTerms::default() },
            origin: 0,
        }
    }

    fn apply(&mut self, event: Event) {
        self.core.apply(self.now, event, &mut self.out);
        self.apply_effects();
    }

    /// Applies the core's effects. Stages beside the run take no time here: each is answered at once.
    fn apply_effects(&mut self) {
        while !self.out.is_empty() {
            for event in self.take_effects() {
                self.core.apply(self.now, event, &mut self.out);
            }
        }
    }

    fn take_effects(&mut self) -> Vec<Event> {
        let mut answers = Vec::new();
        let mut out = std::mem::take(&mut self.out);
        for effect in out.drain(..) {
            match effect {
                Effect::Release(req) => {
                    if let Some(n) = self.open.remove(req) {
                        self.tally.answered(self.setup.workload, n, self.now);
                    }
                }
                Effect::Refuse { req, refusal, .. } => {
                    if self.open.remove(req).is_some() {
                        self.tally.refused(&refusal);
                    }
                }
                Effect::Wake(Instance { n, .. }) => self.wake(n),
                Effect::Consult(_) => self.consult = true,
                Effect::Note(Note::Fallback(_)) => self.tally.fallbacks += 1,
                Effect::Note(Note::Fault(_, fault)) => self.faulted(fault),
                Effect::Note(Note::Stale(_, n)) => self.tally.stale += u64::from(n),
                Effect::Tell(_) => self.notify_policy(),
                Effect::Prepare(req, _) => answers.push(Event::Prepared(req, self.prepared(req))),
                Effect::Post(req, _) => answers.push(Event::Posted(req)),
                Effect::Reply { req, seal } => answers.extend(seal.then_some(Event::Replied(req, None))),
                Effect::Seal(batch) => answers.push(Event::Sealed(batch, Vec::new())),
                Effect::Note(_) | Effect::Replay(..) => {}
            }
        }
        self.out = out;
        answers
    }

    /// The plan of a prepared request: run it unchanged.
    fn prepared(&self, req: Req) -> Preparation {
        let arrival = self.open.get(req).and_then(|n| self.setup.workload.arrivals.get(*n as usize));
        Preparation::Run(arrival.map_or_else(RequestMeta::default, |arrival| self.submit(req, arrival).meta))
    }

    // === instances ===

    fn wake(&mut self, n: u16) {
        if let Some(instance) = self.instances.get_mut(usize::from(n)) {
            instance.awake = true;
            instance.naps = instance.naps.wrapping_add(1);
        }
    }

    fn take_activity(&mut self, n: u16) -> InstanceActivity {
        self.instances
            .get_mut(usize::from(n))
            .map(|instance| std::mem::take(&mut instance.activity))
            .unwrap_or_default()
    }

    fn set_activity(&mut self, n: u16, activity: InstanceActivity) {
        if let Some(instance) = self.instances.get_mut(usize::from(n)) {
            instance.activity = activity;
        }
    }

    /// Lets every instance that is awake and free take its next step, until there is none.
    fn pull_all(&mut self) {
        loop {
            let free =
                |instance: &SimInstance| instance.awake && matches!(instance.activity, InstanceActivity::Nothing);
            let Some(n) = self.instances.iter().position(free).and_then(|n| u16::try_from(n).ok()) else { break };
            self.pull(n);
            self.ask_admission();
        }
        self.ask_admission();
    }

    fn pull(&mut self, n: u16) {
        if let Some(instance) = self.instances.get_mut(usize::from(n)) {
            instance.awake = false;
        }
        let next = self.core.next(self.now, Instance { load: LOAD, n }, &mut self.out);
        self.apply_effects();
        self.follow(n, next);
    }

    fn follow(&mut self, n: u16, next: Next) {
        match next {
            Next::Run(batch) => self.start(n, batch),
            // Slots have no state in the simulator.
            Next::Tidy(_) => self.wake(n),
            Next::Ask(round) => self.ask(n, round),
            Next::Sleep(Some(until)) => {
                let naps = self.instances.get(usize::from(n)).map_or(0, |instance| instance.naps);
                self.schedule_at(until, SimEvent::Look(n, naps));
            }
            Next::Sleep(None) | Next::Gone => {}
        }
    }

    fn start(&mut self, n: u16, batch: Batch) {
        let mut real = 0;
        for row in batch.real() {
            real += 1;
            if let Some(arrival) = self.open.get(row.req) {
                self.tally.taken(self.setup.workload, *arrival, self.now);
            }
        }
        let time = self.setup.costs.run(batch.rows.len(), self.now, &mut self.random);
        self.tally.batch(real, batch.rows.len(), time);
        self.set_activity(n, InstanceActivity::Running(batch));
        self.schedule(time, SimEvent::Ran(n));
    }

    // === the external policy ===

    /// Asks the policy a question. It sees the present; its answer arrives once it has spent its time on this and earlier questions.
    fn ask(&mut self, n: u16, mut round: Box<Round>) {
        let Some(policy) = self.policy.as_mut() else { return };
        policy.observe(&round.news);
        let answer = PolicyAnswer::Plan(policy.plan(&round.see, &mut round.picks));
        let until = self.decision_end(round.see.len);
        self.set_activity(n, InstanceActivity::Asking(round, answer));
        self.schedule_at(until, SimEvent::Answered(n));
    }

    /// Reports events without a question, because many have gathered.
    fn notify_policy(&mut self) {
        let (_, news, _) = self.core.observed(LOAD);
        if let Some(policy) = self.policy.as_mut() {
            policy.observe(&news);
        }
    }

    fn ask_admission(&mut self) {
        if !std::mem::take(&mut self.consult) || self.consulted.is_some() {
            return;
        }
        let (Some(mut round), Some(policy)) = (self.core.consult(self.now, LOAD), self.policy.as_mut()) else { return };
        policy.observe(&round.news);
        let answer = match &mut round.asked {
            PolicyQuestion::Admit { room, victims, .. } => policy.admit(&round.see, room, victims),
            PolicyQuestion::Plan(_) => Ok(Vec::new()),
        };
        let until = self.decision_end(round.see.len);
        self.consulted = Some((round, PolicyAnswer::Admit(answer)));
        self.schedule_at(until, SimEvent::Admitted);
    }

    /// Tells the policy what is wrong with its answer, before the core counts the fault.
    fn explain(&mut self, round: &Round, answer: &PolicyAnswer) {
        let is_given = matches!(answer, PolicyAnswer::Plan(Ok(_)) | PolicyAnswer::Admit(Ok(_)));
        if let (true, Err(fault), Some(policy)) = (is_given, round.check(answer), self.policy.as_mut()) {
            policy.explain(sentence(round, answer, fault));
        }
    }

    fn faulted(&mut self, fault: PolicyFault) {
        // A policy that is absent gives no answer, which is not a fault.
        self.tally.faults += u64::from(fault != PolicyFault::Busy);
        if let Some(policy) = self.policy.as_mut() {
            policy.faulted(self.now, fault);
        }
    }

    /// The time at which the policy has answered a question. The answer and its cost are known already.
    fn decision_end(&mut self, candidates: u32) -> Time {
        let spent = self.policy.as_mut().and_then(|policy| policy.spent());
        let takes = self.setup.costs.plan(candidates, spent);
        self.tally.note_decision(takes);
        let until = self.lane.max(self.now) + takes;
        self.lane = until;
        until
    }
}
