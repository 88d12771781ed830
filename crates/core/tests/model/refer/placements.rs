//! The reference model's slots: assignment, waiting and eviction.

use sequor_core::*;

use super::{At, N, Out, Plan, RInst, Refer, ns};

impl Refer {
    pub fn assign_slot_or_wait(&mut self, now: u64, n: N) {
        let load = self.seq(n).load;
        if self.backlog_head(load).is_none() && !self.asks_admit(load) && self.room_for_one(now, load) {
            self.assign_slot(now, n, None);
            return;
        }
        let turn = self.next_turn();
        let s = self.seq_mut(n);
        (s.stage, s.turn, s.backlogged_at) = (Stage::Backlogged, turn, now);
        self.admit_waiting(now, load);
    }

    /// Since when a slot could have been given: a free one, or that of a sequence that was idle for long enough.
    pub fn room_since(&self, load: usize) -> Option<u64> {
        if self.free(load) > 0 {
            return Some(self.loads[load].room_since.unwrap_or(0));
        }
        let soft = ns(self.loads[load].spec.idle_soft?);
        self.idlest(load).map(|s| s.touched.saturating_add(soft))
    }

    /// Free slots go to the backlog in order. If a policy decides admission, it has `max_wait` from when it can.
    pub fn admit_waiting(&mut self, now: u64, load: usize) {
        if self.free(load) > 0 {
            self.loads[load].room_since.get_or_insert(now);
        }
        if self.asks_admit(load) {
            let patience = self.loads[load].max_wait();
            let since = self.room_since(load);
            let overdue =
                |s: &super::RSeq| since.is_some_and(|at| at.max(s.backlogged_at).saturating_add(patience) <= now);
            if !self.backlog_head(load).is_some_and(overdue) {
                return;
            }
            self.out.push(Out::Fallback);
        }
        self.admit_in_order(now, load);
    }

    pub fn admit_in_order(&mut self, now: u64, load: usize) {
        while let Some(head) = self.backlog_head(load).map(|s| s.n) {
            if !self.room_for_one(now, load) {
                return;
            }
            self.assign_slot(now, head, None);
        }
    }

    /// The sequence that has been idle longest, if that is long enough to lose its slot.
    pub fn evictable(&self, now: u64, load: usize) -> Option<N> {
        let soft = ns(self.loads[load].spec.idle_soft?);
        self.idlest(load).filter(|s| s.touched.saturating_add(soft) <= now).map(|s| s.n)
    }

    fn room_for_one(&mut self, now: u64, load: usize) -> bool {
        if self.free(load) > 0 {
            return true;
        }
        let Some(victim) = self.evictable(now, load) else { return false };
        self.remove(now, victim, EndReason::Evicted, Refusal::Ended(EndReason::Evicted));
        true
    }

    /// The lowest free slot number of all instances, the lowest instance first.
    pub fn assign_slot(&mut self, now: u64, n: N, of: Option<usize>) {
        let s = self.seq(n);
        let load = s.load;
        let waited = if s.stage == Stage::Backlogged { now - s.backlogged_at } else { 0 };
        let mut free: Vec<(usize, usize)> = Vec::new();
        let offers = |(i, inst): &(usize, &RInst)| !inst.lost && of.is_none_or(|of| of == *i);
        for (i, inst) in self.loads[load].inst.iter().enumerate().filter(offers) {
            free.extend(inst.slots.iter().enumerate().filter(|(_, s)| s.is_none()).map(|(slot, _)| (slot, i)));
        }
        let (slot, i) = *free.iter().min().expect("a free slot");
        self.loads[load].inst[i].slots[slot] = Some(n);
        if self.free(load) == 0 {
            self.loads[load].room_since = None;
        }
        self.seq_mut(n).placement = Some((i, slot as u32));
        self.out.push(Out::Slotted(n, load, i, slot as u32, waited));
        self.advance(now, n);
    }

    /// The next step of a sequence with a slot and no current request.
    pub fn advance(&mut self, now: u64, n: N) {
        let head = self.seq(n).queue.first().copied();
        if let (None, Some(head)) = (self.seq(n).leaving, head)
            && self.req(head).is_some_and(|r| r.plan == Some(Plan::Reply))
        {
            self.reply(now, n, head);
            return self.advance(now, n);
        }
        let turn = self.next_turn();
        let s = self.seq(n);
        if let Some(why) = s.leaving {
            return self.finish(now, n, why);
        }
        let Some(head) = s.queue.first().copied() else {
            match s.ending {
                Some(why) => self.finish(now, n, why),
                None => {
                    let s = self.seq_mut(n);
                    (s.stage, s.turn, s.idled) = (Stage::Idle, turn, turn);
                }
            }
            return;
        };
        if self.req(head).is_some_and(|r| r.plan.is_some()) {
            let (load, inst) = (s.load, s.placement.expect("a slot").0);
            self.becomes_ready(now, load, inst, head);
            let s = self.seq_mut(n);
            (s.stage, s.turn) = (Stage::Ready, turn);
        } else {
            self.seq_mut(n).stage = Stage::Preparing;
            self.lend(head, Some(n));
        }
    }

    pub fn stateless_ready(&mut self, now: u64, req: Req) {
        let turn = self.next_turn();
        let Some(load) = self.req(req).map(|r| r.load) else { return };
        // Before it has its turn, so that it does not count itself.
        if let Some(r) = self.req_mut(req) {
            r.at = At::Preparing;
        }
        for inst in 0..self.loads[load].inst.len() {
            self.becomes_ready(now, load, inst, req);
        }
        if let Some(r) = self.req_mut(req) {
            (r.at, r.turn) = (At::Queued, turn);
        }
    }

    fn becomes_ready(&mut self, now: u64, load: usize, inst: usize, req: Req) {
        self.loads[load].inst[inst].hold = None;
        let before = self.ready(load, inst);
        let mine = self.shape(req);
        let rows = |r: Req| self.req(r).map_or(1, |r| r.meta.rows);
        let alike = before.iter().all(|r| self.shape(*r) == mine && rows(*r) == 1) && rows(req) == 1;
        let ahead = before.iter().filter(|r| **r != req).count() as u64;
        if let Some(r) = self.req_mut(req) {
            (r.ready, r.ahead, r.alike, r.passed) = (now, ahead, alike, 0);
        }
    }
}
