//! From the end of a run to the release of the answers: commit, seal, post. Answers stay in order where the load requires it.

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Refusal, RowEnd};
use crate::faults::{Planted, fault};
use crate::ids::{BatchId, Req, Seq};
use crate::request::{RequestStage, RunPlan};
use crate::sequence::Stage;
use crate::slot_assignment::wake;
use crate::time::Time;

impl Core {
    pub(crate) fn ran(&mut self, now: Time, batch: BatchId, rows: &[RowEnd], out: &mut Vec<Effect>) {
        let Some(flight) = self.batches.get_mut(batch) else { return };
        if flight.sealing {
            return;
        }
        let (instance, rows_of_all, taken) = (flight.instance, flight.rows, flight.taken);
        let reqs = std::mem::take(&mut flight.reqs);
        let seals = self.load(instance.load).is_some_and(|l| l.spec.stages.seal) && !fault(Planted::SealSkipped);
        if let Some(state) = load_in(&mut self.loads, instance.load)
            && let Some(owner) = state.instances.get_mut(usize::from(instance.n))
        {
            owner.in_flight = owner.in_flight.saturating_sub(1);
            let took = owner.last_run.took(taken, now);
            state.run_time.learn(rows_of_all, took);
            state.tell_batch(took, out);
            wake(state, instance.n, out);
        }
        let mut to_seal = Vec::new();
        for (n, req) in reqs.into_iter().enumerate() {
            // If a driver reports too few rows, the missing ones count as failed.
            match rows.get(n).copied().unwrap_or(RowEnd::Failed) {
                RowEnd::Failed => self.row_failed(now, req, out),
                RowEnd::NoRoom => self.row_without_room(now, req, out),
                RowEnd::NotFinite => self.row_not_finite(now, req, out),
                RowEnd::Done { state_shape, state_bytes } => {
                    let last = self.committed(req, state_shape, state_bytes);
                    match (last, seals) {
                        (false, _) => self.wait_for_next_run(now, req, out),
                        (true, true) => to_seal.push(req),
                        (true, false) => self.durable(now, req, out),
                    }
                }
            }
        }
        self.seal(batch, to_seal, out);
        self.wake_if_over(instance.load, out);
    }

    fn seal(&mut self, batch: BatchId, reqs: Vec<Req>, out: &mut Vec<Effect>) {
        if reqs.is_empty() {
            self.batches.remove(batch);
            return;
        }
        for req in &reqs {
            if let Some(seq) = self.past(*req, RequestStage::Sealing) {
                self.set_stage(seq, Stage::Sealing);
            }
        }
        if let Some(flight) = self.batches.get_mut(batch) {
            flight.sealing = true;
            flight.reqs = reqs;
        }
        out.push(Effect::Seal(batch));
    }

    pub(crate) fn sealed(&mut self, now: Time, batch: BatchId, failed: &[(Req, Refusal)], out: &mut Vec<Effect>) {
        if !self.batches.get(batch).is_some_and(|flight| flight.sealing) {
            return;
        }
        let Some(flight) = self.batches.remove(batch) else { return };
        for req in flight.reqs {
            match failed.iter().find(|(of, _)| *of == req) {
                None => self.durable(now, req, out),
                Some((_, refusal)) => self.unsealed(now, req, *refusal, out),
            }
        }
        self.wake_if_over(flight.instance.load, out);
    }

    /// Refuses a request whose state could not be made durable. No step may build on that state, so the sequence ends, or leaves memory for the
    /// state that the store has.
    fn unsealed(&mut self, now: Time, req: Req, refusal: Refusal, out: &mut Vec<Effect>) {
        self.tell_run(req, false, out);
        let Some(r) = self.reqs.remove(req) else { return };
        let why = if let Refusal::Ended(why) = refusal { why } else { EndReason::Unsealed };
        out.push(Effect::Refuse { req, refusal, ended: r.seq.is_some() && has_ended(why) });
        self.turn_done(&r, false, out);
        if let Some(seq) = r.seq {
            self.leave(now, seq, why, Refusal::Ended(why), out);
            self.complete(now, seq, out);
        }
    }

    /// Records the new state of a request's sequence. True if this was the request's last run: only then is its step done.
    fn committed(&mut self, req: Req, state_shape: u64, state_bytes: u64) -> bool {
        let Some(r) = self.reqs.get_mut(req) else { return true };
        r.ran += 1;
        let runs = if fault(Planted::RunsMiscounted) { 2 } else { 1 };
        let left = if let Some(RunPlan::Run(left)) = r.plan { left.saturating_sub(runs) } else { 0 };
        r.plan = Some(RunPlan::Run(left));
        let (step, turn) = (r.step, r.turn);
        if let Some(s) = r.seq.and_then(|seq| self.seqs.get_mut(seq)) {
            s.state_shape = state_shape;
            s.state_bytes = state_bytes;
            s.holds_state = true;
            if left == 0 {
                (s.step, s.turn) = (step, turn);
            }
        }
        left == 0
    }

