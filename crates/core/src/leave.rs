//! Ends: of sequences (END, expiry, cancellation, eviction, retirement) and of requests that never run.

use crate::core::{Core, load_in};
use crate::ending::{EndReason, Tombstone};
use crate::event::{Effect, Note, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{LoadId, Req, Seq};
use crate::level_queue::QueuePlace;
use crate::load::{Consulting, LoadState};
use crate::policy::Hooks;
use crate::request::RequestStage;
use crate::sequence::Stage;
use crate::slot_assignment::{wake, wake_one};
use crate::spec::Expiry;
use crate::time::Time;

impl Core {
    // === sequences ===

    /// Ends a sequence from outside. Queued requests are refused; a request past the queue ends first.
    pub(crate) fn leave(&mut self, now: Time, seq: Seq, why: EndReason, told: Refusal, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        if s.leaving.is_some() {
            return;
        }
        if s.current.is_some() {
            s.leaving = Some(why);
            self.refuse_queue(seq, told, out);
            self.unlink(seq);
            self.insert(now, seq, why);
            return;
        }
        self.unlist(seq);
        let load = self.seqs.get(seq).map(|s| s.load);
        self.remove(now, seq, why, told, out);
        if let Some(load) = load {
            self.admit_waiting(now, load, out);
        }
    }

    /// Ends a sequence that is in no list and has no current request, and hands its slot on.
    pub(crate) fn finish(&mut self, now: Time, seq: Seq, why: EndReason, out: &mut Vec<Effect>) {
        let Some(load) = self.seqs.get(seq).map(|s| s.load) else { return };
        self.remove(now, seq, why, Refusal::of_end(why), out);
        self.admit_waiting(now, load, out);
    }

    /// Ends a sequence that was told to run out, if it has nothing left to run.
    pub(crate) fn finish_if_through(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get(seq) else { return };
        if let (Some(why), true, Some(Stage::Idle)) = (s.ending, s.queue.is_empty(), s.stage) {
            self.unlist(seq);
            self.finish(now, seq, why, out);
        }
    }

    /// Takes a sequence off the table. It must be in no list.
    pub(crate) fn remove(&mut self, now: Time, seq: Seq, why: EndReason, told: Refusal, out: &mut Vec<Effect>) {
        self.refuse_queue(seq, told, out);
        if self.seqs.get(seq).is_some_and(|s| s.leaving.is_none()) {
            self.unlink(seq);
            self.insert(now, seq, why);
        }
        let announced = self.seqs.get(seq).filter(|s| s.announced).map(|s| s.load);
        if let Some(load) = announced.filter(|_| why != EndReason::Evicted || !fault(Planted::StartedWithoutEnded)) {
            self.note(load, Note::Ended(seq, why), out);
        }
        let Some(s) = self.seqs.remove(seq) else { return };
        if s.leaving.is_some() {
            self.tombstones.amend(&s.id, s.born, s.step);
        }
        self.transitions.count(s.stage, None);
        if s.stage == Some(Stage::Preparing) && s.placement.is_none() {
            self.wants_no_room(s.load);
        }
        let Some(state) = load_in(&mut self.loads, s.load) else { return };
        state.live = state.live.saturating_sub(1);
        if let Some(placement) = s.placement {
            state.release(placement, s.ran, out);
        }
        self.wake_if_over(s.load, out);
    }

    /// Takes a sequence out of whichever list its stage puts it in.
    pub(crate) fn unlist(&mut self, seq: Seq) {
        let Some(s) = self.seqs.get(seq) else { return };
        let (load, placement) = (s.load, s.placement);
        let Some(state) = load_in(&mut self.loads, load) else { return };
        match s.stage {
            Some(Stage::Idle) => self.seq_links.remove(&mut state.idle, seq.ix),
            Some(Stage::Backlogged) => self.unbacklog(load, seq),
            Some(Stage::Ready) => {
                if let Some(instance) = placement.and_then(|(n, _)| state.instances.get_mut(usize::from(n))) {
                    self.seq_links.remove(&mut instance.ready, seq.ix);
                }
            }
            _ => {}
        }
    }

    fn refuse_queue(&mut self, seq: Seq, told: Refusal, out: &mut Vec<Effect>) {
        while let Some(s) = self.seqs.get_mut(seq) {
            let Some(ix) = self.req_links.pop_front(&mut s.queue) else { break };
            if fault(Planted::CancelForgetsOne) && s.queue.is_empty() {
                break;
            }
            if let Some(r) = self.reqs.at(ix).map(|r| r.key).and_then(|key| self.reqs.remove(key)) {
                out.push(Effect::Refuse { req: r.key, refusal: told, ended: !fault(Planted::EndUntold) });
                self.turn_done(&r, false, out);
            }
        }
    }

    /// Takes a sequence out of the chain of its id.
    fn unlink(&mut self, seq: Seq) {
        if fault(Planted::IdNotUnlinked) {
            return;
        }
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let (id, older) = (s.id.clone(), s.older.take());
        let Some(first) = self.ids.get(&id).copied() else { return };
        if first == seq {
            match older {
                Some(older) => self.ids.insert(id, older),
                None => self.ids.remove(&id),
            };
            return;
        }
        let mut at = Some(first);
        while let Some(key) = at {
            let Some(s) = self.seqs.get_mut(key) else { break };
            if s.older == Some(seq) {
                s.older = older;
                break;
            }
            at = s.older;
        }
    }

    fn insert(&mut self, now: Time, seq: Seq, why: EndReason) {
        let Some(s) = self.seqs.get(seq) else { return };
        let Some(limit) = self.load(s.load).map(|l| l.spec.limits.tombstones) else { return };
        let why = if why == EndReason::Idle && fault(Planted::WrongReason) { EndReason::End } else { why };
        if s.announced && why != EndReason::Spilled {
            self.tombstones.insert(s.id.clone(), s.born, Tombstone { why, at: now, step: s.step, idle: s.idle }, limit);
        }
    }

    // === requests that never run ===

    /// Cancels a request, or refuses it because its time has come. The load says whether its sequence ends with it.
    pub(crate) fn cancel(&mut self, now: Time, req: Req, told: Refusal, why: EndReason, out: &mut Vec<Effect>) {
        let load = self.reqs.get(req).map(|r| r.load);
        let ends = load.and_then(|load| self.load(load)).is_some_and(|l| l.spec.cancel_ends);
        self.turn_away(now, req, told, why, ends, out);
    }

    /// Refuses a request that waits; `ends` says whether its sequence ends with it. A running request runs to its end.
    pub(crate) fn turn_away(
        &mut self,
        now: Time,
        req: Req,
        told: Refusal,
        why: EndReason,
        ends: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(r) = self.reqs.get(req) else { return };
        if !r.is_untouched() {
            return;
        }
        let Some(seq) = r.seq else { return self.drop_stateless(req, told, out) };
        // The request that a tier's state was found for takes the sequence with it: the tier still has the state.
        let adopts = self.seqs.get(seq).is_some_and(|s| s.adopted && !s.ran && s.queue.front() == Some(req.ix));
        if r.start || adopts || ends {
            self.leave(now, seq, why, told, out);
        } else {
            self.drop_step(now, seq, req, told, out);
        }
    }

    pub(crate) fn drop_stateless(&mut self, req: Req, told: Refusal, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.remove(req) else { return };
        if r.plan.is_none() {
            self.wants_no_room(r.load);
        } else if let Some(state) = load_in(&mut self.loads, r.load) {
            state.ready.remove(&mut self.req_links, r.place, req.ix);
            // Without it the others may make a batch that need not wait.
            wake_one(state, out);
        }
        out.push(Effect::Refuse { req, refusal: told, ended: false });
        self.wake_if_over(r.load, out);
    }

    /// Takes one step out of the queue of its sequence, which lives on. If its client counts, the step is expected again.
    pub(crate) fn drop_step(&mut self, now: Time, seq: Seq, req: Req, told: Refusal, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let head = s.queue.front() == Some(req.ix);
        let was = s.stage;
        if head && was == Some(Stage::Ready) {
            self.unlist(seq);
        }
        if let Some(step) = self.reqs.get(req).filter(|r| r.counted).map(|r| r.step) {
            self.expect_again(seq, Some(req), step, out);
        }
        self.take_out(seq, req, told, false, out);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.touched = now;
        if head && s.placement.is_some() && matches!(was, Some(Stage::Ready | Stage::Preparing)) {
            self.advance(now, seq, out);
        }
    }

    /// A counted step will not be: it is expected again, and what was counted on behind it (`None`: the whole queue) cannot run before it.
    pub(crate) fn expect_again(&mut self, seq: Seq, dropped: Option<Req>, step: u64, out: &mut Vec<Effect>) {
        loop {
            let Some(s) = self.seqs.get_mut(seq) else { return };
            let next = match dropped {
                Some(req) => self.req_links.after(req.ix),
                None => s.queue.front(),
            };
            match next.and_then(|ix| self.reqs.at(ix)).map(|r| (r.key, r.counted && !r.start)) {
                Some((key, true)) => self.take_out(seq, key, Refusal::StepGap { want: step }, false, out),
                Some(_) => return,
                None => {
                    s.next_step = step;
                    return;
                }
            }
        }
    }

    /// Refuses a request that waits in the queue of a sequence, which `ended` with it or lives on.
    pub(crate) fn take_out(&mut self, seq: Seq, req: Req, refusal: Refusal, ended: bool, out: &mut Vec<Effect>) {
        let superseded = self.reqs.get(req).is_some_and(|r| r.end) && self.is_superseded(seq);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let Some(r) = self.reqs.remove(req) else { return };
        self.req_links.remove(&mut s.queue, req.ix);
        s.bytes = s.bytes.saturating_sub(r.meta.bytes);
        if r.end {
            // Its END is refused; but if its id has gone to a younger sequence, no request can reach it any more.
            s.ending = superseded.then_some(EndReason::Restarted);
        }
        if s.stage == Some(Stage::Backlogged)
            && let Some(state) = load_in(&mut self.loads, s.load)
        {
            state.backlog_bytes = state.backlog_bytes.saturating_sub(r.meta.bytes);
        }
        out.push(Effect::Refuse { req, refusal, ended });
    }

    /// Whether a younger sequence has this one's id.
    fn is_superseded(&self, seq: Seq) -> bool {
        self.seqs.get(seq).and_then(|s| self.ids.get(&s.id)).is_some_and(|youngest| *youngest != seq)
    }

    // === deadlines ===

    /// When something is due for this sequence in the stage it is in.
    pub(crate) fn deadline_of(&self, seq: Seq) -> Time {
        let Some(s) = self.seqs.get(seq) else { return Time::NEVER };
        match s.stage {
            Some(Stage::Backlogged) => s.backlog_until,
            Some(Stage::Idle) if s.held && !fault(Planted::HeldExpires) => Time::NEVER,
            Some(Stage::Idle) => match self.load(s.load).map(|l| l.spec.expiry) {
                Some(Expiry::Idle(_) | Expiry::Never) => s.idle.map_or(Time::NEVER, |idle| s.touched + idle + late()),
                Some(Expiry::TwoScans { every }) => second_scan(s.touched, every),
                None => Time::NEVER,
            },
            _ => Time::NEVER,
        }
    }

    pub(crate) fn sequence_due(&mut self, now: Time, at: Time, seq: Seq, out: &mut Vec<Effect>) {
        let deadline = self.deadline_of(seq);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        if s.armed != at {
            return;
        }
        s.armed = Time::NEVER;
        // Overtaken: it waits for its turn again, so that even a late tick does what is due in the order of the deadlines.
        if deadline > at {
            return self.arm_sequence(seq);
        }
        if s.stage == Some(Stage::Backlogged) {
            let (waited, ahead) = (now - s.backlogged_at, self.ahead_of(seq));
            self.leave(now, seq, EndReason::Cancelled, Refusal::BacklogTimeout { waited, ahead }, out);
        } else {
            self.leave(now, seq, EndReason::Idle, Refusal::Ended(EndReason::Idle), out);
        }
    }

    /// Sequences in front of this one in the backlog; not counted beyond a thousand.
    fn ahead_of(&self, seq: Seq) -> u32 {
        let Some(load) = self.seqs.get(seq).and_then(|s| self.load(s.load)) else { return 0 };
        let before = load.backlog.iter(&self.seq_links).take(1000).take_while(|ix| *ix != seq.ix).count();
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    pub(crate) fn request_due(&mut self, now: Time, at: Time, req: Req, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get_mut(req) else { return };
        if r.armed != at || r.queue_until > now {
            return;
        }
        r.armed = Time::NEVER;
        if r.seq.is_none() && r.delays {
            return self.delay(req);
        }
        let (waited, ahead) = (now - r.arrival, self.ahead_of_request(req));
        self.cancel(now, req, Refusal::QueueTimeout { waited, ahead }, EndReason::Cancelled, out);
    }

    /// Puts a late request behind the others of its level, if it still waits.
    fn delay(&mut self, req: Req) {
        let Some(r) = self.reqs.get_mut(req) else { return };
        r.queue_until = Time::NEVER;
        if !r.is_untouched() || fault(Planted::LateKeepsItsPlace) {
            return;
        }
        let before = std::mem::replace(&mut r.place.late, true);
        let (place, is_ready) = (r.place, r.stage == RequestStage::Queued);
        if let (false, true, Some(state)) = (before, is_ready, load_in(&mut self.loads, r.load)) {
            state.ready.remove(&mut self.req_links, QueuePlace { late: false, ..place }, req.ix);
            state.ready.push(&mut self.req_links, place, req.ix);
        }
    }

    /// Requests in front of this one: in the queue of its sequence, or of its load. Not counted beyond a thousand.
    fn ahead_of_request(&self, req: Req) -> u32 {
        let Some(r) = self.reqs.get(req) else { return 0 };
        let before = |all: &mut dyn Iterator<Item = u32>| all.take(1000).take_while(|ix| *ix != req.ix).count();
        let n = match r.seq.map(|seq| self.seqs.get(seq)) {
            Some(s) => s.map_or(0, |s| before(&mut self.req_links.iter(&s.queue))),
            None if r.stage != RequestStage::Queued => 0,
            None => self.load(r.load).map_or(0, |load| before(&mut load.ready.iter(&self.req_links))),
        };
        u32::try_from(n).unwrap_or(u32::MAX)
    }

    pub(crate) fn load_due(&mut self, now: Time, at: Time, load: LoadId, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        if state.armed != at {
            return;
        }
        state.armed = Time::NEVER;
        if state.retired.is_some_and(|until| until <= at && !state.ended) {
            state.ended = true;
            self.end_all(now, load, out);
        } else if self.admits_at(load).is_some_and(|admits| admits <= at) {
            self.admit_waiting(now, load, out);
        } else if self.load(load).is_some_and(|l| l.external.is_some_and(|h| h.admit)) {
            self.announce_consult(load, out);
        }
        self.arm_load(load, at);
    }

    // === loads ===

    pub(crate) fn retire(&mut self, now: Time, load: LoadId, until: Time, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        state.retired = Some(until);
        self.arm_load(load, now);
        self.wake_if_over(load, out);
        self.expire(now, out);
    }

    /// Ends every sequence of a load; waiting ones first, so that none gets a slot only to lose it.
    fn end_all(&mut self, now: Time, load: LoadId, out: &mut Vec<Effect>) {
        let here =
            |placed: bool| self.seqs.iter().filter(move |(_, s)| s.load == load && s.placement.is_some() == placed);
        let all: Vec<Seq> = here(false).chain(here(true)).map(|(key, _)| key).collect();
        for seq in all.into_iter().skip(usize::from(fault(Planted::DrainForgetsOne))) {
            self.leave(now, seq, EndReason::Drained, Refusal::Ended(EndReason::Drained), out);
        }
    }

    /// Lets the threads of a retired load go, once nothing is left for them.
    pub(crate) fn wake_if_over(&mut self, load: LoadId, out: &mut Vec<Effect>) {
        let open = self.reqs.open(load);
        let Some(state) = load_in(&mut self.loads, load) else { return };
        if state.is_over(open) {
            for n in 0..u16::try_from(state.instances.len()).unwrap_or(u16::MAX) {
                wake(state, n, out);
            }
        }
    }

    pub(crate) fn attach(&mut self, now: Time, load: LoadId, hooks: Option<Hooks>, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        let observes = |hooks: Option<Hooks>| hooks.is_some_and(|h| h.observe);
        // Where one that observes follows another, what neither was told yet is still to be told.
        if !(observes(state.external) && observes(hooks)) {
            state.log.forget();
        }
        state.external = hooks;
        let given_up = state.give_up(hooks);
        for n in 0..u16::try_from(state.instances.len()).unwrap_or(u16::MAX) {
            wake(state, n, out);
        }
        for _ in 0..given_up {
            self.note(load, Note::Fallback(load), out);
        }
        self.admit_waiting(now, load, out);
    }
}

impl LoadState {
    /// Voids the rounds that are out. How many of them are lost, because no external policy decides any more.
    fn give_up(&mut self, hooks: Option<Hooks>) -> usize {
        let decided = hooks.is_some_and(|h| h.plan || h.admit);
        let consulted = matches!(std::mem::replace(&mut self.consulting, Consulting::No), Consulting::Out { .. });
        let asked = self.instances.iter_mut().filter_map(|instance| instance.asked.take()).count();
        if decided || fault(Planted::GivenUpUncounted) { 0 } else { asked + usize::from(consulted) }
    }
}

fn late() -> std::time::Duration {
    std::time::Duration::from_nanos(if fault(Planted::TimerLate) { 3 } else { 0 })
}

/// The second of the scans, `every` apart since the clock's zero, after `touched`.
fn second_scan(touched: Time, every: std::time::Duration) -> Time {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Time((touched.0 / every).saturating_add(2).saturating_mul(every))
}
