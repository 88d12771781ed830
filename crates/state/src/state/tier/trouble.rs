//! Whether the last attempt to write to the store failed, for operators.

use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::contract::TierUsage;
use super::error::TierError;

/// Minimum time between two reports of outages. Failures that follow sooner belong to the same outage.
const CALM: Duration = Duration::from_secs(10);

/// The store fails to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTrouble {
    pub since: SystemTime,
    /// The latest error.
    pub error: TierError,
    /// Changes that are tried again later.
    pub waiting: usize,
}

impl StoreTrouble {
    /// The sentence for operators. `setting` names the store.
    pub fn warning(&self, setting: &str) -> String {
        let StoreTrouble { since, error, waiting } = self;
        let what = match error {
            TierError::Io { what, .. } => what.clone(),
            other => other.to_string(),
        };
        let at = humantime::format_rfc3339_seconds(*since).to_string();
        let at = at.get(11..19).unwrap_or(&at);
        format!("{setting}: {what} since {at}; {waiting} changes wait, models with when = \"step\" refuse")
    }
}

/// A time in which writes failed, from the first failure until everything that waited is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoreOutage {
    began: Instant,
    /// When the store first wrote again.
    ended: Option<Instant>,
    /// States that were not stored. They are not written later.
    pub(super) unstored: u64,
    /// The most changes that waited to be tried again.
    pub(super) waited: usize,
}

impl StoreOutage {
    /// How long the store could not write.
    pub(super) fn length(&self) -> Duration {
        self.ended.map_or(Duration::ZERO, |ended| ended.saturating_duration_since(self.began))
    }
}

#[derive(Debug, Default)]
struct WriteHealth {
    trouble: Option<StoreTrouble>,
    /// The size of the largest state that the limit has refused in the present trouble.
    refused: u64,
    outage: Option<StoreOutage>,
    /// When the end of the last outage was reported.
    reported: Option<Instant>,
}

/// The present trouble, if there is one. Set by the writer's thread.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<WriteHealth>);

impl StoreHealth {
    /// Notes the outcome of an attempt to write a state (`has_state`) or to remove some, and the usage after it. An error that is about one
    /// state, and not about the store, is no trouble. A store at its limit still removes, and may have room for small states. So its trouble
    /// lasts until it has room for the largest one that it refused. One above the limit never fits: then any written state ends the trouble.
    pub(super) fn note(&self, outcome: Result<(), &TierError>, has_state: bool, usage: TierUsage, now: Instant) {
        let mut held = self.0.lock();
        let WriteHealth { trouble, refused, outage, .. } = &mut *held;
        match outcome {
            Ok(()) => {
                let is_full = usage.limit.checked_sub(*refused).map_or(!has_state, |most| usage.bytes > most);
                *trouble = trouble.take().filter(|of| matches!(of.error, TierError::Full { .. }) && is_full);
                if trouble.is_none() {
                    *refused = 0;
                }
                if let (None, Some(outage)) = (trouble, outage) {
                    outage.ended.get_or_insert(now);
                }
            }
            Err(TierError::Fenced | TierError::Checksum { .. } | TierError::Closed) => {}
            Err(error) => {
                if let TierError::Full { needed, .. } = error {
                    *refused = (*needed).max(*refused);
                }
                let (since, waiting) = trouble.as_ref().map_or((SystemTime::now(), 0), |of| (of.since, of.waiting));
                *trouble = Some(StoreTrouble { since, error: error.clone(), waiting });
                let begins = StoreOutage { began: now, ended: None, unstored: 0, waited: 0 };
                outage.get_or_insert(begins).ended = None;
            }
        }
    }

    /// Notes states that were not stored.
    pub(super) fn unstored(&self, states: u64) {
        if let Some(outage) = self.0.lock().outage.as_mut() {
            outage.unstored += states;
        }
    }

    /// Notes the number of changes that are tried again later.
    pub(super) fn waits(&self, changes: usize) {
        let mut held = self.0.lock();
        if let Some(trouble) = held.trouble.as_mut() {
            trouble.waiting = changes;
        }
        if let Some(outage) = held.outage.as_mut() {
            outage.waited = outage.waited.max(changes);
        }
    }

