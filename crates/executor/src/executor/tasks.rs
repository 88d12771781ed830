//! Runs tasks within another task, their host. The host polls the woken tasks in the order in which they started.
//!
//! That order matters. A client's requests on one connection are interleaved, and one read may bring the last bytes of several. In the
//! order of wake-ups, a request that arrived as a whole would overtake an earlier one that lacked only its last bytes.
//!
//! The host has a waker like each task. It is woken only while it rests, because it looks at the queue once more before it rests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Wake, Waker};

use tokio::runtime::Handle;

use super::queue::{ConnectionTask, DeferredStep, ExecutorHandle, HostQueue, TaskQueue};
use crate::sync::planted::{PlantedFault, is_planted};
use crate::sync::{AtomicBool, Mutex};

/// The host's number. Tasks have higher ones.
const HOST: u64 = 0;

/// The tasks of one connection, and the model step deferred to it.
pub struct ConnectionExecutor {
    running: BTreeMap<u64, RunningTask>,
    begun: u64,
    shared: Arc<HostQueue>,
    host: (Waker, Arc<TaskWaker>),
    /// The tasks of this turn; kept to reuse its memory.
    turn: Vec<u64>,
}

struct RunningTask {
    task: ConnectionTask,
    waker: Waker,
    state: Arc<TaskWaker>,
}

/// What the host does after a turn.
#[derive(Debug, PartialEq, Eq)]
pub enum AfterTurn {
    /// Run another turn.
    Turn,
    /// Rest until the host is woken.
    Rest,
}

/// Puts one task into the queue, at most once between two polls.
struct TaskWaker {
    task: u64,
    woken: AtomicBool,
    shared: Arc<HostQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut queue = self.shared.queue.lock();
        queue.woken.push(self.task);
        if is_planted(PlantedFault::PollsTwice) && self.task != HOST {
            queue.woken.push(self.task);
        }
        let host = queue.host_to_wake();
        drop(queue);
        if let Some(host) = host {
            host.wake();
        }
    }
}

/// The waker of a task that the next turn polls anyway.
fn task_waker(task: u64, shared: &Arc<HostQueue>) -> (Waker, Arc<TaskWaker>) {
    let state = Arc::new(TaskWaker { task, woken: AtomicBool::new(true), shared: Arc::clone(shared) });
    (Waker::from(Arc::clone(&state)), state)
}

impl Default for ConnectionExecutor {
    /// The executor for a host that is a task of this thread's runtime, if the thread has one.
    fn default() -> ConnectionExecutor {
        // The host starts as woken.
        let queue = TaskQueue { woken: vec![HOST], ..TaskQueue::default() };
        let shared = Arc::new(HostQueue {
            queue: Mutex::new(queue),
            runtime: Handle::try_current().ok(),
            steps: 1,
            gathers: false,
        });
        let host = task_waker(HOST, &shared);
        ConnectionExecutor { running: BTreeMap::new(), begun: HOST, shared, host, turn: Vec::new() }
    }
}

impl ConnectionExecutor {
    pub fn handle(&self) -> ExecutorHandle {
        ExecutorHandle(Arc::clone(&self.shared))
    }

    /// The host's waker.
    pub fn waker(&self) -> &Waker {
        &self.host.0
    }

    /// Starts the spawned tasks, and polls every woken task once. Returns whether the host was woken.
    pub fn turn(&mut self) -> bool {
        let spawned = {
            let mut queue = self.shared.queue.lock();
            queue.polling = true;
            std::mem::swap(&mut queue.woken, &mut self.turn);
            std::mem::take(&mut queue.spawned)
        };
        for task in spawned {
            self.begin(task);
        }
        self.turn.sort_unstable();
        let mut host = false;
        for task in self.turn.drain(..) {
            if task == HOST {
                self.host.1.woken.store(false, Ordering::Release);
                host = true;
                continue;
            }
            let Some(RunningTask { task: future, waker, state }) = self.running.get_mut(&task) else { continue };
            // Reset before the poll: a wake-up during the poll requests another one.
            state.woken.store(false, Ordering::Release);
            if future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                self.running.remove(&task);
            }
        }
        host
    }

    fn begin(&mut self, task: ConnectionTask) {
        self.begun += 1;
        let (waker, state) = task_waker(self.begun, &self.shared);
        self.running.insert(self.begun, RunningTask { task, waker, state });
        self.turn.push(self.begun);
    }

    /// Decides what the host does after a turn. If no task was woken, runs the deferred model step first: everything that arrived is then
    /// in the models' queues. On `Rest`, the host rests until `waker` is woken.
    pub fn next(&mut self, waker: &Waker) -> AfterTurn {
        let mut queue = self.shared.queue.lock();
        if queue.has_tasks() && !is_planted(PlantedFault::RestsWithoutLooking) {
            return AfterTurn::Turn;
        }
        if let Some(step) = queue.deferred.pop() {
            drop(queue);
            if !is_planted(PlantedFault::ForgetsStep) {
                step.run(&self.handle());
            }
            return AfterTurn::Turn;
        }
        queue.polling = false;
        if !queue.resting.as_ref().is_some_and(|resting| resting.will_wake(waker)) {
            queue.resting = Some(waker.clone());
        }
        AfterTurn::Rest
    }

    /// Yields the thread before all work is done. A deferred model step goes to the instance's own thread.
    pub fn pause(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.polling = false;
        let step = queue.deferred.pop();
        drop(queue);
        step.into_iter().for_each(DeferredStep::wake);
    }
}

