//! Slots: assignment, the backlog, eviction, and the next step of a sequence that has a slot.

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Note, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{Instance, LoadId, Req, Seq, Slot};
use crate::level_queue::QueuePlace;
use crate::load::{Consulting, InstanceState, LoadState};
use crate::request::RunPlan;
use crate::sequence::Stage;
use crate::time::Time;
use crate::timer::Due;

impl Core {
    /// Gives a prepared sequence a slot, or a place at the end of its level in the backlog.
    pub(crate) fn assign_slot_or_wait(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(load) = self.seqs.get(seq).map(|s| s.load) else { return };
        let Some(state) = self.load(load) else { return };
        let asks = state.external.is_some_and(|hooks| hooks.admit);
        if state.backlog.is_empty() && !asks && self.room_for_one(now, load, out) {
            self.assign_slot(now, seq, None, out);
            return;
        }
        self.set_stage(seq, Stage::Backlogged);
        if let (Some(state), Some(s)) = (load_in(&mut self.loads, load), self.seqs.get_mut(seq)) {
            s.backlogged_at = now;
            state.backlog_bytes = state.backlog_bytes.saturating_add(s.bytes);
            let place = QueuePlace { level: s.level, late: false };
            state.backlog.push(&mut self.seq_links, place, seq.ix);
        }
        self.arm_sequence(seq);
        self.admit_waiting(now, load, out);
    }

    /// Gives free slots to the backlog in the order of the STARTs, or asks the policy that decides admission.
    pub(crate) fn admit_waiting(&mut self, now: Time, load: LoadId, out: &mut Vec<Effect>) {
        let Some(state) = self.load_mut(load) else { return };
        state.note_room(now);
        if !state.external.is_some_and(|hooks| hooks.admit) {
            self.admit_in_order(now, load, out);
        } else if self.admits_at(load).is_some_and(|at| at <= now) {
            // The policy has left a slot free for too long. The head gets it, as it would without the policy.
            self.note(load, Note::Fallback(load), out);
            self.admit_in_order(now, load, out);
            // The policy gets a new question about the rest.
            self.announce_consult(load, out);
        } else {
            self.announce_consult(load, out);
        }
        self.arm_load(load, now);
    }

    /// The time at which the head of the backlog gets a slot without any further event: a victim has been idle for long enough, or the
    /// policy has not decided in time.
    pub(crate) fn admits_at(&self, load: LoadId) -> Option<Time> {
        let state = self.load(load)?;
        let head = self.seqs.get(self.backlog_head(load)?)?;
        let asks = state.external.is_some_and(|hooks| hooks.admit);
        let room = match state.has_free_slot() {
            true if asks => state.room_since(),
            true => Time::ZERO,
            false => self.soft_idle(self.victim(state)?, state)?,
        };
        // The policy could decide once a sequence waited and a slot was free.
        Some(if asks { room.max(head.backlogged_at) + state.max_wait() } else { room })
    }

    pub(crate) fn admit_in_order(&mut self, now: Time, load: LoadId, out: &mut Vec<Effect>) {
        // If a sequence is answered without a run, it may end at once. Then this loop continues; a nested one must not start.
        if self.load_mut(load).is_none_or(|l| std::mem::replace(&mut l.admitting, true)) {
            return;
        }
        while let Some(head) = self.backlog_head(load) {
            if !self.room_for_one(now, load, out) {
                break;
            }
            self.unbacklog(load, head);
            self.assign_slot(now, head, None, out);
        }
        if let Some(state) = self.load_mut(load) {
            state.admitting = false;
        }
    }

    pub(crate) fn backlog_head(&self, load: LoadId) -> Option<Seq> {
        if fault(Planted::BacklogLastInFirstOut) {
            return self.load(load)?.backlog.iter(&self.seq_links).last().and_then(|ix| self.seqs.key_at(ix));
        }
        self.load(load)?.backlog.front().and_then(|ix| self.seqs.key_at(ix))
    }

