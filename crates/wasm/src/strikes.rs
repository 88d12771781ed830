//! Strikes of a plug-in within a window of time. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

/// The window within which strikes count together.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of strikes that are remembered.
const REMEMBERED: usize = 4096;

/// The strikes of one plug-in at one place. Times are those of the caller's clock, which does not go back.
#[derive(Debug, Default)]
pub struct Strikes(VecDeque<Duration>);

impl Strikes {
    /// Adds a strike. Returns how many count now.
    pub fn add(&mut self, now: Duration) -> u32 {
        while self.0.front().is_some_and(|at| now.saturating_sub(*at) >= WINDOW) {
            self.0.pop_front();
        }
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.count(now)
    }

    /// Strikes that count at this time.
    pub fn count(&self, now: Duration) -> u32 {
        let old = self.0.partition_point(|at| now.saturating_sub(*at) >= WINDOW);
        u32::try_from(self.0.len().saturating_sub(old)).unwrap_or(u32::MAX)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_count_for_a_minute_and_are_bounded() {
        let at = Duration::from_secs;
        let mut strikes = Strikes::default();
        assert_eq!([strikes.add(at(0)), strikes.add(at(30)), strikes.add(at(59))], [1, 2, 3]);
        assert_eq!((strikes.count(at(61)), strikes.add(at(90))), (2, 2));
        for _ in 0..10_000 {
            strikes.add(at(91));
        }
        assert_eq!(strikes.0.len(), REMEMBERED);
        strikes.clear();
        assert_eq!(strikes.count(at(91)), 0);
    }
}
