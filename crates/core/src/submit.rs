//! Admission: from a submitted request to its place in the queue of a sequence or of a load.

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Refusal, Submit};
use crate::faults::{Planted, fault};
use crate::ids::{Id, LoadId, Seq};
use crate::level_queue::QueuePlace;
use crate::request::{self, Request};
use crate::request_meta::QueueTerms;
use crate::sequence::Stage;
use crate::slot_assignment::wake;
use crate::spec::{NoId, OnLive};
use crate::steps::Repeated;
use crate::time::Time;
use crate::timer::Due;

impl Core {
    pub(crate) fn submit(&mut self, now: Time, submit: &Submit, out: &mut Vec<Effect>) {
        let req = submit.req;
        if let Err(refusal) = self.try_submit(now, submit, out) {
            out.push(Effect::Refuse { req, refusal, ended: false });
        } else if let Some(load) = self.reqs.get(req).map(|r| r.load) {
            self.let_go(load, out);
        }
    }

    /// Lets a load on [`Hold`](crate::Hold) run, once enough requests wait.
    fn let_go(&mut self, load: LoadId, out: &mut Vec<Effect>) {
        let Some((state, hold)) = self.load(load).and_then(|l| Some((l, l.holding?))) else { return };
        let queued = |with_slot: bool| {
            let of_load = self.seqs.iter().filter(move |(_, s)| s.load == load && s.placement.is_some() == with_slot);
            of_load.map(|(_, s)| s.queue.len()).sum::<u32>()
        };
        if queued(true) + state.ready.len() < hold.requests || queued(false) < hold.backlog {
            return;
        }
        let Some(state) = load_in(&mut self.loads, load) else { return };
        state.holding = None;
        for n in 0..u16::try_from(state.instances.len()).unwrap_or(u16::MAX) {
            wake(state, n, out);
        }
    }

    fn try_submit(&mut self, now: Time, submit: &Submit, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        let found = self.lookup(&submit.id, submit.version);
        let adopter = submit.adopt_on.filter(|load| !submit.start && self.may_adopt(now, *load, &submit.id));
        let target = adopter.or_else(|| self.target(submit.version));
        if let Some(seq) = found.live
            && !(submit.start && self.moves_on(seq, target, submit))
        {
            return self.join(now, seq, submit, out);
        }
        let Some(load) = target else { return Err(self.no_target(now, submit)) };
        if !self.load(load).is_some_and(|l| l.spec.is_stateful()) {
            return self.enqueue(now, load, submit, out);
        }
        let id = named(submit)?;
        if !submit.start {
            return self.activate(now, load, id, &found, submit, out);
        }
        self.may_start(now, load, &found, submit)?;
        if let Some(old) = found.live {
            // The version of that load may have a live sequence of the id, too. It ends as well: a version has one of an id.
            let version = self.load(load).map(|load| load.spec.version);
            let beside = self.lookup(&submit.id, version).live.filter(|_| !fault(Planted::SecondLiveKept));
            for old in [Some(old), beside].into_iter().flatten() {
                self.end_after_queue(now, old, out);
            }
        }
        self.begin(now, load, id, submit, out);
        Ok(())
    }

    /// Whether a step of an id may begin a sequence on a load that is perhaps retired. A version has one live sequence of an id.
    fn may_adopt(&self, now: Time, load: LoadId, id: &Id) -> bool {
        let version = self.load(load).map(|load| load.spec.version);
        let is_free = self.lookup(id, version).live.is_none() || fault(Planted::AdoptedBesideLive);
        self.takes_back(now, load) && is_free
    }

    /// Lets a sequence whose id goes to a new one end after its queue.
    fn end_after_queue(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        if let Some(s) = self.seqs.get_mut(seq) {
            s.ending = Some(EndReason::Restarted);
            self.finish_if_through(now, seq, out);
        }
    }

