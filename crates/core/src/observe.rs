//! Delivery of events: notes for the driver, and a log for the policy that observes.

use std::time::Duration;

use crate::core::{Core, load_in};
use crate::event::{Effect, Note};
use crate::faults::{Planted, fault};
use crate::ids::{LoadId, Req, Seq};
use crate::load::LoadState;
use crate::observed::{MANY, Observed, ObservedKind};
use crate::request::Request;
use crate::request_meta::FEATURES;

impl Core {
    /// Takes the events that this load's policy has not received yet. Returns the serial number of the first, the events, and whether
    /// earlier ones were dropped.
    pub fn observed(&mut self, load: LoadId) -> (u64, Vec<Observed>, bool) {
        self.load_mut(load).map(|l| l.log.take()).unwrap_or_default()
    }

    /// The serial number of the load's next event.
    pub(crate) fn next_observed(&self, load: LoadId) -> u64 {
        self.load(load).map_or(0, |l| l.log.next())
    }

    /// Reports a note to the driver, and its event to the load's policy.
    pub(crate) fn note(&mut self, load: LoadId, note: Note, out: &mut Vec<Effect>) {
        out.push(Effect::Note(note));
        let event = match note {
            Note::Started(seq, req) => self.begins(seq, req),
            Note::Slotted(seq, _, _, waited) => Some(observed(seq, ObservedKind::Slotted { waited })),
            Note::Ended(seq, why) => {
                Some(Observed { keys: self.keys_of(seq), ..observed(seq, ObservedKind::Ended(why)) })
            }
            Note::Fault(..) | Note::Fallback(_) | Note::Stale(..) => None,
        };
        if let (Some(event), Some(state)) = (event, load_in(&mut self.loads, load)) {
            state.observe(event, out);
        }
    }

    /// Key features of the request that began a live sequence.
    fn keys_of(&self, seq: Seq) -> [u64; FEATURES] {
        let known = !fault(Planted::EndedWithoutKeys);
        self.seqs.get(seq).filter(|_| known).map(|s| s.keys).unwrap_or_default()
    }

    /// Records the key features of the request that began a sequence.
    fn begins(&mut self, seq: Seq, req: Req) -> Option<Observed> {
        let keys = self.reqs.get(req).map(|r| r.meta.keys).unwrap_or_default();
        let s = self.seqs.get_mut(seq)?;
        s.keys = keys;
        Some(began(seq, s.step, keys))
    }

    /// Reports that a request ran, with or without success.
    pub(crate) fn tell_run(&mut self, req: Req, done: bool, out: &mut Vec<Effect>) {
        let Some(r) = self.reqs.get(req) else { return };
        if let Some(state) = load_in(&mut self.loads, r.load) {
            state.tell_run(r, done, out);
        }
    }
}

impl LoadState {
    pub(crate) fn tell_run(&mut self, r: &Request, done: bool, out: &mut Vec<Effect>) {
        if !self.is_observed() || (done && fault(Planted::DoneUntold)) {
            return;
        }
        let rows = r.meta.rows;
        let what = if done { ObservedKind::Done { rows } } else { ObservedKind::Failed { rows } };
        self.observe(Observed { seq: r.seq.map_or(0, Seq::handle), what, keys: r.meta.keys }, out);
    }

    /// Reports that a batch ran.
    pub(crate) fn tell_batch(&mut self, took: Duration, out: &mut Vec<Effect>) {
        self.observe(Observed { seq: 0, what: ObservedKind::BatchRan { took }, keys: [0; FEATURES] }, out);
    }

    fn is_observed(&self) -> bool {
        self.external.is_some_and(|hooks| hooks.observe)
    }

    fn observe(&mut self, one: Observed, out: &mut Vec<Effect>) {
        if !self.is_observed() {
            return;
        }
        self.log.add(one);
        if self.log.len() == MANY {
            out.push(Effect::Tell(self.key));
        }
    }
}

fn observed(seq: Seq, what: ObservedKind) -> Observed {
    Observed { seq: seq.handle(), what, keys: [0; FEATURES] }
}

pub(crate) fn began(seq: Seq, steps: u64, keys: [u64; FEATURES]) -> Observed {
    Observed { keys, ..observed(seq, ObservedKind::Began { steps }) }
}
