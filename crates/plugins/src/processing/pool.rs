//! The threads that run processors: a fixed number for the whole server, separate from those of connections and instances.
//!
//! Tasks of one lane begin in the order in which they were submitted. Lanes take turns. A lane uses at most all threads but one, so that a
//! slow processor does not stop those of other models. A waiting task holds no thread (`suspended`).
//!
//! Guests that call other models leave short steps of those models to these threads ([`ThreadSteps`]). A thread runs the steps once no task
//! may begin. So the calls of many guests share one batch, and no other thread has to be woken.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fmt, io};

use crate::executor::OwnTime;
use crate::executor::ThreadSteps;
use crate::sync::planted::{PlantedFault, is_planted};
use crate::sync::{self, AtomicU64, Condvar, JoinHandle, Mutex, MutexGuard};

use super::suspended::{LaneQueue, SuspendedTask};

pub use super::suspended::Task;

/// Maximum bytes of prepared inputs that wait for their runs, across all models. A request's own inputs count elsewhere.
pub const PREPARED: u64 = 1 << 30;

/// How long a step may wait for more calls while tasks begin.
const GATHER: Duration = Duration::from_micros(300);
/// If a step waited longer than `SLOW`, a long task delayed it. The threads then take no steps for `REFUSAL`.
const SLOW: Duration = Duration::from_millis(2);
const REFUSAL: Duration = Duration::from_secs(1);

/// The pool of threads. Dropping it waits until the threads have finished the queued tasks.
pub struct ProcessorPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// A count of bytes of prepared inputs. Dropping it removes the bytes from the total.
#[derive(Debug)]
pub struct PreparedBytes {
    shared: Arc<Shared>,
    bytes: u64,
}

impl Drop for PreparedBytes {
    fn drop(&mut self) {
        self.shared.prepared.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("prepared", &self.prepared).finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<PoolState>,
    /// Bytes of prepared inputs.
    prepared: AtomicU64,
    queued: Condvar,
    /// Maximum number of threads that one lane uses at a time.
    per_lane: usize,
    /// Steps of models that guests have called.
    steps: ThreadSteps,
}

#[derive(Default)]
struct PoolState {
    lanes: BTreeMap<u64, Lane>,
    /// Lanes with a task that may begin, in the order of their turns. Each lane is in it once at most.
    turns: VecDeque<u64>,
    /// Number of threads that run steps of models. They look for tasks before they sleep.
    in_steps: usize,
    stopping: bool,
}

#[derive(Default)]
struct Lane {
    tasks: VecDeque<Task>,
    running: usize,
    has_turn: bool,
}

impl ProcessorPool {
    /// Starts `threads` threads, at least 1. They also run `steps`.
    pub fn new(threads: usize, steps: ThreadSteps) -> io::Result<ProcessorPool> {
        let threads = threads.max(1);
        let per_lane = threads.saturating_sub(1).max(1);
        let (state, prepared, queued) = (Mutex::default(), AtomicU64::new(0), Condvar::new());
        let shared = Arc::new(Shared { state, prepared, queued, per_lane, steps });
        let mut pool = ProcessorPool { shared: Arc::clone(&shared), threads: Vec::with_capacity(threads) };
        for n in 0..threads {
            let shared = Arc::clone(&shared);
            pool.threads.push(sync::spawn(format!("processor.{n}"), move || shared.work())?);
        }
        Ok(pool)
    }

    /// Number of threads.
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    /// Queues a task behind those of its lane.
    pub fn submit(&self, lane: u64, task: Task) {
        self.shared.queue(lane, task);
    }

    /// Runs a task on the current thread, which must be a thread of the pool, until the task waits. After that the task is queued in its
    /// lane.
    pub fn run(&self, lane: u64, task: impl Future<Output = ()> + Send + 'static) {
        let queue: Weak<dyn LaneQueue> = Arc::downgrade(&(Arc::clone(&self.shared) as Arc<dyn LaneQueue>));
        SuspendedTask::start(queue, lane, Box::pin(task));
    }

