//! One random step of the driver: a request, a thread, a stage that answers, a cancellation, or a rare event.

use std::num::NonZeroU32;

use sequor_core::*;

use super::crash::Disk;
use super::news::News;
use super::outcome::count;
use super::refer::{At, N, RInst, Shown};
use super::threads::{Hand, Thread};
use super::world::{Question, World};
use super::{Checked, broken, news, policy, workload};
use crate::hold;

impl World {
    pub fn step(&mut self) -> Checked {
        let closed = self.refer.loads.iter().all(|l| l.gone || l.retired.is_some());
        if closed && self.rng.percent(10) {
            return self.loads();
        }
        let busy =
            self.prepares.len() + self.posts.len() + self.replies.len() + self.seals.len() + self.questions.len();
        match self.rng.below(100) {
            x if x < self.taste.pressure => self.submits(),
            x if x < 45 => self.some_thread(),
            x if x < 57 => self.some_flight(),
            x if x < 72 || busy > 12 => self.some_stage(),
            x if x < 96 => self.time_passes(),
            96 if self.disk.is_none() => self.moves_starts(),
            97 => self.time_passes(),
            98 => self.cancels(),
            _ => self.rarely(),
        }
    }

    fn submits(&mut self) -> Checked {
        self.fresh += 1;
        let req = self.witness.send();
        let open: Vec<LoadSpec> =
            self.specs.iter().zip(&self.refer.loads).filter(|(_, l)| !l.gone).map(|(s, _)| s.clone()).collect();
        let mut submit = workload::submit(&mut self.rng, &self.taste, self.now, req, self.fresh, &self.core, &open);
        self.count_steps(&mut submit);
        // Only stateless requests have more than one row.
        let stateless = open.iter().all(|spec| !spec.is_stateful());
        if stateless {
            submit.meta.rows = if self.rng.percent(30) { self.rng.range(1, 6) as u32 } else { 1 };
        }
        submit.meta.keys = news::keys(submit.req);
        self.looks_up(&mut submit);
        self.brings(&mut submit);
        self.witness.sends(&submit);
        self.counts.requests += 1;
        let req = submit.req;
        self.apply(Event::Submit(submit))?;
        self.looked_up(req);
        Ok(())
    }

    /// A step of an id without a live sequence may bring a state that the driver holds.
    fn brings(&mut self, submit: &mut Submit) {
        let lives = self.core.find(&submit.id, submit.version).is_some();
        let Some(hash) = self.store.tier.get(&submit.id).copied().filter(|_| self.disk.is_none() && !lives) else {
            return;
        };
        if !submit.start && self.rng.percent(50) {
            submit.adopt = Some(self.rng.below(4));
            if self.rng.percent(40) {
                let load = &self.refer.loads[self.rng.index(self.refer.loads.len())];
                submit.adopt_on = Some(load.key);
                let stays = load.retired.is_some() && load.stays && !load.gone;
                if stays && self.core.takes_back(self.now, load.key) {
                    count(&mut self.counts.prepared, "continues on a retired load", 1);
                }
            }
            self.store.found.insert(submit.req, hash);
            count(&mut self.counts.prepared, "brings a state", 1);
        }
    }

    fn count_steps(&mut self, submit: &mut Submit) {
        if !self.rng.percent(self.taste.counting) {
            return;
        }
        let next = self.refer.lookup(&submit.id, submit.version).0.map(|n| self.refer.seq(n).next_step);
        let right = if submit.start { 1 } else { next.unwrap_or(1) };
        submit.step = Some(match self.rng.below(14) {
            0 | 1 => right.saturating_sub(1),
            2 => right + self.rng.below(4),
            3 => self.rng.below(6),
            4 => next.map_or(1, |n| n.saturating_sub(1)),
            _ => right,
        });
    }

