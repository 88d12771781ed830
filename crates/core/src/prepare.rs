//! Preparation: the core lends a request to the driver before its turn, and the driver's answer gives the plan for it.

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Note, Preparation, Refusal};
use crate::faults::{Planted, fault};
use crate::finish::has_ended;
use crate::ids::{Req, Seq};
use crate::request::{RequestStage, RunPlan};
use crate::request_meta::RequestMeta;
use crate::sequence::{FirstState, Stage};
use crate::time::Time;

impl Core {
    /// Lends a request to the driver. If it has a sequence, it is at the head of that queue.
    pub(crate) fn prepare(&mut self, req: Req, seq: Option<Seq>, out: &mut Vec<Effect>) {
        if let Some(r) = self.reqs.get_mut(req) {
            r.stage = RequestStage::Preparing;
        }
        if let Some(seq) = seq {
            self.set_stage(seq, Stage::Preparing);
        }
        out.push(Effect::Prepare(req, seq));
    }

    /// Handles the driver's answer to a preparation. If the request was refused meanwhile, nothing is left to do.
    pub(crate) fn prepared(&mut self, now: Time, req: Req, prepared: Preparation, out: &mut Vec<Effect>) {
        let is_lent = |stage| {
            stage == RequestStage::Preparing || (stage == RequestStage::Queued && fault(Planted::PreparedTwice))
        };
        let Some(r) = self.reqs.get_mut(req).filter(|r| is_lent(r.stage)) else { return };
        r.stage = RequestStage::Queued;
        let (plan, meta) = match prepared {
            Preparation::Run(meta) => (RunPlan::Run(1), meta),
            Preparation::RunSteps(meta, steps) => (RunPlan::Run(steps.get()), meta),
            Preparation::Reply => (RunPlan::Reply, r.meta),
            Preparation::Refuse { refusal, ends } => return self.unprepared(now, req, refusal, ends, out),
        };
        let (seq, load, before) = (r.seq, r.load, r.meta.bytes);
        (r.plan, r.meta) = (Some(plan), meta);
        let Some(seq) = seq else {
            self.wants_no_room(load);
            return match plan {
                RunPlan::Run(_) => self.stateless_ready(now, req, out),
                RunPlan::Reply => self.reply_stateless(req, out),
            };
        };
        let Some(s) = self.seqs.get_mut(seq) else { return };
        s.bytes = s.bytes.saturating_sub(before).saturating_add(meta.bytes);
        if s.adopted && !s.announced {
            s.announced = true;
            self.note(load, Note::Started(seq, req), out);
        }
        match self.seqs.get(seq).and_then(|s| s.placement) {
            Some(_) => self.advance(now, seq, out),
            None => {
                self.wants_no_room(load);
                self.assign_slot_or_wait(now, seq, out);
            }
        }
    }

    /// Records the class of the shapes of a sequence's first state, which the driver has made.
    pub(crate) fn first_shape(&mut self, req: Req, shape: u64) {
        if let Some(r) = self.reqs.get_mut(req).filter(|r| r.start && r.stage == RequestStage::Preparing) {
            r.first_shape = Some(shape);
        }
    }

    /// Records the properties of the next run of a running request.
    pub(crate) fn next_run(&mut self, req: Req, meta: RequestMeta) {
        let has_more = |plan| matches!(plan, Some(RunPlan::Run(2..)));
        if let Some(r) =
            self.reqs.get_mut(req).filter(|r| r.seq.is_some() && r.stage == RequestStage::Running && has_more(r.plan))
        {
            r.meta = meta;
        }
    }

    // === without a run ===

    /// Answers the request at the head of a sequence without a run. It counts as a step, and the sequence goes on at once. Its answer leaves
    /// once the step is durable, after those that were due before.
    pub(crate) fn reply(&mut self, now: Time, seq: Seq, req: Req, out: &mut Vec<Effect>) {
        let Some((start, step, load)) = self.reqs.get(req).map(|r| (r.start, r.step, r.load)) else { return };
        if start && !fault(Planted::ReplyForgetsStart) {
            self.begin_life(seq, req, out);
        }
        let state = load_in(&mut self.loads, load);
        let (turn, seal) = state.map_or((None, false), |load| (load.take_turn(req), load.spec.stages.seal));
        let (Some(r), Some(s)) = (self.reqs.get_mut(req), self.seqs.get_mut(seq)) else { return };
        (r.turn, r.stage) = (turn, RequestStage::Replying);
        self.req_links.remove(&mut s.queue, req.ix);
        s.bytes = s.bytes.saturating_sub(r.meta.bytes);
        s.starts = s.starts.saturating_sub(u32::from(start));
        (s.step, s.turn, s.touched, s.begun) = (step, turn, now, true);
        if !fault(Planted::ReplyUntold) {
            out.push(Effect::Reply { req, seal });
        }
        if !seal || fault(Planted::ReplyNotSealed) {
            self.answer_reply(req, out);
        }
    }