    /// Whether a slot is free. If none is, the slot of a victim is taken.
    fn room_for_one(&mut self, now: Time, load: LoadId, out: &mut Vec<Effect>) -> bool {
        let Some(state) = self.load(load) else { return false };
        if state.has_free_slot() {
            return true;
        }
        match self.evictable(now, state) {
            // Freeing must not admit the backlog's head: the caller is about to assign the slot.
            Some(victim) => {
                self.vacate(now, victim, EndReason::Evicted, out);
                true
            }
            None => false,
        }
    }

    /// The sequence that has been idle longest, if idle ones may be evicted.
    pub(crate) fn victim(&self, load: &LoadState) -> Option<Seq> {
        load.spec.idle_soft?;
        self.idle_in_order(load).next()
    }

    /// The victim, if it has been idle for long enough.
    pub(crate) fn evictable(&self, now: Time, load: &LoadState) -> Option<Seq> {
        self.victim(load).filter(|victim| {
            self.soft_idle(*victim, load).is_some_and(|at| at <= now || fault(Planted::EvictedTooEarly))
        })
    }

    /// When this idle sequence may be evicted.
    pub(crate) fn soft_idle(&self, seq: Seq, load: &LoadState) -> Option<Time> {
        Some(self.seqs.get(seq)?.touched + load.spec.idle_soft?)
    }

    /// Gives a sequence that is in no list the lowest free slot, of this instance if one is named.
    pub(crate) fn assign_slot(&mut self, now: Time, seq: Seq, of: Option<u16>, out: &mut Vec<Effect>) -> bool {
        let Some(s) = self.seqs.get_mut(seq) else { return false };
        let Some(state) = load_in(&mut self.loads, s.load) else { return false };
        let Some((n, slot)) = state.take_slot(seq, of) else { return false };
        s.placement = Some((n, slot));
        let since = if s.stage == Some(Stage::Backlogged) { s.backlogged_at } else { now };
        let (load, waited) = (s.load, now - since);
        self.note(load, Note::Slotted(seq, Instance { load, n }, slot, waited), out);
        self.advance(now, seq, out);
        true
    }

    /// Removes a sequence from the backlog.
    pub(crate) fn unbacklog(&mut self, load: LoadId, seq: Seq) {
        if let (Some(state), Some(s)) = (load_in(&mut self.loads, load), self.seqs.get(seq)) {
            let place = QueuePlace { level: s.level, late: false };
            state.backlog.remove(&mut self.seq_links, place, seq.ix);
            if !fault(Planted::BacklogBytesLeak) {
                state.backlog_bytes = state.backlog_bytes.saturating_sub(s.bytes);
            }
        }
    }

    /// Moves on a sequence that has a slot and no current request.
    pub(crate) fn advance(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        while let Some(s) = self.seqs.get(seq) {
            if let Some(why) = s.leaving {
                return self.finish(now, seq, why, out);
            }
            let head = s.queue.front().and_then(|ix| self.reqs.at(ix)).map(|r| (r.key, r.plan));
            match (head, s.ending) {
                (Some(_), Some(why)) if fault(Planted::EndBeforeItsQueue) => return self.finish(now, seq, why, out),
                (None, Some(why)) => return self.finish(now, seq, why, out),
                (None, None) => return self.enter_idle(now, seq, out),
                (Some((req, Some(RunPlan::Run(_)))), _) => return self.enter_ready(now, seq, req, out),
                (Some((req, None)), _) => return self.prepare(req, Some(seq), out),
                (Some((req, Some(RunPlan::Reply))), _) => self.reply(now, seq, req, out),
            }
        }
    }

    fn enter_idle(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        self.set_stage(seq, Stage::Idle);
        let Some(load) = self.seqs.get(seq).map(|s| s.load) else { return };
        self.add_idle(seq);
        self.arm_sequence(seq);
        self.arm_load(load, now);
        if self.load(load).is_some_and(|l| l.external.is_some_and(|h| h.admit)) {
            self.announce_consult(load, out);
        }
    }

