//! What happened to a load, on its way to the guests that are to be told of it. Threads bring it out of order; guests are told in order, and
//! two of them may read at once while one takes the other's place.

use std::collections::BTreeMap;

use sequor_core::Observed;

use super::guest::Events;

/// Kept at most; whoever is that far behind starts anew.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Pieces by the serial number of their first.
    pieces: BTreeMap<u64, Vec<Observed>>,
    kept: usize,
    /// Somebody who comes later wants everything from now on.
    holds: bool,
    /// Something is missing for good.
    lost: bool,
}

impl Inbox {
    pub(super) fn put(&mut self, first: u64, news: Vec<Observed>, lost: bool) {
        self.lost |= lost;
        if news.is_empty() {
            return;
        }
        self.kept += news.len();
        self.pieces.insert(first, news);
        if self.kept > MOST {
            self.pieces.clear();
            self.kept = 0;
            self.lost = true;
        }
    }

    /// Whether something is missing for good; asked once.
    pub(super) fn take_lost(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// From now on nothing is thrown away, until [`Inbox::let_go`].
    pub(super) fn hold(&mut self) {
        self.holds = true;
        self.lost = false;
    }

    pub(super) fn let_go(&mut self) {
        self.holds = false;
    }

    /// Appends at most about `most` of what came next, from this serial number on; the number after the last that is there.
    pub(super) fn read(&mut self, next: u64, keys: usize, most: usize, into: &mut Events) -> u64 {
        let mut at = next;
        while into.len() < most {
            let Some((first, piece)) = self.pieces.range(..=at).next_back() else { break };
            let skip = usize::try_from(at - first).unwrap_or(usize::MAX);
            let Some(rest) = piece.get(skip..).filter(|rest| !rest.is_empty()) else { break };
            rest.iter().for_each(|one| into.add(one, keys));
            at += rest.len() as u64;
        }
        if !self.holds {
            self.forget(at);
        }
        at
    }

    /// Throws away what was told.
    fn forget(&mut self, before: u64) {
        while let Some(piece) = self.pieces.first_entry() {
            if piece.key() + piece.get().len() as u64 > before {
                break;
            }
            self.kept -= piece.remove().len();
        }
    }

    /// Throws away everything: nobody is to be told of it.
    pub(super) fn clear(&mut self) {
        if !self.holds {
            self.pieces.clear();
            self.kept = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sequor_core::What;

    fn news(from: u64, n: u64) -> Vec<Observed> {
        (from..from + n).map(|seq| Observed { seq, what: What::Done { rows: 1 }, keys: [9; 4] }).collect()
    }

    fn read(inbox: &mut Inbox, next: u64) -> (u64, Vec<u64>) {
        let mut events = Events::default();
        let next = inbox.read(next, 1, 100, &mut events);
        assert_eq!(events.keys.len(), events.len());
        (next, events.sequence)
    }

    #[test]
    fn pieces_out_of_order_are_told_in_order_and_once() {
        let mut inbox = Inbox::default();
        inbox.put(12, news(12, 2), false);
        assert_eq!(read(&mut inbox, 10), (10, vec![]));
        inbox.put(10, news(10, 2), false);
        assert_eq!(read(&mut inbox, 10), (14, vec![10, 11, 12, 13]));
        assert_eq!((read(&mut inbox, 14), inbox.kept), ((14, vec![]), 0));
    }

    #[test]
    fn who_takes_a_place_reads_what_the_other_has_read() {
        let mut inbox = Inbox::default();
        inbox.hold();
        inbox.put(0, news(0, 4), false);
        assert_eq!(read(&mut inbox, 0).0, 4);
        assert_eq!(read(&mut inbox, 2), (4, vec![2, 3]));
        inbox.let_go();
        read(&mut inbox, 4);
        assert_eq!(inbox.kept, 0);
    }

    #[test]
    fn it_is_bounded_and_says_so() {
        let mut inbox = Inbox::default();
        inbox.put(0, news(0, 1), false);
        assert!(!inbox.take_lost());
        inbox.put(1, news(1, MOST as u64), false);
        assert_eq!((inbox.take_lost(), inbox.take_lost(), inbox.kept), (true, false, 0));
    }
}
