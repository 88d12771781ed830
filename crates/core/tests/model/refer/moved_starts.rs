//! STARTs of the reference model that wait for a slot and begin on another load instead.

use std::time::Duration;

use sequor_core::*;

use super::{At, N, NEVER, Plan, RReq, Refer, ns};

impl Refer {
    /// The sequences of a load that wait for a slot and are as they came, in the order of their wait.
    pub fn waiting_starts(&self, load: usize) -> Vec<N> {
        self.backlog(load).into_iter().filter(|n| self.is_new(*n)).collect()
    }

    /// Whether nothing of a waiting sequence has run or was prepared, so that it may begin elsewhere.
    fn is_new(&self, n: N) -> bool {
        let s = self.seq(n);
        let waits =
            s.stage == Stage::Backlogged && s.leaving.is_none() && s.ending.is_none_or(|why| why == EndReason::End);
        let has_younger = self.seqs.iter().any(|other| other.linked && other.id == s.id && other.n > n);
        let as_it_came = |r: &RReq| r.at == At::Queued && r.plan == Some(Plan::Run(1)) && r.ran == 0;
        waits
            && !(s.adopted || s.held || s.begun || has_younger)
            && s.queue.iter().filter_map(|req| self.req(*req)).all(as_it_came)
    }

    pub fn may_move(&self, now: u64, n: N, to: usize) -> bool {
        let (s, new) = (self.seq(n), &self.loads[to]);
        if s.load == to || new.gone || new.retired.is_some() || !new.spec.is_stateful() || !self.is_new(n) {
            return false;
        }
        let same_version = self.loads[s.load].spec.version == new.spec.version;
        let requests: Vec<&RReq> = s.queue.iter().filter_map(|req| self.req(*req)).collect();
        requests.iter().all(|r| same_version || !r.names_version)
            && self.may_start(now, to, None, &self.as_submitted(n, requests[0])).is_ok()
    }

    /// A waiting request, as it came.
    fn as_submitted(&self, n: N, r: &RReq) -> Submit {
        let s = self.seq(n);
        let some = |at: u64| (at != NEVER).then_some(Time(at));
        let default = match self.loads[s.load].spec.expiry {
            Expiry::Idle(default) => Some(ns(default)),
            _ => None,
        };
        Submit {
            req: r.key,
            id: s.id.clone(),
            fresh_id: 0,
            start: r.start,
            end: r.end,
            adopt: None,
            adopt_on: None,
            prepare: false,
            step: r.counted.then_some(r.step),
            version: None,
            dialect: r.dialect,
            deadline: some(r.deadline),
            backlog_until: some(s.backlog_until),
            queue_until: some(r.queue_until),
            // Without an own idle time it gets that of the other load.
            idle: s.idle.filter(|idle| Some(*idle) != default).map(Duration::from_nanos),
            priority: r.priority,
            queue: QueueTerms { level: s.level, most: 0, delays: r.delays },
            meta: r.meta,
            origin: 0,
        }
    }

    /// Its requests move in their order. They and the sequence have waited since they came.
    pub fn move_start(&mut self, now: u64, n: N, to: usize) {
        let s = self.seq(n).clone();
        let requests: Vec<RReq> = s.queue.iter().filter_map(|req| self.req(*req)).cloned().collect();
        let submits: Vec<Submit> = requests.iter().map(|r| self.as_submitted(n, r)).collect();
        for r in &requests {
            self.reqs[r.key.ix as usize] = None;
        }
        self.seq_mut(n).queue.clear();
        self.remove(now, n, EndReason::Spilled, Refusal::Cancelled);
        let mut submits = submits.iter();
        let first = submits.next().expect("a START");
        self.begin(now, to, s.id.clone(), first);
        let moved = self.seq_born;
        for submit in submits {
            if let Err(refusal) = self.join(now, moved, submit) {
                self.out.push(super::Out::Refuse(submit.req, refusal, false));
            }
        }
        for of in requests {
            if let Some(r) = self.req_mut(of.key) {
                (r.arrival, r.names_version) = (of.arrival, of.names_version);
            }
        }
        let moved = self.seq_mut(moved);
        if moved.stage == Stage::Backlogged {
            moved.backlogged_at = s.backlogged_at;
        }
        // The old load may have a new head, and the new one a head that has waited for long enough.
        self.admit_waiting(now, s.load);
        self.admit_waiting(now, to);
    }
}
