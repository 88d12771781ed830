//! Who lives on a load, looked up in portions so that no look holds the core for long, while sequences come and go between two of them. Together
//! with what happened meanwhile it comes to what a single look at the end of the last portion would have shown: each portion is worth what its
//! own instant is, and of what happened, a new guest gets what its portion does not show already.

use std::collections::HashMap;

use crate::core::Core;
use crate::faults::{Planted, fault};
use crate::ids::LoadId;
use crate::observe::began;
use crate::observed::{Observed, ObservedKind};

/// What one look shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Portion {
    /// One [`ObservedKind::Began`] each, behind a number that is higher the later it began. In no order: the core's lock is not held for sorting.
    pub began: Vec<(u64, Observed)>,
    /// The serial number of the next thing that happens.
    pub next: u64,
    /// The place to go on from, if there is more.
    pub more: Option<u32>,
}

/// The portions so far. Events are to be kept from before the first of them.
#[derive(Debug, Default)]
pub struct Roster {
    began: Vec<(u64, Observed)>,
    /// Sequences and the serial number as of which they are shown.
    since: HashMap<u64, u64>,
    /// The serial numbers of what happened next after the first portion and after the last.
    span: Option<(u64, u64)>,
    place: Option<u32>,
}

impl Core {
    /// Who lives on a load, from this place of the table on. As many places are looked at as there is room, which the caller makes: nothing is
    /// allocated while the core is held.
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
    /// Where the next portion begins; `None`: that was the last.
    pub fn place(&self) -> Option<u32> {
        if self.span.is_none() { Some(0) } else { self.place }
    }

    /// Takes the next portion, and gives back its room.
    pub fn add(&mut self, portion: Portion) -> Vec<(u64, Observed)> {
        let (first, _) = self.span.unwrap_or((portion.next, 0));
        self.span = Some((first, portion.next));
        self.place = portion.more;
        self.since.extend(portion.began.iter().map(|(_, one)| (one.seq, portion.next)));
        self.began.extend(&portion.began);
        portion.began
    }

    /// The serial number from which on events are to be told, as far as [`Roster::is_news`].
    pub fn first(&self) -> u64 {
        self.span.map_or(0, |(first, _)| first)
    }

    /// The serial number from which on everything is news.
    pub fn until(&self) -> u64 {
        self.span.map_or(0, |(_, until)| until)
    }

    /// Those who lived, oldest first. They are taken out.
    pub fn take_in_order(&mut self) -> Vec<Observed> {
        self.began.sort_unstable_by_key(|(born, _)| *born);
        std::mem::take(&mut self.began).into_iter().map(|(_, one)| one).collect()
    }

    /// Whether a newcomer who was told who lives is to be told this. Events are to be asked about in their order.
    pub fn is_news(&mut self, serial: u64, one: &Observed) -> bool {
        if serial >= self.until() || one.seq == 0 {
            return true;
        }
        match self.since.get(&one.seq) {
            Some(since) => serial >= *since || fault(Planted::NewcomerToldTwice),
            // It came and was gone between two portions, or was gone before its own; the latter was not reported.
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
