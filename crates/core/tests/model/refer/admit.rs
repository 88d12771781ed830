//! The reference model's admission: which requests are accepted, and why others are refused.

use sequor_core::*;

use super::{At, N, NEVER, Out, Plan, ROp, RReq, RSeq, Refer, ns};

enum Step {
    Taken,
    Replay,
}

impl Refer {
    pub fn submit(&mut self, now: u64, submit: &Submit) {
        if let Err(refusal) = self.try_submit(now, submit) {
            self.out.push(Out::Refuse(submit.req, refusal, false));
        }
    }

    /// The youngest live sequence of an id, and the youngest that is ending.
    pub fn lookup(&self, id: &Id, version: Option<u64>) -> (Option<N>, Option<N>) {
        let fits = |s: &&RSeq| s.linked && s.id == *id && version.is_none_or(|v| self.loads[s.load].spec.version == v);
        let youngest =
            |ending: bool| self.seqs.iter().filter(fits).filter(|s| s.ending.is_some() == ending).map(|s| s.n).max();
        (youngest(false), youngest(true))
    }

    pub fn target(&self, version: Option<u64>) -> Option<usize> {
        let open = (0..self.loads.len()).filter(|l| !self.loads[*l].gone && self.loads[*l].retired.is_none());
        open.filter(|l| version.is_none_or(|v| v == self.loads[*l].spec.version))
            .max_by_key(|l| (self.loads[*l].spec.version, self.loads[*l].born))
    }

    fn try_submit(&mut self, now: u64, submit: &Submit) -> Result<(), Refusal> {
        let (live, ending) = self.lookup(&submit.id, submit.version);
        let adopter = submit.adopt_on.filter(|_| !submit.start).and_then(|key| self.takes_back(now, key));
        // A version has one live sequence of an id.
        let lives = |load: &usize| self.lookup(&submit.id, Some(self.loads[*load].spec.version)).0.is_some();
        let adopter = adopter.filter(|load| !lives(load));
        let target = adopter.or_else(|| self.target(submit.version));
        if let Some(n) = live {
            let moves_on = submit.start
                && submit.dialect.live == OnLive::Restart
                && self.loads[self.seq(n).load].retired.is_some()
                && target.is_some();
            if !moves_on {
                return self.join(now, n, submit);
            }
        }
        let Some(load) = target else { return Err(self.nowhere(now, submit)) };
        if !self.loads[load].spec.is_stateful() {
            return self.enqueue(now, load, submit);
        }
        let id = named(submit)?;
        if !submit.start {
            let may_know = self.loads[load].spec.stages.activate || submit.adopt.is_some();
            if !may_know || ending.is_some() {
                return Err(Refusal::Unknown(self.stone(now, load, &id)));
            }
            step_of_kept(submit)?;
        }
        self.may_start(now, load, ending, submit)?;
        if let Some(old) = live {
            // A version has one live sequence of an id.
            let beside = self.lookup(&submit.id, Some(self.loads[load].spec.version)).0.filter(|n| *n != old);
            for old in [Some(old), beside].into_iter().flatten() {
                self.seq_mut(old).ending = Some(EndReason::Restarted);
                if self.seq(old).stage == Stage::Idle {
                    self.finish(now, old, EndReason::Restarted);
                }
            }
        }
        self.begin(now, load, id, submit);
        Ok(())
    }

    /// The load of this key, if it takes sequences that only it can continue.
    fn takes_back(&self, now: u64, key: LoadId) -> Option<usize> {
        let found = self.loads.iter().position(|l| l.key == key && !l.gone);
        let fits = |l: &usize| {
            let of = &self.loads[*l];
            of.retired.is_none_or(|until| of.stays && !of.ended && now < until)
        };
        found.filter(fits)
    }

    fn nowhere(&self, now: u64, submit: &Submit) -> Refusal {
        let same = |l: &usize| !self.loads[*l].gone && submit.version.is_none_or(|v| v == self.loads[*l].spec.version);
        let Some(load) = (0..self.loads.len()).find(same) else { return Refusal::NoVersion };
        if !self.loads[load].spec.is_stateful() {
            return Refusal::Stopping;
        }
        match named(submit) {
            Err(refusal) => refusal,
            Ok(_) if submit.start => Refusal::Stopping,
            Ok(id) => Refusal::Unknown(self.stone(now, load, &id)),
        }
    }

    /// The tombstone of an id, if it is not too old.
    fn stone(&self, now: u64, load: usize, id: &Id) -> Option<Tombstone> {
        let age = ns(self.loads[load].spec.limits.tomb_age);
        self.remembered(id).filter(|stone| now - stone.at.0 <= age)
    }

    pub fn remembered(&self, id: &Id) -> Option<Tombstone> {
        self.stones.iter().rev().find(|s| s.id == *id).map(|s| s.stone)
    }

    // === an id with a live sequence ===

