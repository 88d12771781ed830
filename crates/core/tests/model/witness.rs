//! Checks that hold independently of the reference model, from the submitted requests, the effects and the batches alone.

use std::collections::{HashMap, HashSet, VecDeque};

use sequor_core::*;

use super::{Checked, broken};
use crate::hold;

/// The stage of a request, as its sender and the instance threads know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Sent,
    Running,
    /// It ran (and may be sealed, postprocessed, or wait for its turn).
    Ran,
    /// It was done without a run (and may be sealed, or wait for its turn).
    Replied,
}

#[derive(Debug, Clone)]
pub struct Sent {
    pub key: Req,
    pub serial: u64,
    pub start: bool,
    /// Its number, if its client counts.
    pub step: Option<u64>,
    pub id: Id,
    /// Its sequence, once a run of it has begun or it was lent.
    pub seq: Option<Seq>,
    pub rows: u32,
    pub shape: u64,
    /// Whether the driver has prepared it, or does so now.
    pub lent: bool,
    pub fate: Fate,
    /// Number of its runs if no run fails; 0 is answered without one.
    pub steps: u32,
    pub runs: u32,
    /// A run of it has failed.
    pub failed: bool,
}

/// Whether this is the end of a life whose sequence continues: a START of it follows in the same call.
pub fn begins_anew(effect: &Effect, all: &[Effect]) -> bool {
    let Effect::Note(Note::Ended(seq, EndReason::Restarted)) = effect else { return false };
    let behind = all.iter().skip_while(|e| !std::ptr::eq(*e, effect));
    behind.skip(1).any(|e| matches!(e, Effect::Note(Note::Started(s, _)) if s == seq))
}

#[derive(Debug, Default)]
pub struct Witness {
    /// Open requests, by index of their key.
    pub sent: Vec<Option<Sent>>,
    generations: Vec<u32>,
    /// Requests whose keys may be used again.
    free: Vec<u32>,
    serial: u64,
    /// Sequences that were announced and have not ended.
    live: HashMap<Seq, Life>,
    known: HashSet<Seq>,
    slots: HashMap<(Instance, u32), Seq>,
    /// Which sequence a request has begun.
    begun: HashMap<Req, Seq>,
    /// Taken requests whose answers must leave in this order.
    turns: HashMap<LoadId, VecDeque<Req>>,
}

#[derive(Debug, Clone, Default)]
struct Life {
    running: Option<Req>,
    last: u64,
    /// Its START was answered without a run: the next row begins it.
    owes_start: bool,
}

impl Witness {
    /// A key for a new request.
    pub fn send(&mut self) -> Req {
        // A few keys rest, so that those used lately are not always the next.
        let ix = if self.free.len() > 4 { self.free.remove(0) } else { self.sent.len() as u32 };
        if ix as usize == self.sent.len() {
            self.sent.push(None);
            self.generations.push(0);
        }
        self.generations[ix as usize] += 1;
        Req::new(ix, std::num::NonZeroU32::new(self.generations[ix as usize]).expect("above 0"))
    }

    pub fn sends(&mut self, submit: &Submit) {
        self.serial += 1;
        self.sent[submit.req.ix as usize] = Some(Sent {
            key: submit.req,
            serial: self.serial,
            start: submit.start,
            step: submit.step,
            id: submit.id.clone(),
            seq: None,
            rows: submit.meta.rows,
            shape: submit.meta.shape,
            lent: false,
            fate: Fate::Sent,
            steps: 1,
            runs: 0,
            failed: false,
        });
    }

    pub fn open(&self) -> Vec<Req> {
        self.sent.iter().flatten().map(|s| s.key).collect()
    }

    pub fn get(&self, req: Req) -> Option<&Sent> {
        self.sent.get(req.ix as usize)?.as_ref().filter(|s| s.key == req)
    }

    pub fn get_mut(&mut self, req: Req) -> Option<&mut Sent> {
        self.sent.get_mut(req.ix as usize)?.as_mut().filter(|s| s.key == req)
    }

    pub fn sequences(&self) -> usize {
        self.live.len()
    }

    pub fn born(&self) -> usize {
        self.known.len()
    }

    fn answered(&mut self, req: Req, effect: &Effect) -> Result<Sent, super::Broken> {
        let Some(sent) = self.sent.get_mut(req.ix as usize).and_then(|s| s.take_if(|s| s.key == req)) else {
            return broken("every request is answered exactly once", format!("{effect:?}, again"));
        };
        self.free.push(req.ix);
        Ok(sent)
    }

