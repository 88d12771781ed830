//! Tasks that run within another: polled when they were woken, and those that were woken together in the order in which they were begun.
//!
//! That order is what this is for. A client's requests on one connection come interleaved, and one read brings the last bytes of many: by
//! the order of wakes, a later request whose first and last bytes came together would overtake an earlier one that lacked only its last.
//!
//! Whoever polls them, their host, has a bell of its own among theirs. While it polls nobody need wake it, for it looks at the bells once
//! more before it rests.

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

/// The number of the host's own bell; tasks have higher ones.
const HOST: u64 = 0;

/// The tasks of one connection.
pub(super) struct Tasks {
    running: BTreeMap<u64, (Work, Waker, Arc<Bell>)>,
    begun: u64,
    calls: Arc<Calls>,
    host: (Waker, Arc<Bell>),
    /// Those of this turn; kept for its memory.
    turn: Vec<u64>,
}

/// Who wants to be polled.
struct Calls {
    called: Mutex<Called>,
    /// Where the host is a task.
    runtime: Option<Handle>,
}

#[derive(Default)]
struct Called {
    tasks: Vec<u64>,
    /// Whoever polls the tasks, while it rests.
    resting: Option<Waker>,
}

/// What wakes one task, once until it is polled again.
struct Bell {
    task: u64,
    rung: AtomicBool,
    calls: Arc<Calls>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut called = self.calls.called.lock();
        called.tasks.push(self.task);
        let host = called.resting.take();
        drop(called);
        match (host, &self.calls.runtime) {
            (Some(host), Some(runtime)) => model::wake(host, runtime),
            (Some(host), None) => host.wake(),
            (None, _) => {}
        }
    }
}

/// A bell that is rung already.
fn bell(task: u64, calls: &Arc<Calls>) -> (Waker, Arc<Bell>) {
    let bell = Arc::new(Bell { task, rung: AtomicBool::new(true), calls: Arc::clone(calls) });
    calls.called.lock().tasks.push(task);
    (Waker::from(Arc::clone(&bell)), bell)
}

impl Default for Tasks {
    fn default() -> Tasks {
        let calls = Arc::new(Calls { called: Mutex::default(), runtime: Handle::try_current().ok() });
        let host = bell(HOST, &calls);
        Tasks { running: BTreeMap::new(), begun: HOST, calls, host, turn: Vec::new() }
    }
}

impl Tasks {
    /// Begins a task. It is polled in the next turn.
    pub(super) fn begin(&mut self, work: Work) {
        self.begun += 1;
        let (waker, bell) = bell(self.begun, &self.calls);
        self.running.insert(self.begun, (work, waker, bell));
    }

    /// What wakes the host as the tasks are woken. It is rung at first.
    pub(super) fn waker(&self) -> &Waker {
        &self.host.0
    }

    /// Polls every task that was woken, once. Whether the host's own bell was rung.
    pub(super) fn turn(&mut self) -> bool {
        std::mem::swap(&mut self.calls.called.lock().tasks, &mut self.turn);
        self.turn.sort_unstable();
        let mut host = false;
        for task in self.turn.drain(..) {
            if task == HOST {
                self.host.1.rung.store(false, Ordering::Release);
                host = true;
                continue;
            }
            let Some((work, waker, bell)) = self.running.get_mut(&task) else { continue };
            // Before the poll: who is woken during it wants another.
            bell.rung.store(false, Ordering::Release);
            if work.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                self.running.remove(&task);
            }
        }
        host
    }

    /// Whether nobody has called.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.called.lock().tasks.is_empty()
    }

    /// Lets the host rest until a bell is rung. False if one was: there is a turn to be done first.
    pub(super) fn rest(&self, waker: &Waker) -> bool {
        let mut called = self.calls.called.lock();
        let idle = called.tasks.is_empty();
        if idle && !called.resting.as_ref().is_some_and(|resting| resting.will_wake(waker)) {
            called.resting = Some(waker.clone());
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
        assert!(!noted.tasks.rest(&host), "somebody has called");
        assert_eq!((counted(), noted.turn()), (0, vec![1]));
        assert!(noted.tasks.rest(&host));
        (0..3).for_each(|n| noted.wake(n));
        assert_eq!((counted(), noted.turn()), (1, vec![0, 1, 2]));
        assert!(noted.tasks.rest(&host));
        noted.tasks.waker().wake_by_ref();
        assert_eq!(counted(), 2);
    }

    #[test]
    fn the_host_has_a_bell_of_its_own() {
        let mut tasks = Tasks::default();
        assert!(tasks.turn(), "at first it is rung");
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
