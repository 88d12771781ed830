//! The reference model's view of external policies: faults, stale picks and fallbacks.

use sequor_core::*;

use super::{At, N, NEVER, Out, RNext, Refer, Shown, ns};

impl Refer {
    pub fn answer_plan(
        &mut self,
        now: u64,
        (load, inst): (usize, usize),
        shown: &[Shown],
        picks: &Picks,
        message: Result<Decision, PolicyFault>,
    ) -> RNext {
        self.expire(now);
        // An answer of a replaced policy is void, and one for an instance out of service.
        if !std::mem::take(&mut self.loads[load].inst[inst].asked) || self.loads[load].inst[inst].lost {
            return self.next(now, load, inst);
        }
        let max = self.loads[load].spec.max_batch.max(1);
        let decision = match message.and_then(|d| check(shown, picks, max).map(|()| d)) {
            Err(fault) => {
                self.out.push(Out::Fault(fault));
                self.out.push(Out::Fallback);
                return self.built_in_turn(now, load, inst);
            }
            Ok(decision) => decision,
        };
        if decision == Decision::Default {
            return self.built_in_turn(now, load, inst);
        }
        for Rejection { candidate, code, ends } in &picks.reject {
            let req = shown[*candidate as usize].req;
            self.turn_away(now, req, Refusal::Policy(*code), EndReason::Rejected, *ends);
        }
        match decision {
            // A wait that is over decides nothing.
            Decision::Wait(until) if until.0 <= now => self.built_in_turn(now, load, inst),
            Decision::Wait(until) => self.holds(load, inst, until.0),
            _ => self.fire(now, load, inst, shown, picks),
        }
    }

    fn fire(&mut self, now: u64, load: usize, inst: usize, shown: &[Shown], picks: &Picks) -> RNext {
        if picks.fire.is_empty() {
            return self.holds(load, inst, NEVER);
        }
        let ready = self.ready(load, inst);
        let picked: Vec<Req> = picks.fire.iter().map(|i| shown[*i as usize].req).collect();
        let stand: Vec<Req> = picked.iter().copied().filter(|r| ready.contains(r)).collect();
        if stand.len() < picked.len() {
            self.out.push(Out::Stale((picked.len() - stand.len()) as u32));
        }
        if stand.is_empty() { self.next(now, load, inst) } else { self.take(now, load, inst, &stand) }
    }

    fn holds(&mut self, load: usize, inst: usize, until: u64) -> RNext {
        self.loads[load].inst[inst].hold = Some(until);
        let patience = self.loads[load].max_wait();
        let oldest = self.ready(load, inst).first().and_then(|r| self.req(*r)).map(|r| r.ready);
        let until = until.min(oldest.map_or(NEVER, |ready| ready.saturating_add(patience)));
        self.rest(load, inst, (until < NEVER).then_some(until))
    }

    fn built_in_turn(&mut self, now: u64, load: usize, inst: usize) -> RNext {
        let ready = self.ready(load, inst);
        if ready.is_empty() {
            return self.rest(load, inst, None);
        }
        match self.built_in(now, load, &ready, false) {
            Ok(reqs) => self.take(now, load, inst, &reqs),
            Err(until) => self.holds(load, inst, until),
        }
    }

    pub fn answer_admit(
        &mut self,
        now: u64,
        load: usize,
        heads: &[Req],
        victims: &[N],
        message: Result<Vec<Admission>, PolicyFault>,
        old: bool,
    ) {
        self.expire(now);
        if self.loads[load].gone || old {
            return;
        }
        self.loads[load].consulted = false;
        let instances = self.loads[load].inst.len();
        let fault = match &message {
            Err(fault) => Some(*fault),
            Ok(answers) if answers.len() > heads.len() => Some(PolicyFault::TooMany),
            Ok(answers) => {
                let beyond = |a: &Admission| match a {
                    Admission::Evict { victim } => *victim as usize >= victims.len(),
                    Admission::Take { instance } => usize::from(*instance) >= instances,
                    _ => false,
                };
                answers.iter().any(beyond).then_some(PolicyFault::Index)
            }
        };
        if let Some(fault) = fault {
            self.out.push(Out::Fault(fault));
            self.out.push(Out::Fallback);
            return self.admit_in_order(now, load);
        }
        let answers = message.unwrap_or_default();
        let stale =
            heads.iter().zip(answers).filter(|(head, a)| !self.admit_one(now, load, **head, *a, victims)).count();
        if stale > 0 {
            self.out.push(Out::Stale(stale as u32));
        }
    }

    fn admit_one(&mut self, now: u64, load: usize, head: Req, answer: Admission, victims: &[N]) -> bool {
        let Some(n) = self.req(head).filter(|r| r.at == At::Queued).and_then(|r| r.seq) else { return false };
        if self.seq(n).stage != Stage::Backlogged || self.seq(n).load != load {
            return false;
        }
        match answer {
            Admission::Defer => true,
            Admission::Reject(code) => {
                self.leave(now, n, EndReason::Rejected, Refusal::Policy(code));
                true
            }
            Admission::Take { instance } => {
                let i = usize::from(instance);
                let free = self.loads[load].inst[i].free() > 0;
                if free {
                    self.assign_slot(now, n, Some(i));
                }
                free
            }
            Admission::Evict { victim } => {
                let victim = victims[victim as usize];
                let Some(soft) = self.loads[load].spec.idle_soft.map(ns) else { return false };
                let fits =
                    |s: &&super::RSeq| s.n == victim && s.stage == Stage::Idle && s.touched.saturating_add(soft) <= now;
                let Some(of) = self.seqs.iter().find(fits).and_then(|s| s.placement) else { return false };
                self.remove(now, victim, EndReason::Evicted, Refusal::Ended(EndReason::Evicted));
                self.assign_slot(now, n, Some(of.0));
                true
            }
        }
    }
}

/// Checks an answer against the question: valid indices, each once, one shape, and no more rows than a batch has.
fn check(shown: &[Shown], picks: &Picks, max: u32) -> Result<(), PolicyFault> {
    let mut seen = Vec::new();
    for i in picks.fire.iter().copied().chain(picks.reject.iter().map(|r| r.candidate)) {
        if i as usize >= shown.len() {
            return Err(PolicyFault::Index);
        }
        if seen.contains(&i) {
            return Err(PolicyFault::Repeat);
        }
        seen.push(i);
    }
    let mut rows = 0;
    for (n, i) in picks.fire.iter().enumerate() {
        let candidate = shown[*i as usize];
        if candidate.shape != shown[picks.fire[0] as usize].shape {
            return Err(PolicyFault::Shapes);
        }
        rows += candidate.rows;
        if n > 0 && rows > max {
            return Err(PolicyFault::TooMany);
        }
    }
    Ok(())
}
