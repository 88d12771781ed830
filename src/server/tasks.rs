//! Tasks that run within another task, their host. The host polls the tasks that were woken, in the order in which they were begun.
//!
//! That order matters. A client's requests on one connection come interleaved, and one read brings the last bytes of many: in the order of
//! wakes, a later request whose first and last bytes came together would overtake an earlier one that lacked only its last.
//!
//! The host has a waker among theirs. It is woken only while it rests, because it looks at the queue once more before it rests.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::model;

pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of the host in the queue; tasks have higher ones.
const HOST: u64 = 0;

/// The tasks of one connection.
pub(super) struct Tasks {
    running: BTreeMap<u64, (Work, Waker, Arc<TaskWaker>)>,
    begun: u64,
    wakes: Arc<Wakes>,
    host: (Waker, Arc<TaskWaker>),
    /// Those of this turn; kept for its memory.
    turn: Vec<u64>,
}

/// The wake-ups of one connection.
struct Wakes {
    queue: Mutex<WakeQueue>,
    /// Where the host is a task.
    runtime: Option<Handle>,
}

#[derive(Default)]
struct WakeQueue {
    tasks: Vec<u64>,
    /// The host's own waker, while it rests.
    resting: Option<Waker>,
}

/// Puts one task into the queue, once until it is polled again.
struct TaskWaker {
    task: u64,
    woken: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut queue = self.wakes.queue.lock();
        queue.tasks.push(self.task);
        let host = queue.resting.take();
        drop(queue);
        match (host, &self.wakes.runtime) {
            (Some(host), Some(runtime)) => model::wake(host, runtime),
            (Some(host), None) => host.wake(),
            (None, _) => {}
        }
    }
}

/// A waker whose task is in the queue already.
fn task_waker(task: u64, wakes: &Arc<Wakes>) -> (Waker, Arc<TaskWaker>) {
    let state = Arc::new(TaskWaker { task, woken: AtomicBool::new(true), wakes: Arc::clone(wakes) });
    wakes.queue.lock().tasks.push(task);
    (Waker::from(Arc::clone(&state)), state)
}

impl Default for Tasks {
    fn default() -> Tasks {
        let wakes = Arc::new(Wakes { queue: Mutex::default(), runtime: Handle::try_current().ok() });
        let host = task_waker(HOST, &wakes);
        Tasks { running: BTreeMap::new(), begun: HOST, wakes, host, turn: Vec::new() }
    }
}

impl Tasks {
    /// Begins a task. It is polled in the next turn.
    pub(super) fn begin(&mut self, work: Work) {
        self.begun += 1;
        let (waker, state) = task_waker(self.begun, &self.wakes);
        self.running.insert(self.begun, (work, waker, state));
    }

    /// The host's waker. The host is in the queue at first.
    pub(super) fn waker(&self) -> &Waker {
        &self.host.0
    }

    /// Polls every task that was woken, once. Returns whether the host was woken.
    pub(super) fn turn(&mut self) -> bool {
        std::mem::swap(&mut self.wakes.queue.lock().tasks, &mut self.turn);
        self.turn.sort_unstable();
        let mut host = false;
        for task in self.turn.drain(..) {
            if task == HOST {
                self.host.1.woken.store(false, Ordering::Release);
                host = true;
                continue;
            }
            let Some((work, waker, state)) = self.running.get_mut(&task) else { continue };
            // Before the poll: who is woken during it wants another.
            state.woken.store(false, Ordering::Release);
            if work.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                self.running.remove(&task);
            }
        }
        host
    }

    /// Whether the queue is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.wakes.queue.lock().tasks.is_empty()
    }

    /// Lets the host rest until a task is woken. False if one was: there is a turn to be done first.
    pub(super) fn rest(&self, waker: &Waker) -> bool {
        let mut queue = self.wakes.queue.lock();
        let idle = queue.tasks.is_empty();
        if idle && !queue.resting.as_ref().is_some_and(|resting| resting.will_wake(waker)) {
            queue.resting = Some(waker.clone());
        }
        idle
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    /// Tasks that note when they are polled, and what wakes them.
    struct Noted {
        tasks: Tasks,
        polled: Arc<Mutex<Vec<usize>>>,
        wakers: Arc<Mutex<Vec<Option<Waker>>>>,
    }

    fn noted(count: usize, restless: bool) -> Noted {
        let (polled, wakers) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(vec![None; count])));
        let mut tasks = Tasks::default();
        for n in 0..count {
            let (polled, wakers) = (Arc::clone(&polled), Arc::clone(&wakers));
            tasks.begin(Box::pin(poll_fn(move |cx| {
                polled.lock().push(n);
                wakers.lock()[n] = Some(cx.waker().clone());
                if restless {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            })));
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
    fn who_is_woken_is_polled_once_and_in_the_order_of_beginning() {
        let mut noted = noted(5, false);
        assert_eq!(noted.turn(), [0, 1, 2, 3, 4]);
        assert_eq!(noted.turn(), [0usize; 0]);
        [4, 1, 4, 3].iter().for_each(|n| noted.wake(*n));
        assert_eq!(noted.turn(), [1, 3, 4]);
    }

    #[test]
    fn every_task_has_its_turn_however_restless_the_others_are() {
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
        assert!(!noted.tasks.rest(&host), "a task was woken");
        assert_eq!((counted(), noted.turn()), (0, vec![1]));
        assert!(noted.tasks.rest(&host));
        (0..3).for_each(|n| noted.wake(n));
        assert_eq!((counted(), noted.turn()), (1, vec![0, 1, 2]));
        assert!(noted.tasks.rest(&host));
        noted.tasks.waker().wake_by_ref();
        assert_eq!(counted(), 2);
    }

    #[test]
    fn the_host_is_woken_like_a_task() {
        let mut tasks = Tasks::default();
        assert!(tasks.turn(), "at first it is woken");
        assert!(!tasks.turn());
        let waker = tasks.waker().clone();
        (0..2).for_each(|_| waker.wake_by_ref());
        assert!(tasks.turn());
        assert!(!tasks.turn());
    }

    #[test]
    fn what_is_done_is_gone_and_its_waker_harmless() {
        let mut tasks = Tasks::default();
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let waker = Arc::new(Mutex::new(None));
        let place = Arc::clone(&waker);
        tasks.begin(Box::pin(poll_fn(move |cx| {
            *place.lock() = Some(cx.waker().clone());
            let _ = &kept;
            Poll::Ready(())
        })));
        tasks.turn();
        assert_eq!(Arc::strong_count(&held), 1);
        waker.lock().take().expect("polled").wake();
        tasks.turn();
    }
}
