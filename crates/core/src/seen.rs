//! What operators see of sequences: those that live, in portions so that no look holds the core for long, and those that have ended.

use crate::core::Core;
use crate::ending::Tombstone;
use crate::ids::{Id, LoadId, Seq};
use crate::sequence::{Sequence, Stage};
use crate::time::Time;

/// A live sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceView {
    pub seq: Seq,
    pub id: Id,
    pub load: LoadId,
    pub stage: Stage,
    /// Instance, and slot within it.
    pub placement: Option<(u16, u32)>,
    /// The last committed step.
    pub step: u64,
    /// Requests that wait, and their bytes.
    pub queued: u32,
    pub queued_bytes: u64,
    /// Bytes of state, as far as they were told by a run.
    pub state_bytes: u64,
    /// It ends with what is queued, or as soon as what runs is through.
    pub ending: bool,
    pub began: Time,
    /// The later of the last arrival and the last completion.
    pub touched: Time,
    /// How long it may be idle; `None` is for ever.
    pub idle: Option<std::time::Duration>,
    /// When it expires or leaves the backlog, if nothing happens before; [`Time::NEVER`] if nothing is due.
    pub due: Time,
}

impl Core {
    /// Up to so many live sequences from this place of the table on, and the place to go on from, if there is more.
    pub fn seen(&self, from: u32, most: u32) -> (Vec<SequenceView>, Option<u32>) {
        let until = from.saturating_add(most);
        let seen = self.seqs.range(from, until).filter_map(|(seq, s)| self.view(seq, s));
        (seen.collect(), (until < self.seqs.places()).then_some(until))
    }

    /// One live sequence.
    pub fn view_of(&self, seq: Seq) -> Option<SequenceView> {
        self.view(seq, self.seqs.get(seq)?)
    }

    /// Whether a sequence of this id has ended while a request of it is past its queue.
    pub fn is_leaving(&self, id: &Id) -> bool {
        !self.leaving.is_empty() && self.leaving.contains_key(id)
    }

    /// Whether there is such a sequence of any id.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The sequences of a load that wait for a request and hold a slot, the longest idle first.
    pub fn idle_sequences(&self, load: LoadId) -> impl Iterator<Item = Seq> + '_ {
        let idle = self.load(load).map(|load| self.seq_links.iter(&load.idle));
        idle.into_iter().flatten().filter_map(|ix| self.seqs.key_at(ix))
    }

    fn view(&self, seq: Seq, s: &Sequence) -> Option<SequenceView> {
        Some(SequenceView {
            seq,
            id: s.id.clone(),
            load: s.load,
            stage: s.stage?,
            placement: s.placement.map(|(n, slot)| (n, slot.ix)),
            step: s.step,
            queued: s.queue.len(),
            queued_bytes: s.bytes,
            state_bytes: s.state_bytes,
            ending: s.ending.is_some() || s.leaving.is_some(),
            began: s.began,
            touched: s.touched,
            idle: s.idle,
            due: self.deadline_of(seq),
        })
    }

    /// Remembers the end of a sequence that did not live here: its stored state has expired.
    pub fn remember(&mut self, load: LoadId, id: Id, stone: Tombstone) {
        let Some(limit) = self.load(load).map(|l| l.spec.limits.tombstones) else { return };
        self.tombstones.insert(id, self.born, stone, limit);
    }

    /// How the last sequence of an id ended, if that is remembered.
    pub fn end_of(&self, id: &Id) -> Option<Tombstone> {
        self.tombstones.find(id)
    }

    /// How long a sequence may be idle; `None` is for ever.
    pub fn idle_of_sequence(&self, seq: Seq) -> Option<std::time::Duration> {
        self.seqs.get(seq)?.idle
    }

    /// The last so many that have ended and are remembered, the latest end first.
    pub fn ended(&self, most: usize) -> Vec<(Id, Tombstone)> {
        self.tombstones.last(most)
    }
}
