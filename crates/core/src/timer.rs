//! Lazy deadlines: each owner remembers one armed time. An entry is void if its owner has another armed time or is over. It is dropped when
//! its time comes, or together with all void ones once there are too many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{LoadId, Req, Seq};
use crate::time::Time;

/// Number of entries allowed in addition to two for each owner.
pub(crate) const VOID: usize = 64;

/// The owner of a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Due {
    Seq(Seq),
    Req(Req),
    Load(LoadId),
}

/// The deadlines of all owners, soonest first. An owner remembers the time it is armed for; an entry with another time is void.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Time, Due)>>);

impl Timers {
    /// Arms `due` for `at`, unless it is armed for that time or an earlier one. `armed` is the owner's record of it.
    pub(crate) fn arm(&mut self, armed: &mut Time, at: Time, due: Due) {
        if at < *armed {
            *armed = at;
            self.0.push(Reverse((at, due)));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the soonest entry whose time has come.
    pub(crate) fn pop(&mut self, now: Time) -> Option<(Time, Due)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > now {
            return None;
        }
        self.0.pop().map(|Reverse(entry)| entry)
    }

    /// Keeps one entry of each owner, with the time that `armed` returns for it, and drops the others.
    pub(crate) fn keep(&mut self, armed: impl Fn(Due) -> Option<Time>) {
        let mut entries = std::mem::take(&mut self.0).into_vec();
        entries.retain(|Reverse((at, due))| armed(*due) == Some(*at));
        entries.sort_unstable();
        entries.dedup();
        self.0 = entries.into();
    }

    /// Entries, including void ones.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