    fn some_thread(&mut self) -> Checked {
        let ready: Vec<usize> = (0..self.hands.len()).filter(|h| self.hands[*h].pulls(self.now)).collect();
        if ready.is_empty() {
            return self.some_flight();
        }
        let hand = *self.rng.pick(&ready);
        // An instance with its maximum in flight waits for it, mostly.
        let depth = self.specs[self.refer.ix(self.hands[hand].who.load)].depth;
        if self.hands[hand].flights.len() >= usize::from(depth) && self.rng.percent(80) {
            return self.some_flight();
        }
        self.pull(hand)
    }

    fn some_flight(&mut self) -> Checked {
        let flying: Vec<usize> = (0..self.hands.len()).filter(|h| !self.hands[*h].flights.is_empty()).collect();
        if flying.is_empty() {
            return self.some_stage();
        }
        let hand = *self.rng.pick(&flying);
        let flight = self.rng.index(self.hands[hand].flights.len());
        self.lands(hand, flight)
    }

    fn some_stage(&mut self) -> Checked {
        let pondering: Vec<usize> =
            (0..self.hands.len()).filter(|h| self.hands[*h].thread == Thread::Pondering).collect();
        match self.rng.below(7) {
            0 if !self.posts.is_empty() => {
                let req = self.posts.swap_remove(self.rng.index(self.posts.len()));
                // Like a driver whose processors failed after the run: the sequence ends, and the request is released.
                let request = self.refer.req(req).map(|r| (r.seq, r.start));
                let seq = request.and_then(|(seq, _)| seq).and_then(|n| self.refer.seq(n).key);
                let why = if request.is_some_and(|(_, start)| start) { EndReason::Failed } else { EndReason::Broken };
                if let Some(seq) = seq.filter(|_| self.rng.percent(self.taste.fails)) {
                    count(&mut self.counts.prepared, "failed after the run", 1);
                    self.apply(Event::End(seq, why))?;
                }
                self.apply(Event::Posted(req))
            }
            1 if !self.seals.is_empty() => {
                let batch = self.seals.swap_remove(self.rng.index(self.seals.len()));
                let most = if self.winding_down { 0 } else { self.taste.fails };
                let all = self.refer.sealing(batch);
                let failing: Vec<Req> = all.iter().copied().filter(|_| self.rng.percent(most)).collect();
                let failed: Vec<_> = failing.into_iter().map(|req| (req, self.unsealed(batch, req))).collect();
                if !failed.is_empty() && failed.len() < all.len() {
                    count(&mut self.counts.prepared, "a batch sealed in part", 1);
                }
                self.seal_ends(batch, failed)
            }
            2 if !pondering.is_empty() => {
                let hand = *self.rng.pick(&pondering);
                self.hold_round(hand)
            }
            5 if !self.replies.is_empty() => {
                let req = self.replies.swap_remove(self.rng.index(self.replies.len()));
                let fails = self.rng.percent(self.taste.fails) && !self.winding_down;
                // The store of a history with crashes keeps no states of replies.
                let all = [EndReason::Unsealed, EndReason::Fenced, EndReason::RolledBack];
                let all = if self.disk.is_some() { &all[..2] } else { &all };
                let failed = fails.then_some(*self.rng.pick(all));
                let name = if fails { "a reply that is not durable" } else { "a reply made durable" };
                count(&mut self.counts.prepared, name, 1);
                self.apply(Event::Replied(req, failed))
            }
            3 if !self.consults.is_empty() => self.consult(),
            4 if !self.questions.is_empty() => self.admits(),
            _ if !self.prepares.is_empty() => {
                let (req, seq) = self.prepares.swap_remove(self.rng.index(self.prepares.len()));
                self.prepares(req, seq)
            }
            _ => self.time_passes(),
        }
    }

    /// The refusal of a request whose state could not be made durable.
    fn unsealed(&mut self, batch: BatchId, req: Req) -> Refusal {
        if self.disk.is_some() {
            return self.fails_to_write(batch, req);
        }
        let ended = [EndReason::Unsealed, EndReason::Fenced, EndReason::RolledBack].map(Refusal::Ended);
        let [unsealed, fenced, rolled_back] = ended;
        *self.rng.pick(&[Refusal::Failed(5), unsealed, fenced, rolled_back])
    }