    /// The outage that is over, once nothing waits any more. Each is returned once, and at most one in ten seconds.
    pub(super) fn caught_up(&self, waiting: usize, now: Instant) -> Option<StoreOutage> {
        let mut held = self.0.lock();
        let is_over = waiting == 0 && held.outage.as_ref().is_some_and(|outage| outage.ended.is_some());
        let is_calm = held.reported.is_none_or(|at| now.saturating_duration_since(at) >= CALM);
        if !is_over || !is_calm {
            return None;
        }
        held.reported = Some(now);
        held.outage.take()
    }

    pub(super) fn trouble(&self) -> Option<StoreTrouble> {
        self.0.lock().trouble.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: TierUsage = TierUsage { states: 0, bytes: 0, limit: 100 };

    #[test]
    fn a_trouble_begins_with_the_first_failure_and_ends_with_a_success() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        health.note(Err(&TierError::Fenced), true, EMPTY, now);
        assert_eq!(health.trouble(), None, "the store works");
        health.note(Err(&TierError::io("st".to_owned(), &"full")), true, EMPTY, now);
        let first = health.trouble().unwrap();
        health.waits(639);
        health.note(Err(&TierError::io("st".to_owned(), &"still full")), true, EMPTY, now);
        let then = health.trouble().unwrap();
        assert_eq!((then.since, then.waiting), (first.since, 639));
        assert_eq!(then.error.to_string(), "st: still full");
        let at_noon = StoreTrouble { since: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(43_200), ..then };
        let expected = "state.dir: still full since 12:00:00; 639 changes wait, models with when = \"step\" refuse";
        assert_eq!(at_noon.warning("state.dir"), expected);
        health.note(Ok(()), true, EMPTY, now);
        assert_eq!(health.trouble(), None);
    }

    #[test]
    fn a_store_at_its_limit_has_room_again_once_the_largest_refused_state_fits() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        let used = |bytes| TierUsage { states: 1, bytes, limit: 100 };
        let refuse = |needed| health.note(Err(&TierError::Full { needed, used: 80, limit: 100 }), true, used(80), now);
        refuse(30);
        refuse(25);
        health.note(Ok(()), true, used(75), now);
        assert!(health.trouble().is_some(), "a state of 25 bytes fits, one of 30 does not");
        assert_eq!(health.caught_up(0, now), None);
        health.note(Ok(()), true, used(70), now);
        assert_eq!(health.trouble(), None);
        assert!(health.caught_up(0, now).is_some());
        refuse(25);
        health.note(Ok(()), true, used(75), now);
        assert_eq!(health.trouble(), None, "the states that an earlier trouble refused do not count");
        refuse(101);
        health.note(Ok(()), false, used(0), now);
        assert!(health.trouble().is_some(), "such a state never fits, and a removal shows nothing");
        health.note(Ok(()), true, used(90), now);
        assert_eq!(health.trouble(), None, "others fit");
    }

    #[test]
    fn an_outage_is_reported_once_everything_is_written() {
        let (health, start) = (StoreHealth::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let full = TierError::io("st".to_owned(), &"full");
        health.note(Ok(()), true, EMPTY, at(0));
        health.unstored(3);
        assert_eq!(health.caught_up(0, at(0)), None, "there was none");
        health.note(Err(&full), true, EMPTY, at(1));
        health.unstored(3);
        health.waits(2);
        assert_eq!(health.caught_up(0, at(2)), None, "it lasts");
        health.note(Err(&full), true, EMPTY, at(3));
        health.unstored(1);
        health.note(Ok(()), true, EMPTY, at(61));
        assert_eq!(health.caught_up(2, at(62)), None, "changes wait");
        let outage = health.caught_up(0, at(70)).unwrap();
        assert_eq!((outage.length(), outage.unstored, outage.waited), (Duration::from_secs(60), 4, 2));
        assert_eq!(health.caught_up(0, at(71)), None, "it is reported once");
        health.note(Err(&full), true, EMPTY, at(72));
        health.note(Ok(()), true, EMPTY, at(73));
        assert_eq!(health.caught_up(0, at(74)), None, "there was a line lately");
        assert_eq!(health.caught_up(0, at(80)).map(|outage| outage.length()), Some(Duration::from_secs(1)));
    }
}
