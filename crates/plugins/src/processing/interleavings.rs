//! The threads of processors under a scheduler that tries interleavings. The tests cover requests that are cancelled while the pool has
//! them, steps that tasks leave to the threads, and a pool that is dropped with queued tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use super::pool::ProcessorPool;
use crate::executor::{ExecutorHandle, ModelStep, ThreadSteps};
use crate::sync::Mutex;
use crate::sync::planted::{self, PlantedFault};

/// Threads of the pool. A lane uses at most all but one.
const THREADS: usize = 2;
const LANES: u64 = 2;
const REQUESTS: usize = 3;

/// A request for a processor. Either its thread or its client takes it.
#[derive(Debug, Default)]
struct PoolRequest(Mutex<RequestState>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum RequestState {
    #[default]
    Lent,
    Prepared,
    Cancelled,
}

impl PoolRequest {
    /// Whether this thread took the request.
    fn take(&self, how: RequestState) -> bool {
        let mut state = self.0.lock();
        let is_lent = *state == RequestState::Lent;
        if is_lent {
            *state = how;
        }
        is_lent
    }
}

/// The requests of a lane, and counters of its tasks.
#[derive(Debug, Default)]
struct LaneRequests {
    requests: [PoolRequest; REQUESTS],
    /// Number of tasks that have begun.
    begun: AtomicU32,
    running: AtomicU32,
    prepared: AtomicU32,
    cancelled: AtomicU32,
    /// Number of tasks that began out of order, or on more threads than allowed.
    wrong: AtomicU32,
}

impl LaneRequests {
    /// A task of the pool. It records faults and does not assert, because the pool survives a task that panics.
    fn prepare(&self, n: usize) {
        let order = self.begun.fetch_add(1, Ordering::SeqCst) as usize;
        let others = self.running.fetch_add(1, Ordering::SeqCst) as usize;
        if order != n || others >= THREADS - 1 {
            self.wrong.fetch_add(1, Ordering::SeqCst);
        }
        shuttle::thread::yield_now();
        if self.requests[n].take(RequestState::Prepared) {
            self.prepared.fetch_add(1, Ordering::SeqCst);
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn cancel(&self, n: usize) {
        if self.requests[n].take(RequestState::Cancelled) {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Counts the steps left to the threads, and the steps that they ran.
#[derive(Debug, Default)]
struct CountedSteps {
    left: AtomicU32,
    ran: AtomicU32,
}

impl ModelStep for CountedSteps {
    fn try_step(&self, _: u16, _: &ExecutorHandle) -> bool {
        self.ran.fetch_add(1, Ordering::SeqCst);
        shuttle::thread::yield_now();
        true
    }

    fn wake(&self, _: u16) {}
}

/// Each lane has a thread that submits its requests and cancels the last one. The first lane waits for its tasks. Then the pool is dropped
/// with the queued tasks of the other lane.
fn lent_cancelled_retired() {
    let (steps, counted) = (ThreadSteps::new(), Arc::<CountedSteps>::default());
    let pool = Arc::new(ProcessorPool::new(THREADS, steps.clone()).unwrap());
    let lanes: Vec<Arc<LaneRequests>> = (0..LANES).map(|_| Arc::default()).collect();
    let lend = |(number, lane): (u64, &Arc<LaneRequests>)| {
        let (pool, lane) = (Arc::clone(&pool), Arc::clone(lane));
        let (threads, counted) = (steps.handle(), Arc::clone(&counted));
        shuttle::thread::spawn(move || {
            for n in 0..REQUESTS {
                let (of, threads, counted) = (Arc::clone(&lane), threads.clone(), Arc::clone(&counted));
                let task = move || {
                    of.prepare(n);
                    if n == 0 && threads.defer(&counted, 0) {
                        counted.left.fetch_add(1, Ordering::SeqCst);
                    }
                };
                pool.submit(number, Box::new(task));
            }
            lane.cancel(REQUESTS - 1);
            while number == 0 && lane.begun.load(Ordering::SeqCst) < REQUESTS as u32 {
                shuttle::thread::yield_now();
            }
        })
    };
    let threads: Vec<_> = (0..).zip(&lanes).map(lend).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The last owner: the drop waits for the queued tasks.
    drop(pool);
    assert!(!steps.any());
    assert_eq!(counted.left.load(Ordering::SeqCst), counted.ran.load(Ordering::SeqCst));
    for lane in &lanes {
        let count = |of: &AtomicU32| of.load(Ordering::SeqCst) as usize;
        assert_eq!((count(&lane.begun), count(&lane.running), count(&lane.wrong)), (REQUESTS, 0, 0));
        assert_eq!(count(&lane.prepared) + count(&lane.cancelled), REQUESTS);
        assert!(count(&lane.cancelled) <= 1);
    }
}

/// A schedule that takes longer than this hangs.
fn try_all(scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(20_000);
    println!("{} schedules", Runner::new(scheduler, config).run(lent_cancelled_retired));
}

#[test]
fn every_interleaving_tried_runs_each_task_once_in_the_order_of_its_lane() {
    try_all(RandomScheduler::new(2000));
    try_all(PctScheduler::new(3, 1000));
}

#[test]
fn planted_faults_of_the_pool_are_found() {
    let faults = [
        PlantedFault::SubmitsSilently,
        PlantedFault::ForgetsTurn,
        PlantedFault::TakesEveryThread,
        PlantedFault::LeavesTasks,
        PlantedFault::ForgetsStep,
    ];
    for fault in faults {
        let run = || try_all(RandomScheduler::new(2000));
        let found = planted::with(fault, || std::panic::catch_unwind(run));
        assert!(found.is_err(), "{fault:?}");
    }
}
