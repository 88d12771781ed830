//! Deadlines, lazily: one armed time for each thing that has one. An entry that was overtaken is dropped when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{LoadId, Req, Seq};
use crate::time::Time;

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

    /// Entries, void ones included.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