    /// Reserves bytes of prepared inputs. `None` if the total would exceed [`PREPARED`].
    pub fn hold(&self, bytes: u64) -> Option<PreparedBytes> {
        let fits = |held: u64| held.checked_add(bytes).filter(|held| *held <= PREPARED);
        self.shared.prepared.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(PreparedBytes { shared: Arc::clone(&self.shared), bytes })
    }

    /// Number of queued tasks.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().lanes.values().map(|lane| lane.tasks.len()).sum()
    }
}

impl PoolState {
    /// Gives a lane a turn, if it has a task and is below its maximum of threads.
    fn give_turn(&mut self, id: u64, per_lane: usize) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let has_room = lane.running < per_lane || is_planted(PlantedFault::TakesEveryThread);
        if !lane.has_turn && !lane.tasks.is_empty() && has_room {
            lane.has_turn = true;
            self.turns.push_back(id);
        }
    }

    /// Takes the next task in turn.
    fn begin(&mut self, per_lane: usize) -> Option<(u64, Task)> {
        let id = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&id)?;
        lane.has_turn = false;
        let task = lane.tasks.pop_front()?;
        lane.running += 1;
        self.give_turn(id, per_lane);
        Some((id, task))
    }

    fn end(&mut self, id: u64, per_lane: usize) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.running = lane.running.saturating_sub(1);
            if lane.running == 0 && lane.tasks.is_empty() {
                self.lanes.remove(&id);
            }
        }
        if !is_planted(PlantedFault::ForgetsTurn) {
            self.give_turn(id, per_lane);
        }
    }
}

impl LaneQueue for Shared {
    fn queue(&self, lane: u64, task: Task) {
        let mut state = self.state.lock();
        state.lanes.entry(lane).or_default().tasks.push_back(task);
        state.give_turn(lane, self.per_lane);
        // If the lane has no turn yet, a thread that is awake gives it one later. A thread that begins a task notifies another one if there
        // are more turns.
        let notifies = state.turns.len() > state.in_steps;
        drop(state);
        if notifies && !is_planted(PlantedFault::SubmitsSilently) {
            self.queued.notify_one();
        }
    }
}

impl Shared {
    /// Runs tasks until the pool is dropped and nothing is queued.
    fn work(&self) {
        let mut watch = StepWatch::default();
        let mut state = self.state.lock();
        loop {
            if watch.is_due(&self.steps) {
                state = self.run_steps(&mut watch, state);
            }
            if state.stopping && is_planted(PlantedFault::LeavesTasks) {
                return;
            }
            if let Some((lane, task)) = state.begin(self.per_lane) {
                let more = !state.turns.is_empty();
                drop(state);
                if more {
                    self.queued.notify_one();
                }
                // A panic must not end the thread, because nothing would replace it.
                if catch_unwind(AssertUnwindSafe(task)).is_err() {
                    tracing::error!("a task of a processor has panicked");
                }
                state = self.state.lock();
                state.end(lane, self.per_lane);
                continue;
            }
            if self.steps.any() {
                state = self.run_steps(&mut watch, state);
                continue;
            }
            if state.stopping {
                return;
            }
            state = sync::wait(&self.queued, state);
        }
    }
}

impl Shared {
    /// Runs the waiting steps. This thread takes the tasks that they queue, so no other thread is notified of them.
    fn run_steps<'a>(
        &'a self,
        watch: &mut StepWatch,
        mut state: MutexGuard<'a, PoolState>,
    ) -> MutexGuard<'a, PoolState> {
        state.in_steps += 1;
        drop(state);
        watch.end(&self.steps);
        if catch_unwind(AssertUnwindSafe(|| self.steps.run())).is_err() {
            tracing::error!("a step of a model has panicked");
        }
        let mut state = self.state.lock();
        state.in_steps = state.in_steps.saturating_sub(1);
        state
    }
}

/// Measures how long a thread has known of waiting steps.
#[derive(Debug, Default)]
struct StepWatch(Option<OwnTime>);

impl StepWatch {
    /// Whether the steps have waited for [`GATHER`].
    fn is_due(&mut self, steps: &ThreadSteps) -> bool {
        if !steps.any() {
            self.0 = None;
            return false;
        }
        self.0.get_or_insert_with(OwnTime::begin).elapsed() >= GATHER
    }