    pub fn prepares(&mut self, req: Req, seq: Option<Seq>) -> Checked {
        let Some(sent) = self.witness.get(req).cloned() else {
            return self.apply(Event::Prepared(req, Preparation::Run(RequestMeta::default())));
        };
        let mut meta = workload::meta(&mut self.rng, &self.taste);
        meta.rows = sent.rows;
        meta.keys = news::keys(req);
        let fails = self.rng.percent(self.taste.fails);
        if let Some(prepared) = self.finds(req, fails) {
            if let Some(sent) = self.witness.get_mut(req).filter(|_| prepared == Preparation::Reply) {
                sent.steps = 0;
            }
            return self.apply(Event::Prepared(req, prepared));
        }
        let adopts = self.refer.req(req).and_then(|r| r.seq).filter(|_| !sent.start).map(|n| self.refer.seq(n).clone());
        let adopts = adopts.filter(|s| s.adopted && !s.announced && s.key == seq);
        let refuse = |refusal| Preparation::Refuse { refusal, ends: false };
        let prepared = match adopts {
            Some(s) => match self.store.tier.get(&s.id).copied().filter(|_| !fails) {
                Some(hash) => {
                    self.store.found.insert(req, hash);
                    self.verdict(meta)
                }
                None => refuse(Refusal::Unknown(None)),
            },
            None if fails => Preparation::Refuse { refusal: Refusal::Failed(9), ends: self.rng.percent(30) },
            None => self.verdict(meta),
        };
        let sent = self.witness.get_mut(req);
        let name = match prepared {
            Preparation::Run(_) => "run",
            Preparation::RunSteps(..) => "run steps",
            Preparation::Reply => "reply",
            Preparation::Refuse { ends: false, .. } => "refuse",
            Preparation::Refuse { ends: true, .. } => "refuse and end",
        };
        match (prepared, sent) {
            (Preparation::Run(meta), Some(sent)) => sent.shape = meta.shape,
            (Preparation::RunSteps(meta, steps), Some(sent)) => {
                (sent.shape, sent.steps) = (meta.shape, steps.get());
            }
            (Preparation::Reply, Some(sent)) => sent.steps = 0,
            _ => {}
        }
        count(&mut self.counts.prepared, name, 1);
        if self.refer.req(req).is_some_and(|r| r.start && r.at == At::Preparing) && self.rng.percent(30) {
            let shape = self.rng.below(self.taste.shapes);
            self.store.made.insert(req, shape);
            count(&mut self.counts.prepared, "first state", 1);
            self.apply(Event::FirstShape(req, shape))?;
        }
        self.apply(Event::Prepared(req, prepared))
    }

    /// The answer of a successful preparation.
    fn verdict(&mut self, meta: RequestMeta) -> Preparation {
        match self.rng.below(10) {
            // The steps of a history with crashes are those that states contain.
            0 | 1 if self.disk.is_none() => Preparation::Reply,
            2 | 3 => Preparation::RunSteps(meta, NonZeroU32::new(self.rng.range(1, 4) as u32).expect("above 0")),
            _ => Preparation::Run(meta),
        }
    }

