//! One thread that ticks every model's core when something is due, and does the server's upkeep of memory once a second.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sequor_core::Time;

use super::clock::Clock;
use super::upkeep::Upkeep;
use crate::sync::planted::{PlantedFault, is_planted};
use crate::sync::{self, Condvar, Mutex};

/// Handles the work that is due.
pub(in crate::model) trait Tick: Debug + Send + Sync {
    fn tick(self: Arc<Self>);
}

/// Clones share the thread. It ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(in crate::model) struct Timer(Arc<TimerOwner>);

/// Ends the thread when the last clone is dropped.
#[derive(Debug)]
struct TimerOwner(Arc<TimerState>);

#[derive(Debug, Default)]
struct TimerState {
    queue: Mutex<TimerQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerQueue {
    due: BinaryHeap<Reverse<(Time, u64)>>,
    models: BTreeMap<u64, Weak<dyn Tick>>,
    serial: u64,
    is_over: bool,
}

/// Maximum time between two runs of the upkeep.
const LOOK: Duration = Duration::from_secs(1);

impl Timer {
    /// Under the model checker there is no thread: the test makes the ticks.
    pub(in crate::model) fn start(clock: Clock, mut upkeep: Upkeep) -> std::io::Result<Timer> {
        if cfg!(feature = "shuttle") { Ok(Timer::idle()) } else { Timer::run(clock, move |now| upkeep.run(now)) }
    }

    fn idle() -> Timer {
        Timer(Arc::new(TimerOwner(Arc::default())))
    }

    fn run(clock: Clock, mut upkeep: impl FnMut(Time) + Send + 'static) -> std::io::Result<Timer> {
        let timer = Timer::idle();
        let state = Arc::clone(&timer.0.0);
        sync::spawn("sequor-timer".to_owned(), move || state.run(&clock, &mut upkeep))?;
        Ok(timer)
    }

    /// Ticks the model at this time.
    pub(in crate::model) fn arm(&self, at: Time, model: Weak<dyn Tick>) {
        let state = &self.0.0;
        let mut queue = state.queue.lock();
        queue.serial += 1;
        let serial = queue.serial;
        queue.models.insert(serial, model);
        queue.due.push(Reverse((at, serial)));
        drop(queue);
        if !is_planted(PlantedFault::ArmsSilently) {
            state.changed.notify_one();
        }
    }
}

impl Drop for TimerOwner {
    fn drop(&mut self) {
        self.0.queue.lock().is_over = true;
        self.0.changed.notify_one();
    }
}

impl TimerState {
    fn run(&self, clock: &Clock, upkeep: &mut impl FnMut(Time)) {
        loop {
            upkeep(clock.now());
            let mut queue = self.queue.lock();
            if queue.is_over {
                return;
            }
            let ticks = queue.take_due(clock.now());
            if ticks.is_empty() {
                let next = queue.due.peek().and_then(|Reverse((at, _))| clock.instant(*at));
                sync::wait_until(&self.changed, queue, next, LOOK);
                continue;
            }
            drop(queue);
            for model in ticks {
                model.tick();
            }
        }
    }
}

impl TimerQueue {
    /// Takes the models whose time has come.
    fn take_due(&mut self, now: Time) -> Vec<Arc<dyn Tick>> {
        let mut ticks = Vec::new();
        while let Some(Reverse((at, serial))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            let model = self.models.remove(&serial).and_then(|model| model.upgrade());
            if is_planted(PlantedFault::TicksTwice) {
                ticks.extend(model.clone());
            }
            ticks.extend(model);
        }
        ticks
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

    #[derive(Debug, Default)]
    struct Ticked(AtomicU32);

    impl Tick for Ticked {
        fn tick(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Two threads arm models for past and future times. Every model is ticked once, and the thread ends with the timer.
    fn each_is_ticked_once() {
        let ran = Arc::new(AtomicU32::new(0));
        let (clock, count) = (Clock::default(), Arc::clone(&ran));
        let timer = Timer::run(clock.clone(), move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        let arm = |after: u64| {
            let (timer, clock) = (timer.clone(), clock.clone());
            shuttle::thread::spawn(move || {
                let models: [Arc<Ticked>; 2] = Default::default();
                for model in &models {
                    timer.arm(Time(clock.now().0 + after), Arc::downgrade(model) as Weak<dyn Tick>);
                }
                for model in &models {
                    while model.0.load(Ordering::SeqCst) == 0 {
                        shuttle::thread::yield_now();
                    }
                }
                models
            })
        };
        let threads = [arm(0), arm(5_000)];
        let models = threads.map(|thread| thread.join().unwrap());
        let state = Arc::clone(&timer.0.0);
        drop(timer);
        while Arc::strong_count(&state) > 1 {
            shuttle::thread::yield_now();
        }
        let ticks = models.iter().flatten().map(|model| model.0.load(Ordering::SeqCst));
        assert!(ticks.clone().all(|n| n == 1), "{:?}", ticks.collect::<Vec<_>>());
        assert!(ran.load(Ordering::SeqCst) > 0, "the upkeep is done");
    }

    /// A schedule of more steps than this counts as a hang.
    fn try_all(scheduler: impl Scheduler + 'static) {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(20_000);
        println!("{} schedules", Runner::new(scheduler, config).run(each_is_ticked_once));
    }

    #[test]
    fn every_interleaving_tried_ticks_each_model_once() {
        try_all(RandomScheduler::new(2000));
        try_all(PctScheduler::new(3, 1000));
    }

    #[test]
    fn planted_faults_of_the_timer_are_found() {
        for fault in [PlantedFault::ArmsSilently, PlantedFault::TicksTwice] {
            let run = || try_all(RandomScheduler::new(2000));
            let found = planted::with(fault, || std::panic::catch_unwind(run));
            assert!(found.is_err(), "{fault:?}");
        }
    }
}