impl Drop for ConnectionExecutor {
    fn drop(&mut self) {
        self.pause();
        let (spawned, resting) = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            (std::mem::take(&mut queue.spawned), queue.resting.take())
        };
        // Tasks hold handles of their connection: if they stayed in its queue, neither would ever be freed. They are dropped without the lock,
        // because they may spawn and wake others.
        drop((spawned, resting));
    }
}

impl fmt::Debug for ConnectionExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionExecutor({} tasks)", self.running.len())
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    /// Tasks that record their polls, and their wakers.
    struct Noted {
        tasks: ConnectionExecutor,
        polled: Arc<Mutex<Vec<usize>>>,
        wakers: Arc<Mutex<Vec<Option<Waker>>>>,
    }

    fn noted(count: usize, restless: bool) -> Noted {
        let (polled, wakers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(vec![None; count])));
        let tasks = ConnectionExecutor::default();
        for n in 0..count {
            let (polled, wakers) = (Arc::clone(&polled), Arc::clone(&wakers));
            tasks.handle().spawn(poll_fn(move |cx| {
                polled.lock().push(n);
                wakers.lock()[n] = Some(cx.waker().clone());
                if restless {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }));
        }
        Noted { tasks, polled, wakers }
    }

    impl Noted {
        fn turn(&mut self) -> Vec<usize> {
            self.tasks.turn();
            std::mem::take(&mut self.polled.lock())
        }

        fn wake(&self, n: usize) {
            self.wakers.lock()[n].clone().expect("polled before").wake();
        }
    }

    #[test]
    fn woken_tasks_are_polled_once_in_the_order_of_their_start() {
        let mut noted = noted(5, false);
        assert_eq!(noted.turn(), [0, 1, 2, 3, 4]);
        assert_eq!(noted.turn(), [0usize; 0]);
        [4, 1, 4, 3].iter().for_each(|n| noted.wake(*n));
        assert_eq!(noted.turn(), [1, 3, 4]);
    }

    #[test]
    fn every_task_gets_a_turn_even_if_others_are_always_woken() {
        let mut noted = noted(10, true);
        let all: Vec<usize> = (0..10).collect();
        assert_eq!((noted.turn(), noted.turn()), (all.clone(), all));
    }

    #[test]
    fn the_host_is_woken_once_and_only_while_it_rests() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut noted = noted(3, false);
        let count = Arc::new(Count(0.into()));
        let host = Waker::from(Arc::clone(&count));
        let counted = || count.0.load(Ordering::Relaxed);
        noted.turn();
        noted.wake(1);
        assert_eq!(noted.tasks.next(&host), AfterTurn::Turn, "a task was woken");
        assert_eq!((counted(), noted.turn()), (0, vec![1]));
        assert_eq!(noted.tasks.next(&host), AfterTurn::Rest);
        (0..3).for_each(|n| noted.wake(n));
        assert_eq!((counted(), noted.turn()), (1, vec![0, 1, 2]));
        assert_eq!(noted.tasks.next(&host), AfterTurn::Rest);
        noted.tasks.waker().wake_by_ref();
        assert_eq!(counted(), 2);
    }

    #[test]
    fn the_host_is_woken_like_a_task() {
        let mut tasks = ConnectionExecutor::default();
        assert!(tasks.turn(), "at first it is woken");
        assert!(!tasks.turn());
        let waker = tasks.waker().clone();
        (0..2).for_each(|_| waker.wake_by_ref());
        assert!(tasks.turn());
        assert!(!tasks.turn());
    }

    #[test]
    fn tasks_that_have_not_begun_end_with_their_connection() {
        let tasks = ConnectionExecutor::default();
        let (handle, held) = (tasks.handle(), Arc::new(()));
        let task = || {
            let kept = (handle.clone(), Arc::clone(&held));
            async move { drop(kept) }
        };
        handle.spawn(task());
        drop(tasks);
        assert_eq!(Arc::strong_count(&held), 1, "a task that waited to begin");
        handle.spawn(task());
        assert_eq!(Arc::strong_count(&held), 1, "a task that came later");
        assert_eq!(Arc::strong_count(&handle.0), 1);
    }

    #[test]
    fn a_finished_task_is_dropped_and_its_waker_does_nothing() {
        let mut tasks = ConnectionExecutor::default();
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let waker = Arc::new(Mutex::new(None));
        let place = Arc::clone(&waker);
        tasks.handle().spawn(poll_fn(move |cx| {
            *place.lock() = Some(cx.waker().clone());
            let _ = &kept;
            Poll::Ready(())
        }));
        tasks.turn();
        assert_eq!(Arc::strong_count(&held), 1);
        waker.lock().take().expect("polled").wake();
        tasks.turn();
    }
}
