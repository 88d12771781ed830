//! From the end of a run to the release of the answers: commit, seal, post, in order where the load keeps one.

use crate::core::{Core, load_in};
use crate::ending::Why;
use crate::event::{Effect, Refusal, RowEnd};
use crate::faults::{Planted, fault};
use crate::ids::{BatchId, Req, Seq};
use crate::request::Stage as At;
use crate::seat::wake;
use crate::sequence::Stage;
use crate::time::Time;
use crate::traits::Traits;

impl Core {
    /// The driver has prepared a request, or could not.
    pub(crate) fn prepared(&mut self, now: Time, req: Req, result: Result<Traits, Refusal>, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get_mut(req) else { return };
        if r.prepared || r.stage != At::Queued {
            return;
        }
        let (seq, load, bytes) = (r.seq, r.load, r.traits.bytes);
        let traits = match result {
            Ok(traits) => traits,
            Err(refusal) => return self.unprepared(now, req, refusal, out),
        };
        (r.prepared, r.traits) = (true, traits);
        let Some(seq) = seq else {
            self.wants_no_room(load);
            return self.stateless_ready(now, req, out);
        };
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.bytes = s.bytes.saturating_sub(bytes).saturating_add(traits.bytes);
        if s.adopted && !s.announced {
            s.announced = true;
            self.note(load, crate::event::Note::Started(seq, req), out);
        }
        match self.seqs.get(seq).and_then(|s| s.seat) {
            Some(_) => self.advance(now, seq, out),
            None => {
                self.wants_no_room(load);
                self.seat_or_wait(now, seq, out);
            }
        }
    }

    /// A preparation failed: a first request takes its sequence with it, a later one goes alone.
    fn unprepared(&mut self, now: Time, req: Req, refusal: Refusal, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get(req) else { return };
        let Some(seq) = r.seq else { return self.drop_stateless(req, refusal, out) };
        let first = r.start || self.seqs.get(seq).is_some_and(|s| !s.announced);
        if !first {
            return self.drop_step(now, seq, req, refusal, out);
        }
        if !self.start_after_all(now, seq, refusal, out) {
            self.take_out(seq, req, refusal, true, out);
            self.leave(now, seq, Why::Failed, Refusal::Ended(Why::Failed), out);
        }
    }

    /// The id of a step was not found, but a START has followed the step: that one opens the sequence. False if none has.
    fn start_after_all(&mut self, now: Time, seq: Seq, mut told: Refusal, out: &mut Vec<Effect>) -> bool {
        let Some(s) = self.seqs.get(seq).filter(|s| !s.announced && s.starts > 0) else { return false };
        let load = s.load;
        while let Some(head) = self.seqs.get(seq).and_then(|s| s.queue.front()).and_then(|ix| self.reqs.at(ix)) {
            let (key, start, prepared) = (head.key, head.start, head.prepared);
            if !start {
                self.take_out(seq, key, told, false, out);
                told = Refusal::Ended(Why::Failed);
                continue;
            }
            if let Some(s) = self.seqs.get_mut(seq) {
                (s.adopted, s.announced) = (false, true);
            }
            self.note(load, crate::event::Note::Started(seq, key), out);
            if prepared {
                self.wants_no_room(load);
                self.seat_or_wait(now, seq, out);
            } else {
                self.set_stage(seq, Stage::Preparing);
                out.push(Effect::Prepare(key, Some(seq)));
            }
            return true;
        }
        false
    }

