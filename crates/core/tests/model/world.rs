//! The driver: submits, cancels, answers stages late, advances time, and checks the core's output against the witnesses and the model.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash};

use sequor_core::*;

use super::crash::Disk;
use super::news::News;
use super::outcome::{Outcome, count, kind};
use super::refer::{N, Out, Refer};
use super::rng::Rng;
use super::store::Store;
use super::threads::{Hand, Thread};
use super::witness::{Witness, begins_anew};
use super::workload::Taste;
use super::{Checked, broken};
use crate::hold;

pub struct Question {
    pub round: Box<Round>,
    pub load: usize,
    pub heads: Vec<Req>,
    pub victims: Vec<N>,
    /// Its policy was replaced since.
    pub old: bool,
}

pub struct World {
    pub core: Core,
    pub refer: Refer,
    pub rng: Rng,
    pub taste: Taste,
    pub now: Time,
    pub witness: Witness,
    pub store: Store,
    /// The data that survives a crash, in a history with crashes.
    pub disk: Option<Disk>,
    pub hands: Vec<Hand>,
    pub specs: Vec<LoadSpec>,
    /// The keys of the present loads. A key is used again once its load has gone.
    pub keys: Slab<LoadId, ()>,
    pub names: HashMap<Seq, (N, Id, usize)>,
    pub prepares: Vec<(Req, Option<Seq>)>,
    pub posts: Vec<Req>,
    /// Replies that are being made durable.
    pub replies: Vec<Req>,
    pub seals: Vec<BatchId>,
    /// Admission questions that were announced and not fetched.
    pub consults: Vec<LoadId>,
    /// Loads whose policies must get their events without a question.
    pub tells: Vec<LoadId>,
    pub questions: Vec<Question>,
    /// The subject of each policy's last admission question: the latest arrival in the backlog, the latest idle sequence, free slots.
    pub asked: Vec<Option<(u64, u64, u32)>>,
    /// The events that each observing policy has not received yet.
    pub news: Vec<News>,
    pub fresh: u64,
    /// Ticks that may still change nothing.
    credit: i64,
    pub winding_down: bool,
    pub counts: Outcome,
    pub log: Option<Vec<String>>,
    /// A digest of all output of the core, if it is wanted.
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
            disk: None,
            hands: Vec::new(),
            specs: Vec::new(),
            keys: Slab::new(),
            names: HashMap::new(),
            prepares: Vec::new(),
            posts: Vec::new(),
            replies: Vec::new(),
            seals: Vec::new(),
            consults: Vec::new(),
            tells: Vec::new(),
            questions: Vec::new(),
            asked: Vec::new(),
            news: Vec::new(),
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