    fn consult(&mut self) -> Checked {
        let load = self.consults.swap_remove(self.rng.index(self.consults.len()));
        let Some(round) = self.core.consult(self.now, load) else { return self.consulted() };
        let PolicyQuestion::Admit { load, room, victims } = &round.asked else {
            return broken("a policy that admits is asked", format!("{:?}", round.asked));
        };
        let load = self.refer.ix(*load);
        let doubled = self.questions.iter().any(|q| q.load == load && !q.old);
        hold!(!doubled, "one admission question at a time", "load {load}");
        let of = &self.refer.loads[load];
        let hooks = of.external.expect("a policy that admits");
        let window = hooks.shown(of.spec.limits.candidates) as usize;
        let heads: Vec<Req> =
            self.refer.backlog(load).into_iter().take(window).map(|n| self.refer.seq(n).queue[0]).collect();
        let idle: Vec<N> = self.refer.idle(load).into_iter().take(window).collect();
        let free: Vec<u32> = self.refer.loads[load].inst.iter().map(RInst::free).collect();
        let got = (round.see.len as usize, room.clone(), victims.len as usize, victims.ready.clone());
        let since = idle.iter().map(|n| self.refer.seq(*n).touched).collect::<Vec<_>>();
        let want = (heads.len(), free, idle.len(), since);
        hold!(got == want, "a policy sees who waits", "{got:?}, model {want:?}");
        let shown: Vec<Shown> = heads.iter().map(|r| self.refer.show(*r)).collect();
        self.same_heads(&round, &shown, load)?;
        self.same_news(&round, load)?;
        self.asked[load] = Some(self.news(load));
        self.refer.loads[load].consulted = true;
        self.questions.push(Question { round, load, heads, victims: idle, old: false });
        Ok(())
    }

    fn same_heads(&self, round: &Round, shown: &[Shown], load: usize) -> Checked {
        let see = &round.see;
        let usage = self.refer.usage(load);
        let max_batch = self.refer.loads[load].spec.max_batch.max(1);
        let run_time = self.refer.loads[load].largest.1;
        let got = (see.now, see.live, see.backlog, see.max_batch, see.len + see.not_shown, see.run_time);
        let want = (self.now.0, usage.live, usage.backlog, max_batch, usage.backlog, run_time);
        hold!(got == want, "a policy sees how full it is", "admission: {got:?}, model {want:?}");
        for (i, one) in shown.iter().enumerate() {
            let arrival = self.refer.req(one.req).map(|r| r.arrival);
            hold!(arrival == see.arrival.get(i).copied(), "a policy sees who waits", "candidate {i}");
        }
        Ok(())
    }

    pub fn admits(&mut self) -> Checked {
        let Question { round, load, heads, victims, old } =
            self.questions.swap_remove(self.rng.index(self.questions.len()));
        let PolicyQuestion::Admit { room, .. } = &round.asked else { return Ok(()) };
        let answer = policy::admit(&mut self.rng, heads.len() as u32, room, victims.len() as u32);
        self.trace(|| format!("load {load} admits {answer:?} of {heads:?}, victims {victims:?}"));
        let mine = answer.clone();
        self.refer_call(|refer, now| refer.answer_admit(now, load, &heads, &victims, mine, old));
        let mut out = Vec::new();
        let next = self.core.answer(self.now, round, PolicyAnswer::Admit(answer), &mut out);
        hold!(matches!(next, Next::Sleep(None)), "an admission is answered with sleep", "{next:?}");
        self.settle(&out)
    }

    fn cancels(&mut self) -> Checked {
        let open = self.witness.open();
        if open.is_empty() {
            return Ok(());
        }
        let mut req = *self.rng.pick(&open);
        // Sometimes a request that is lent, has run in part, or has run.
        let odd =
            |r: &super::refer::RReq| matches!(r.at, At::Preparing | At::Posting) || (r.at == At::Queued && r.ran > 0);
        let special: Vec<Req> = self.refer.reqs.iter().flatten().filter(|r| odd(r)).map(|r| r.key).collect();
        if !special.is_empty() && self.rng.percent(30) {
            req = *self.rng.pick(&special);
            let name = match self.refer.req(req).map(|r| r.at) {
                Some(At::Preparing) => "cancelled while lent",
                Some(At::Posting) => "cancelled after the run",
                _ => "cancelled between runs",
            };
            count(&mut self.counts.prepared, name, 1);
        }
        if self.rng.percent(10) && req.generation.get() > 1 {
            req.generation = std::num::NonZeroU32::MIN;
        }
        self.apply(Event::Cancel(req))
    }