    pub(crate) fn ran(&mut self, now: Time, batch: BatchId, rows: &[RowEnd], out: &mut Vec<Effect>) {
        let Some(flight) = self.batches.get_mut(batch) else { return };
        if flight.sealing {
            return;
        }
        let instance = flight.instance;
        let reqs = std::mem::take(&mut flight.reqs);
        let seals = self.load(instance.load).is_some_and(|l| l.spec.stages.seal);
        if let Some(state) = load_in(&mut self.loads, instance.load)
            && let Some(owner) = state.instances.get_mut(usize::from(instance.n))
        {
            owner.in_flight = owner.in_flight.saturating_sub(1);
            wake(state, instance.n, out);
        }
        let mut to_seal = Vec::new();
        for (n, req) in reqs.into_iter().enumerate() {
            // A driver that reports too few rows has lost them: they failed.
            match rows.get(n).copied().unwrap_or(RowEnd::Failed) {
                RowEnd::Failed => self.row_failed(now, req, out),
                RowEnd::NoRoom => self.row_without_room(now, req, out),
                RowEnd::Done { state_shape, state_bytes } => {
                    self.committed(req, state_shape, state_bytes);
                    if seals && !fault(Planted::SealSkipped) { to_seal.push(req) } else { self.durable(now, req, out) }
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
            if let Some(seq) = self.past(*req, At::Sealing) {
                self.set_stage(seq, Stage::Sealing);
            }
        }
        if let Some(flight) = self.batches.get_mut(batch) {
            flight.sealing = true;
            flight.reqs = reqs;
        }
        out.push(Effect::Seal(batch));
    }

    pub(crate) fn sealed(&mut self, now: Time, batch: BatchId, result: Result<(), Refusal>, out: &mut Vec<Effect>) {
        if !self.batches.get(batch).is_some_and(|flight| flight.sealing) {
            return;
        }
        let Some(flight) = self.batches.remove(batch) else { return };
        for req in flight.reqs {
            match result {
                Ok(()) => self.durable(now, req, out),
                Err(refusal) => self.unsealed(now, req, refusal, out),
            }
        }
        self.wake_if_over(flight.instance.load, out);
    }

    /// The state could not be made durable: nobody may build on it, so the sequence ends.
    fn unsealed(&mut self, now: Time, req: Req, refusal: Refusal, out: &mut Vec<Effect>) {
        self.tell_run(req, false, out);
        let Some(r) = self.reqs.remove(req) else { return };
        out.push(Effect::Refuse { req, refusal, ended: r.seq.is_some() });
        self.turn_done(&r, false, out);
        if let Some(seq) = r.seq {
            self.leave(now, seq, Why::Unsealed, Refusal::Ended(Why::Unsealed), out);
            self.complete(now, seq, out);
        }
    }

    fn committed(&mut self, req: Req, state_shape: u64, state_bytes: u64) {
        let Some(r) = self.reqs.get(req) else { return };
        let step = r.step;
        if let Some(s) = r.seq.and_then(|seq| self.seqs.get_mut(seq)) {
            s.step = step;
            s.state_shape = state_shape;
            s.state_bytes = state_bytes;
        }
    }

    /// The state is committed, and durable if it must be: postprocess, or answer.
    fn durable(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, true, out);
        let posts = self.reqs.get(req).and_then(|r| self.load(r.load)).is_some_and(|l| l.spec.stages.post);
        if !posts {
            return self.answer_row(now, req, out);
        }
        let seq = self.past(req, At::Posting);
        if let Some(seq) = seq {
            self.set_stage(seq, Stage::Posting);
        }
        out.push(Effect::Post(req, seq));
    }

    pub(crate) fn posted(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        if let Some(load) = self.reqs.get(req).filter(|r| r.stage == At::Posting).map(|r| r.load) {
            self.answer_row(now, req, out);
            self.wake_if_over(load, out);
        }
    }

    /// Transitions a request on and names its sequence.
    fn past(&mut self, req: Req, to: At) -> Option<Seq> {
        let r = self.reqs.get_mut(req)?;
        r.stage = to;
        r.seq
    }

    fn row_failed(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        self.tell_run(req, false, out);
        let Some(r) = self.reqs.get(req).cloned() else { return };
        if let Some(seq) = r.seq {
            if r.start && !r.dialect.keep_failed_start {
                self.leave(now, seq, Why::Failed, Refusal::Ended(Why::Failed), out);
            } else if r.counted {
                self.expect_again(seq, None, r.step, out);
            }
        }
        self.answer_row(now, req, out);
    }

    /// Nothing of the sequence is kept: whatever follows would have no state to go on from.
    fn row_without_room(&mut self, now: Time, req: Req, out: &mut Vec<Effect>) {
        if let Some(seq) = self.reqs.get(req).and_then(|r| r.seq) {
            self.leave(now, seq, Why::Failed, Refusal::Ended(Why::Failed), out);
        }
        self.answer_row(now, req, out);
    }

    /// Lets the answer leave in its turn, and the sequence go on.
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
    fn turn_done(&mut self, r: &crate::request::Request, answer: bool, out: &mut Vec<Effect>) {
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

    /// The current request of a sequence is through.
    fn complete(&mut self, now: Time, seq: Seq, out: &mut Vec<Effect>) {
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.current = None;
        if !fault(Planted::IdleNotRefreshed) {
            s.touched = now;
        }
        self.advance(now, seq, out);
    }
}
