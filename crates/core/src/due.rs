//! Deadlines of sequences, requests and loads, and the action at each.

use std::time::Duration;

use crate::core::{Core, load_in};
use crate::ending::EndReason;
use crate::event::{Effect, Refusal};
use crate::faults::{Planted, fault};
use crate::ids::{LoadId, Req, Seq};
use crate::level_queue::QueuePlace;
use crate::request::RequestStage;
use crate::sequence::Stage;
use crate::spec::Expiry;
use crate::time::Time;

impl Core {
    /// The deadline of this sequence in its present stage.
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
        // The deadline has moved. Arm it again, so that even a late tick handles deadlines in their order.
        if deadline > at {
            return self.arm_sequence(seq);
        }
        if s.stage == Some(Stage::Backlogged) {
            let (load, waited) = (s.load, now - s.backlogged_at);
            let (ahead, ends) = (self.ahead_of(seq), self.load(load).is_none_or(|l| l.spec.cancel_ends));
            let why = if !ends && self.goes_back(seq) { EndReason::Spilled } else { EndReason::NoSlot };
            self.leave(now, seq, why, Refusal::BacklogTimeout { waited, ahead }, out);
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

    /// Moves a late request behind the others of its level, if it still waits.
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
            self.wake_if_over(load, out);
        } else if self.admits_at(load).is_some_and(|admits| admits <= at) {
            self.admit_waiting(now, load, out);
        } else if self.load(load).is_some_and(|l| l.external.is_some_and(|h| h.admit)) {
            self.announce_consult(load, out);
        }
        self.arm_load(load, at);
    }
}

fn late() -> Duration {
    Duration::from_nanos(if fault(Planted::TimerLate) { 3 } else { 0 })
}

/// The second of the scans, `every` apart since the clock's zero, after `touched`.
fn second_scan(touched: Time, every: Duration) -> Time {
    let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1);
    Time((touched.0 / every).saturating_add(2).saturating_mul(every))
}
