//! The driver: sends, cancels, answers stages late, lets time pass, and holds what the core says against the witnesses and the model.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash};

use sequor_core::*;

use super::outcome::{Outcome, count, kind};
use super::refer::{N, Out, Refer};
use super::rng::Rng;
use super::store::Store;
use super::threads::{Hand, Thread};
use super::witness::Witness;
use super::workload::{self, Taste};
use super::{Broken, Checked, broken, policy};
use crate::hold;

struct Question {
    round: Box<Round>,
    load: usize,
    heads: Vec<Req>,
    victims: Vec<N>,
    /// Its policy was replaced since.
    old: bool,
}

pub struct World {
    pub core: Core,
    pub refer: Refer,
    pub rng: Rng,
    pub taste: Taste,
    pub now: Time,
    pub witness: Witness,
    pub store: Store,
    pub hands: Vec<Hand>,
    pub specs: Vec<LoadSpec>,
    names: HashMap<Seq, (N, Id, usize)>,
    prepares: Vec<(Req, Option<Seq>)>,
    posts: Vec<Req>,
    seals: Vec<BatchId>,
    /// Admission questions that were announced and not fetched.
    consults: u32,
    questions: Vec<Question>,
    /// What each load's policy was last asked about: the latest arrival in the backlog, the latest idle sequence, free slots.
    asked: Vec<Option<(u64, u64, u32)>>,
    fresh: u64,
    /// Ticks that may still change nothing.
    credit: i64,
    pub winding_down: bool,
    pub counts: Outcome,
    pub log: Option<Vec<String>>,
    /// Everything the core said, as one number, if it is wanted.
    pub digest: Option<DefaultHasher>,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let taste = Taste::of(&mut rng);
        World {
            core: Core::new(),
            refer: Refer::default(),
            rng,
            taste,
            now: Time(1000),
            witness: Witness::default(),
            store: Store::default(),
            hands: Vec::new(),
            specs: Vec::new(),
            names: HashMap::new(),
            prepares: Vec::new(),
            posts: Vec::new(),
            seals: Vec::new(),
            consults: 0,
            questions: Vec::new(),
            asked: Vec::new(),
            fresh: 1 << 40,
            credit: 0,
            winding_down: false,
            counts: Outcome { seeds: 1, ..Outcome::default() },
            log: None,
            digest: None,
        }
    }

    pub fn trace(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(text());
        }
    }

    /// Lets so many calls happen, and then everything run out.
    pub fn run(&mut self, calls: u64) -> Checked {
        self.loads()?;
        while self.counts.calls < calls {
            self.step()?;
        }
        self.wind_down()
    }

    // === calls ===

    pub fn refer_call<T>(&mut self, call: impl FnOnce(&mut Refer, u64) -> T) -> T {
        self.refer.out.clear();
        call(&mut self.refer, self.now.0)
    }

    pub fn apply(&mut self, event: Event) -> Checked {
        self.counts.events += 1;
        self.trace_event(&event);
        let tick = matches!(event, Event::Tick);
        let limits = |world: &World| world.refer.loads.iter().filter(|l| l.ended).count();
        let before = limits(self);
        self.refer_call(|refer, now| refer.apply(now, &event));
        let mut out = Vec::new();
        self.core.apply(self.now, event, &mut out);
        if tick {
            // What is told to leave while it runs leaves in silence.
            self.ticked(out.is_empty() && before == limits(self))?;
        }
        let credit = self.credit;
        self.settle(out)?;
        if tick {
            self.credit = credit;
        }
        Ok(())
    }

    fn trace_event(&mut self, event: &Event) {
        let now = self.now;
        self.trace(|| match event {
            Event::Submit(s) => format!(
                "{now:?} submit {:?} id {} start {} end {} step {:?} {:?} bytes {} shape {} backlog {:?} queue {:?}",
                s.req,
                s.id,
                s.start,
                s.end,
                s.step,
                s.dialect.live,
                s.traits.bytes,
                s.traits.shape,
                s.backlog_until,
                s.queue_until
            ),
            event => format!("{now:?} {event:?}"),
        });
    }

    /// A tick leaves nothing due, and comes for nothing no more often than there are deadlines.
    fn ticked(&mut self, nothing: bool) -> Checked {
        let due = self.core.due();
        hold!(due.is_none_or(|at| at > self.now), "a tick leaves nothing due", "due {due:?} at {:?}", self.now);
        // While a question is out, a victim that may go by now is news for the next one.
        let asked = self.questions.iter().any(|q| !q.old);
        if nothing && !asked {
            self.credit -= 1;
            hold!(self.credit >= 0, "ticks for nothing are bounded", "one more than {} armed", self.core.armed());
        } else if !nothing {
            self.credit = i64::try_from(self.core.armed()).unwrap_or(i64::MAX);
        }
        Ok(())
    }

    /// Takes the effects of a call: acts on them, and holds them against witnesses and model.
    pub fn settle(&mut self, out: Vec<Effect>) -> Checked {
        self.counts.calls += 1;
        self.credit = i64::try_from(self.core.armed()).unwrap_or(i64::MAX);
        if let Some(digest) = &mut self.digest {
            format!("{:?} {out:?}", self.now).hash(digest);
        }
        if self.log.is_some() && !out.is_empty() {
            self.trace(|| format!("    {out:?}"));
        }
        self.bind(&out)?;
        let mut restarted: Vec<Seq> = Vec::new();
        for effect in &out {
            if let Effect::Note(Note::Started(seq, _)) = effect {
                restarted.push(*seq);
            }
        }
        // Requests that are through make room for the next of their sequence, whatever the order of the effects.
        for effect in &out {
            if let Effect::Refuse(req, _) | Effect::Release(req) = effect {
                self.witness.through(*req);
            }
        }
        self.through_but_in_order();
        for effect in &out {
            self.witness.effect(effect, &out, true)?;
            self.act(effect, &restarted)?;
        }
        self.compare(out)?;
        self.same_state()?;
        self.sleepers()?;
        self.consulted()
    }

    /// Where answers leave in order, a sequence goes on before its answer has left: the model knows.
    fn through_but_in_order(&mut self) {
        for load in 0..self.refer.loads.len() {
            let done: Vec<Req> =
                self.refer.loads[load].turns.iter().filter(|(_, done)| done.is_some()).map(|(r, _)| *r).collect();
            for req in done {
                self.witness.through(req);
            }
        }
    }

    /// Learns the keys of new sequences.
    fn bind(&mut self, out: &[Effect]) -> Checked {
        for effect in out {
            let (Effect::Note(Note::Started(seq, req)) | Effect::Prepare(req, Some(seq))) = effect else { continue };
            if self.names.contains_key(seq) {
                continue;
            }
            let Some(n) = self.refer.req(*req).and_then(|r| r.seq) else {
                return broken(
                    "sequences are those of the model",
                    format!("{effect:?}, which the model does not know"),
                );
            };
            let s = self.refer.seq_mut(n);
            hold!(s.key.is_none(), "a sequence has one key", "{effect:?}, but it is {:?}", s.key);
            s.key = Some(*seq);
            self.names.insert(*seq, (n, s.id.clone(), s.load));
            self.counts.sequences += 1;
        }
        Ok(())
    }

    fn act(&mut self, effect: &Effect, restarted: &[Seq]) -> Checked {
        match effect {
            Effect::Refuse(_, refusal) => count(&mut self.counts.refused, kind(refusal), 1),
            Effect::Replay(..) => count(&mut self.counts.refused, "(Replay)", 1),
            Effect::Prepare(req, seq) => self.prepares.push((*req, *seq)),
            Effect::Post(req, _) => self.posts.push(*req),
            Effect::Seal(batch) => self.seals.push(*batch),
            Effect::Wake(who) => {
                let Some(hand) = self.hands.iter_mut().find(|h| h.who == *who) else { return Ok(()) };
                hold!(
                    matches!(hand.thread, Thread::Asleep(_)),
                    "only sleepers are woken",
                    "{who:?} is {:?}",
                    hand.thread
                );
                hand.thread = Thread::Awake;
            }
            Effect::Consult => self.consults += 1,
            Effect::Note(Note::Ended(seq, why)) => {
                let ix = Why::ALL.iter().position(|w| w == why).unwrap_or(0);
                self.counts.ended[ix] += 1;
                if !(*why == Why::Restarted && restarted.contains(seq)) {
                    let (_, id, load) = self.names[seq].clone();
                    let initial = self.refer.loads[load].spec.initial_state_shape;
                    self.store.ended(*seq, &id, *why, initial);
                    let (got, want) = (self.core.tombstone(&id), self.refer.remembered(&id));
                    hold!(got == want, "tombstones tell the truth", "{id:?}: {got:?}, model {want:?}");
                }
            }
            Effect::Note(Note::Fault(fault)) => count(&mut self.counts.faults, format!("{fault:?}").as_str(), 1),
            Effect::Note(Note::Fallback) => count(&mut self.counts.faults, "Fallback", 1),
            Effect::Note(Note::Stale(_)) => count(&mut self.counts.faults, "Stale", 1),
            Effect::Release(_) | Effect::Note(_) => {}
        }
        Ok(())
    }

    // === against the model ===

    fn compare(&mut self, out: Vec<Effect>) -> Checked {
        let mut got: Vec<Out> = out.iter().filter_map(|e| self.said(e)).collect();
        let mut missing: Vec<Out> = Vec::new();
        for want in std::mem::take(&mut self.refer.out) {
            match got.iter().position(|x| *x == want) {
                Some(ix) => {
                    got.swap_remove(ix);
                }
                None => missing.push(want),
            }
        }
        if let Some(first) = missing.first().or(got.first()) {
            let property = match first {
                Out::Refuse(..) => "refusals are those of the model",
                Out::Release(_) | Out::Replay(..) => "answers are those of the model",
                Out::Prepare(..) | Out::Post(..) | Out::Seal(_) => "stages are those of the model",
                Out::Started(..) | Out::Ended(..) | Out::Slotted(..) => "notes are those of the model",
                Out::Fault(_) | Out::Fallback | Out::Stale(_) => "faults are those of the model",
            };
            return broken(property, format!("the model misses {missing:?}, did not expect {got:?}"));
        }
        Ok(())
    }

    fn said(&self, effect: &Effect) -> Option<Out> {
        let n = |seq: &Seq| self.names.get(seq).map_or(0, |(n, ..)| *n);
        Some(match effect {
            Effect::Refuse(req, refusal) => Out::Refuse(*req, *refusal),
            Effect::Release(req) => Out::Release(*req),
            Effect::Replay(req, seq) => Out::Replay(*req, n(seq)),
            Effect::Prepare(req, seq) => Out::Prepare(*req, seq.as_ref().map(n)),
            Effect::Post(req, seq) => Out::Post(*req, seq.as_ref().map(n)),
            Effect::Seal(batch) => Out::Seal(self.refer.batches.iter().position(|b| b.key == Some(*batch))?),
            Effect::Note(Note::Started(seq, req)) => Out::Started(n(seq), *req),
            Effect::Note(Note::Slotted(seq, who, slot, waited)) => {
                let waited = super::refer::ns(*waited);
                Out::Slotted(n(seq), usize::from(who.load.0), usize::from(who.n), slot.ix, waited)
            }
            Effect::Note(Note::Ended(seq, why)) => Out::Ended(n(seq), *why),
            Effect::Note(Note::Fault(fault)) => Out::Fault(*fault),
            Effect::Note(Note::Fallback) => Out::Fallback,
            Effect::Note(Note::Stale(n)) => Out::Stale(*n),
            Effect::Wake(_) | Effect::Consult => return None,
        })
    }

    fn same_state(&self) -> Checked {
        for load in 0..self.refer.loads.len() {
            let (got, want) = (self.core.usage(Load(load as u16)), self.refer.usage(load));
            hold!(got == want, "usage is that of the model", "load {load}: {got:?}, model {want:?}");
        }
        if self.counts.calls % 4 != 0 {
            return Ok(());
        }
        let mut seen = 0;
        for (seq, id, stage) in self.core.sequences() {
            let s = self.refer.seqs.iter().find(|s| s.key == Some(seq));
            let same = s.is_some_and(|s| s.stage == stage && s.id == *id);
            hold!(same, "stages are those of the model", "{seq:?} {id:?} {stage:?}, model {s:?}");
            seen += 1;
        }
        hold!(seen == self.refer.seqs.len(), "sequences are those of the model", "{seen}");
        Ok(())
    }

    /// A policy that admits is asked when there is news since it was asked last.
    fn consulted(&self) -> Checked {
        let mut due = Vec::new();
        for load in 0..self.refer.loads.len() {
            let l = &self.refer.loads[load];
            if l.gone || !self.refer.asks_admit(load) || self.questions.iter().any(|q| q.load == load && !q.old) {
                continue;
            }
            let (last, idle, free) = self.news(load);
            if last == 0 || (free == 0 && idle == 0) {
                continue;
            }
            let fresh = match self.asked.get(load).copied().flatten() {
                None => true,
                Some((l, i, f)) => last > l || idle > i || free > f,
            };
            if fresh {
                due.push(load);
            }
        }
        let announced = self.consults > 0 || due.is_empty();
        hold!(announced, "a policy that admits is asked", "loads {due:?} have news and no question is announced");
        Ok(())
    }

    fn news(&self, load: usize) -> (u64, u64, u32) {
        let of = |stage: Stage| self.refer.of_load(load).filter(move |s| s.stage == stage);
        let evicts = self.refer.loads[load].spec.idle_soft.is_some();
        let idle = of(Stage::Idle).filter(|_| evicts).map(|s| s.idled).max().unwrap_or(0);
        (of(Stage::Backlogged).map(|s| s.turn).max().unwrap_or(0), idle, self.refer.free(load))
    }

    // === one step ===

    fn step(&mut self) -> Checked {
        let busy = self.prepares.len() + self.posts.len() + self.seals.len() + self.questions.len();
        match self.rng.below(100) {
            x if x < self.taste.pressure => self.submits(),
            x if x < 45 => self.some_thread(),
            x if x < 57 => self.some_flight(),
            x if x < 72 || busy > 12 => self.some_stage(),
            x if x < 93 => self.time_passes(),
            x if x < 97 => self.cancels(),
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
        // Only stateless requests bring more rows than one.
        let stateless = open.iter().all(|spec| !spec.is_stateful());
        if stateless {
            submit.traits.rows = if self.rng.percent(30) { self.rng.range(1, 6) as u32 } else { 1 };
        }
        self.witness.sends(&submit);
        self.counts.requests += 1;
        self.apply(Event::Submit(submit))
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
        // A thread with all it may have in flight waits for it, mostly.
        let depth = self.specs[usize::from(self.hands[hand].who.load.0)].depth;
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
        match self.rng.below(6) {
            0 if !self.posts.is_empty() => {
                let req = self.posts.swap_remove(self.rng.index(self.posts.len()));
                self.apply(Event::Posted(req))
            }
            1 if !self.seals.is_empty() => {
                let batch = self.seals.swap_remove(self.rng.index(self.seals.len()));
                let failed = self.rng.percent(self.taste.fails) && !self.winding_down;
                self.apply(Event::Sealed(batch, if failed { Err(Refusal::Failed(5)) } else { Ok(()) }))
            }
            2 if !pondering.is_empty() => {
                let hand = *self.rng.pick(&pondering);
                self.ponder(hand)
            }
            3 if self.consults > 0 => self.consult(),
            4 if !self.questions.is_empty() => self.admits(),
            _ if !self.prepares.is_empty() => {
                let (req, seq) = self.prepares.swap_remove(self.rng.index(self.prepares.len()));
                self.prepares(req, seq)
            }
            _ => self.time_passes(),
        }
    }

    fn prepares(&mut self, req: Req, seq: Option<Seq>) -> Checked {
        let Some(sent) = self.witness.get(req).cloned() else {
            return self.apply(Event::Prepared(req, Ok(Traits::default())));
        };
        let mut traits = workload::traits(&mut self.rng, &self.taste);
        traits.rows = sent.rows;
        let fails = self.rng.percent(self.taste.fails);
        let adopts = self.refer.req(req).and_then(|r| r.seq).filter(|_| !sent.start).map(|n| self.refer.seq(n).clone());
        let adopts = adopts.filter(|s| s.adopted && !s.announced && s.key == seq);
        let result = match adopts {
            Some(s) => match self.store.tier.get(&s.id).copied().filter(|_| !fails) {
                Some(hash) => {
                    self.store.found.insert(req, hash);
                    Ok(traits)
                }
                None => Err(Refusal::Unknown(None)),
            },
            None if fails => Err(Refusal::Failed(9)),
            None => Ok(traits),
        };
        if let (Ok(traits), Some(sent)) = (&result, self.witness.get_mut(req)) {
            sent.shape = traits.shape;
        }
        self.apply(Event::Prepared(req, result))
    }

    fn consult(&mut self) -> Checked {
        let Some(round) = self.core.consult(self.now) else {
            self.consults = 0;
            return self.consulted();
        };
        self.consults -= 1;
        let Asked::Admit { load, room, victims } = &round.asked else {
            return broken("a policy that admits is asked", format!("{:?}", round.asked));
        };
        let load = usize::from(load.0);
        let doubled = self.questions.iter().any(|q| q.load == load && !q.old);
        hold!(!doubled, "one admission question at a time", "load {load}");
        let window = self.refer.loads[load].spec.limits.candidates as usize;
        let heads: Vec<Req> =
            self.refer.backlog(load).into_iter().take(window).map(|n| self.refer.seq(n).queue[0]).collect();
        let idle: Vec<N> = self.refer.idle(load).into_iter().take(window).collect();
        let free: Vec<u32> =
            self.refer.loads[load].inst.iter().map(|i| i.slots.iter().filter(|s| s.is_none()).count() as u32).collect();
        let got = (round.see.len as usize, room.clone(), victims.len as usize, victims.ready.clone());
        let since = idle.iter().map(|n| self.refer.seq(*n).touched).collect::<Vec<_>>();
        let want = (heads.len(), free, idle.len(), since);
        hold!(got == want, "a policy sees who waits", "{got:?}, model {want:?}");
        let shown: Vec<super::refer::Shown> = heads.iter().map(|r| self.refer.show(*r)).collect();
        self.same_heads(&round, &shown, load)?;
        self.asked[load] = Some(self.news(load));
        self.questions.push(Question { round, load, heads, victims: idle, old: false });
        Ok(())
    }

    fn same_heads(&self, round: &Round, shown: &[super::refer::Shown], load: usize) -> Checked {
        let see = &round.see;
        let usage = self.refer.usage(load);
        let max_batch = self.refer.loads[load].spec.max_batch.max(1);
        let got = (see.now, see.live, see.backlog, see.max_batch, see.len + see.not_shown);
        let want = (self.now.0, usage.live, usage.backlog, max_batch, usage.backlog);
        hold!(got == want, "a policy sees how full it is", "admission: {got:?}, model {want:?}");
        for (i, one) in shown.iter().enumerate() {
            let arrival = self.refer.req(one.req).map(|r| r.arrival);
            hold!(arrival == see.arrival.get(i).copied(), "a policy sees who waits", "candidate {i}");
        }
        Ok(())
    }

    fn admits(&mut self) -> Checked {
        let Question { round, load, heads, victims, old } =
            self.questions.swap_remove(self.rng.index(self.questions.len()));
        let Asked::Admit { room, .. } = &round.asked else { return Ok(()) };
        let said = policy::admit(&mut self.rng, heads.len() as u32, room, victims.len() as u32);
        self.trace(|| format!("load {load} admits {said:?} of {heads:?}, victims {victims:?}"));
        let mine = said.clone();
        self.refer_call(|refer, now| refer.answer_admit(now, load, &heads, &victims, mine, old));
        let mut out = Vec::new();
        let next = self.core.answer(self.now, round, Said::Admit(said), &mut out);
        hold!(matches!(next, Next::Sleep(None)), "an admission is answered with sleep", "{next:?}");
        self.settle(out)
    }

    fn cancels(&mut self) -> Checked {
        let open = self.witness.open();
        if open.is_empty() {
            return Ok(());
        }
        let mut req = *self.rng.pick(&open);
        if self.rng.percent(10) && req.generation.get() > 1 {
            req.generation = std::num::NonZeroU32::MIN;
        }
        self.apply(Event::Cancel(req))
    }

    fn rarely(&mut self) -> Checked {
        match self.rng.below(12) {
            0 => self.loads(),
            1 => self.retires(),
            2 | 3 => {
                let load = self.rng.index(self.refer.loads.len());
                let hooks = workload::hooks(&mut self.rng, self.taste.external);
                self.attaches(load, hooks)
            }
            4..=6 => {
                let live: Vec<Seq> = self.refer.seqs.iter().filter_map(|s| s.key).collect();
                if live.is_empty() {
                    return Ok(());
                }
                let why = *self.rng.pick(&[Why::Admin, Why::Fenced, Why::Cancelled]);
                let seq = *self.rng.pick(&live);
                self.apply(Event::End(seq, why))
            }
            // Out of the blue: keys that mean nothing any more, ticks that are not due.
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

    fn attaches(&mut self, load: usize, hooks: Option<Hooks>) -> Checked {
        if self.refer.loads[load].gone {
            return Ok(());
        }
        self.asked[load] = None;
        for question in self.questions.iter_mut().filter(|q| q.load == load) {
            question.old = true;
        }
        self.apply(Event::Attach(Load(load as u16), hooks))
    }

    fn loads(&mut self) -> Checked {
        let open = self.refer.loads.iter().filter(|l| !l.gone).count();
        if open >= 4 {
            return self.retires();
        }
        let key = Load(self.refer.loads.len() as u16);
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
        self.hands.extend((0..spec.instances).map(|n| Hand::new(Instance { load: key, n })));
        self.specs.push(spec.clone());
        self.asked.push(None);
        self.trace(|| format!("{key:?} is {spec:?}"));
        self.apply(Event::Loaded(key, spec))
    }

    fn retires(&mut self) -> Checked {
        let open: Vec<usize> = (0..self.refer.loads.len()).filter(|l| !self.refer.loads[*l].gone).collect();
        if open.is_empty() || (open.len() < 2 && self.rng.percent(80)) {
            return self.loads();
        }
        let load = Load(*self.rng.pick(&open) as u16);
        let until = match self.rng.below(6) {
            0 => Time::NEVER,
            1 => self.now,
            _ => Time(self.now.0 + self.rng.below(400)),
        };
        self.apply(Event::Retire { load, until })
    }

    // === time ===

    pub fn time_passes(&mut self) -> Checked {
        let far = if self.rng.percent(5) { 300 } else { 25 };
        let to = Time(self.now.0 + self.rng.range(1, far));
        match self.core.due().filter(|at| *at <= to) {
            Some(due) if self.taste.timely => {
                self.now = due.max(self.now);
                self.apply(Event::Tick)
            }
            Some(_) if self.rng.percent(50) => {
                self.now = to;
                self.apply(Event::Tick)
            }
            _ => {
                self.now = to;
                Ok(())
            }
        }
    }

    // === the end ===

    /// Ends what lives, lets everything run out, and counts what is left: nothing.
    fn wind_down(&mut self) -> Checked {
        self.winding_down = true;
        for load in 0..self.refer.loads.len() {
            self.attaches(load, None)?;
        }
        for round in 0..2000 {
            let idle = self.everything_once()?;
            if idle && self.refer.seqs.is_empty() && self.witness.open().is_empty() {
                break;
            }
            let live: Vec<Seq> =
                self.refer.seqs.iter().filter(|s| s.stage == Stage::Idle).filter_map(|s| s.key).collect();
            for seq in live {
                self.apply(Event::End(seq, Why::Admin))?;
            }
            self.time_passes()?;
            hold!(
                round < 1999,
                "nothing is lost at the end",
                "open {:?}, live {:?}",
                self.witness.open(),
                self.refer.seqs
            );
        }
        hold!(self.witness.sequences() == 0, "started and ended in pairs", "{} never ended", self.witness.sequences());
        for load in 0..self.refer.loads.len() {
            let usage = self.core.usage(Load(load as u16));
            let none = Usage { slots: usage.slots, ..Usage::default() };
            hold!(usage == none, "nothing is lost at the end", "load {load}: {usage:?}");
            if !self.refer.loads[load].gone {
                self.apply(Event::Retire { load: Load(load as u16), until: Time::NEVER })?;
            }
        }
        while !self.everything_once()? {}
        let stay: Vec<Instance> = self.hands.iter().filter(|h| h.thread != Thread::Gone).map(|h| h.who).collect();
        hold!(stay.is_empty(), "retired loads let go", "{stay:?} still wait");
        hold!(self.store.is_empty(), "ended sequences leave no state", "some slot is not empty");
        self.quiet()
    }

    /// With nothing left, no more ticks come than deadlines were armed.
    fn quiet(&mut self) -> Checked {
        let armed = self.core.armed();
        for _ in 0..armed {
            let Some(due) = self.core.due() else { break };
            self.now = due.max(self.now);
            self.apply(Event::Tick)?;
        }
        let due = self.core.due();
        hold!(
            due.is_none_or(|at| at == Time::NEVER),
            "ticks for nothing are bounded",
            "{armed} ticks, and {due:?} is due"
        );
        hold!(self.core.sequences().next().is_none(), "nothing is lost at the end", "a sequence is left");
        self.counts.moves = self.core.moves().clone();
        Ok(())
    }

    /// Every thread, flight and stage once. True if there was nothing to do.
    fn everything_once(&mut self) -> Result<bool, Broken> {
        let mut nothing = true;
        for hand in 0..self.hands.len() {
            while !self.hands[hand].flights.is_empty() {
                self.lands(hand, 0)?;
                nothing = false;
            }
            if self.hands[hand].thread == Thread::Pondering {
                self.ponder(hand)?;
                nothing = false;
            }
            if self.hands[hand].pulls(self.now) {
                self.pull(hand)?;
                nothing = false;
            }
        }
        while let Some((req, seq)) = self.prepares.pop() {
            self.prepares(req, seq)?;
            nothing = false;
        }
        while let Some(req) = self.posts.pop() {
            self.apply(Event::Posted(req))?;
            nothing = false;
        }
        while let Some(batch) = self.seals.pop() {
            self.apply(Event::Sealed(batch, Ok(())))?;
            nothing = false;
        }
        while !self.questions.is_empty() {
            self.admits()?;
            nothing = false;
        }
        self.consults = 0;
        Ok(nothing)
    }
}
