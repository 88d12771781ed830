//! The reference model from preparation and run to the answer.

use sequor_core::*;

use super::{At, N, Out, Plan, ROp, RReq, Refer};

impl Refer {
    /// Lends a request to the driver.
    pub fn lend(&mut self, req: Req, n: Option<N>) {
        self.req_mut(req).expect("an open request").at = At::Preparing;
        self.out.push(Out::Prepare(req, n));
    }

    pub fn prepared(&mut self, now: u64, req: Req, prepared: Preparation) {
        let Some(r) = self.req_mut(req).filter(|r| r.at == At::Preparing) else { return };
        r.at = At::Queued;
        match prepared {
            Preparation::Run(meta) => (r.plan, r.meta) = (Some(Plan::Run(1)), meta),
            Preparation::RunSteps(meta, steps) => (r.plan, r.meta) = (Some(Plan::Run(steps.get())), meta),
            Preparation::Reply => r.plan = Some(Plan::Reply),
            Preparation::Refuse { refusal, ends } => return self.unprepared(now, req, refusal, ends),
        }
        let Some(n) = r.seq else {
            if prepared == Preparation::Reply {
                self.reqs[req.ix as usize] = None;
                self.out.push(Out::Release(req));
                return;
            }
            return self.stateless_ready(now, req);
        };
        let s = self.seq_mut(n);
        if s.adopted && !s.announced {
            s.announced = true;
            self.out.push(Out::Started(n, req));
        }
        match self.seq(n).placement {
            Some(_) => self.advance(now, n),
            None => self.assign_slot_or_wait(now, n),
        }
    }

    /// Answers the head of a sequence without a run.
    pub fn reply(&mut self, now: u64, n: N, req: Req) {
        let r = self.req(req).cloned().expect("an open request");
        assert_eq!(self.seq_mut(n).queue.remove(0), req);
        if r.start {
            self.begin_life(n, &r);
        }
        let s = self.seq_mut(n);
        (s.step, s.last, s.touched, s.begun) = (r.step, Some(req), now, true);
        if self.loads[r.load].is_in_order() {
            self.loads[r.load].turns.push((req, None));
        }
        let seals = self.loads[r.load].spec.stages.seal;
        self.out.push(Out::Reply(req, seals));
        self.req_mut(req).expect("an open request").at = At::Replying;
        if !seals {
            self.replied(now, req, None);
        }
    }

    /// The step of a reply is durable, or could not be made durable.
    pub fn replied(&mut self, now: u64, req: Req, failed: Option<EndReason>) {
        if !self.req(req).is_some_and(|r| r.at == At::Replying) {
            return;
        }
        let r = self.reqs[req.ix as usize].take().expect("an open request");
        self.out.extend(failed.map(|why| Out::Refuse(req, Refusal::Ended(why), why != EndReason::RolledBack)));
        self.turn_done(&r, failed.is_none());
        let seq = r.seq.filter(|n| self.alive(*n));
        if let (Some(why), Some(n)) = (failed, seq) {
            self.leave(now, n, why, Refusal::Ended(why));
        }
    }

    /// Lets a START take effect: nothing of the new life is committed yet, and its state is the first one.
    pub fn begin_life(&mut self, n: N, start: &RReq) {
        let initial = start.first_shape.unwrap_or(self.loads[start.load].spec.initial_state_shape);
        let s = self.seq_mut(n);
        (s.step, s.state_shape, s.holds_state) = (start.step.saturating_sub(1), initial, false);
        s.first_state = Some(ROp::Init(0, start.key));
        if std::mem::replace(&mut s.begun, true) || s.adopted {
            self.out.push(Out::Ended(n, EndReason::Restarted));
            self.out.push(Out::Started(n, start.key));
        }
    }

    fn unprepared(&mut self, now: u64, req: Req, refusal: Refusal, ends: bool) {
        let Some(RReq { seq, start, .. }) = self.req(req).cloned() else { return };
        let Some(n) = seq else {
            self.reqs[req.ix as usize] = None;
            self.out.push(Out::Refuse(req, refusal, false));
            return;
        };
        let announced = self.seq(n).announced;
        if announced && !start && !ends {
            return self.drop_step(now, n, req, refusal);
        }
        self.seq_mut(n).queue.remove(0);
        self.reqs[req.ix as usize] = None;
        let restart = self.seq(n).queue.iter().position(|r| self.req(*r).is_some_and(|r| r.start));
        let restart = restart.filter(|_| !announced);
        self.out.push(Out::Refuse(req, refusal, restart.is_none()));
        match restart {
            Some(place) => self.start_after_all(now, n, place),
            None => {
                let why = if announced && !start { EndReason::Rejected } else { EndReason::Failed };
                self.leave(now, n, why, Refusal::Ended(why));
            }
        }
    }

