//! Counts per second: each reading of the counters is compared with an earlier one. Without readers the server stores nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Minimum time between stored readings. Rates over a shorter time are inaccurate.
const LEAST: Duration = Duration::from_secs(1);
/// Rates cover at most this time, unless the only earlier reading is older.
const MOST: Duration = Duration::from_secs(60);

/// A model name and version.
type Of = (String, u64);

#[derive(Debug, Clone)]
struct Look {
    at: Instant,
    counts: BTreeMap<Of, u64>,
}

#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<StoredLooks>);

#[derive(Debug, Default)]
struct StoredLooks {
    looks: VecDeque<Look>,
    /// The rates that were returned last.
    last: Option<(Instant, Since)>,
}

/// Counts per second since an earlier reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Since {
    pub(super) seconds: f64,
    rates: BTreeMap<Of, f64>,
}

impl Since {
    pub(super) fn rate_of(&self, model: &str, version: u64) -> f64 {
        self.rates.get(&(model.to_owned(), version)).copied().unwrap_or(0.0)
    }
}

impl Rates {
    /// Compares the counters with the oldest reading of the last minute, or with an older one if that is the only one. Without a reading,
    /// compares with zero at `began`.
    pub(super) fn look(&self, began: Instant, at: Instant, counts: BTreeMap<Of, u64>) -> Since {
        let mut stored = self.0.lock();
        let StoredLooks { looks, last } = &mut *stored;
        // Two readers at almost the same time get the same rates.
        if let Some((_, since)) = last.as_ref().filter(|(of, _)| at.saturating_duration_since(*of) < LEAST) {
            return since.clone();
        }
        while looks.len() > 1 && looks.front().is_some_and(|look| at.duration_since(look.at) > MOST) {
            looks.pop_front();
        }
        let too_old = looks.front().is_some_and(|look| at.duration_since(look.at) > MOST);
        let before = looks.front().cloned().unwrap_or(Look { at: began, counts: BTreeMap::new() });
        let seconds = at.duration_since(before.at).as_secs_f64();
        let rate = |of: &Of, count: u64| {
            let counted = count.saturating_sub(before.counts.get(of).copied().unwrap_or(0));
            if seconds > 0.0 { counted as f64 / seconds } else { 0.0 }
        };
        let rates = counts.iter().map(|(of, count)| (of.clone(), rate(of, *count))).collect();
        if too_old {
            looks.clear();
        }
        if looks.back().is_none_or(|look| at.duration_since(look.at) >= LEAST) {
            looks.push_back(Look { at, counts });
        }
        let since = Since { seconds, rates };
        *last = Some((at, since.clone()));
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_the_last_minute_or_since_the_last_look() {
        let (rates, began) = (Rates::default(), Instant::now());
        let look = |after: u64, count: u64| {
            let counts = BTreeMap::from([(("m".to_owned(), 1), count)]);
            let since = rates.look(began, began + Duration::from_secs(after), counts);
            (since.seconds, since.rate_of("m", 1))
        };
        assert_eq!(look(10, 100), (10.0, 10.0));
        assert_eq!(look(12, 140), (2.0, 20.0));
        assert_eq!(look(20, 140), (10.0, 4.0));
        assert_eq!(look(71, 649), (59.0, 509.0 / 59.0), "the look at 10 s is too old, the one at 12 s is not");
        assert_eq!(look(1071, 1649), (1000.0, 1.0), "no look for long");
        assert_eq!(look(1071, 1650), (1000.0, 1.0), "another reader at the same time");
        assert_eq!(look(1073, 1649), (2.0, 0.0));
    }
}