    /// The load that a request would go to. The caller checks the request against that load's settings before it submits it.
    pub fn route(&self, id: &Id, version: Option<u64>, start: bool) -> Option<LoadId> {
        let target = self.target(version);
        let live = self.lookup(id, version).live.and_then(|seq| self.seqs.get(seq)).map(|s| s.load);
        let retired = live.and_then(|load| self.load(load)).is_some_and(|l| l.retired.is_some());
        if start && retired { target.or(live) } else { live.or(target) }
    }

    /// Whether a START on this live sequence opens a new one on a newer load, and the old one ends after its queue.
    fn moves_on(&self, seq: Seq, target: Option<LoadId>, submit: &Submit) -> bool {
        let retired = self.seqs.get(seq).and_then(|s| self.load(s.load)).is_some_and(|l| l.retired.is_some());
        retired && target.is_some() && submit.dialect.live == OnLive::Restart
    }

    /// The reason why no load takes this request.
    fn no_target(&self, now: Time, submit: &Submit) -> Refusal {
        let same = self.loads.iter().filter(|l| submit.version.is_none_or(|v| v == l.spec.version));
        match same.min_by_key(|l| l.born) {
            None => Refusal::NoVersion,
            Some(load) if !load.spec.is_stateful() => Refusal::Stopping,
            Some(load) => match named(submit) {
                Ok(_) if submit.start => Refusal::Stopping,
                Ok(id) => Refusal::Unknown(self.remembered(now, load.key, &id)),
                Err(refusal) => refusal,
            },
        }
    }

    // === an id that lives ===

    pub(crate) fn join(&mut self, now: Time, seq: Seq, submit: &Submit, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        if self.check_join(seq, submit)? == Repeated::LastStep {
            out.push(Effect::Replay(submit.req, seq));
            self.touch(now, seq);
            return Ok(());
        }
        let Some(s) = self.seqs.get(seq) else { return Err(Refusal::Unknown(None)) };
        let (load, stage) = (s.load, s.stage);
        if stage == Some(Stage::Idle) {
            // Before a START can change who holds it, which decides its list.
            self.remove_idle(seq);
        }
        self.queue(now, seq, load, submit);
        if submit.start {
            let idle = self.load(load).and_then(|l| l.idle_of(submit));
            if let Some(s) = self.seqs.get_mut(seq) {
                s.idle = idle;
            }
        }
        match stage {
            Some(Stage::Idle) => self.advance(now, seq, out),
            Some(Stage::Running) if fault(Planted::TwoInFlight) => self.advance(now, seq, out),
            Some(Stage::Backlogged) => {
                if let Some(state) = load_in(&mut self.loads, load) {
                    state.backlog_bytes += submit.meta.bytes;
                }
                self.arm_sequence(seq);
            }
            _ => {}
        }
        Ok(())
    }

