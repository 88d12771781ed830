//! A queue ordered by level. Within a level, entries are in order of arrival, and late ones stand behind the others.

use crate::faults::{Planted, fault};
use crate::list::{Links, List};

/// The place of an entry. Removal needs the same place as insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueuePlace {
    /// The lowest level is first.
    pub(crate) level: u32,
    pub(crate) late: bool,
}

#[derive(Debug, Default)]
pub(crate) struct LevelQueue {
    /// By level. A level without entries may be missing.
    levels: Vec<LevelLists>,
    len: u32,
}

#[derive(Debug, Default)]
struct LevelLists {
    level: u32,
    on_time: List,
    late: List,
}

impl LevelLists {
    fn list(&mut self, late: bool) -> &mut List {
        if late { &mut self.late } else { &mut self.on_time }
    }

    fn len(&self) -> u32 {
        self.on_time.len() + self.late.len()
    }
}

impl LevelQueue {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Entries of one level.
    pub(crate) fn len_of(&self, level: u32) -> u32 {
        self.levels.iter().find(|lists| lists.level == level).map_or(0, LevelLists::len)
    }

    pub(crate) fn front(&self) -> Option<u32> {
        self.levels.iter().find_map(|lists| lists.on_time.front().or(lists.late.front()))
    }

    /// The entries, first to last.
    pub(crate) fn iter<'a>(&'a self, links: &'a Links) -> impl Iterator<Item = u32> + use<'a> {
        self.levels.iter().flat_map(|lists| links.iter(&lists.on_time).chain(links.iter(&lists.late)))
    }

    pub(crate) fn push(&mut self, links: &mut Links, place: QueuePlace, ix: u32) {
        let level = if fault(Planted::LevelIgnored) { 0 } else { place.level };
        let at = self.levels.partition_point(|lists| lists.level < level);
        if self.levels.get(at).is_none_or(|lists| lists.level != level) {
            self.levels.insert(at, LevelLists { level, ..LevelLists::default() });
        }
        if let Some(lists) = self.levels.get_mut(at) {
            links.push_back(lists.list(place.late), ix);
            self.len += 1;
        }
    }

    /// Removes an entry, which must stand at this place.
    pub(crate) fn remove(&mut self, links: &mut Links, place: QueuePlace, ix: u32) {
        let level = if fault(Planted::LevelIgnored) { 0 } else { place.level };
        let Some(at) = self.levels.iter().position(|lists| lists.level == level) else { return };
        let Some(lists) = self.levels.get_mut(at) else { return };
        links.remove(lists.list(place.late), ix);
        self.len = self.len.saturating_sub(1);
        // The last level stays, so that a queue of one level allocates nothing in use.
        if lists.len() == 0 && self.levels.len() > 1 {
            self.levels.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The queue equals a list sorted by level, lateness and arrival.
        #[test]
        fn level_queue_entries_are_ordered_by_level_lateness_and_arrival(steps in proptest::collection::vec((any::<bool>(), 0u32..12, 0u32..3, any::<bool>()), 0..200)) {
            let (mut links, mut queue) = (Links::default(), LevelQueue::default());
            let mut model: Vec<(u32, bool, usize, u32)> = Vec::new();
            for (turn, (push, ix, level, late)) in steps.into_iter().enumerate() {
                let stands = model.iter().position(|entry| entry.3 == ix);
                match stands {
                    None if push => {
                        queue.push(&mut links, QueuePlace { level, late }, ix);
                        model.push((level, late, turn, ix));
                        model.sort_unstable();
                    }
                    Some(at) if !push => {
                        let (level, late, ..) = model.remove(at);
                        queue.remove(&mut links, QueuePlace { level, late }, ix);
                    }
                    _ => {}
                }
                let order: Vec<u32> = model.iter().map(|entry| entry.3).collect();
                prop_assert_eq!(queue.iter(&links).collect::<Vec<_>>(), order.clone());
                prop_assert_eq!(queue.front(), order.first().copied());
                prop_assert_eq!((queue.len() as usize, queue.is_empty()), (order.len(), order.is_empty()));
                let of_level = model.iter().filter(|entry| entry.0 == level).count();
                prop_assert_eq!(queue.len_of(level) as usize, of_level);
            }
        }
    }
}