    /// Makes this many calls, then lets everything run to its end.
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
        let tick = matches!(event, Event::Tick) && self.core.due().is_some_and(|at| at <= self.now);
        let limits = |world: &World| world.refer.loads.iter().filter(|l| l.ended).count();
        let before = limits(self);
        self.refer_call(|refer, now| refer.apply(now, &event));
        let mut out = Vec::new();
        self.core.apply(self.now, event, &mut out);
        self.armed_for_what_is_there()?;
        if tick {
            // A sequence that must leave while it runs leaves without an effect.
            self.ticked(out.is_empty() && before == limits(self))?;
        }
        let credit = self.credit;
        self.settle(&out)?;
        if tick {
            self.credit = credit;
        }
        Ok(())
    }

    /// Deadlines of ended owners do not pile up.
    fn armed_for_what_is_there(&self) -> Checked {
        let owners = self.refer.reqs.iter().flatten().count() + self.refer.seqs.len() + self.core.load_capacity();
        let armed = self.core.armed();
        hold!(armed <= 64 + 2 * owners, "deadlines are of what is there", "{armed} of {owners}");
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
                s.meta.bytes,
                s.meta.shape,
                s.backlog_until,
                s.queue_until
            ),
            event => format!("{now:?} {event:?}"),
        });
    }

    /// After a tick nothing is due. No more ticks find nothing due than there are deadlines.
    fn ticked(&mut self, nothing: bool) -> Checked {
        let due = self.core.due();
        hold!(due.is_none_or(|at| at > self.now), "a tick leaves nothing due", "due {due:?} at {:?}", self.now);
        // While a question is out, a victim that becomes evictable is news for the next question.
        let asked = self.questions.iter().any(|q| !q.old);
        if nothing && !asked {
            self.credit -= 1;
            hold!(self.credit >= 0, "ticks for nothing are bounded", "one more than {} armed", self.core.armed());
        } else if !nothing {
            self.credit = i64::try_from(self.core.armed()).unwrap_or(i64::MAX);
        }
        Ok(())
    }

    /// Takes the effects of a call, acts on them, and checks them against witnesses and model.
    pub fn settle(&mut self, out: &[Effect]) -> Checked {
        self.hear(out)?;
        self.judge(out)
    }

    /// Acts on effects and checks them against the witnesses.
    pub fn hear(&mut self, out: &[Effect]) -> Checked {
        self.counts.calls += 1;
        self.credit = i64::try_from(self.core.armed()).unwrap_or(i64::MAX);
        if let Some(digest) = &mut self.digest {
            format!("{:?} {out:?}", self.now).hash(digest);
        }
        if self.log.is_some() && !out.is_empty() {
            self.trace(|| format!("    {out:?}"));
        }
        self.bind(out)?;
        // Completed requests let the next one of their sequence run, in any order of the effects.
        for effect in out {
            if let Effect::Refuse { req, .. } | Effect::Release(req) = effect {
                self.witness.through(*req);
            }
        }
        self.through_but_in_order();
        for effect in out {
            self.witness.effect(effect, out, true)?;
            self.act(effect, out)?;
        }
        Ok(())
    }

    /// Checks effects, and the state after them, against the model.
    pub fn judge(&mut self, out: &[Effect]) -> Checked {
        self.compare(out)?;
        self.tombstones(out)?;
        self.same_state()?;
        self.sleepers()?;
        self.reported_at_last()?;
        self.consulted()
    }

    /// If answers leave in order, a sequence continues before its answer has left. The model has that information.
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
                    format!("{effect:?}, which the model does not know: it expects {:?}", self.refer.out),
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

    fn act(&mut self, effect: &Effect, out: &[Effect]) -> Checked {
        self.overhear(effect);
        self.apply_to_disk(effect, begins_anew(effect, out))?;
        match effect {
            Effect::Refuse { refusal, .. } => count(&mut self.counts.refused, kind(refusal), 1),
            Effect::Replay(..) => count(&mut self.counts.refused, "(Replay)", 1),
            Effect::Prepare(req, seq) => self.prepares.push((*req, *seq)),
            Effect::Post(req, _) => self.posts.push(*req),
            Effect::Reply { req, seal } => self.replies.extend(seal.then_some(*req)),
            Effect::Seal(batch) => {
                self.seals.push(*batch);
                self.seal_begins(*batch);
            }
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
            Effect::Consult(load) => self.consults.push(*load),
            Effect::Tell(load) => self.tells.push(*load),
            Effect::Note(Note::Ended(seq, why)) => {
                let ix = EndReason::ALL.iter().position(|w| w == why).unwrap_or(0);
                self.counts.ended[ix] += 1;
                if !begins_anew(effect, out) {
                    let (_, id, load) = self.names[seq].clone();
                    let initial = self.refer.loads[load].spec.initial_state_shape;
                    self.store.ended(*seq, &id, *why, initial);
                }
            }
            Effect::Note(Note::Fault(_, fault)) => count(&mut self.counts.faults, format!("{fault:?}").as_str(), 1),
            Effect::Note(Note::Fallback(_)) => count(&mut self.counts.faults, "Fallback", 1),
            Effect::Note(Note::Stale(..)) => count(&mut self.counts.faults, "Stale", 1),
            Effect::Release(_) | Effect::Note(_) => {}
        }
        Ok(())
    }

    // === against the model ===

    fn compare(&mut self, out: &[Effect]) -> Checked {
        let mut got: Vec<Out> = out.iter().filter_map(|e| self.out_of(e)).collect();
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
                Out::Prepare(..) | Out::Post(..) | Out::Reply(..) | Out::Seal(_) => "stages are those of the model",
                Out::Started(..) | Out::Ended(..) | Out::Slotted(..) => "notes are those of the model",
                Out::Fault(_) | Out::Fallback | Out::Stale(_) => "faults are those of the model",
            };
            return broken(property, format!("the model misses {missing:?}, did not expect {got:?}"));
        }
        Ok(())
    }

    fn tombstones(&self, out: &[Effect]) -> Checked {
        for effect in out {
            let Effect::Note(Note::Ended(seq, _)) = effect else { continue };
            let id = &self.names[seq].1;
            let (got, want) = (self.core.tombstone(id), self.refer.remembered(id));
            hold!(got == want, "tombstones tell the truth", "{id:?}: {got:?}, model {want:?}");
        }
        Ok(())
    }

    fn out_of(&self, effect: &Effect) -> Option<Out> {
        let n = |seq: &Seq| self.names.get(seq).map_or(0, |(n, ..)| *n);
        Some(match effect {
            Effect::Refuse { req, refusal, ended } => Out::Refuse(*req, *refusal, *ended),
            Effect::Release(req) => Out::Release(*req),
            Effect::Replay(req, seq) => Out::Replay(*req, n(seq)),
            Effect::Prepare(req, seq) => Out::Prepare(*req, seq.as_ref().map(n)),
            Effect::Post(req, seq) => Out::Post(*req, seq.as_ref().map(n)),
            Effect::Reply { req, seal } => Out::Reply(*req, *seal),
            Effect::Seal(batch) => Out::Seal(self.refer.batches.iter().position(|b| b.key == Some(*batch))?),
            Effect::Note(Note::Started(seq, req)) => Out::Started(n(seq), *req),
            Effect::Note(Note::Slotted(seq, who, slot, waited)) => {
                let waited = super::refer::ns(*waited);
                Out::Slotted(n(seq), self.refer.ix(who.load), usize::from(who.n), slot.ix, waited)
            }
            Effect::Note(Note::Ended(seq, why)) => Out::Ended(n(seq), *why),
            Effect::Note(Note::Fault(_, fault)) => Out::Fault(*fault),
            Effect::Note(Note::Fallback(_)) => Out::Fallback,
            Effect::Note(Note::Stale(_, n)) => Out::Stale(*n),
            Effect::Wake(_) | Effect::Consult(_) | Effect::Tell(_) => return None,
        })
    }

    fn same_state(&self) -> Checked {
        for load in 0..self.refer.loads.len() {
            let (got, want) = (self.core.usage(self.refer.loads[load].key), self.refer.usage(load));
            hold!(got == want, "usage is that of the model", "load {load}: {got:?}, model {want:?}");
        }
        if !self.counts.calls.is_multiple_of(4) {
            return Ok(());
        }
        let mut seen = 0;
        for (seq, id, stage) in self.core.sequences() {
            let s = self.refer.seqs.iter().find(|s| s.key == Some(seq));
            let same = s.is_some_and(|s| s.stage == stage && s.id == *id);
            hold!(same, "stages are those of the model", "{seq:?} {id:?} {stage:?}, model {s:?}");
            let got = self.core.state_of(seq).map(|at| (usize::from(at.instance.n), at.slot.ix, at.step));
            let want = s.filter(|s| s.holds_state).and_then(|s| Some((s.placement?.0, s.placement?.1, s.step)));
            hold!(got == want, "states are where the model has them", "{seq:?}: {got:?}, model {want:?}");
            seen += 1;
        }
        hold!(seen == self.refer.seqs.len(), "sequences are those of the model", "{seen}");
        Ok(())
    }

    /// A policy that decides admission is asked if something has changed since its last question.
    pub fn consulted(&self) -> Checked {
        let mut due = Vec::new();
        for load in 0..self.refer.loads.len() {
            let l = &self.refer.loads[load];
            let announced = self.consults.contains(&self.refer.loads[load].key);
            if announced
                || l.gone
                || !self.refer.asks_admit(load)
                || self.questions.iter().any(|q| q.load == load && !q.old)
            {
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
        hold!(due.is_empty(), "a policy that admits is asked", "loads {due:?} have news and no question is announced");
        Ok(())
    }

    pub fn news(&self, load: usize) -> (u64, u64, u32) {
        let of = |stage: Stage| self.refer.of_load(load).filter(move |s| s.stage == stage);
        let evicts = self.refer.loads[load].spec.idle_soft.is_some();
        let idle = of(Stage::Idle).filter(|_| evicts).map(|s| s.idled).max().unwrap_or(0);
        (of(Stage::Backlogged).map(|s| s.turn).max().unwrap_or(0), idle, self.refer.free(load))
    }
}
