//! Tests tasks that several threads wake, under a scheduler that tries interleavings: no wake-up is lost, and none makes a task run twice.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use super::{AfterTurn, ConnectionExecutor};
use crate::sync::Mutex;
use crate::sync::planted::{self, PlantedFault};

const TASKS: usize = 2;
const WAKERS: u32 = 2;
const WAKES: u32 = 2;

/// A task that ends once it has seen every wake-up.
#[derive(Debug, Default)]
struct CountedTask {
    waker: Mutex<Option<Waker>>,
    woken: AtomicU32,
    polled: AtomicU32,
    ended: AtomicU32,
}

impl CountedTask {
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let (polled, woken) = (1 + self.polled.fetch_add(1, Ordering::SeqCst), self.woken.load(Ordering::SeqCst));
        assert!(polled <= 1 + woken, "polled {polled} times, woken {woken} times");
        *self.waker.lock() = Some(cx.waker().clone());
        if self.woken.load(Ordering::SeqCst) < WAKERS * WAKES {
            return Poll::Pending;
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(())
    }

    /// Wakes the task and waits for its poll. Otherwise wake-ups could run ahead of the polls and hide one poll too many.
    fn wake(&self) {
        let polled = self.polled.load(Ordering::SeqCst);
        self.woken.fetch_add(1, Ordering::SeqCst);
        // Before its first poll a task has no waker, and that poll sees this wake-up.
        let Some(waker) = self.waker.lock().clone() else { return };
        waker.wake();
        while self.polled.load(Ordering::SeqCst) == polled && self.ended.load(Ordering::SeqCst) == 0 {
            shuttle::thread::yield_now();
        }
    }
}

fn woken_from_outside() {
    let tasks: Arc<[CountedTask; TASKS]> = Arc::default();
    let mut connection = ConnectionExecutor::default();
    for n in 0..TASKS {
        let tasks = Arc::clone(&tasks);
        connection.handle().spawn(poll_fn(move |cx| tasks[n].poll(cx)));
    }
    let wake = || {
        let tasks = Arc::clone(&tasks);
        shuttle::thread::spawn(move || (0..WAKES).for_each(|_| tasks.iter().for_each(CountedTask::wake)))
    };
    let threads: Vec<_> = (0..WAKERS).map(|_| wake()).collect();
    shuttle::future::block_on(poll_fn(|cx: &mut Context<'_>| {
        loop {
            connection.turn();
            let next = connection.next(cx.waker());
            if tasks.iter().all(|task| task.ended.load(Ordering::SeqCst) > 0) {
                return Poll::Ready(());
            }
            if next == AfterTurn::Rest {
                return Poll::Pending;
            }
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for task in tasks.iter() {
        assert_eq!(task.ended.load(Ordering::SeqCst), 1);
    }
}

fn try_all(scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(20_000);
    println!("{} schedules", Runner::new(scheduler, config).run(woken_from_outside));
}

#[test]
fn every_interleaving_tried_polls_a_task_for_each_wake_up_and_no_more() {
    try_all(RandomScheduler::new(3000));
    try_all(PctScheduler::new(3, 1000));
}

#[test]
fn planted_faults_of_tasks_are_found() {
    for fault in [PlantedFault::PollsTwice, PlantedFault::RestsWithoutLooking] {
        let run = || try_all(RandomScheduler::new(3000));
        let found = planted::with(fault, || std::panic::catch_unwind(run));
        assert!(found.is_err(), "{fault:?}");
    }
}