    fn answer_reply(&mut self, req: Req, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.remove(req) else { return };
        self.turn_done(&r, true, out);
    }

    /// Handles the driver's report that the step of a reply is durable, or could not be made durable. No step may build on one that is not.
    pub(crate) fn replied(&mut self, now: Time, req: Req, failed: Option<EndReason>, out: &mut Vec<Effect>) {
        let Some(load) = self.reqs.get(req).filter(|r| r.stage == RequestStage::Replying).map(|r| r.load) else {
            return;
        };
        match failed {
            None => self.answer_reply(req, out),
            Some(why) => {
                let Some(r) = self.reqs.remove(req) else { return };
                out.push(Effect::Refuse { req, refusal: Refusal::Ended(why), ended: has_ended(why) });
                self.turn_done(&r, false, out);
                if let Some(seq) = r.seq {
                    self.leave(now, seq, why, Refusal::of_end(why), out);
                }
            }
        }
        self.wake_if_over(load, out);
    }

    fn reply_stateless(&mut self, req: Req, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.remove(req) else { return };
        out.push(Effect::Release(req));
        self.wake_if_over(r.load, out);
    }

    /// Lets a START take effect: nothing of its life is committed yet, and the next run gets the first state.
    pub(crate) fn begin_life(&mut self, seq: Seq, req: Req, out: &mut Vec<Effect>) {
        let Some((load, step, made)) = self.reqs.get(req).map(|r| (r.load, r.step, r.first_shape)) else { return };
        let Some(of_load) = self.load(load).map(|l| l.spec.initial_state_shape) else { return };
        let shape = made.unwrap_or(of_load);
        let Some(s) = self.seqs.get_mut(seq) else { return };
        // If this START fails, the sequence has its first state.
        (s.step, s.state_shape, s.holds_state) = (step.saturating_sub(1), shape, false);
        s.first_state = Some(FirstState::Init(req));
        // An adopted sequence is live already, even if no step of it has run here.
        if std::mem::replace(&mut s.begun, true) || s.adopted {
            self.note(load, Note::Ended(seq, EndReason::Restarted), out);
            self.note(load, Note::Started(seq, req), out);
        }
    }

    // === refused ===

    /// Handles a failed preparation. If the request begins its sequence, the sequence ends. Otherwise `ends` decides.
    fn unprepared(&mut self, now: Time, req: Req, refusal: Refusal, ends: bool, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get(req) else { return };
        let Some(seq) = r.seq else { return self.drop_stateless(req, refusal, out) };
        let first = r.start || self.seqs.get(seq).is_some_and(|s| !s.announced);
        if !first && (!ends || fault(Planted::RefusalEndsNothing)) {
            return self.drop_step(now, seq, req, refusal, out);
        }
        if !self.start_after_all(now, seq, refusal, out) {
            let why = if first { EndReason::Failed } else { EndReason::Rejected };
            self.take_out(seq, req, refusal, true, out);
            self.leave(now, seq, why, Refusal::Ended(why), out);
        }
    }

    /// Opens a sequence with a START that waits behind a step whose id was not found. False if no START waits.
    fn start_after_all(&mut self, now: Time, seq: Seq, mut refusal: Refusal, out: &mut Vec<Effect>) -> bool {
        let Some(s) = self.seqs.get(seq).filter(|s| !s.announced && s.starts > 0) else { return false };
        let load = s.load;
        while let Some(head) = self.seqs.get(seq).and_then(|s| s.queue.front()).and_then(|ix| self.reqs.at(ix)) {
            let (key, start) = (head.key, head.start);
            if !start {
                self.take_out(seq, key, refusal, false, out);
                refusal = Refusal::Ended(EndReason::Failed);
                continue;
            }
            if let Some(s) = self.seqs.get_mut(seq) {
                (s.adopted, s.announced, s.first_state) = (false, true, None);
            }
            self.note(load, Note::Started(seq, key), out);
            if self.reqs.is_prepared(key) {
                self.wants_no_room(load);
                self.assign_slot_or_wait(now, seq, out);
            } else {
                self.prepare(key, Some(seq), out);
            }
            return true;
        }
        false
    }
}