    pub fn effect(&mut self, effect: &Effect, all: &[Effect], seals: bool) -> Checked {
        match effect {
            Effect::Refuse { req, .. } => {
                let sent = self.answered(*req, effect)?;
                let unsealed = matches!(sent.fate, Fate::Ran | Fate::Replied) && seals;
                hold!(sent.fate == Fate::Sent || unsealed, "what ran is not refused", "{effect:?} of {sent:?}");
                for turns in self.turns.values_mut() {
                    turns.retain(|r| r != req);
                }
            }
            Effect::Release(req) => {
                let sent = self.answered(*req, effect)?;
                let done = if sent.seq.is_some() { Fate::Replied } else { Fate::Sent };
                let replied = sent.steps == 0 && sent.fate == done;
                let ran = sent.fate == Fate::Ran && (sent.runs == sent.steps || sent.failed);
                hold!(ran || replied, "only what ran is released", "{effect:?} of {sent:?}");
                let begun = self.begun.remove(req).filter(|_| replied && sent.start);
                if let Some(life) = begun.and_then(|seq| self.live.get_mut(&seq)) {
                    life.owes_start = true;
                }
                for turns in self.turns.values_mut().filter(|t| t.contains(req)) {
                    hold!(turns.front() == Some(req), "answers in order", "{effect:?} before {:?}", turns.front());
                    turns.pop_front();
                }
            }
            Effect::Replay(req, seq) => {
                let sent = self.answered(*req, effect)?;
                let fresh = sent.fate == Fate::Sent && self.live.contains_key(seq);
                hold!(fresh, "only live sequences repeat answers", "{effect:?} of {sent:?}");
                let is_done = |of: &&Sent| of.fate == Fate::Ran && of.runs == of.steps && !of.failed;
                let open = self.sent.iter().flatten().filter(is_done).find(|of| of.seq == Some(*seq));
                hold!(open.is_none(), "an answer that has not left is not repeated", "{effect:?} before {open:?}");
            }
            Effect::Reply { req, .. } => {
                let Some(sent) = self.get_mut(*req).filter(|sent| sent.steps == 0 && sent.fate == Fate::Sent) else {
                    return broken("a reply is done once", format!("{effect:?} of {:?}", self.get(*req)));
                };
                sent.fate = Fate::Replied;
            }
            Effect::Prepare(req, seq @ Some(_)) => {
                let Some(sent) = self.get_mut(*req) else { return Ok(()) };
                (sent.seq, sent.lent) = (*seq, true);
                let serial = sent.serial;
                let is_open = |of: &&Sent| of.seq == *seq && of.steps == 0 && of.serial < serial;
                let open = self.sent.iter().flatten().filter(is_open).find(|of| of.fate == Fate::Sent);
                hold!(open.is_none(), "a reply is done before the next step is prepared", "{effect:?} before {open:?}");
            }
            Effect::Note(note) => self.note(note, all, begins_anew(effect, all))?,
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, note: &Note, all: &[Effect], begins_anew: bool) -> Checked {
        match note {
            Note::Started(seq, req) => {
                self.begun.insert(*req, *seq);
                let again = all.contains(&Effect::Note(Note::Ended(*seq, EndReason::Restarted)));
                hold!(
                    !self.live.contains_key(seq) || again,
                    "started and ended in pairs",
                    "{note:?} of a live sequence"
                );
                hold!(again || self.known.insert(*seq), "a sequence's key is used once", "{note:?} with a used key");
                self.live.entry(*seq).or_default();
            }
            Note::Ended(seq, _) if begins_anew => {
                hold!(self.live.contains_key(seq), "started and ended in pairs", "{note:?} of one not started");
            }
            Note::Ended(seq, _) => {
                let Some(life) = self.live.remove(seq) else {
                    return broken("started and ended in pairs", format!("{note:?} of one not started"));
                };
                hold!(
                    life.running.is_none(),
                    "no sequence ends while running",
                    "{note:?} while {:?} runs",
                    life.running
                );
                self.slots.retain(|_, owner| owner != seq);
            }
            Note::Slotted(seq, who, slot, _) => {
                hold!(self.live.contains_key(seq), "a slot has one owner", "{note:?} for one that does not live");
                let owner = self.slots.insert((*who, slot.ix), *seq);
                // In one call a slot may be given on; the notes commute.
                let ends = |o: Seq| all.iter().any(|e| matches!(e, Effect::Note(Note::Ended(s, _)) if *s == o));
                hold!(owner.is_none_or(ends), "a slot has one owner", "{note:?}, but {owner:?} has it");
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks a batch that departs. `state` returns the class of a row's state.
    pub fn batch(&mut self, batch: &Batch, spec: &LoadSpec, state: &[u64]) -> Checked {
        let real: Vec<RealRow> = batch.real().collect();
        hold!(!real.is_empty(), "a batch has rows", "{batch:?}");
        let rows: u32 = real.iter().filter_map(|r| self.get(r.req)).map(|s| s.rows).sum();
        let many = rows <= spec.max_batch.max(1) || real.len() == 1;
        hold!(many, "a batch is no larger than it may be", "{rows} rows of {}: {batch:?}", spec.max_batch);
        let direct = matches!(spec.strategy, Strategy::Direct { rows: RowLayout::Fixed, .. });
        for (place, row) in batch.rows.iter().enumerate() {
            let Row::Real(row) = row else {
                hold!(direct && place + 1 < batch.rows.len(), "only direct rows are padded", "{batch:?}");
                continue;
            };
            let stands = row.placement.is_none_or(|(_, slot)| slot.ix as usize == place);
            hold!(!direct || stands, "a direct row is its slot", "row {place} of {batch:?}");
        }
        let mut class = None;
        for (row, state) in real.iter().zip(state) {
            let Some(sent) = self.get(row.req) else { return broken("only open requests run", format!("{row:?}")) };
            let mine = (sent.shape, *state);
            hold!(
                *class.get_or_insert(mine) == mine,
                "a batch has one shape",
                "{mine:?} beside {class:?} in {batch:?}"
            );
            self.departs(row)?;
            let is_last = self.get(row.req).is_some_and(|sent| sent.runs == sent.steps);
            hold!(row.seal == (is_last && spec.stages.seal), "a row is its request", "{row:?}");
        }
        if matches!(spec.strategy, Strategy::Oldest { in_order: true, .. } | Strategy::Stateless { in_order: true, .. })
        {
            let turns = self.turns.entry(batch.instance.load).or_default();
            for row in &real {
                // A request of several runs has its turn since the first run.
                if !turns.contains(&row.req) {
                    turns.push_back(row.req);
                }
            }
        }
        Ok(())
    }

    fn departs(&mut self, row: &RealRow) -> Checked {
        let Some(sent) = self.get_mut(row.req) else { return broken("only open requests run", format!("{row:?}")) };
        let goes_on = sent.fate == Fate::Ran && !sent.failed;
        let may = sent.runs < sent.steps && (sent.fate == Fate::Sent || goes_on);
        hold!(may, "a request runs as often as it should", "{row:?} is {sent:?}");
        let first = sent.runs == 0;
        (sent.fate, sent.runs) = (Fate::Running, sent.runs + 1);
        let (serial, start) = (sent.serial, sent.start && first);
        sent.seq = row.placement.map(|(seq, _)| seq);
        let Some((seq, slot)) = row.placement else {
            hold!(start == row.start, "a row is its request", "{row:?}");
            return Ok(());
        };
        // Its START was answered without a run, and the answer waits for its turn.
        let replied = |of: &&Sent| of.seq == Some(seq) && of.start && of.steps == 0 && of.serial < serial;
        let replied: Vec<Req> = self.sent.iter().flatten().filter(replied).map(|of| of.key).collect();
        let owes_start = replied.into_iter().filter(|start| self.begun.remove(start).is_some()).count() > 0;
        let Some(life) = self.live.get_mut(&seq) else {
            return broken("only live sequences run", format!("{row:?} of {slot:?}"));
        };
        life.owes_start |= owes_start;
        let alone = if first { life.running.is_none() } else { life.running == Some(row.req) };
        hold!(alone, "one in flight a sequence", "{row:?} beside {:?}", life.running);
        let in_order = if first { life.last < serial } else { life.last == serial };
        hold!(in_order, "order within a sequence", "{row:?} is request {serial}, but {} has run", life.last);
        let begins = start || std::mem::take(&mut life.owes_start);
        hold!(begins == row.start, "a row is its request", "{row:?}");
        life.owes_start &= !start;
        (life.running, life.last) = (Some(row.req), serial);
        Ok(())
    }

    /// A row's run has ended.
    pub fn lands(&mut self, row: &RealRow, done: bool) {
        if let Some(sent) = self.get_mut(row.req) {
            (sent.fate, sent.failed) = (Fate::Ran, !done);
        }
    }

    /// The request is over, or its answer only waits for its turn: the next request of its sequence may run.
    pub fn through(&mut self, req: Req) {
        for life in self.live.values_mut() {
            if life.running == Some(req) {
                life.running = None;
            }
        }
    }
}