    /// The id was unknown, but a START follows: it opens the sequence.
    fn start_after_all(&mut self, now: u64, n: N, place: usize) {
        for _ in 0..place {
            let req = self.seq_mut(n).queue.remove(0);
            self.reqs[req.ix as usize] = None;
            self.out.push(Out::Refuse(req, Refusal::Ended(EndReason::Failed), false));
        }
        let s = self.seq_mut(n);
        (s.adopted, s.announced, s.first_state) = (false, true, None);
        let start = s.queue[0];
        self.out.push(Out::Started(n, start));
        if self.req(start).is_some_and(|r| r.plan.is_some()) {
            self.assign_slot_or_wait(now, n);
        } else {
            self.lend(start, Some(n));
        }
    }

    pub fn ran(&mut self, now: u64, batch: BatchId, rows: &[RowEnd]) {
        let Some(ix) = self.batches.iter().position(|b| b.key == Some(batch) && !b.sealing) else { return };
        let (load, inst, reqs) = (self.batches[ix].load, self.batches[ix].inst, self.batches[ix].reqs.clone());
        let seals = self.loads[load].spec.stages.seal;
        let (rows_of_all, taken) = (self.batches[ix].rows, self.batches[ix].taken);
        let took = now - taken.max(std::mem::replace(&mut self.loads[load].inst[inst].last_end, now));
        self.loads[load].run(rows_of_all, took);
        if self.loads[load].external.is_some_and(|h| h.observe) {
            self.batches_ran.push((load, took));
        }
        self.loads[load].inst[inst].in_flight -= 1;
        self.loads[load].inst[inst].hold = None;
        let mut to_seal = Vec::new();
        for (i, req) in reqs.into_iter().enumerate() {
            if let Some(n) = self.req(req).and_then(|r| r.seq) {
                self.seq_mut(n).holds_state = true;
            }
            match rows.get(i).copied().unwrap_or(RowEnd::Failed) {
                RowEnd::Failed => self.row_failed(now, req),
                RowEnd::NoRoom => {
                    if let Some((n, start)) = self.req(req).and_then(|r| Some((r.seq?, r.start))) {
                        self.end_failed(now, n, start);
                    }
                    self.answer(now, req);
                }
                RowEnd::NotFinite => {
                    self.tell(req, false);
                    if let Some(n) = self.req(req).and_then(|r| r.seq) {
                        self.leave(now, n, EndReason::NotFinite, Refusal::Ended(EndReason::NotFinite));
                    }
                    self.answer(now, req);
                }
                RowEnd::Done { state_shape, state_bytes } => {
                    let r = self.req_mut(req).expect("a running request");
                    let runs = r.runs().expect("a request that runs");
                    (r.plan, r.ran) = (Some(Plan::Run(runs - 1)), r.ran + 1);
                    let (seq, step) = (r.seq, r.step);
                    if let Some(n) = seq {
                        let s = self.seq_mut(n);
                        (s.state_shape, s.state_bytes) = (state_shape, state_bytes);
                        (s.step, s.last) = if runs == 1 { (step, Some(req)) } else { (s.step, s.last) };
                    }
                    match (runs, seals) {
                        (1, true) => to_seal.push(req),
                        (1, false) => self.durable(now, req),
                        _ => self.runs_on(now, req),
                    }
                }
            }
        }
        let ix = self.batches.iter().position(|b| b.key == Some(batch)).expect("the batch");
        if to_seal.is_empty() {
            self.batches.remove(ix);
            return;
        }
        for req in &to_seal {
            self.moves_to(*req, At::Sealing, Stage::Sealing);
        }
        (self.batches[ix].sealing, self.batches[ix].reqs) = (true, to_seal);
        self.out.push(Out::Seal(ix));
    }

    /// The request has more runs: it goes back to the head of its queue.
    fn runs_on(&mut self, now: u64, req: Req) {
        self.tell(req, true);
        let r = self.req_mut(req).expect("a running request");
        r.at = At::Queued;
        let Some(n) = r.seq else { return self.stateless_ready(now, req) };
        let s = self.seq_mut(n);
        s.current = None;
        s.queue.insert(0, req);
        self.advance(now, n);
    }

