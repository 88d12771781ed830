//! Moves sequences whose START still waits for a slot to another load, because theirs takes no new ones any more. Nothing of them has run, so
//! they begin there with the same requests.

use crate::core::Core;
use crate::ending::EndReason;
use crate::event::{Effect, Refusal, Submit};
use crate::faults::{Planted, fault};
use crate::id_chains::IdLookup;
use crate::ids::{Id, LoadId, Req, Seq};
use crate::load::LoadState;
use crate::request::{Request, RequestStage, RunPlan};
use crate::request_meta::QueueTerms;
use crate::sequence::Stage;
use crate::time::Time;

impl Core {
    /// The sequences of a load that wait for a slot and may move, in the order of the backlog.
    pub fn waiting_starts(&self, load: LoadId) -> Vec<Seq> {
        let Some(state) = self.load(load) else { return Vec::new() };
        let waiting = state.backlog.iter(&self.seq_links).filter_map(|ix| self.seqs.key_at(ix));
        waiting.filter(|seq| self.is_new(*seq)).collect()
    }

    /// The requests in the queue of a sequence, in order.
    pub fn requests_of(&self, seq: Seq) -> Vec<Req> {
        let Some(s) = self.seqs.get(seq) else { return Vec::new() };
        self.req_links.iter(&s.queue).filter_map(|ix| self.reqs.at(ix)).map(|r| r.key).collect()
    }

    /// Whether a sequence that waits for a slot may begin on this load instead.
    pub fn may_move(&self, now: Time, seq: Seq, to: LoadId) -> bool {
        let Some(new) = self.load(to).filter(|l| l.retired.is_none() && l.spec.is_stateful()) else { return false };
        let Some(s) = self.seqs.get(seq).filter(|s| s.load != to && self.is_new(seq)) else { return false };
        let is_of_version = self.load(s.load).is_some_and(|l| l.spec.version == new.spec.version);
        let mut requests = self.req_links.iter(&s.queue).filter_map(|ix| self.reqs.at(ix)).peekable();
        let first = requests.peek().map(|r| self.submit_of(r, seq));
        requests.all(|r| is_of_version || !r.names_version)
            && first.is_some_and(|submit| self.may_start(now, to, &IdLookup::default(), &submit).is_ok())
    }

    /// Whether a sequence waits for its slot, and nothing of it has run or is being prepared.
    fn is_new(&self, seq: Seq) -> bool {
        let Some(s) = self.seqs.get(seq) else { return false };
        let waits = s.stage == Some(Stage::Backlogged) && s.placement.is_none() && s.current.is_none();
        let begins = !s.adopted && !s.held && !s.begun && s.leaving.is_none();
        // A sequence that ends because a START took its id elsewhere must not take the id back.
        let is_youngest = !self.is_superseded(seq) && s.ending.is_none_or(|why| why == EndReason::End);
        let is_queued = |r: &Request| r.stage == RequestStage::Queued && r.plan == Some(RunPlan::Run(1)) && r.ran == 0;
        waits && begins && is_youngest && self.req_links.iter(&s.queue).filter_map(|ix| self.reqs.at(ix)).all(is_queued)
    }

    /// A waiting request, as it came.
    fn submit_of(&self, r: &Request, seq: Seq) -> Submit {
        let s = self.seqs.get(seq);
        let is_set = |time: &Time| *time != Time::NEVER;
        // The default of the other load counts for a sequence that asked for no idle time.
        let default = self.load(r.load).and_then(LoadState::default_idle);
        Submit {
            req: r.key,
            id: s.map_or(Id::None, |s| s.id.clone()),
            fresh_id: 0,
            start: r.start,
            end: r.end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: r.counted.then_some(r.step),
            version: None,
            dialect: r.dialect,
            deadline: r.deadline,
            backlog_until: s.map(|s| s.backlog_until).filter(is_set),
            queue_until: Some(r.queue_until).filter(is_set),
            idle: s.and_then(|s| s.idle).filter(|idle| Some(*idle) != default),
            priority: r.priority,
            queue: QueueTerms { level: s.map_or(0, |s| s.level), most: 0, delays: r.delays },
            meta: r.meta,
            origin: 0,
        }
    }

    /// Begins a sequence on another load instead, if it may.
    pub(crate) fn move_start(&mut self, now: Time, seq: Seq, to: LoadId, out: &mut Vec<Effect>) {
        if !self.may_move(now, seq, to) {
            return;
        }
        let requests: Vec<Request> =
            self.requests_of(seq).iter().filter_map(|req| self.reqs.get(*req).cloned()).collect();
        let submits: Vec<Submit> = requests.iter().map(|r| self.submit_of(r, seq)).collect();
        self.unlist(seq);
        for r in &requests {
            if let Some(s) = self.seqs.get_mut(seq) {
                self.req_links.remove(&mut s.queue, r.key.ix);
            }
            self.reqs.remove(r.key);
        }
        let (from, since) = self.seqs.get(seq).map_or((to, now), |s| (s.load, s.backlogged_at));
        self.remove(now, seq, EndReason::Spilled, Refusal::Cancelled, out);
        let mut submits = submits.into_iter();
        let Some(first) = submits.next() else { return };
        let id = first.id.clone();
        self.begin(now, to, id.clone(), &first, out);
        for submit in submits {
            let Some(seq) = self.youngest(&id) else { continue };
            if let Err(refusal) = self.join(now, seq, &submit, out) {
                out.push(Effect::Refuse { req: submit.req, refusal, ended: false });
            }
        }
        // They have waited since they came.
        for Request { key, arrival, names_version, .. } in requests {
            if let Some(r) = self.reqs.get_mut(key) {
                (r.arrival, r.names_version) = (arrival, names_version);
            }
        }
        if let Some(s) = self.youngest(&id).and_then(|seq| self.seqs.get_mut(seq))
            && s.stage == Some(Stage::Backlogged)
        {
            s.backlogged_at = since;
        }
        // A policy that admits has a time limit for each head of a backlog. The old load has another head now, and the new head may have waited
        // for longer than that already.
        for load in [from, to].into_iter().filter(|_| !fault(Planted::MovedWithoutDeadline)) {
            self.admit_waiting(now, load, out);
        }
    }
}
