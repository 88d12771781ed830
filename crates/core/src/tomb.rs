//! What became of sequences that are no more: the last so many, oldest forgotten first.

use std::collections::{HashMap, VecDeque};

use crate::event::Tombstone;
use crate::ids::Id;

/// A bounded memory of ended sequences. An id that ended twice is remembered by its youngest sequence, which may have ended first.
#[derive(Debug, Default)]
pub(crate) struct Tombs {
    // Only looked up, never iterated: the order of the map shows nowhere.
    by_id: HashMap<Id, Grave>,
    order: VecDeque<(u64, Id)>,
    serial: u64,
}

#[derive(Debug)]
struct Grave {
    serial: u64,
    /// The birth of the sequence: later is larger.
    born: u64,
    stone: Tombstone,
}

impl Tombs {
    pub(crate) fn bury(&mut self, id: Id, born: u64, stone: Tombstone, limit: u32) {
        if limit == 0 || id == Id::None || self.by_id.get(&id).is_some_and(|grave| grave.born > born) {
            return;
        }
        self.serial += 1;
        self.order.push_back((self.serial, id.clone()));
        self.by_id.insert(id, Grave { serial: self.serial, born, stone });
        while self.order.len() > limit as usize {
            let Some((serial, id)) = self.order.pop_front() else { break };
            if self.by_id.get(&id).is_some_and(|grave| grave.serial == serial) {
                self.by_id.remove(&id);
            }
        }
    }

    /// What was running when the sequence left has ended: that is its last committed step.
    pub(crate) fn amend(&mut self, id: &Id, born: u64, step: u64) {
        if let Some(grave) = self.by_id.get_mut(id).filter(|grave| grave.born == born) {
            grave.stone.step = step;
        }
    }

    pub(crate) fn find(&self, id: &Id) -> Option<Tombstone> {
        self.by_id.get(id).map(|grave| grave.stone)
    }

    /// The last so many, the latest first.
    pub(crate) fn last(&self, most: usize) -> Vec<(Id, Tombstone)> {
        let stone = |(serial, id): &(u64, Id)| {
            let grave = self.by_id.get(id).filter(|grave| grave.serial == *serial)?;
            Some((id.clone(), grave.stone))
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
    use crate::event::Why;
    use crate::time::Time;

    fn stone(step: u64) -> Tombstone {
        Tombstone { why: Why::End, at: Time(step), step }
    }

    #[test]
    fn the_oldest_is_forgotten_but_a_later_end_of_the_same_id_is_not() {
        let mut tombs = Tombs::default();
        for (id, step) in [(1, 1), (2, 2), (1, 3), (3, 4)] {
            tombs.bury(Id::Int(id), step, stone(step), 2);
        }
        assert_eq!(tombs.find(&Id::Int(1)).map(|s| s.step), Some(3));
        assert_eq!(tombs.find(&Id::Int(2)), None);
        assert_eq!((tombs.find(&Id::Int(3)).map(|s| s.step), tombs.len()), (Some(4), 2));
        let last = |most| tombs.last(most).into_iter().map(|(_, stone)| stone.step).collect::<Vec<_>>();
        assert_eq!((last(9), last(1)), (vec![4, 3], vec![4]));
    }

    #[test]
    fn an_older_sequence_that_ends_later_does_not_overwrite_a_younger_one() {
        let mut tombs = Tombs::default();
        tombs.bury(Id::Int(1), 2, stone(7), 4);
        tombs.bury(Id::Int(1), 1, stone(3), 4);
        tombs.amend(&Id::Int(1), 1, 4);
        assert_eq!(tombs.find(&Id::Int(1)).map(|s| s.step), Some(7));
        tombs.amend(&Id::Int(1), 2, 8);
        assert_eq!(tombs.find(&Id::Int(1)).map(|s| s.step), Some(8));
    }
}