    fn moves_to(&mut self, req: Req, at: At, stage: Stage) -> Option<N> {
        let r = self.req_mut(req).expect("a running request");
        r.at = at;
        let seq = r.seq;
        if let Some(n) = seq {
            self.seq_mut(n).stage = stage;
        }
        seq
    }

    /// The requests of a batch whose states are being made durable.
    pub fn sealing(&self, batch: BatchId) -> Vec<Req> {
        let of = self.batches.iter().find(|b| b.key == Some(batch) && b.sealing);
        of.map(|b| b.reqs.clone()).unwrap_or_default()
    }

    pub fn sealed(&mut self, now: u64, batch: BatchId, failed: &[(Req, Refusal)]) {
        let Some(ix) = self.batches.iter().position(|b| b.key == Some(batch) && b.sealing) else { return };
        for req in self.batches.remove(ix).reqs {
            match failed.iter().find(|(of, _)| *of == req).map(|(_, refusal)| *refusal) {
                None => self.durable(now, req),
                Some(refusal) => {
                    self.tell(req, false);
                    let r = self.reqs[req.ix as usize].take().expect("a sealing request");
                    let why = if let Refusal::Ended(why) = refusal { why } else { EndReason::Unsealed };
                    let ended = r.seq.is_some() && why != EndReason::RolledBack;
                    self.out.push(Out::Refuse(req, refusal, ended));
                    self.turn_done(&r, false);
                    if let Some(n) = r.seq {
                        self.leave(now, n, why, Refusal::Ended(why));
                        self.complete(now, n);
                    }
                }
            }
        }
    }

    fn tell(&mut self, req: Req, done: bool) {
        let r = self.req(req).expect("a request that ran");
        let ran = (r.load, r.seq, done, req, r.meta.rows);
        if self.loads[r.load].external.is_some_and(|h| h.observe) {
            self.ran.push(ran);
        }
    }

    fn durable(&mut self, now: u64, req: Req) {
        self.tell(req, true);
        let load = self.req(req).expect("a committed request").load;
        if !self.loads[load].spec.stages.post {
            return self.answer(now, req);
        }
        let seq = self.moves_to(req, At::Posting, Stage::Posting);
        self.out.push(Out::Post(req, seq));
    }

    pub fn posted(&mut self, now: u64, req: Req) {
        if self.req(req).is_some_and(|r| r.at == At::Posting) {
            self.answer(now, req);
        }
    }

    /// A request failed and left no state for later steps.
    fn end_failed(&mut self, now: u64, n: N, start: bool) {
        let why = if start { EndReason::Failed } else { EndReason::Broken };
        self.leave(now, n, why, Refusal::Ended(why));
    }

    fn row_failed(&mut self, now: u64, req: Req) {
        self.tell(req, false);
        let r = self.req(req).cloned().expect("a running request");
        if let Some(n) = r.seq {
            if r.ran > 0 || (r.start && !r.dialect.keep_failed_start) {
                self.end_failed(now, n, r.start);
            } else if r.counted {
                self.expect_again(n, 0, r.step);
                self.seq_mut(n).touched = now;
            }
        }
        self.answer(now, req);
    }

    fn answer(&mut self, now: u64, req: Req) {
        let r = self.reqs[req.ix as usize].take().expect("a request past its queue");
        self.turn_done(&r, true);
        if let Some(n) = r.seq {
            self.complete(now, n);
        }
    }

    fn complete(&mut self, now: u64, n: N) {
        let s = self.seq_mut(n);
        (s.current, s.touched) = (None, now);
        self.advance(now, n);
    }

    /// Answers leave in the order in which their requests were taken, if the load keeps one.
    pub fn turn_done(&mut self, r: &RReq, answer: bool) {
        let turns = &mut self.loads[r.load].turns;
        let Some(turn) = turns.iter_mut().find(|(req, _)| *req == r.key) else {
            if answer {
                self.out.push(Out::Release(r.key));
            }
            return;
        };
        turn.1 = Some(answer);
        while let Some((req, Some(answered))) = turns.first().copied() {
            turns.remove(0);
            if answered {
                self.out.push(Out::Release(req));
            }
        }
    }
}
