//! The event feed of one load. Threads append events out of order. Each guest reads them in order and once. During a replacement two guests
//! read at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;
use sequor_core::{Observed, Roster};

use super::guest::Events;

/// Maximum events kept. A guest that has not read more events than this is replaced by a new one.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Pieces of the feed, by the serial number of their first event.
    pieces: BTreeMap<u64, Vec<Observed>>,
    kept: usize,
    /// All readers. Events that all of them have read are dropped.
    readers: BTreeMap<u64, InboxCursor>,
    next_reader: u64,
    /// How often events were lost for good.
    losses: u64,
}

#[derive(Debug, Default)]
struct InboxCursor {
    /// The serial number of its next event.
    next: u64,
    /// The live sequences that a new guest was shown. Present until the guest has read all events of that time.
    roster: Option<Roster>,
}

/// A place in the event feed.
#[derive(Debug)]
pub(super) struct Reader {
    inbox: Arc<Mutex<Inbox>>,
    number: u64,
    /// Number of losses before this reader.
    losses: u64,
}

impl Reader {
    pub(super) fn new(inbox: &Arc<Mutex<Inbox>>) -> Reader {
        let (number, losses) = inbox.lock().enter();
        Reader { inbox: Arc::clone(inbox), number, losses }
    }

    /// Lets the reader continue with the events that the roster does not include.
    pub(super) fn goes_on_from(&self, roster: Roster) {
        self.inbox.lock().goes_on_from(self.number, roster);
    }

    /// Appends at most about `most` of the next events.
    pub(super) fn read(&self, keys: usize, most: usize, into: &mut Events) {
        self.inbox.lock().read(self.number, keys, most, into);
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.inbox.lock().leave(self.number);
    }
}

impl InboxCursor {
    /// Whether the guest must observe this event, which is the next one.
    fn passes(&mut self, one: &Observed) -> bool {
        let serial = self.next;
        self.next += 1;
        if self.roster.as_ref().is_some_and(|roster| serial >= roster.until()) {
            self.roster = None;
        }
        self.roster.as_mut().is_none_or(|roster| roster.is_news(serial, one))
    }
}

impl Inbox {
    /// Appends events. `lost`: an event before them is missing for good. Returns the number of losses.
    pub(super) fn append(&mut self, first: u64, news: Vec<Observed>, lost: bool) -> u64 {
        self.losses += u64::from(lost);
        if news.is_empty() || self.readers.is_empty() {
            return self.losses;
        }
        self.kept += news.len();
        self.pieces.insert(first, news);
        if self.kept > MOST {
            self.pieces.clear();
            self.kept = 0;
            self.losses += 1;
        }
        self.losses
    }

    /// Adds a reader: from now on no event is dropped before it has read it. Returns its number and the number of losses so far.
    pub(super) fn enter(&mut self) -> (u64, u64) {
        let reader = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(reader, InboxCursor::default());
        (reader, self.losses)
    }

    pub(super) fn leave(&mut self, reader: u64) {
        self.readers.remove(&reader);
        self.forget();
    }

    /// Lets a reader that has the live sequences continue with the events that they do not include.
    pub(super) fn goes_on_from(&mut self, reader: u64, roster: Roster) {
        if let Some(place) = self.readers.get_mut(&reader) {
            *place = InboxCursor { next: roster.first(), roster: Some(roster) };
        }
    }

    /// Appends at most about `most` of this reader's next events.
    pub(super) fn read(&mut self, reader: u64, keys: usize, most: usize, into: &mut Events) {
        let Some(place) = self.readers.get_mut(&reader) else { return };
        while into.len() < most {
            let Some((first, piece)) = self.pieces.range(..=place.next).next_back() else { break };
            let skip = usize::try_from(place.next - first).unwrap_or(usize::MAX);
            let Some(rest) = piece.get(skip..).filter(|rest| !rest.is_empty()) else { break };
            rest.iter().filter(|one| place.passes(one)).for_each(|one| into.add(one, keys));
        }
        self.forget();
    }

