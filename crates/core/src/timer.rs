//! Deadlines, lazily: one armed time for each thing that has one. An entry that was overtaken, or whose owner is over, is void. It is dropped when it
//! comes up, or with all others that are void once there are too many of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{LoadId, Req, Seq};
use crate::time::Time;

/// Entries that there may be beside two for each owner.
pub(crate) const VOID: usize = 64;

/// Whose deadline it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Due {
    Seq(Seq),
    Req(Req),
    Load(LoadId),
}

/// The deadlines of everything, soonest first. Owners remember the time they are armed for; an entry with another time is void.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Time, Due)>>);

impl Timers {
    /// Arms `due` for `at`, unless it is armed for no later than that already. `armed` is the owner's memory of it.
    pub(crate) fn arm(&mut self, armed: &mut Time, at: Time, due: Due) {
        if at < *armed {
            *armed = at;
            self.0.push(Reverse((at, due)));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the soonest entry that has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, Due)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// Drops every entry but one of each owner that `armed` says is armed for that very time.
    pub(crate) fn keep(&mut self, armed: impl Fn(Due) -> Option<Time>) {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        entries.retain(|Reverse((at, due))| armed(*due) == Some(*at));
        entries.sort_unstable();
        entries.dedup();
        self.0 = entries.into();
    }

    /// Entries, void ones included.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
