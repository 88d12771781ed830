//! Records of ended sequences, up to a limit. The oldest is dropped first.

use std::collections::{HashMap, VecDeque};

use crate::ending::Tombstone;
use crate::ids::Id;

/// Bounded records of ended sequences. If an id ended twice, the record is that of its youngest sequence, even if that one ended first.
#[derive(Debug, Default)]
pub(crate) struct Tombstones {
    // Only looked up, never iterated, so the map's order has no effect.
    by_id: HashMap<Id, TombstoneEntry>,
    order: VecDeque<(u64, Id)>,
    serial: u64,
}

#[derive(Debug)]
struct TombstoneEntry {
    serial: u64,
    /// The serial number of the sequence's birth: later is larger.
    born: u64,
    stone: Tombstone,
}

impl Tombstones {
    pub(crate) fn insert(&mut self, id: Id, born: u64, stone: Tombstone, limit: u32) {
        if limit == 0 || id == Id::None || self.by_id.get(&id).is_some_and(|entry| entry.born > born) {
            return;
        }
        self.serial += 1;
        self.order.push_back((self.serial, id.clone()));
        self.by_id.insert(id, TombstoneEntry { serial: self.serial, born, stone });
        while self.order.len() > limit as usize {
            let Some((serial, id)) = self.order.pop_front() else { break };
            if self.by_id.get(&id).is_some_and(|entry| entry.serial == serial) {
                self.by_id.remove(&id);
            }
        }
    }

    /// Updates the last committed step after a request has completed that ran when its sequence left.
    pub(crate) fn amend(&mut self, id: &Id, born: u64, step: u64) {
        if let Some(entry) = self.by_id.get_mut(id).filter(|entry| entry.born == born) {
            entry.stone.step = step;
        }
    }

    pub(crate) fn find(&self, id: &Id) -> Option<Tombstone> {
        self.by_id.get(id).map(|entry| entry.stone)
    }

    /// The last `most` records, the latest first.
    pub(crate) fn last(&self, most: usize) -> Vec<(Id, Tombstone)> {
        let stone = |(serial, id): &(u64, Id)| {
            let entry = self.by_id.get(id).filter(|entry| entry.serial == *serial)?;
            Some((id.clone(), entry.stone))
        };
        self.order.iter().rev().filter_map(stone).take(most).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::EndReason;
    use crate::time::Time;

    fn stone(step: u64) -> Tombstone {
        Tombstone { why: EndReason::End, at: Time(step), step, idle: None }
    }

    #[test]
    fn the_oldest_is_forgotten_but_a_later_end_of_the_same_id_is_not() {
        let mut tombstones = Tombstones::default();
        for (id, step) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
            tombstones.insert(Id::Int(id), step, stone(step), 2);
        }
        assert_eq!(tombstones.find(&Id::Int(1)).map(|s| s.step), Some(3));
        assert_eq!(tombstones.find(&Id::Int(2)), None);
        assert_eq!((tombstones.find(&Id::Int(3)).map(|s| s.step), tombstones.len()), (Some(4), 2));
        let last = |most| tombstones.last(most).into_iter().map(|(_, stone)| stone.step).collect::<Vec<_>>();
        assert_eq!((last(9), last(1)), (vec![4, 3], vec![4]));
    }

    #[test]
    fn an_older_sequence_that_ends_later_does_not_overwrite_a_younger_one() {
        let mut tombstones = Tombstones::default();
        tombstones.insert(Id::Int(1), 2, stone(7), 4);
        tombstones.insert(Id::Int(1), 1, stone(3), 4);
        tombstones.amend(&Id::Int(1), 1, 4);
        assert_eq!(tombstones.find(&Id::Int(1)).map(|s| s.step), Some(7));
        tombstones.amend(&Id::Int(1), 2, 8);
        assert_eq!(tombstones.find(&Id::Int(1)).map(|s| s.step), Some(8));
    }
}