    pub fn join(&mut self, now: u64, n: N, submit: &Submit) -> Result<(), Refusal> {
        let s = self.seq(n);
        let load = s.load;
        let limits = self.loads[load].spec.limits;
        if submit.start && submit.dialect.live == OnLive::Refuse {
            let too_many = submit.dialect.count_first && limits.live > 0 && self.live(load) >= limits.live;
            return Err(if too_many { Refusal::TooMany { limit: limits.live } } else { Refusal::Live });
        }
        if let Step::Replay = self.step_of(s, submit)? {
            self.out.push(Out::Replay(submit.req, n));
            let turn = self.next_turn();
            let s = self.seq_mut(n);
            s.touched = now;
            if s.stage == Stage::Idle {
                s.turn = turn;
            }
            return Ok(());
        }
        if s.queue.len() as u32 >= limits.per_sequence {
            return Err(Refusal::QueueFull { limit: limits.per_sequence });
        }
        let (bytes, waits) = (self.backlog_bytes(load), s.stage == Stage::Backlogged);
        if waits && bytes + submit.meta.bytes > limits.backlog_bytes {
            return Err(Refusal::BacklogFull { sequences: self.backlog(load).len() as u32, bytes });
        }
        self.queue(now, n, submit);
        if submit.start {
            let idle = self.idle_of(load, submit);
            self.seq_mut(n).idle = idle;
        }
        if self.seq(n).stage == Stage::Idle {
            self.advance(now, n);
        }
        Ok(())
    }

    /// Step numbers count within a life, from its START. A step that waits, runs or is not answered yet is busy. The last answered one is
    /// kept.
    fn step_of(&self, s: &RSeq, submit: &Submit) -> Result<Step, Refusal> {
        let Some(step) = submit.step else { return Ok(Step::Taken) };
        let the_start_again = step == s.first && s.next_step == step.saturating_add(1);
        if step == s.next_step || (submit.start && !the_start_again) {
            return Ok(Step::Taken);
        }
        if step > s.next_step {
            return Err(Refusal::StepGap { want: s.next_step });
        }
        let pending: Vec<&RReq> = s.current.iter().chain(&s.queue).filter_map(|r| self.req(*r)).collect();
        let restarts = pending.iter().any(|r| r.start);
        let unanswered = pending.iter().any(|r| matches!(r.at, At::Sealing | At::Posting)) || self.awaits_turn(s);
        let through = if restarts {
            s.first.saturating_sub(1)
        } else if unanswered {
            s.step.saturating_sub(1)
        } else {
            s.step
        };
        if step > through && (unanswered || !pending.is_empty()) {
            return Err(Refusal::StepBusy { step });
        }
        if step == s.step && step >= s.first && !restarts && !unanswered && s.announced {
            Ok(Step::Replay)
        } else {
            Err(Refusal::StepGone { want: s.next_step })
        }
    }

    /// Whether the answer of its last committed step waits for those that are due before it.
    fn awaits_turn(&self, s: &RSeq) -> bool {
        s.last.is_some_and(|last| self.loads[s.load].turns.iter().any(|(req, _)| *req == last))
    }

    // === an id without a live sequence ===

    pub fn may_start(&self, now: u64, load: usize, ending: Option<N>, submit: &Submit) -> Result<(), Refusal> {
        let l = &self.loads[load];
        let limits = l.spec.limits;
        let too_many = limits.live > 0 && self.live(load) >= limits.live;
        if too_many && submit.dialect.count_first {
            return Err(Refusal::TooMany { limit: limits.live });
        }
        if submit.start && ending.is_some() && submit.dialect.ending == OnEnding::Refuse {
            return Err(Refusal::Ending);
        }
        if too_many {
            return Err(Refusal::TooMany { limit: limits.live });
        }
        let backlog = self.backlog(load).len() as u32;
        let waiting = backlog + self.preparing(load);
        if limits.store > 0 && self.used(load) + waiting >= limits.store {
            return Err(Refusal::StoreFull { limit: limits.store });
        }
        if waiting < self.free(load) || (waiting == 0 && self.evictable(now, load).is_some()) {
            return Ok(());
        }
        if submit.dialect.full == WhenFull::Refuse {
            let in_service = l.inst.iter().filter(|inst| !inst.lost).count() as u32;
            return Err(Refusal::TooMany { limit: l.spec.slots() * in_service });
        }
        let bytes = self.backlog_bytes(load);
        if waiting - self.free(load) >= limits.backlog || bytes + submit.meta.bytes > limits.backlog_bytes {
            return Err(Refusal::BacklogFull { sequences: backlog, bytes });
        }
        Ok(())
    }