    /// Ends the measurement, because the steps run now. If a long task delayed them, the instances' own threads run the next steps.
    fn end(&mut self, steps: &ThreadSteps) {
        if self.0.take().is_some_and(|waited| waited.elapsed() > SLOW) {
            steps.refuse_for(REFUSAL);
        }
    }
}

impl Drop for ProcessorPool {
    fn drop(&mut self) {
        self.shared.state.lock().stopping = true;
        self.shared.queued.notify_all();
        for thread in self.threads.drain(..) {
            // A task may be the last owner.
            if !sync::is_current(&thread) && thread.join().is_err() {
                tracing::error!("a thread of processors has panicked");
            }
        }
    }
}

impl fmt::Debug for ProcessorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessorPool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn a_lane_keeps_its_order_and_leaves_a_thread_to_others() {
        let pool = ProcessorPool::new(2, ThreadSteps::new()).unwrap();
        let (hold, held) = sync_channel::<()>(1);
        let (sender, receiver) = sync_channel(128);
        // The first task of the only lane waits, so the second must not begin on the other thread.
        let first = sender.clone();
        pool.submit(
            1,
            Box::new(move || {
                held.recv().unwrap();
                first.send("first").unwrap();
            }),
        );
        let second = sender.clone();
        pool.submit(1, Box::new(move || second.send("second").unwrap()));
        let other = sender.clone();
        pool.submit(2, Box::new(move || other.send("other").unwrap()));
        assert_eq!(receiver.recv(), Ok("other"));
        assert_eq!(pool.waiting(), 1);
        hold.send(()).unwrap();
        assert_eq!([receiver.recv(), receiver.recv()], [Ok("first"), Ok("second")]);
    }

    #[test]
    fn a_task_that_panics_costs_no_thread_and_no_turn() {
        let pool = ProcessorPool::new(1, ThreadSteps::new()).unwrap();
        let (sender, receiver) = sync_channel(1);
        pool.submit(1, Box::new(|| panic!("as the test wants")));
        pool.submit(1, Box::new(move || sender.send(()).unwrap()));
        assert_eq!(receiver.recv(), Ok(()));
    }

    #[test]
    fn a_waiting_task_holds_no_thread_and_continues_once_it_is_woken() {
        let pool = Arc::new(ProcessorPool::new(1, ThreadSteps::new()).unwrap());
        let (sender, receiver) = sync_channel(128);
        let mut wakes = Vec::new();
        for n in 0..100 {
            let (wake, woken) = tokio::sync::oneshot::channel::<()>();
            wakes.push(wake);
            let (of, sender) = (Arc::clone(&pool), sender.clone());
            let task = async move {
                woken.await.unwrap();
                sender.send(n).unwrap();
            };
            pool.submit(1, Box::new(move || of.run(1, task)));
        }
        // All tasks wait at the same time, on one thread.
        let last = sender.clone();
        pool.submit(1, Box::new(move || last.send(1000).unwrap()));
        assert_eq!(receiver.recv(), Ok(1000));
        wakes.into_iter().rev().for_each(|wake| wake.send(()).unwrap());
        let order: Vec<i32> = (0..100).map(|_| receiver.recv().unwrap()).collect();
        assert_eq!(order, (0..100).rev().collect::<Vec<_>>(), "in the order in which they were woken");
    }

    #[test]
    fn prepared_inputs_are_bounded() {
        let pool = ProcessorPool::new(1, ThreadSteps::new()).unwrap();
        let most = pool.hold(PREPARED).unwrap();
        assert!(pool.hold(0).is_some() && pool.hold(1).is_none() && pool.hold(u64::MAX).is_none());
        drop(most);
        assert!(pool.hold(1).is_some());
    }

    #[test]
    fn queued_tasks_are_finished_before_the_threads_end() {
        let (sender, receiver) = sync_channel(128);
        let pool = ProcessorPool::new(1, ThreadSteps::new()).unwrap();
        for n in 0..100 {
            let sender = sender.clone();
            pool.submit(n % 3, Box::new(move || sender.send(n).unwrap()));
        }
        drop((pool, sender));
        let mut all: Vec<u64> = receiver.iter().collect();
        for lane in 0..3 {
            assert!(all.iter().filter(|n| *n % 3 == lane).is_sorted());
        }
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
