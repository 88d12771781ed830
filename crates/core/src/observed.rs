//! Events for a policy that observes. They are self-contained, because their sequence may be gone when they are read. Each has a serial
//! number of its load. A policy that is attached later gets the live sequences first, and then each later event once.

use std::time::Duration;

use crate::ending::EndReason;
use crate::request_meta::FEATURES;

/// Maximum number of events kept between two rounds. Beyond it the policy learns that some were lost ([`crate::Round::lost`]).
const MOST: usize = 4096;
/// From this many events on, the policy should get them without waiting for a question.
pub(crate) const MANY: usize = MOST / 4;

/// Something that happened to a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observed {
    /// The handle of the sequence ([`crate::Seq::handle`]); 0 for a request without one.
    pub seq: u64,
    pub what: ObservedKind,
    /// Key features of the request that ran or failed, or of the one that began the sequence (`Began`, `Ended`). Zeros in other events.
    pub keys: [u64; FEATURES],
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ObservedKind {
    /// A sequence began, or started again; `steps` of it are committed.
    Began { steps: u64 },
    /// It got a slot.
    Slotted { waited: Duration },
    /// A request ran, and its state is committed.
    Done { rows: u32 },
    /// A request ran and failed, or its state could not be kept.
    Failed { rows: u32 },
    /// A sequence ended.
    Ended(EndReason),
    /// A batch ran for this long. The events of its requests follow.
    BatchRan { took: Duration },
}

/// The events that a load keeps for its policy.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    kept: Vec<Observed>,
    /// The serial number of the next event.
    next: u64,
    /// Whether events before the kept ones were dropped.
    lost: bool,
}

impl EventLog {
    pub(crate) fn add(&mut self, one: Observed) {
        if self.kept.len() >= MOST {
            // With one missing the others are of no use: the reader must list the live sequences again.
            self.kept.clear();
            self.lost = true;
        }
        self.kept.push(one);
        self.next += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The serial number of the next event.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The kept events: the serial number of the first, the events, and whether earlier ones were dropped.
    pub(crate) fn take(&mut self) -> (u64, Vec<Observed>, bool) {
        let first = self.next - self.kept.len() as u64;
        (first, std::mem::take(&mut self.kept), std::mem::take(&mut self.lost))
    }

    pub(crate) fn forget(&mut self) {
        self.kept.clear();
        self.lost = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Seq;

    #[test]
    fn a_full_event_log_drops_its_events_and_continues_their_numbering() {
        let mut log = EventLog::default();
        let one = Observed { seq: 1, what: ObservedKind::Done { rows: 1 }, keys: [0; FEATURES] };
        (0..MOST + 10).for_each(|_| log.add(one));
        let (first, kept, lost) = log.take();
        assert_eq!((first, kept.len(), lost), (MOST as u64, 10, true));
        log.add(one);
        assert_eq!(log.take().0, MOST as u64 + 10);
    }

    #[test]
    fn a_handle_leads_back_to_its_sequence() {
        let seq = Seq::new(7, std::num::NonZeroU32::new(3).unwrap());
        assert_eq!(Seq::of_handle(seq.handle()), Some(seq));
        assert_eq!(Seq::of_handle(0), None);
    }
}