    /// A request of several runs goes back to the head of its queue. If its sequence is to end, it is refused there.
    fn wait_for_next_run(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, true, out);
        let Some(r) = self.reqs.get_mut(req) else { return };
        r.stage = RequestStage::Queued;
        let (seq, bytes) = (r.seq, r.meta.bytes);
        let Some(seq) = seq else { return self.stateless_ready(now, req, out) };
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.current = None;
        s.bytes = s.bytes.saturating_add(bytes);
        self.req_links.push_front(&mut s.queue, req.ix);
        self.advance(now, seq, out);
    }

    /// Continues after the commit, and after the seal if there is one: postprocess or answer.
    fn durable(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, true, out);
        let posts = self.reqs.get(req).and_then(|r| self.load(r.load)).is_some_and(|l| l.spec.stages.post);
        if !posts {
            return self.answer_row(now, req, out);
        }
        let seq = self.past(req, RequestStage::Posting);
        if let Some(seq) = seq {
            self.set_stage(seq, Stage::Posting);
        }
        out.push(Effect::Post(req, seq));
    }

    pub(crate) fn posted(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        if let Some(load) = self.reqs.get(req).filter(|r| r.stage == RequestStage::Posting).map(|r| r.load) {
            self.answer_row(now, req, out);
            self.wake_if_over(load, out);
        }
    }

    /// Sets the stage of a request and returns its sequence.
    fn past(&mut self, req: Req, to: RequestStage) -> Option<Seq> {
        let r = self.reqs.get_mut(req)?;
        r.stage = to;
        r.seq
    }

    fn row_failed(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, false, out);
        let Some(r) = self.reqs.get(req).cloned() else { return };
        if let Some(seq) = r.seq {
            if let Some(s) = self.seqs.get_mut(seq) {
                s.holds_state = true;
            }
            let unsure = !r.is_first_run();
            if unsure || (r.start && !r.dialect.keep_failed_start) {
                let why = end_of_failed(r.start);
                self.leave(now, seq, why, Refusal::Ended(why), out);
            } else if r.counted {
                self.expect_again(seq, None, r.step, out);
            }
        }
        self.answer_row(now, req, out);
    }

    /// Ends the sequence of a row that got no memory: later steps would have no state.
    fn row_without_room(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        if let Some((seq, start)) = self.reqs.get(req).and_then(|r| Some((r.seq?, r.start))) {
            let why = end_of_failed(start);
            self.leave(now, seq, why, Refusal::Ended(why), out);
        }
        self.answer_row(now, req, out);
    }

    /// Ends the sequence of a row whose new state has a NaN or an infinity. That state is not committed.
    fn row_not_finite(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, false, out);
        if let Some(seq) = self.reqs.get(req).and_then(|r| r.seq) {
            if let Some(s) = self.seqs.get_mut(seq) {
                s.holds_state = true;
            }
            self.leave(now, seq, EndReason::NotFinite, Refusal::Ended(EndReason::NotFinite), out);
        }
        self.answer_row(now, req, out);
    }

    /// Releases the answer in its turn, and moves its sequence on.
    fn answer_row(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.remove(req) else { return };
        self.turn_done(&r, true, out);
        if let Some(seq) = r.seq {
            if let (true, Some(s)) = (r.start, self.seqs.get_mut(seq)) {
                s.starts = s.starts.saturating_sub(1);
            }
            self.complete(now, seq, out);
        }
    }

    /// Marks a request's turn as done and releases every answer whose turn has come.
    pub(crate) fn turn_done(&mut self, r: &crate::request::Request, answer: bool, out: &mut Vec<Effect>) {
        let Some(turn) = r.turn.filter(|_| !fault(Planted::ReleasedOutOfOrder)) else {
            if answer {
                out.push(Effect::Release(r.key));
            }
            return;
        };
        let Some(state) = load_in(&mut self.loads, r.load) else { return };
        let ix = usize::try_from(turn.saturating_sub(state.first_turn)).unwrap_or(usize::MAX);
        if let Some(place) = state.turns.get_mut(ix) {
            *place = (answer.then_some(r.key), true);
        }
        while let Some((key, true)) = state.turns.front().copied() {
            state.turns.pop_front();
            state.first_turn += 1;
            if let Some(key) = key {
                out.push(Effect::Release(key));
            }
        }
    }

    /// Handles the completion of a sequence's current request.
    fn complete(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.current = None;
        if !fault(Planted::IdleNotRefreshed) {
            s.touched = now;
        }
        self.advance(now, seq, out);
    }
}

/// Whether a sequence whose state could not be made durable has ended for its client.
pub(crate) fn has_ended(why: EndReason) -> bool {
    !why.continues_from_store() || fault(Planted::RolledBackEnds)
}

/// The reason of the end of a sequence whose request failed and left no state.
fn end_of_failed(start: bool) -> EndReason {
    if start { EndReason::Failed } else { EndReason::Broken }
}