    pub fn begin(&mut self, now: u64, load: usize, id: Id, submit: &Submit) {
        self.seq_born += 1;
        self.keys.push(None);
        let n = self.seq_born;
        let adopts = submit.adopt.filter(|_| !submit.start);
        let first = submit.step.or(adopts.map(|step| step + 1)).unwrap_or(1);
        let announced = submit.start || (adopts.is_some() && !submit.prepare);
        self.seqs.push(RSeq {
            n,
            key: None,
            id,
            load,
            placement: None,
            stage: Stage::Preparing,
            turn: 0,
            idled: 0,
            queue: Vec::new(),
            current: None,
            ending: None,
            leaving: None,
            linked: true,
            ran: false,
            holds_state: false,
            begun: false,
            first_state: (!submit.start).then_some(ROp::Adopt(0, submit.req)),
            adopted: !submit.start,
            held: reserves(submit),
            level: submit.queue.level,
            announced,
            next_step: first,
            first,
            step: first.saturating_sub(1),
            last: None,
            touched: now,
            idle: self.idle_of(load, submit),
            backlogged_at: now,
            backlog_until: NEVER,
            state_shape: self.loads[load].spec.initial_state_shape,
            state_bytes: 0,
        });
        self.queue(now, n, submit);
        if announced {
            self.out.push(Out::Started(n, submit.req));
        }
        if reserves(submit) || self.req(submit.req).is_some_and(|r| r.plan.is_some()) {
            self.assign_slot_or_wait(now, n);
        } else {
            self.lend(submit.req, Some(n));
        }
    }

    fn idle_of(&self, load: usize, submit: &Submit) -> Option<u64> {
        let spec = &self.loads[load].spec;
        match (spec.expiry, submit.start || submit.adopt.is_some(), submit.idle, spec.idle_longest) {
            (Expiry::TwoScans { .. }, ..) => None,
            (_, true, Some(asked), Some(longest)) => Some(ns(asked).min(ns(longest))),
            (Expiry::Idle(default), ..) => Some(ns(default)),
            (Expiry::Never, ..) => None,
        }
    }

    fn queue(&mut self, now: u64, n: N, submit: &Submit) {
        let load = self.seq(n).load;
        let stages = self.loads[load].spec.stages;
        let s = self.seq_mut(n);
        let step = submit.step.unwrap_or(if submit.start { 1 } else { s.next_step });
        let first = submit.start || (s.adopted && !s.announced && s.queue.is_empty());
        s.next_step = step.saturating_add(1);
        if submit.start {
            s.first = step;
            s.held = reserves(submit);
        }
        s.touched = now;
        if submit.end {
            s.ending = Some(EndReason::End);
        }
        s.backlog_until = s.backlog_until.min(submit.backlog_until.map_or(NEVER, |t| t.0));
        s.queue.push(submit.req);
        let made = submit.adopt.is_some() && !submit.start;
        let asked = first && (submit.prepare || (!made && (stages.activate || stages.initialize)));
        let prepared = !reserves(submit) && !stages.pre && !asked;
        self.keep(now, load, Some(n), step, prepared, submit);
    }

    fn enqueue(&mut self, now: u64, load: usize, submit: &Submit) -> Result<(), Refusal> {
        let limit = self.loads[load].spec.limits.backlog;
        if self.ready(load, 0).len() as u32 + self.preparing(load) >= limit {
            return Err(Refusal::QueueFull { limit });
        }
        let QueueTerms { level, most, .. } = submit.queue;
        let of_level = |r: &&Req| self.req(**r).is_some_and(|r| r.level == level);
        if most > 0 && self.ready(load, 0).iter().filter(of_level).count() as u32 >= most {
            return Err(Refusal::QueueFull { limit: most });
        }
        let prepared = !self.loads[load].spec.stages.pre;
        self.keep(now, load, None, 0, prepared, submit);
        if prepared {
            self.stateless_ready(now, submit.req);
        } else {
            self.lend(submit.req, None);
        }
        Ok(())
    }

    fn keep(&mut self, now: u64, load: usize, seq: Option<N>, step: u64, prepared: bool, submit: &Submit) {
        let ix = submit.req.ix as usize;
        if self.reqs.len() <= ix {
            self.reqs.resize_with(ix + 1, || None);
        }
        self.reqs[ix] = Some(RReq {
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
            turn: 0,
            deadline: submit.deadline.map_or(NEVER, |t| t.0),
            priority: submit.priority,
            level: submit.queue.level,
            delays: submit.queue.delays,
            late: false,
            meta: submit.meta,
            at: At::Queued,
            plan: prepared.then_some(Plan::Run(1)),
            first_shape: None,
            ran: 0,
            queue_until: submit.queue_until.map_or(NEVER, |t| t.0),
            ahead: 0,
            alike: true,
            passed: 0,
        });
    }
}

/// A counted step continues from the state that it adopts, or repeats its last step if the driver has the answer.
fn step_of_kept(submit: &Submit) -> Result<(), Refusal> {
    let (Some(kept), Some(step)) = (submit.adopt, submit.step) else { return Ok(()) };
    let want = kept + 1;
    if step > want {
        return Err(Refusal::StepGap { want });
    }
    if step == want || (step == kept && submit.prepare) { Ok(()) } else { Err(Refusal::StepGone { want }) }
}

/// Whether a START gets its slot before it is prepared.
fn reserves(submit: &Submit) -> bool {
    submit.start && submit.origin != 0
}

fn named(submit: &Submit) -> Result<Id, Refusal> {
    match (&submit.id, submit.dialect.no_id) {
        (Id::None, NoId::Assign) if submit.start && submit.fresh_id != 0 => Ok(Id::Int(submit.fresh_id)),
        (Id::None, _) => Err(Refusal::NoId),
        (id, _) => Ok(id.clone()),
    }
}