    fn rarely(&mut self) -> Checked {
        match self.rng.below(16) {
            0 => self.loads(),
            1 => self.retires(),
            2 | 3 => {
                let load = self.rng.index(self.refer.loads.len());
                let hooks = workload::hooks(&mut self.rng, self.taste.external);
                self.attaches(load, hooks)
            }
            4 | 5 => {
                let live: Vec<Seq> = self.refer.seqs.iter().filter_map(|s| s.key).collect();
                if live.is_empty() {
                    return Ok(());
                }
                let why =
                    *self.rng.pick(&[EndReason::Admin, EndReason::Fenced, EndReason::Cancelled, EndReason::Spilled]);
                let seq = *self.rng.pick(&live);
                self.apply(Event::End(seq, why))
            }
            8 if self.disk.is_none() => self.loses(),
            // Unexpected events: requests prepared that were not lent, stale keys, ticks that are not due.
            6 => {
                // A slot that becomes free now lends the START that gets it.
                self.apply(Event::Tick)?;
                let lent: Vec<Req> = self.prepares.iter().map(|(req, _)| *req).collect();
                let open: Vec<Req> = self.witness.open().into_iter().filter(|req| !lent.contains(req)).collect();
                if open.is_empty() {
                    return Ok(());
                }
                let req = *self.rng.pick(&open);
                self.apply(Event::Prepared(req, Preparation::Reply))
            }
            7 => {
                let old = BatchId::new(self.rng.below(3) as u32, std::num::NonZeroU32::MIN);
                let flying =
                    self.hands.iter().flat_map(|h| &h.flights).any(|b| b.id == old) || self.seals.contains(&old);
                if flying { Ok(()) } else { self.apply(Event::Ran { batch: old, rows: vec![] }) }
            }
            _ => {
                let who = *self.rng.pick(&self.hands.iter().map(|h| h.who).collect::<Vec<_>>());
                self.store.spill(who, self.rng.below(4) as u32);
                Ok(())
            }
        }
    }

    /// The accelerator of some instance fails.
    fn loses(&mut self) -> Checked {
        let there: Vec<Instance> = self.hands.iter().filter(|h| h.thread != Thread::Gone).map(|h| h.who).collect();
        if there.is_empty() {
            return Ok(());
        }
        let who = *self.rng.pick(&there);
        // What expires now is not for this event.
        self.apply(Event::Tick)?;
        let l = &self.refer.loads[self.refer.ix(who.load)];
        let others = (0..).zip(&l.inst).any(|(n, i)| n != who.n && !i.lost);
        let held = self.refer.seqs.iter().any(|s| s.placement.is_some_and(|(n, _)| n == usize::from(who.n)));
        match (others, held) {
            (true, true) => count(&mut self.counts.prepared, "an instance with sequences is lost", 1),
            (false, _) => count(&mut self.counts.prepared, "the last instance is lost", 1),
            _ => {}
        }
        self.apply(Event::InstanceLost(who))
    }

    pub fn attaches(&mut self, load: usize, hooks: Option<Hooks>) -> Checked {
        if self.refer.loads[load].gone {
            return Ok(());
        }
        // Sequences that expire now are reported to the old policy.
        self.apply(Event::Tick)?;
        self.asked[load] = None;
        for question in self.questions.iter_mut().filter(|q| q.load == load) {
            question.old = true;
        }
        self.apply(Event::Attach(self.refer.loads[load].key, hooks))?;
        self.comes_anew(load)
    }

    pub fn loads(&mut self) -> Checked {
        let open = self.refer.loads.iter().filter(|l| !l.gone).count();
        if open >= 4 {
            return self.retires();
        }
        let key = self.keys.insert(());
        let highest = self.specs.iter().map(|s| s.version).max().unwrap_or(1);
        let version = (highest + self.rng.below(3)).saturating_sub(1).max(1);
        let mut spec = workload::load(&mut self.rng, &self.taste, version);
        // Requests of several rows are for loads that take them.
        if let Some(first) = self.specs.first()
            && first.is_stateful() != spec.is_stateful()
            && self.taste.stateless == 100
        {
            spec.strategy = first.strategy.clone();
        }
        if self.disk.is_some() {
            Disk::tame(&mut spec);
        }
        self.hands.extend((0..spec.instances).map(|n| Hand::new(Instance { load: key, n })));
        self.specs.push(spec.clone());
        self.asked.push(None);
        self.news.push(News::default());
        self.trace(|| format!("{key:?} is {spec:?}"));
        self.apply(Event::Loaded(key, spec))
    }

