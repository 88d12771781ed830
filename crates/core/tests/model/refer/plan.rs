//! The next step of an instance in the reference model: the built-in policies, written a second time in plain form.

use std::time::Duration;

use sequor_core::*;

use super::{At, NEVER, Out, RBatch, ROp, Refer, ns};

/// The view of one candidate that a policy gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown {
    pub req: Req,
    pub rows: u32,
    pub shape: (u64, u64),
}

#[derive(Debug, Clone, PartialEq)]
pub enum RPlan {
    Nothing(Option<u64>),
    Ask,
    /// Whether the built-in policy decides because an external one let a request wait for too long.
    Run(Vec<Req>, bool),
}

#[derive(Debug, Clone, PartialEq)]
pub enum RNext {
    Run(Vec<ROp>, Vec<Option<Req>>),
    Tidy(Vec<ROp>),
    Ask(Vec<Shown>),
    Sleep(Option<u64>),
    Gone,
}

impl Refer {
    pub fn next(&mut self, now: u64, load: usize, inst: usize) -> RNext {
        self.expire(now);
        self.next_after(now, load, inst)
    }

    pub fn next_after(&mut self, now: u64, load: usize, inst: usize) -> RNext {
        match self.plan(now, load, inst) {
            RPlan::Run(reqs, fallback) => {
                if fallback {
                    self.out.push(Out::Fallback);
                }
                self.take(now, load, inst, &reqs)
            }
            RPlan::Ask => {
                self.loads[load].inst[inst].asked = true;
                RNext::Ask(self.shown(load, inst))
            }
            RPlan::Nothing(until) => self.rest(load, inst, until),
        }
    }

    /// The step it would take, without taking it.
    pub fn plan(&self, now: u64, load: usize, inst: usize) -> RPlan {
        let l = &self.loads[load];
        let i = &l.inst[inst];
        let ready = self.ready(load, inst);
        // Beside a running batch, only a full one is taken.
        let full = match &l.spec.strategy {
            Strategy::Stateless { batching: false, .. } => 1,
            Strategy::Stateless { preferred, .. } | Strategy::Oldest { preferred, .. } if !preferred.is_empty() => {
                preferred.iter().copied().max().unwrap_or(1)
            }
            _ => l.spec.max_batch.max(1),
        };
        let takes = i.in_flight == 0 || (i.in_flight < l.spec.depth && ready.len() >= full as usize);
        if l.gone || i.asked || i.lost || !takes {
            return RPlan::Nothing(None);
        }
        let Some(oldest) = ready.first().and_then(|r| self.req(*r)) else { return RPlan::Nothing(None) };
        let limit = oldest.ready.saturating_add(l.max_wait());
        let plans = l.external.is_some_and(|h| h.plan);
        let overdue = limit <= now && (plans || matches!(l.spec.strategy, Strategy::Deadline { .. }));
        if plans && !overdue {
            return match i.hold.map(|until| until.min(limit)) {
                Some(until) if until > now => RPlan::Nothing(Some(until)),
                _ => RPlan::Ask,
            };
        }
        match self.built_in(now, load, &ready, overdue) {
            Ok(reqs) => RPlan::Run(reqs, overdue && plans),
            Err(until) => RPlan::Nothing(Some(until)),
        }
    }

    /// The built-in policy's picks, or the time of the next look.
    pub fn built_in(&self, now: u64, load: usize, ready: &[Req], forced: bool) -> Result<Vec<Req>, u64> {
        let spec = &self.loads[load].spec;
        let all = [spec.max_batch.max(1)];
        match &spec.strategy {
            Strategy::Stateless { batching: false, .. } => Ok(vec![ready[0]]),
            Strategy::Direct { delay, min_use, .. } => {
                let (delay, min_use) = if forced { (Duration::ZERO, 0.0) } else { (*delay, *min_use) };
                self.direct(now, spec.slots(), ready, delay, min_use)
            }
            Strategy::Deadline { .. } if !forced => Ok(self.deadline(load, ready)),
            Strategy::Stateless { preferred, delay, .. } | Strategy::Oldest { preferred, delay, .. } if !forced => {
                let preferred = if preferred.is_empty() { &all[..] } else { preferred };
                self.oldest(now, spec.max_batch.max(1), ready, preferred, ns(*delay))
            }
            _ => self.oldest(now, spec.max_batch.max(1), ready, &all, 0),
        }
    }

    fn direct(&self, now: u64, slots: u32, ready: &[Req], delay: Duration, min_use: f32) -> Result<Vec<Req>, u64> {
        let enough = ready.len() as f32 / slots as f32 >= min_use;
        if !delay.is_zero() && min_use > 0.0 && !enough {
            let oldest = ready.iter().filter_map(|r| self.req(*r)).map(|r| r.arrival).min().unwrap_or(now);
            if now <= oldest.saturating_add(ns(delay)) {
                return Err(oldest.saturating_add(ns(delay)) + 1);
            }
        }
        let template = self.shape(ready[0]);
        Ok(ready.iter().copied().filter(|r| self.shape(*r) == template).collect())
    }

    fn deadline(&self, load: usize, ready: &[Req]) -> Vec<Req> {
        let spec = &self.loads[load].spec;
        let mut seen: Vec<Req> = ready.iter().copied().take(spec.limits.candidates as usize).collect();
        seen.sort_by_key(|r| self.req(*r).map_or(NEVER, |r| r.deadline));
        let Some(first) = seen.first().copied() else { return vec![ready[0]] };
        seen.retain(|r| self.shape(*r) == self.shape(first));
        seen.truncate(spec.max_batch.max(1) as usize);
        seen
    }

