//! Ends: of sequences (END, expiry, cancellation, eviction, retirement), of requests that never run, and of loads.

use crate::core::{Core, load_in};
use crate::ending::{EndReason, Tombstone};
use crate::event::{Effect, Note, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{Id, Instance, LoadId, Req, Seq};
use crate::load::{Consulting, LoadState};
use crate::policy::Hooks;
use crate::sequence::{Sequence, Stage};
use crate::slot_assignment::{wake, wake_one};
use crate::time::Time;

impl Core {
    // === sequences ===

    /// Ends a sequence from outside. Queued requests are refused; a request past the queue ends first.
    pub(crate) fn leave(&mut self, now: Time, seq: Seq, why: EndReason, refusal: Refusal, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        if s.leaving.is_some() {
            return;
        }
        if s.current.is_some() {
            s.leaving = Some(why);
            *self.leaving.entry(s.id.clone()).or_default() += 1;
            self.refuse_queue(seq, why, refusal, out);
            self.unlink(seq);
            self.insert(now, seq, why);
            return;
        }
        self.unlist(seq);
        let load = self.seqs.get(seq).map(|s| s.load);
        self.remove(now, seq, why, refusal, out);
        if let Some(load) = load {
            self.admit_waiting(now, load, out);
        }
    }

    /// Ends a sequence that is in no list and has no current request, and passes its slot on.
    pub(crate) fn finish(&mut self, now: Time, seq: Seq, why: EndReason, out: &mut Vec<Effect>) {
        let Some(load) = self.seqs.get(seq).map(|s| s.load) else { return };
        self.remove(now, seq, why, Refusal::of_end(why), out);
        self.admit_waiting(now, load, out);
    }

    /// Ends a sequence that is to end after its queue, if nothing is queued or running.
    pub(crate) fn finish_if_through(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get(seq) else { return };
        if let (Some(why), true, Some(Stage::Idle)) = (s.ending, s.queue.is_empty(), s.stage) {
            self.unlist(seq);
            self.finish(now, seq, why, out);
        }
    }

    /// Removes a sequence from the table. It must be in no list.
    pub(crate) fn remove(&mut self, now: Time, seq: Seq, why: EndReason, refusal: Refusal, out: &mut Vec<Effect>) {
        self.refuse_queue(seq, why, refusal, out);
        if self.seqs.get(seq).is_some_and(|s| s.leaving.is_none()) {
            self.unlink(seq);
            self.insert(now, seq, why);
        }
        let is_noted = why != EndReason::Evicted || !fault(Planted::StartedWithoutEnded);
        if let Some(load) = self.seqs.get(seq).filter(|s| s.announced && is_noted).map(|s| s.load) {
            self.note(load, Note::Ended(seq, why), out);
        }
        let Some(s) = self.seqs.remove(seq) else { return };
        if s.leaving.is_some() {
            self.tombstones.amend(&s.id, s.born, s.step);
            self.has_left(&s.id);
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

    fn has_left(&mut self, id: &Id) {
        if let Some(left) = self.leaving.get_mut(id) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.leaving.remove(id);
            }
        }
    }

    /// Removes a sequence from the list that its stage puts it in.
    pub(crate) fn unlist(&mut self, seq: Seq) {
        let Some(s) = self.seqs.get(seq) else { return };
        let (load, placement) = (s.load, s.placement);
        let Some(state) = load_in(&mut self.loads, load) else { return };
        match s.stage {
            Some(Stage::Idle) => self.remove_idle(seq),
            Some(Stage::Backlogged) => self.unbacklog(load, seq),
            Some(Stage::Ready) => {
                if let Some(instance) = placement.and_then(|(n, _)| state.instances.get_mut(usize::from(n))) {
                    self.seq_links.remove(&mut instance.ready, seq.ix);
                }
            }
            _ => {}
        }
    }

    fn refuse_queue(&mut self, seq: Seq, why: EndReason, refusal: Refusal, out: &mut Vec<Effect>) {
        // If the store has a state of the sequence, its next step continues from that.
        let ended = !why.continues_from_store() && !fault(Planted::EndUntold);
        while let Some(s) = self.seqs.get_mut(seq) {
            let Some(ix) = self.req_links.pop_front(&mut s.queue) else { break };
            if fault(Planted::CancelForgetsOne) && s.queue.is_empty() {
                break;
            }
            if let Some(r) = self.reqs.at(ix).map(|r| r.key).and_then(|key| self.reqs.remove(key)) {
                out.push(Effect::Refuse { req: r.key, refusal, ended });
                self.turn_done(&r, false, out);
            }
        }
    }

    fn insert(&mut self, now: Time, seq: Seq, why: EndReason) {
        let Some(s) = self.seqs.get(seq) else { return };
        let Some(limit) = self.load(s.load).map(|l| l.spec.limits.tombstones) else { return };
        let why = if why == EndReason::Idle && fault(Planted::WrongReason) { EndReason::End } else { why };
        if s.announced && !why.continues_from_store() {
            self.tombstones.insert(s.id.clone(), s.born, Tombstone { why, at: now, step: s.step, idle: s.idle }, limit);
        }
    }

    /// Ends the sequences of an instance whose accelerator has failed, and takes it out of service.
    pub(crate) fn instance_lost(&mut self, now: Time, who: Instance, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, who.load) else { return };
        state.lose(who.n);
        let here = |s: &Sequence| s.load == who.load && s.placement.is_some_and(|(n, _)| n == who.n);
        let all: Vec<Seq> = self.seqs.iter().filter(|(_, s)| here(s)).map(|(key, _)| key).collect();
        let why = EndReason::DeviceLost;
        for seq in all {
            if self.seqs.get(seq).is_some_and(|s| s.current.is_some()) {
                self.leave(now, seq, why, Refusal::Ended(why), out);
            } else {
                // Its slot is not passed on before all of them have ended: a waiting sequence could evict one of them.
                self.vacate(now, seq, why, out);
            }
        }
        self.admit_waiting(now, who.load, out);
        // Another instance takes the requests that this one was woken for.
        if let Some(state) = load_in(&mut self.loads, who.load).filter(|l| !l.ready.is_empty()) {
            wake_one(state, out);
        }
    }

    // === requests that never run ===

    /// Cancels a request, or refuses it because its time has passed. A START ends its sequence. For other steps `cancel_ends` decides.
    pub(crate) fn cancel(&mut self, now: Time, req: Req, refusal: Refusal, why: EndReason, out: &mut Vec<Effect>) {
        let load = self.reqs.get(req).map(|r| r.load);
        let ends = load.and_then(|load| self.load(load)).is_some_and(|l| l.spec.cancel_ends);
        self.turn_away(now, req, refusal, why, ends, out);
    }

    /// Refuses a waiting request. `ends`: whether its sequence ends too; a START always ends it. A request that has begun to run completes.
    pub(crate) fn turn_away(
        &mut self,
        now: Time,
        req: Req,
        refusal: Refusal,
        why: EndReason,
        ends: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(r) = self.reqs.get(req) else { return };
        if !r.is_untouched() {
            return;
        }
        let Some(seq) = r.seq else { return self.drop_stateless(req, refusal, out) };
        if r.start || ends {
            self.leave(now, seq, why, refusal, out);
        } else {
            self.drop_step(now, seq, req, refusal, out);
        }
    }

    /// Whether the state of an adopted sequence can return to the store: it has no slot, and no step of it has run. The driver still has
    /// the state as it found it, and takes it back at [`EndReason::Spilled`].
    pub(crate) fn goes_back(&self, seq: Seq) -> bool {
        let waits = self.seqs.get(seq).is_some_and(|s| s.adopted && !s.ran && s.placement.is_none());
        waits && !fault(Planted::NothingGoesBack)
    }

    pub(crate) fn drop_stateless(&mut self, req: Req, refusal: Refusal, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.remove(req) else { return };
        if r.plan.is_none() {
            self.wants_no_room(r.load);
        } else if let Some(state) = load_in(&mut self.loads, r.load) {
            state.ready.remove(&mut self.req_links, r.place, req.ix);
            // Without it the other requests may form a batch that need not wait.
            wake_one(state, out);
        }
        out.push(Effect::Refuse { req, refusal, ended: false });
        self.wake_if_over(r.load, out);
    }

    /// Removes one step from the queue of its sequence, which stays live. If the client counts steps, that step is expected again.
    pub(crate) fn drop_step(&mut self, now: Time, seq: Seq, req: Req, refusal: Refusal, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let head = s.queue.front() == Some(req.ix);
        let was = s.stage;
        let goes_back = head && self.goes_back(seq);
        if head && was == Some(Stage::Ready) {
            self.unlist(seq);
        }
        if let Some(step) = self.reqs.get(req).filter(|r| r.counted).map(|r| r.step) {
            self.expect_again(seq, Some(req), step, out);
        }
        self.take_out(seq, req, refusal, false, out);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.touched = now;
        if goes_back {
            return self.go_on_without_first(now, seq, out);
        }
        if head && s.placement.is_some() && matches!(was, Some(Stage::Ready | Stage::Preparing)) {
            self.advance(now, seq, out);
        }
    }

    /// Continues a sequence without a slot whose first request was dropped. The next request takes its place. If there is none, or if the
    /// driver was still looking for the state, that returns to the store. Requests behind may be sent again.
    fn go_on_without_first(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get(seq) else { return };
        let next = s.queue.front().and_then(|ix| self.reqs.at(ix)).map(|r| (r.key, r.plan));
        match (s.stage, next) {
            (Some(Stage::Backlogged), Some(_)) => {}
            (Some(Stage::Preparing), Some((req, None))) if s.announced => self.prepare(req, Some(seq), out),
            _ => self.leave(now, seq, EndReason::Spilled, Refusal::of_end(EndReason::Spilled), out),
        }
    }

    /// Expects a counted step again that will not run. The counted steps behind it (`None`: the whole queue) cannot run before it and are
    /// refused.
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

    /// Refuses a request in the queue of a sequence. `ended`: whether the sequence ends with it.
    pub(crate) fn take_out(&mut self, seq: Seq, req: Req, refusal: Refusal, ended: bool, out: &mut Vec<Effect>) {
        let superseded = self.reqs.get(req).is_some_and(|r| r.end) && self.is_superseded(seq);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        let Some(r) = self.reqs.remove(req) else { return };
        self.req_links.remove(&mut s.queue, req.ix);
        s.bytes = s.bytes.saturating_sub(r.meta.bytes);
        if r.end {
            // Its END is refused. If a younger sequence has its id, no request can reach it any more.
            s.ending = superseded.then_some(EndReason::Restarted);
        }
        if s.stage == Some(Stage::Backlogged)
            && let Some(state) = load_in(&mut self.loads, s.load)
        {
            state.backlog_bytes = state.backlog_bytes.saturating_sub(r.meta.bytes);
        }
        out.push(Effect::Refuse { req, refusal, ended });
    }

    // === loads ===

    pub(crate) fn retire(&mut self, now: Time, load: LoadId, until: Time, out: &mut Vec<Effect>) {
        let Some(state) = load_in(&mut self.loads, load) else { return };
        state.retired = Some(until);
        self.arm_load(load, now);
        if self.target(None).is_none() {
            self.let_all_go(out);
        }
        self.wake_if_over(load, out);
        self.expire(now, out);
    }

    /// Marks a load to stay after it is retired. It may be retired already, unless the model went out of service with it.
    pub(crate) fn stay(&mut self, load: LoadId) {
        let serves = self.target(None).is_some();
        if let Some(state) = load_in(&mut self.loads, load).filter(|state| serves || state.retired.is_none()) {
            state.stays = true;
        }
    }

    /// Lets retired loads end although they were to stay. The model goes out of service, so no stored sequence continues on them.
    fn let_all_go(&mut self, out: &mut Vec<Effect>) {
        let staying: Vec<LoadId> = self.loads.iter().filter(|l| l.stays).map(|l| l.key).collect();
        for load in staying {
            if let Some(state) = load_in(&mut self.loads, load) {
                state.stays = false;
            }
            self.wake_if_over(load, out);
        }
    }

    /// Whether this load takes sequences that only it can continue: it is in service, or it stays and its limit has not passed.
    pub fn takes_back(&self, now: Time, load: LoadId) -> bool {
        let Some(load) = self.load(load) else { return false };
        load.retired.is_none_or(|until| load.stays && !load.ended && now < until)
    }

    /// Ends every sequence of a load. Waiting ones end first, so that none gets a slot only to lose it.
    pub(crate) fn end_all(&mut self, now: Time, load: LoadId, out: &mut Vec<Effect>) {
        let here =
            |placed: bool| self.seqs.iter().filter(move |(_, s)| s.load == load && s.placement.is_some() == placed);
        let all: Vec<Seq> = here(false).chain(here(true)).map(|(key, _)| key).collect();
        for seq in all.into_iter().skip(usize::from(fault(Planted::DrainForgetsOne))) {
            self.leave(now, seq, EndReason::Drained, Refusal::Ended(EndReason::Drained), out);
        }
    }

    /// Wakes the threads of a retired load once nothing is left to do, so that they end.
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
        // If both the old and the new policy observe, events that were not delivered yet stay.
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
    /// Voids the open rounds. Returns how many of them are lost because no external policy decides any more.
    fn give_up(&mut self, hooks: Option<Hooks>) -> usize {
        let decided = hooks.is_some_and(|h| h.plan || h.admit);
        let consulted = matches!(std::mem::replace(&mut self.consulting, Consulting::No), Consulting::Out { .. });
        let asked = self.instances.iter_mut().filter_map(|instance| instance.asked.take()).count();
        if decided || fault(Planted::GivenUpUncounted) { 0 } else { asked + usize::from(consulted) }
    }
}
