//! The thread that supervises all bindings: restarts, saves, parking. It sleeps until something is due or the alarm is raised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::Time;

use super::scheduler_host::Alarm;
use crate::sync::planted::{PlantedFault, is_planted};
use crate::sync::{self, Condvar, Mutex};

#[derive(Debug, Default)]
pub(super) struct Maintenance {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Alarm for Maintenance {
    fn raise(&self) {
        *self.raised.lock() = true;
        if !is_planted(PlantedFault::AlarmsSilently) {
            self.changed.notify_one();
        }
    }
}

impl Maintenance {
    /// Starts the thread. `maintain` does what is due, and returns the next due time and the time now. The thread ends when it returns `None`.
    pub(super) fn start(
        self: &Arc<Self>,
        maintain: impl Fn() -> Option<(Option<Time>, Time)> + Send + 'static,
    ) -> std::io::Result<()> {
        let maintenance = Arc::clone(self);
        let run = move || {
            while let Some((due, now)) = maintain() {
                maintenance.sleep(due.map(|due| due - now));
            }
        };
        sync::spawn("sequor-plugins".to_owned(), run).map(drop)
    }

    /// Sleeps until the alarm is raised, or for this long.
    fn sleep(&self, span: Option<Duration>) {
        let raised = self.raised.lock();
        match (*raised, span) {
            (true, _) => drop(raised),
            (false, Some(span)) => sync::wait_until(&self.changed, raised, Some(Instant::now() + span), span),
            (false, None) => drop(sync::wait(&self.changed, raised)),
        }
        // An alarm raised just before this needs no separate turn, because the next turn begins after it.
        *self.raised.lock() = false;
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings {
    use std::sync::atomic::{AtomicU32, Ordering};

    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, MaxSteps, Runner};

    use super::*;
    use crate::sync::planted;

    const ALARMS: u32 = 3;

    /// Two threads leave work and raise the alarm. The maintenance thread sees all work, and then ends.
    fn no_alarm_is_lost() {
        let (left, seen) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let maintenance = Arc::new(Maintenance::default());
        let (work, done) = (Arc::clone(&left), Arc::clone(&seen));
        let start = maintenance.start(move || {
            done.fetch_add(work.swap(0, Ordering::SeqCst), Ordering::SeqCst);
            (done.load(Ordering::SeqCst) < 2 * ALARMS).then_some((None, Time(0)))
        });
        start.unwrap();
        let alarm = || {
            let (left, maintenance) = (Arc::clone(&left), Arc::clone(&maintenance));
            shuttle::thread::spawn(move || {
                for _ in 0..ALARMS {
                    left.fetch_add(1, Ordering::SeqCst);
                    maintenance.raise();
                }
            })
        };
        let _ = [alarm(), alarm()].map(|thread| thread.join().unwrap());
        while seen.load(Ordering::SeqCst) < 2 * ALARMS {
            shuttle::thread::yield_now();
        }
    }

    /// A schedule with more steps than this counts as hanging.
    fn try_all(scheduler: impl Scheduler + 'static) {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(20_000);
        println!("{} schedules", Runner::new(scheduler, config).run(no_alarm_is_lost));
    }

    #[test]
    fn every_interleaving_tried_handles_all_alarms() {
        try_all(RandomScheduler::new(2000));
        try_all(PctScheduler::new(3, 1000));
    }

    #[test]
    fn a_planted_fault_of_the_alarm_is_found() {
        let run = || try_all(RandomScheduler::new(2000));
        let found = planted::with(PlantedFault::AlarmsSilently, || std::panic::catch_unwind(run));
        assert!(found.is_err());
    }
}
