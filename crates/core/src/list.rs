//! Doubly linked lists over table indices: ordered without allocation, with removal from the middle in constant time. An index is in at
//! most one of the lists that share a [`Links`].

const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// The neighbours of every index, shared by all lists over one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Vec<Link>);

/// One list: its ends and its length.
#[derive(Clone, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        List { head: NIL, tail: NIL, len: 0 }
    }
}

impl List {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }
}

impl Links {
    pub(crate) fn push_back(&mut self, list: &mut List, ix: u32) {
        if self.0.len() <= ix as usize {
            self.0.resize(ix as usize + 1, Link { prev: NIL, next: NIL });
        }
        self.set(ix, Link { prev: list.tail, next: NIL });
        match self.0.get_mut(list.tail as usize) {
            Some(last) => last.next = ix,
            None => list.head = ix,
        }
        list.tail = ix;
        list.len += 1;
    }

    pub(crate) fn push_front(&mut self, list: &mut List, ix: u32) {
        if self.0.len() <= ix as usize {
            self.0.resize(ix as usize + 1, Link { prev: NIL, next: NIL });
        }
        self.set(ix, Link { prev: NIL, next: list.head });
        match self.0.get_mut(list.head as usize) {
            Some(first) => first.prev = ix,
            None => list.tail = ix,
        }
        list.head = ix;
        list.len += 1;
    }

    /// Removes `ix` from `list`, which must contain it.
    pub(crate) fn remove(&mut self, list: &mut List, ix: u32) {
        let Some(Link { prev, next }) = self.0.get(ix as usize).copied() else { return };
        match self.0.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => list.head = next,
        }
        match self.0.get_mut(next as usize) {
            Some(after) => after.prev = prev,
            None => list.tail = prev,
        }
        list.len = list.len.saturating_sub(1);
        self.set(ix, Link { prev: NIL, next: NIL });
    }

    pub(crate) fn pop_front(&mut self, list: &mut List) -> Option<u32> {
        let ix = list.front()?;
        self.remove(list, ix);
        Some(ix)
    }

    /// The index behind `ix` in its list.
    pub(crate) fn after(&self, ix: u32) -> Option<u32> {
        self.0.get(ix as usize).map(|link| link.next).filter(|next| *next != NIL)
    }

    /// The indices of `list`, front to back.
    pub(crate) fn iter<'a>(&'a self, list: &List) -> impl Iterator<Item = u32> + use<'a> {
        let mut at = list.head;
        std::iter::from_fn(move || {
            let ix = (at != NIL).then_some(at)?;
            at = self.0.get(ix as usize).map_or(NIL, |link| link.next);
            Some(ix)
        })
    }

    fn set(&mut self, ix: u32, link: Link) {
        if let Some(place) = self.0.get_mut(ix as usize) {
            *place = link;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Two lists over one table behave as two queues.
        #[test]
        fn two_lists_over_one_table_behave_as_two_queues(steps in proptest::collection::vec((0u8..4, 0u32..12, any::<bool>()), 0..200)) {
            let mut links = Links::default();
            let mut lists = [List::default(), List::default()];
            let mut model: [VecDeque<u32>; 2] = Default::default();
            for (what, ix, second) in steps {
                let which = usize::from(second);
                let stands = model.iter().any(|q| q.contains(&ix));
                match what {
                    0 if !stands => { links.push_back(&mut lists[which], ix); model[which].push_back(ix); }
                    3 if !stands => { links.push_front(&mut lists[which], ix); model[which].push_front(ix); }
                    1 => prop_assert_eq!(links.pop_front(&mut lists[which]), model[which].pop_front()),
                    2 if model[which].contains(&ix) => {
                        links.remove(&mut lists[which], ix);
                        model[which].retain(|x| *x != ix);
                    }
                    _ => {}
                }
                for n in 0..2 {
                    prop_assert_eq!(links.iter(&lists[n]).collect::<Vec<_>>(), Vec::from(model[n].clone()));
                    prop_assert_eq!(lists[n].len() as usize, model[n].len());
                    prop_assert_eq!(lists[n].front(), model[n].front().copied());
                }
            }
        }
    }
}
