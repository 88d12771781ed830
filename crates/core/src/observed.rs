//! What a policy that observes is told: self-contained, for who it speaks of may be gone when it is read. Each has a serial number of its load,
//! so that a policy that comes later gets those who live, and then everything after that once.

use std::time::Duration;

use crate::core::{Core, load_in};
use crate::event::{Effect, FEATURES, Note, Why};
use crate::faults::{Planted, fault};
use crate::ids::{Load, Req, Seq};
use crate::load::LoadState;
use crate::request::Request;

/// Kept for a policy between two rounds; beyond that it learns that some were lost ([`crate::Round::lost`]).
const MOST: usize = 4096;
/// From so many on it should be told without a question.
const MANY: usize = MOST / 4;

/// Something that happened to a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observed {
    /// The handle of the sequence ([`Seq::handle`]); 0 for a request without one.
    pub seq: u64,
    pub what: What,
    /// Key features of the request that began the sequence, ran or failed; zeros in the others.
    pub keys: [u64; FEATURES],
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// A sequence began, or began anew; `steps` of it are committed.
    Began { steps: u64 },
    /// It got a slot.
    Slotted { waited: Duration },
    /// A request ran, and its state is committed.
    Done { rows: u32 },
    /// A request ran and failed, or its state could not be kept.
    Failed { rows: u32 },
    /// A sequence ended.
    Ended(Why),
}

/// What is kept of a load for its policy.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    kept: Vec<Observed>,
    /// The serial number of the next one.
    next: u64,
    /// Some before those that are kept were dropped.
    lost: bool,
}

impl Diary {
    fn add(&mut self, one: Observed) {
        if self.kept.len() >= MOST {
            // With one missing the others are of no use: whoever reads this must look at the live ones again.
            self.kept.clear();
            self.lost = true;
        }
        self.kept.push(one);
        self.next += 1;
    }

    /// What was kept, the serial number of its first, and whether some before it were dropped.
    pub(crate) fn take(&mut self) -> (u64, Vec<Observed>, bool) {
        let first = self.next - self.kept.len() as u64;
        (first, std::mem::take(&mut self.kept), std::mem::take(&mut self.lost))
    }

    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.lost = false;
    }
}

impl Core {
    /// Takes what the policy of this load has not been told of yet: the serial number of the first, and whether some before it were dropped.
    pub fn observed(&mut self, load: Load) -> (u64, Vec<Observed>, bool) {
        self.load_mut(load).map(|l| l.diary.take()).unwrap_or_default()
    }

    /// The serial number of the next thing that happens to a load.
    pub(crate) fn next_observed(&self, load: Load) -> u64 {
        self.load(load).map_or(0, |l| l.diary.next)
    }

    /// A note for the driver, and what the load's policy is told of it.
    pub(crate) fn note(&mut self, load: Load, note: Note, out: &mut Vec<Effect>) {
        out.push(Effect::Note(note));
        let told = match note {
            Note::Started(seq, req) => self.begins(seq, req),
            Note::Slotted(seq, _, _, waited) => Some(of(seq, What::Slotted { waited })),
            Note::Ended(seq, why) => Some(of(seq, What::Ended(why))),
            Note::Fault(..) | Note::Fallback(_) | Note::Stale(..) => None,
        };
        if let (Some(told), Some(state)) = (told, load_in(&mut self.loads, load)) {
            state.observe(told, out);
        }
    }

    /// A sequence has the key features of the request that began it.
    fn begins(&mut self, seq: Seq, req: Req) -> Option<Observed> {
        let keys = self.reqs.get(req).map(|r| r.traits.keys).unwrap_or_default();
        let s = self.seqs.get_mut(seq)?;
        s.keys = keys;
        Some(began(seq, s.step, keys))
    }

    /// A request has run, for good or not.
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
        let rows = r.traits.rows;
        let what = if done { What::Done { rows } } else { What::Failed { rows } };
        self.observe(Observed { seq: r.seq.map_or(0, Seq::handle), what, keys: r.traits.keys }, out);
    }

    fn is_observed(&self) -> bool {
        self.external.is_some_and(|hooks| hooks.observe)
    }

    fn observe(&mut self, one: Observed, out: &mut Vec<Effect>) {
        if !self.is_observed() {
            return;
        }
        self.diary.add(one);
        if self.diary.kept.len() == MANY {
            out.push(Effect::Tell(self.key));
        }
    }
}

fn of(seq: Seq, what: What) -> Observed {
    Observed { seq: seq.handle(), what, keys: [0; FEATURES] }
}

pub(crate) fn began(seq: Seq, steps: u64, keys: [u64; FEATURES]) -> Observed {
    Observed { keys, ..of(seq, What::Began { steps }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_taken_in_time_is_lost_as_a_whole_and_the_numbers_go_on() {
        let mut diary = Diary::default();
        let one = Observed { seq: 1, what: What::Done { rows: 1 }, keys: [0; FEATURES] };
        (0..MOST + 10).for_each(|_| diary.add(one));
        let (first, kept, lost) = diary.take();
        assert_eq!((first, kept.len(), lost), (MOST as u64, 10, true));
        diary.add(one);
        assert_eq!(diary.take().0, MOST as u64 + 10);
    }

    #[test]
    fn a_handle_leads_back_to_its_sequence() {
        let seq = Seq::new(7, std::num::NonZeroU32::new(3).unwrap());
        assert_eq!(Seq::of_handle(seq.handle()), Some(seq));
        assert_eq!(Seq::of_handle(0), None);
    }
}
