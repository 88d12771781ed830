//! Strikes of a plug-in within a window of time. Pure: the caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

/// Strikes count together within this time.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of strikes that are remembered.
const REMEMBERED: usize = 4096;

/// The strikes of one plug-in at one place. Times are those of the caller's clock.
#[derive(Debug, Default)]
pub struct Strikes(VecDeque<Duration>);

impl Strikes {
    /// Adds a strike. Returns how many count now.
    pub fn add(&mut self, now: Duration) -> u32 {
        self.0.retain(|at| now.saturating_sub(*at) < WINDOW);
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.count(now)
    }

    /// Strikes that count at this time.
    pub fn count(&self, now: Duration) -> u32 {
        let counts = self.0.iter().filter(|at| now.saturating_sub(**at) < WINDOW).count();
        u32::try_from(counts).unwrap_or(u32::MAX)
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
