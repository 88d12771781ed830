//! The live sequences of a load, read in portions, so that no read locks the core for long. Sequences begin and end between portions. The
//! portions and the events since then equal one read at the end of the last portion. A portion is valid for its own instant. A new guest
//! then gets only the events that its portion does not show yet.

use std::collections::HashMap;

use crate::core::Core;
use crate::faults::{Planted, fault};
use crate::ids::LoadId;
use crate::observe::began;
use crate::observed::{Observed, ObservedKind};

/// One portion of the live sequences.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Portion {
    /// One [`ObservedKind::Began`] each, with the sequence's birth number; later is higher. Not sorted, because the core's lock is held.
    pub began: Vec<(u64, Observed)>,
    /// The serial number of the next event.
    pub next: u64,
    /// The place of the next portion, if there is one.
    pub more: Option<u32>,
}

/// The portions so far. The load must keep its events from before the first portion.
#[derive(Debug, Default)]
pub struct Roster {
    began: Vec<(u64, Observed)>,
    /// Handles of sequences, each with the serial number as of which it is shown.
    since: HashMap<u64, u64>,
    /// The serial numbers of the next event after the first portion and after the last.
    span: Option<(u64, u64)>,
    place: Option<u32>,
}

impl Core {
    /// The live sequences of a load, from this place of the table on. It reads as many places as `room` has capacity, because nothing may
    /// be allocated while the core is locked.
    pub fn live(&self, load: LoadId, from: u32, mut room: Vec<(u64, Observed)>) -> Portion {
        room.clear();
        let until = from.saturating_add(u32::try_from(room.capacity()).unwrap_or(u32::MAX).max(1));
        for (seq, s) in self.seqs.range(from, until) {
            if s.load == load && s.announced {
                room.push((s.born, began(seq, s.step, s.keys)));
            }
        }
        let more = (until < self.seqs.places()).then_some(until);
        Portion { began: room, next: self.next_observed(load), more }
    }
}

impl Roster {
    /// The place of the next portion; `None` after the last.
    pub fn place(&self) -> Option<u32> {
        if self.span.is_none() { Some(0) } else { self.place }
    }

    /// Adds a portion and returns its memory.
    pub fn add(&mut self, portion: Portion) -> Vec<(u64, Observed)> {
        let (first, _) = self.span.unwrap_or((portion.next, 0));
        self.span = Some((first, portion.next));
        self.place = portion.more;
        self.since.extend(portion.began.iter().map(|(_, one)| (one.seq, portion.next)));
        self.began.extend(&portion.began);
        portion.began
    }

    /// The serial number of the first event that may be news; [`Roster::is_news`] decides about each.
    pub fn first(&self) -> u64 {
        self.span.map_or(0, |(first, _)| first)
    }

    /// The serial number from which on every event is news.
    pub fn until(&self) -> u64 {
        self.span.map_or(0, |(_, until)| until)
    }

    /// Takes the sequences that were live, oldest first.
    pub fn take_in_order(&mut self) -> Vec<Observed> {
        self.began.sort_unstable_by_key(|(born, _)| *born);
        std::mem::take(&mut self.began).into_iter().map(|(_, one)| one).collect()
    }

    /// Whether a new guest that has the list of live sequences needs this event. Call it with the events in order.
    pub fn is_news(&mut self, serial: u64, one: &Observed) -> bool {
        if serial >= self.until() || one.seq == 0 {
            return true;
        }
        match self.since.get(&one.seq) {
            Some(since) => serial >= *since || fault(Planted::NewcomerToldTwice),
            // The sequence began and ended between two portions, or ended before its portion. The latter was not reported.
            None => {
                let begins = matches!(one.what, ObservedKind::Began { .. });
                if begins {
                    self.since.insert(one.seq, serial);
                }
                begins
            }
        }
    }
}