    fn retires(&mut self) -> Checked {
        let open: Vec<usize> = (0..self.refer.loads.len()).filter(|l| !self.refer.loads[*l].gone).collect();
        if open.is_empty() || (open.len() < 2 && self.rng.percent(80)) {
            return self.loads();
        }
        let ix = *self.rng.pick(&open);
        let load = self.refer.loads[ix].key;
        // Like a driver that replaces a load: first its waiting STARTs move on, then it stays if it is needed.
        if self.disk.is_none() && self.rng.percent(40) {
            self.moves_all(ix)?;
        }
        if self.disk.is_none() && self.refer.loads[ix].retired.is_none() && self.rng.percent(40) {
            self.apply(Event::Stay(load))?;
        }
        let until = match self.rng.below(6) {
            0 => Time::NEVER,
            1 => self.now,
            _ => Time(self.now.0 + self.rng.below(400)),
        };
        self.apply(Event::Retire { load, until })
    }

    /// Moves the waiting STARTs of a load to another one.
    fn moves_all(&mut self, load: usize) -> Checked {
        let (from, to) = (self.refer.loads[load].key, self.rng.index(self.refer.loads.len()));
        if self.refer.loads[to].gone {
            return Ok(());
        }
        self.apply(Event::Tick)?;
        let waiting = self.core.waiting_starts(from);
        let of = |seq: &Seq| self.names.get(seq).map(|(n, ..)| *n);
        let (got, want) = (waiting.iter().filter_map(of).collect::<Vec<_>>(), self.refer.waiting_starts(load));
        hold!(got == want, "those move that wait and have not begun", "{got:?}, model {want:?}");
        waiting.into_iter().try_for_each(|seq| self.moves(seq, to))
    }

    /// Any sequence, to any load. Most of them may not move.
    fn moves_starts(&mut self) -> Checked {
        let load = self.rng.index(self.refer.loads.len());
        if self.rng.percent(20) {
            return self.moves_all(load);
        }
        let to = self.rng.index(self.refer.loads.len());
        let waiting = self.refer.backlog(load);
        let all: Vec<N> = if self.rng.percent(80) { waiting } else { self.refer.seqs.iter().map(|s| s.n).collect() };
        if all.is_empty() || self.refer.loads[to].gone {
            return Ok(());
        }
        let n = *self.rng.pick(&all);
        self.apply(Event::Tick)?;
        let key = self.refer.seqs.iter().find(|s| s.n == n).and_then(|s| s.key);
        key.map_or(Ok(()), |seq| self.moves(seq, to))
    }

    fn moves(&mut self, seq: Seq, to: usize) -> Checked {
        let key = self.refer.loads[to].key;
        let n = self.refer.seqs.iter().find(|s| s.key == Some(seq)).map(|s| s.n);
        let want = n.is_some_and(|n| self.refer.may_move(self.now.0, n, to));
        let got = self.core.may_move(self.now, seq, key);
        hold!(got == want, "those move that wait and have not begun", "{seq:?} to {to}: {got}, model {want}");
        // What a driver has prepared for a load does not move to another one.
        let is_lent = |req: &Req| self.witness.get(*req).is_some_and(|sent| sent.lent);
        if self.core.requests_of(seq).iter().any(is_lent) {
            return Ok(());
        }
        if got {
            count(&mut self.counts.prepared, "moved before it began", 1);
        }
        self.apply(Event::MoveStart(seq, key))
    }
}
