//! Views for operators: live sequences, in portions so that no read locks the core for long, and ended ones.

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
    /// Number of requests that wait; `queued_bytes` is their size.
    pub queued: u32,
    pub queued_bytes: u64,
    /// Size of the state, as the last run reported it.
    pub state_bytes: u64,
    /// Whether it ends after its queue, or as soon as its current request is over.
    pub ending: bool,
    /// The arrival of its last START. Of a sequence that began with a state from elsewhere and had no START since: when it came here.
    pub began: Time,
    /// Since when it has waited for a slot, if it waits.
    pub waits_since: Option<Time>,
    /// The later of the last arrival and the last completion.
    pub touched: Time,
    /// The allowed idle time; `None` means no limit.
    pub idle: Option<std::time::Duration>,
    /// The time at which it expires or leaves the backlog if nothing happens before; [`Time::NEVER`] if nothing is due.
    pub due: Time,
}

impl Core {
    /// Live sequences in `most` places of the table, from this one on, and the next place, if there is more.
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

    /// Whether any id has such a sequence.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
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
            waits_since: (s.stage == Some(Stage::Backlogged)).then_some(s.backlogged_at),
            touched: s.touched,
            idle: s.idle,
            due: self.deadline_of(seq),
        })
    }

    /// Remembers the end of a sequence that was not live here, because its stored state has expired.
    pub fn remember(&mut self, load: LoadId, id: Id, stone: Tombstone) {
        let Some(limit) = self.load(load).map(|l| l.spec.limits.tombstones) else { return };
        self.tombstones.insert(id, self.born, stone, limit);
    }

    /// The end of the last sequence of an id, if it is remembered.
    pub fn end_of(&self, id: &Id) -> Option<Tombstone> {
        self.tombstones.find(id)
    }

    /// The allowed idle time of a sequence; `None` means no limit.
    pub fn idle_of_sequence(&self, seq: Seq) -> Option<std::time::Duration> {
        self.seqs.get(seq)?.idle
    }

    /// The last `most` remembered ends, the latest first.
    pub fn ended(&self, most: usize) -> Vec<(Id, Tombstone)> {
        self.tombstones.last(most)
    }
}
