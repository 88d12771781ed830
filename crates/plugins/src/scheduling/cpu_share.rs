//! Limits the share of a core that a plug-in uses at a load. A plug-in that exceeds it is passed over until the window ends. That is not a
//! strike.

use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::Time;

/// The time over which a share is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Counts the CPU time of a plug-in's calls.
#[derive(Debug)]
pub(super) struct CpuShare {
    /// Maximum percent of a core. `None`: no maximum.
    percent: Option<u32>,
    window: Mutex<ShareWindow>,
}

#[derive(Debug, Default)]
struct ShareWindow {
    began: Time,
    used: Duration,
}

impl CpuShare {
    pub(super) fn new(percent: Option<u32>) -> CpuShare {
        CpuShare { percent, window: Mutex::default() }
    }

    /// Whether a call may begin now. The clock is read only if there is a maximum.
    pub(super) fn allows(&self, now: impl FnOnce() -> Time) -> bool {
        let Some(percent) = self.percent else { return true };
        let now = now();
        let mut window = self.window.lock();
        if now - window.began >= WINDOW {
            *window = ShareWindow { began: now, used: Duration::ZERO };
        }
        window.used <= WINDOW * percent / 100
    }

    /// The end of the current window.
    pub(super) fn window_end(&self) -> Time {
        self.window.lock().began + WINDOW
    }

    /// Counts a call that took this much CPU time.
    pub(super) fn add(&self, used: Duration) {
        if self.percent.is_some() {
            self.window.lock().used += used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_plug_in_that_takes_more_than_its_share_rests_until_the_window_ends() {
        let share = CpuShare::new(Some(20));
        assert!(share.allows(|| Time(5000 * MS)));
        share.add(Duration::from_millis(200));
        assert!(share.allows(|| Time(5100 * MS)));
        share.add(Duration::from_millis(1));
        assert_eq!(share.window_end(), Time(6000 * MS));
        assert_eq!([5101, 5999, 6000].map(|ms| share.allows(|| Time(ms * MS))), [false, false, true]);
        let unlimited = CpuShare::new(None);
        unlimited.add(Duration::from_secs(9));
        assert!(unlimited.allows(|| Time(0)));
    }
}
