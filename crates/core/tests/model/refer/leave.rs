//! Ends of sequences in the reference model, and requests that never run.

use std::time::Duration;

use sequor_core::*;

use super::{N, Out, Refer, Stone};

impl Refer {
    /// Ends a sequence. Waiting requests are refused; a request past the queue completes first.
    pub fn leave(&mut self, now: u64, n: N, why: EndReason, refusal: Refusal) {
        let s = self.seq_mut(n);
        if s.leaving.is_some() {
            return;
        }
        if s.current.is_some() {
            (s.leaving, s.linked) = (Some(why), false);
            self.refuse_queue(n, why, refusal);
            self.bury(now, n, why);
            return;
        }
        let load = s.load;
        self.remove(now, n, why, refusal);
        self.admit_waiting(now, load);
    }

    pub fn finish(&mut self, now: u64, n: N, why: EndReason) {
        let load = self.seq(n).load;
        let refusal = if why == EndReason::Cancelled { Refusal::Cancelled } else { Refusal::Ended(why) };
        self.remove(now, n, why, refusal);
        self.admit_waiting(now, load);
    }

    pub fn remove(&mut self, now: u64, n: N, why: EndReason, refusal: Refusal) {
        self.refuse_queue(n, why, refusal);
        if self.seq(n).leaving.is_none() {
            self.bury(now, n, why);
        }
        let ix = self.seqs.iter().position(|s| s.n == n).expect("a live sequence");
        let s = self.seqs.remove(ix);
        // The request that was running when it left has been committed since.
        if let Some(stone) = self.stones.iter_mut().rev().find(|x| x.n == n) {
            stone.stone.step = s.step;
        }
        if s.announced {
            self.out.push(Out::Ended(n, why));
        }
        if let Some((inst, slot)) = s.placement {
            let inst = &mut self.loads[s.load].inst[inst];
            inst.slots[slot as usize] = None;
            // A slot that never got a state has none to drop.
            if s.ran {
                inst.ops.push(super::ROp::Free(slot));
            }
            inst.hold = None;
        }
    }

    fn refuse_queue(&mut self, n: N, why: EndReason, refusal: Refusal) {
        for req in std::mem::take(&mut self.seq_mut(n).queue) {
            if let Some(r) = self.reqs[req.ix as usize].take() {
                self.turn_done(&r, false);
            }
            let ended = !matches!(why, EndReason::Spilled | EndReason::RolledBack);
            self.out.push(Out::Refuse(req, refusal, ended));
        }
    }

    /// The last ends are remembered, up to the limit. Of an id, the end of its youngest sequence is remembered.
    fn bury(&mut self, now: u64, n: N, why: EndReason) {
        let s = self.seq(n);
        let limit = self.loads[s.load].spec.limits.tombstones as usize;
        let younger = self.stones.iter().any(|x| x.id == s.id && x.n > n);
        let goes_on = matches!(why, EndReason::Spilled | EndReason::RolledBack);
        if !s.announced || limit == 0 || younger || goes_on {
            return;
        }
        let stone = Tombstone { why, at: Time(now), step: s.step, idle: s.idle.map(Duration::from_nanos) };
        let id = s.id.clone();
        self.stones.push(Stone { id, n, stone });
        while self.stones.len() > limit {
            self.stones.remove(0);
        }
    }

    /// Ends what an instance has, before any slot is passed on. The last instance stays in service.
    pub fn instance_lost(&mut self, now: u64, load: usize, inst: usize) {
        let of_load = &self.loads[load].inst;
        let others = of_load.iter().enumerate().any(|(n, other)| n != inst && !other.lost);
        self.loads[load].inst[inst].lost |= others;
        if self.free(load) == 0 {
            self.loads[load].room_since = None;
        }
        let here = |s: &&super::RSeq| s.placement.is_some_and(|(n, _)| n == inst);
        let mut all: Vec<(Option<Seq>, N)> = self.of_load(load).filter(here).map(|s| (s.key, s.n)).collect();
        all.sort_unstable();
        for (_, n) in all {
            let (why, refusal) = (EndReason::DeviceLost, Refusal::Ended(EndReason::DeviceLost));
            match self.seq(n).current {
                Some(_) => self.leave(now, n, why, refusal),
                None => self.remove(now, n, why, refusal),
            }
        }
        self.admit_waiting(now, load);
    }

    // === requests that never run ===

    pub fn cancel(&mut self, now: u64, req: Req, refusal: Refusal, why: EndReason) {
        let ends = self.req(req).is_some_and(|r| self.loads[r.load].spec.cancel_ends);
        self.turn_away(now, req, refusal, why, ends);
    }

    /// Refuses a waiting request. For a rejection the policy decides whether the sequence ends, for a cancellation the load.
    pub fn turn_away(&mut self, now: u64, req: Req, refusal: Refusal, why: EndReason, ends: bool) {
        let Some(r) = self.req(req).filter(|r| r.waits()) else { return };
        let start = r.start;
        let Some(n) = r.seq else {
            self.reqs[req.ix as usize] = None;
            self.out.push(Out::Refuse(req, refusal, false));
            return;
        };
        if start || ends {
            self.leave(now, n, why, refusal);
        } else {
            self.drop_step(now, n, req, refusal);
        }
    }

    /// Removes a step from the queue; the sequence stays live. If the client counts, the counted steps behind it are refused too, and the
    /// step is expected again.
    pub fn drop_step(&mut self, now: u64, n: N, req: Req, refusal: Refusal) {
        let s = self.seq(n);
        let place = s.queue.iter().position(|r| *r == req).expect("a queued step");
        let (waited, placed) = (s.stage, s.placement.is_some());
        let goes_back = place == 0 && s.goes_back();
        let (counted, step) = self.req(req).map(|r| (r.counted, r.step)).expect("an open request");
        if counted {
            self.expect_again(n, place + 1, step);
        }
        self.take_out(n, place, refusal);
        self.seq_mut(n).touched = now;
        if goes_back {
            let s = self.seq(n);
            return match (s.stage, s.queue.first().copied()) {
                (Stage::Backlogged, Some(_)) => {}
                (Stage::Preparing, Some(req)) if s.announced => self.lend(req, Some(n)),
                _ => self.leave(now, n, EndReason::Spilled, Refusal::Ended(EndReason::Spilled)),
            };
        }
        if place == 0 && placed && matches!(waited, Stage::Ready | Stage::Preparing) {
            self.advance(now, n);
        }
    }

    /// Refuses the counted steps from `place` on, up to a START or one that is not counted.
    pub fn expect_again(&mut self, n: N, place: usize, step: u64) {
        while let Some(next) = self.seq(n).queue.get(place).copied() {
            let follows = self.req(next).is_some_and(|r| r.counted && !r.start);
            if !follows {
                return;
            }
            self.take_out(n, place, Refusal::StepGap { want: step });
        }
        self.seq_mut(n).next_step = step;
    }

    fn take_out(&mut self, n: N, place: usize, refusal: Refusal) {
        let req = self.seq_mut(n).queue.remove(place);
        let end = self.reqs[req.ix as usize].take().is_some_and(|r| r.end);
        if end {
            // Its END is refused. If its id went to a younger sequence, no request can reach it any more.
            let id = self.seq(n).id.clone();
            let taken = self.seqs.iter().any(|s| s.linked && s.id == id && s.n > n);
            self.seq_mut(n).ending = taken.then_some(EndReason::Restarted);
        }
        self.out.push(Out::Refuse(req, refusal, false));
    }
}
