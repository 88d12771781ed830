//! Deadlines of the reference model. They are handled in their order, however late the call.

use sequor_core::*;

use super::{N, NEVER, RSeq, Refer, ns};

enum Due {
    Seq(N),
    Req(Req),
    Load(usize),
}

impl Refer {
    pub fn expire(&mut self, now: u64) {
        while let Some(due) = self.soonest(now) {
            match due {
                Due::Seq(n) => self.sequence_due(now, n),
                Due::Req(req) => {
                    let turn = self.next_turn();
                    let Some(r) = self.req_mut(req) else { continue };
                    r.queue_until = NEVER;
                    if r.seq.is_none() && r.delays {
                        (r.late, r.turn) = (true, turn);
                        continue;
                    }
                    let waited = Time(now).since(Time(r.arrival));
                    let ahead = self.ahead_of_request(req);
                    self.cancel(now, req, Refusal::QueueTimeout { waited, ahead }, EndReason::Cancelled);
                }
                Due::Load(load) => match self.loads[load].retired {
                    Some(until)
                        if until <= now && !self.loads[load].ended && Some(until) == self.load_deadline(load) =>
                    {
                        self.end_all(now, load);
                    }
                    _ => self.admit_waiting(now, load),
                },
            }
        }
    }

    fn soonest(&self, now: u64) -> Option<Due> {
        let mut best: Option<((u64, u8, u32, u32), Due)> = None;
        let mut offer = |at: (u64, u8, u32, u32), due: Due| {
            if at.0 <= now && best.as_ref().is_none_or(|(b, _)| at < *b) {
                best = Some((at, due));
            }
        };
        for s in &self.seqs {
            let at = self.sequence_deadline(s);
            if let (true, Some(key)) = (at <= now, s.key) {
                offer((at, 0, key.ix, key.generation.get()), Due::Seq(s.n));
            }
        }
        for r in self.reqs.iter().flatten().filter(|r| r.queue_until <= now && r.waits()) {
            offer((r.queue_until, 1, r.key.ix, r.key.generation.get()), Due::Req(r.key));
        }
        for load in 0..self.loads.len() {
            if let Some(at) = self.load_deadline(load) {
                let key = self.loads[load].key;
                offer((at, 2, key.ix, key.generation.get()), Due::Load(load));
            }
        }
        best.map(|(_, due)| due)
    }

    /// Idle sequences expire, and backlogged ones reach their timeout. Sequences in other stages have no deadline.
    pub fn sequence_deadline(&self, s: &RSeq) -> u64 {
        match s.stage {
            Stage::Backlogged => s.backlog_until,
            Stage::Idle if s.held => NEVER,
            Stage::Idle => match self.loads[s.load].spec.expiry {
                Expiry::Idle(_) | Expiry::Never => s.idle.map_or(NEVER, |idle| s.touched.saturating_add(idle)),
                Expiry::TwoScans { every } => {
                    let every = ns(every).max(1);
                    (s.touched / every + 2) * every
                }
            },
            _ => NEVER,
        }
    }

    /// The limit of a retirement, or the time at which the head of the backlog gets a slot without further events.
    fn load_deadline(&self, load: usize) -> Option<u64> {
        let l = &self.loads[load];
        if l.gone {
            return None;
        }
        let until = l.retired.filter(|_| !l.ended);
        let admits = self.backlog_head(load).and_then(|head| {
            let since = self.room_since(load)?;
            match self.asks_admit(load) {
                true => Some(since.max(head.backlogged_at).saturating_add(l.max_wait())),
                false => Some(if self.free(load) > 0 { 0 } else { since }),
            }
        });
        [until, admits].into_iter().flatten().min()
    }

    fn sequence_due(&mut self, now: u64, n: N) {
        let s = self.seq(n);
        if s.stage == Stage::Backlogged {
            let ahead = self.backlog(s.load).iter().position(|b| *b == n).unwrap_or(0).min(1000) as u32;
            let waited = Time(now).since(Time(s.backlogged_at));
            let keeps = !self.loads[s.load].spec.cancel_ends && s.goes_back();
            let why = if keeps { EndReason::Spilled } else { EndReason::NoSlot };
            self.leave(now, n, why, Refusal::BacklogTimeout { waited, ahead });
        } else {
            self.leave(now, n, EndReason::Idle, Refusal::Ended(EndReason::Idle));
        }
    }

    fn ahead_of_request(&self, req: Req) -> u32 {
        let Some(r) = self.req(req) else { return 0 };
        let before = match r.seq {
            Some(n) => self.seq(n).queue.clone(),
            None => self.ready(r.load, 0),
        };
        before.iter().position(|of| *of == req).unwrap_or(0).min(1000) as u32
    }

    /// Waiting sequences go first, so that none gets a slot only to lose it.
    fn end_all(&mut self, now: u64, load: usize) {
        self.loads[load].ended = true;
        let mut all: Vec<(bool, Option<Seq>, N)> =
            self.of_load(load).map(|s| (s.placement.is_some(), s.key, s.n)).collect();
        all.sort_unstable();
        for (.., n) in all {
            if self.alive(n) {
                self.leave(now, n, EndReason::Drained, Refusal::Ended(EndReason::Drained));
            }
        }
    }
}