    /// Drops the events that all readers have read. Without readers, drops everything.
    fn forget(&mut self) {
        let before = self.readers.values().map(|place| place.next).min().unwrap_or(u64::MAX);
        while let Some(piece) = self.pieces.first_entry() {
            if piece.key().saturating_add(piece.get().len() as u64) > before {
                break;
            }
            self.kept -= piece.remove().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sequor_core::{ObservedKind, Portion};

    fn news(from: u64, n: u64) -> Vec<Observed> {
        (from..from + n).map(|seq| Observed { seq, what: ObservedKind::Done { rows: 1 }, keys: [9; 4] }).collect()
    }

    /// The roster of a guest for which no sequence lives, as of this serial number.
    fn from(next: u64) -> Roster {
        let mut roster = Roster::default();
        roster.add(Portion { next, ..Portion::default() });
        roster
    }

    fn read(inbox: &mut Inbox, reader: u64) -> Vec<u64> {
        let mut events = Events::default();
        inbox.read(reader, 1, 100, &mut events);
        assert_eq!(events.keys.len(), events.len());
        events.sequence
    }

    #[test]
    fn event_pieces_out_of_order_are_delivered_in_order_and_once() {
        let mut inbox = Inbox::default();
        let (one, _) = inbox.enter();
        inbox.goes_on_from(one, from(10));
        inbox.append(12, news(12, 2), false);
        assert!(read(&mut inbox, one).is_empty());
        inbox.append(10, news(10, 2), false);
        assert_eq!(read(&mut inbox, one), [10, 11, 12, 13]);
        assert_eq!((read(&mut inbox, one).len(), inbox.kept), (0, 0));
    }

    #[test]
    fn a_successor_reads_events_that_its_predecessor_has_read() {
        let mut inbox = Inbox::default();
        let ((old, _), (new, _)) = (inbox.enter(), inbox.enter());
        inbox.append(0, news(0, 4), false);
        assert_eq!(read(&mut inbox, old), [0, 1, 2, 3]);
        inbox.goes_on_from(new, from(2));
        assert_eq!(read(&mut inbox, new), [2, 3]);
        assert_eq!(inbox.kept, 0);
        inbox.append(4, news(4, 2), false);
        inbox.leave(old);
        assert_eq!((inbox.kept, read(&mut inbox, new)), (2, vec![4, 5]));
    }

    #[test]
    fn a_new_reader_gets_only_events_that_its_roster_did_not_contain() {
        let began = |seq| (seq, Observed { seq, what: ObservedKind::Began { steps: 0 }, keys: [0; 4] });
        let mut roster = Roster::default();
        roster.add(Portion { began: vec![began(1)], next: 2, more: Some(256) });
        roster.add(Portion { began: vec![began(7)], next: 5, more: None });
        assert_eq!(roster.take_in_order().len(), 2);
        let mut inbox = Inbox::default();
        let (one, _) = inbox.enter();
        inbox.append(2, [1, 7, 9].map(|seq| news(seq, 1)).concat(), false);
        inbox.goes_on_from(one, roster);
        inbox.append(5, [7, 9].map(|seq| news(seq, 1)).concat(), false);
        assert_eq!(read(&mut inbox, one), [1, 7, 9], "the run of 7 was in the roster, and 9 was not");
        assert!(inbox.readers[&one].roster.is_none(), "it has read all events of that time");
    }

    #[test]
    fn events_are_not_kept_without_a_reader() {
        let mut inbox = Inbox::default();
        inbox.append(0, news(0, 4), false);
        let (one, _) = inbox.enter();
        inbox.append(4, news(4, 4), false);
        assert_eq!(inbox.kept, 4);
        inbox.leave(one);
        assert_eq!(inbox.kept, 0);
    }

    #[test]
    fn the_inbox_is_bounded_and_reports_its_losses() {
        let mut inbox = Inbox::default();
        let (_, losses) = inbox.enter();
        assert_eq!((losses, inbox.append(0, news(0, 1), false)), (0, 0));
        assert_eq!((inbox.append(1, news(1, MOST as u64), false), inbox.kept), (1, 0));
        assert_eq!(
            (inbox.append(9, Vec::new(), true), inbox.enter().1),
            (2, 2),
            "what was lost before is nothing to who comes"
        );
    }
}
