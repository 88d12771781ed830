//! Whether the last attempt to write to the store failed, for operators.

use std::time::SystemTime;

use parking_lot::Mutex;

use super::error::TierError;

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

/// The present trouble, if there is one. Set by the writer's thread.
#[derive(Debug, Default)]
pub(super) struct StoreHealth(Mutex<Option<StoreTrouble>>);

impl StoreHealth {
    /// Notes the outcome of an attempt to write. An error that is about one state, and not about the store, is no trouble. A store at its limit
    /// still removes, so there only a written state (`has_state`) shows that it has room again.
    pub(super) fn note(&self, outcome: Result<(), &TierError>, has_state: bool) {
        let mut held = self.0.lock();
        match outcome {
            Ok(()) => *held = held.take().filter(|of| matches!(of.error, TierError::Full { .. }) && !has_state),
            Err(TierError::Fenced | TierError::Checksum { .. } | TierError::Closed) => {}
            Err(error) => {
                let (since, waiting) = held.as_ref().map_or((SystemTime::now(), 0), |of| (of.since, of.waiting));
                *held = Some(StoreTrouble { since, error: error.clone(), waiting });
            }
        }
    }

    /// Notes the number of changes that are tried again later.
    pub(super) fn waits(&self, changes: usize) {
        if let Some(trouble) = self.0.lock().as_mut() {
            trouble.waiting = changes;
        }
    }

    pub(super) fn trouble(&self) -> Option<StoreTrouble> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_begins_with_the_first_failure_and_ends_with_a_success() {
        let health = StoreHealth::default();
        health.note(Err(&TierError::Fenced), true);
        assert_eq!(health.trouble(), None, "the store works");
        health.note(Err(&TierError::io("st".to_owned(), &"full")), true);
        let first = health.trouble().unwrap();
        health.waits(639);
        health.note(Err(&TierError::io("st".to_owned(), &"still full")), true);
        let then = health.trouble().unwrap();
        assert_eq!((then.since, then.waiting), (first.since, 639));
        assert_eq!(then.error.to_string(), "st: still full");
        let at_noon = StoreTrouble { since: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(43_200), ..then };
        let expected = "state.dir: still full since 12:00:00; 639 changes wait, models with when = \"step\" refuse";
        assert_eq!(at_noon.warning("state.dir"), expected);
        health.note(Ok(()), false);
        assert_eq!(health.trouble(), None);
        health.note(Err(&TierError::Full { needed: 2, used: 1, limit: 1 }), true);
        health.note(Ok(()), false);
        assert!(health.trouble().is_some(), "a removal needs no room");
        health.note(Ok(()), true);
        assert_eq!(health.trouble(), None);
    }
}