    /// Starts the idle time of a sequence again, because its client is active.
    fn touch(&mut self, now: Time, seq: Seq) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.touched = now;
        if s.stage == Some(Stage::Idle) {
            self.remove_idle(seq);
            self.add_idle(seq);
        }
    }

    /// Checks a request for a live sequence without changing anything.
    fn check_join(&self, seq: Seq, submit: &Submit) -> Result<Repeated, Refusal> {
        let Some((s, load)) = self.seqs.get(seq).and_then(|s| Some((s, self.load(s.load)?))) else {
            return Err(Refusal::Unknown(None));
        };
        let limits = &load.spec.limits;
        if submit.start && submit.dialect.live == OnLive::Refuse {
            let too_many = submit.dialect.count_first && limits.live > 0 && load.live >= limits.live;
            return Err(if too_many { Refusal::TooMany { limit: limits.live } } else { Refusal::Live });
        }
        if self.step_of(s, submit)? == Repeated::LastStep {
            return Ok(Repeated::LastStep);
        }
        if s.queue.len() >= limits.per_sequence {
            return Err(Refusal::QueueFull { limit: limits.per_sequence });
        }
        if s.stage == Some(Stage::Backlogged)
            && load.backlog_bytes.saturating_add(submit.meta.bytes) > limits.backlog_bytes
        {
            return Err(Refusal::BacklogFull { sequences: load.backlog.len(), bytes: load.backlog_bytes });
        }
        Ok(Repeated::No)
    }

    /// Puts a request at the end of its sequence's queue.
    pub(crate) fn queue(&mut self, now: Time, seq: Seq, load: LoadId, submit: &Submit) {
        let Some(stages) = self.load(load).map(|l| l.spec.stages) else { return };
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let step = match submit.step {
            Some(step) => step,
            None if submit.start => 1,
            None => s.next_step,
        };
        s.next_step = step.saturating_add(if fault(Planted::StepOffByOne) { 2 } else { 1 });
        if submit.start {
            (s.first, s.began) = (step, now);
            s.starts += 1;
            s.held = submit.reserves();
        }
        s.touched = now;
        s.bytes = s.bytes.saturating_add(submit.meta.bytes);
        if submit.end && !fault(Planted::EndForgotten) {
            s.ending = Some(EndReason::End);
        }
        if let Some(until) = submit.backlog_until {
            s.backlog_until = s.backlog_until.min(until);
        }
        let first = submit.start || (s.adopted && !s.ran && s.queue.is_empty() && s.placement.is_none());
        let made = submit.adopt.is_some() && !submit.start;
        let asked = first && submit.prepare;
        let prepared =
            !(asked || submit.reserves() || stages.pre || (first && !made && (stages.activate || stages.initialize)));
        self.req_links.push_back(&mut s.queue, submit.req.ix);
        self.reqs.insert(request_of(now, load, Some(seq), step, prepared, submit));
        self.arm_request(submit);
    }

    // === stateless ===

    fn enqueue(&mut self, now: Time, load: LoadId, submit: &Submit, out: &mut Vec<Effect>) -> Result<(), Refusal> {
        let Some(state) = load_in(&mut self.loads, load) else { return Err(Refusal::Stopping) };
        if state.ready.len() + state.preparing >= state.spec.limits.backlog {
            return Err(Refusal::QueueFull { limit: state.spec.limits.backlog });
        }
        let QueueTerms { level, most, .. } = submit.queue;
        if most > 0 && state.ready.len_of(level) >= most && !fault(Planted::LevelFullIgnored) {
            return Err(Refusal::QueueFull { limit: most });
        }
        let prepared = !state.spec.stages.pre;
        self.reqs.insert(request_of(now, load, None, 0, prepared, submit));
        self.arm_request(submit);
        if prepared {
            self.stateless_ready(now, submit.req, out);
        } else {
            self.will_want_room(load);
            self.prepare(submit.req, None, out);
        }
        Ok(())
    }

    fn arm_request(&mut self, submit: &Submit) {
        if let (Some(until), Some(r)) = (submit.queue_until, self.reqs.get_mut(submit.req)) {
            self.timers.arm(&mut r.armed, until, Due::Req(submit.req));
        }
    }
}

/// The id of a stateful request, assigned if the dialect does so.
fn named(submit: &Submit) -> Result<Id, Refusal> {
    match (&submit.id, submit.dialect.no_id) {
        (Id::None, NoId::Assign) if submit.start && submit.fresh_id != 0 => Ok(Id::Int(submit.fresh_id)),
        (Id::None, _) => Err(Refusal::NoId),
        (id, _) => Ok(id.clone()),
    }
}

fn request_of(now: Time, load: LoadId, seq: Option<Seq>, step: u64, prepared: bool, submit: &Submit) -> Request {
    Request {
        key: submit.req,
        load,
        seq,
        start: submit.start,
        end: submit.end,
        step,
        counted: submit.step.is_some(),
        names_version: submit.version.is_some(),
        dialect: submit.dialect,
        arrival: now,
        ready: now,
        deadline: submit.deadline,
        priority: submit.priority,
        place: QueuePlace { level: submit.queue.level, late: false },
        delays: submit.queue.delays,
        meta: submit.meta,
        stage: request::RequestStage::Queued,
        plan: prepared.then_some(request::RunPlan::Run(1)),
        first_shape: None,
        ran: 0,
        turn: None,
        queue_until: submit.queue_until.unwrap_or(Time::NEVER),
        armed: Time::NEVER,
    }
}