    fn oldest(&self, now: u64, max: u32, ready: &[Req], preferred: &[u32], delay: u64) -> Result<Vec<Req>, u64> {
        let window = 2 * max as usize;
        let shape = self.shape(ready[0]);
        let (mut picks, mut rows, mut odd, mut best) = (Vec::new(), 0, ready.len() > window, 0);
        for req in ready.iter().take(window) {
            let size = self.req(*req).map_or(1, |r| r.meta.rows.max(1));
            if self.shape(*req) != shape || (rows > 0 && rows + size > max) {
                odd = true;
                continue;
            }
            rows += size;
            picks.push(*req);
            if preferred.contains(&rows) {
                best = picks.len();
            }
            if rows >= max {
                break;
            }
        }
        let first = picks.iter().filter_map(|r| self.req(*r)).map(|r| r.ready).min().unwrap_or(now);
        let late = delay > 0 && now >= first.saturating_add(delay);
        if best > 0 && !late {
            picks.truncate(best);
            return Ok(picks);
        }
        let full = rows >= max || rows >= preferred.iter().copied().max().unwrap_or(1);
        if delay == 0 || late || full || odd { Ok(picks) } else { Err(first.saturating_add(delay)) }
    }

    pub fn shown(&self, load: usize, inst: usize) -> Vec<Shown> {
        let l = &self.loads[load];
        let window = l.external.unwrap_or_default().shown(l.spec.limits.candidates);
        self.ready(load, inst).into_iter().take(window as usize).map(|r| self.show(r)).collect()
    }

    pub fn show(&self, req: Req) -> Shown {
        Shown { req, rows: self.req(req).map_or(1, |r| r.meta.rows), shape: self.shape(req) }
    }

    /// Makes a batch of these requests.
    pub fn take(&mut self, now: u64, load: usize, inst: usize, reqs: &[Req]) -> RNext {
        let taken_rows = reqs.iter().filter_map(|r| self.req(*r)).map(|r| r.meta.rows).sum();
        let mut ops = std::mem::take(&mut self.loads[load].inst[inst].ops);
        for req in reqs {
            self.take_row(*req, &mut ops);
        }
        let mut rows: Vec<Option<Req>> = reqs.iter().copied().map(Some).collect();
        if matches!(self.loads[load].spec.strategy, Strategy::Direct { rows: RowLayout::Fixed, .. }) {
            let slot = |r: &Req| self.req(*r).and_then(|r| self.seq(r.seq?).placement).map_or(0, |(_, slot)| slot);
            rows = (0..=reqs.iter().map(slot).max().unwrap_or(0))
                .map(|at| reqs.iter().find(|r| slot(r) == at).copied())
                .collect();
        }
        if matches!(self.loads[load].spec.strategy, Strategy::Direct { rows: RowLayout::Compact, .. }) {
            rows.sort_by_key(|row| row.and_then(|r| self.seq(self.req(r)?.seq?).placement).map_or(0, |(_, slot)| slot));
        }
        let reqs: Vec<Req> = rows.iter().flatten().copied().collect();
        if self.loads[load].is_in_order() {
            // A request of several runs has its turn since the first run.
            for req in &reqs {
                if !self.loads[load].turns.iter().any(|(r, _)| r == req) {
                    self.loads[load].turns.push((*req, None));
                }
            }
        }
        self.loads[load].inst[inst].in_flight += 1;
        self.batches.push(RBatch { key: None, load, inst, reqs, rows: taken_rows, taken: now, sealing: false });
        RNext::Run(ops, rows)
    }

    fn take_row(&mut self, req: Req, ops: &mut Vec<ROp>) {
        let r = self.req_mut(req).expect("a ready request");
        r.at = At::Running;
        let r = r.clone();
        let Some(n) = r.seq else { return };
        if r.start && r.ran == 0 {
            self.begin_life(n, &r);
        }
        let s = self.seq_mut(n);
        assert_eq!(s.queue.remove(0), req);
        (s.current, s.stage, s.ran, s.begun) = (Some(req), Stage::Running, true, true);
        let slot = s.placement.expect("a slot").1;
        ops.extend(s.first_state.take().map(|op| match op {
            ROp::Init(_, of) => ROp::Init(slot, of),
            ROp::Adopt(_, of) => ROp::Adopt(slot, of),
            ROp::Free(_) => ROp::Free(slot),
        }));
    }

    pub fn is_over(&self, load: usize) -> bool {
        let l = &self.loads[load];
        l.retired.is_some() && (l.ended || !l.stays) && self.live(load) == 0 && self.open(load) == 0
    }

    pub fn rest(&mut self, load: usize, inst: usize, until: Option<u64>) -> RNext {
        if self.loads[load].gone {
            return RNext::Gone;
        }
        if !self.loads[load].inst[inst].ops.is_empty() {
            return RNext::Tidy(std::mem::take(&mut self.loads[load].inst[inst].ops));
        }
        if self.is_over(load) {
            self.loads[load].inst[inst].gone = true;
            self.loads[load].gone = self.loads[load].inst.iter().all(|i| i.gone);
            return RNext::Gone;
        }
        RNext::Sleep(until)
    }
}