    fn enter_ready(&mut self, now: Time, seq: Seq, req: Req, out: &mut Vec<Effect>) {
        self.set_stage(seq, Stage::Ready);
        if let Some(r) = self.reqs.get_mut(req) {
            r.ready = now;
        }
        let Some((load, (n, _))) = self.seqs.get(seq).and_then(|s| Some((s.load, s.placement?))) else { return };
        let Some(state) = load_in(&mut self.loads, load) else { return };
        let Some(instance) = state.instances.get_mut(usize::from(n)) else { return };
        self.seq_links.push_back(&mut instance.ready, seq.ix);
        instance.hold = None;
        // Otherwise the end of the batch in flight wakes it.
        if state.may_take(n) {
            wake(state, n, out);
        }
    }

    pub(crate) fn stateless_ready(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get_mut(req) else { return };
        r.ready = now;
        let Some(state) = load_in(&mut self.loads, r.load) else { return };
        state.ready.push(&mut self.req_links, r.place, req.ix);
        for instance in &mut state.instances {
            instance.hold = None;
        }
        wake_one(state, out);
    }

    /// Arms the deadline of a sequence for the stage it is in.
    pub(crate) fn arm_sequence(&mut self, seq: Seq) {
        let at = self.deadline_of(seq);
        if let Some(s) = self.seqs.get_mut(seq) {
            self.timers.arm(&mut s.armed, at, Due::Seq(seq));
        }
    }

    /// Arms the load's next deadline: the limit of its retirement, the next admission, or the next victim after `now` to ask a policy
    /// about.
    pub(crate) fn arm_load(&mut self, load: LoadId, now: Time) {
        let Some(state) = self.load(load).filter(|l| l.retired.is_some() || !l.backlog.is_empty()) else { return };
        let until = state.retired.filter(|_| !state.ended && (state.live > 0 || state.stays));
        let asks = !state.backlog.is_empty() && state.consulting != Consulting::Announced;
        let victim = self.victim(state).filter(|_| asks);
        let soft = victim.and_then(|victim| self.soft_idle(victim, state)).filter(|at| *at > now);
        let Some(at) = [until, self.admits_at(load), soft].into_iter().flatten().min() else { return };
        if let Some(state) = load_in(&mut self.loads, load) {
            self.timers.arm(&mut state.armed, at, Due::Load(load));
        }
    }

    /// Takes the slot of an idle sequence and does not pass it on.
    pub(crate) fn vacate(&mut self, now: Time, seq: Seq, why: EndReason, out: &mut Vec<Effect>) {
        self.unlist(seq);
        self.remove(now, seq, why, Refusal::of_end(why), out);
    }
}

/// Wakes an instance's thread if it sleeps, and lets it ask its policy again.
pub(crate) fn wake(state: &mut LoadState, n: u16, out: &mut Vec<Effect>) {
    let load = state.key;
    if let Some(instance) = state.instances.get_mut(usize::from(n)) {
        instance.hold = None;
        if std::mem::take(&mut instance.asleep) && !fault(Planted::WakeForgotten) {
            out.push(Effect::Wake(Instance { load, n }));
        }
    }
}

/// Wakes one instance for the ready stateless requests. It must be allowed another batch and not be on hold by its policy.
pub(crate) fn wake_one(state: &mut LoadState, out: &mut Vec<Effect>) {
    let able = |(n, i): &(u16, &InstanceState)| i.asleep && i.hold.is_none() && state.may_take(*n);
    if let Some((n, _)) = (0u16..).zip(&state.instances).find(able) {
        wake(state, n, out);
    }
}

impl LoadState {
    pub(crate) fn release(&mut self, placement: (u16, Slot), ran: bool, out: &mut Vec<Effect>) {
        self.free_slot(placement.0, placement.1, ran);
        // The instance may sleep for long. Its thread drops the state now, so that memory is freed.
        wake(self, placement.0, out);
    }
}
