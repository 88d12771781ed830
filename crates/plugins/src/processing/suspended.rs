//! Tasks that may wait. A waiting task holds no thread. The event that it waits for queues its next part.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};
use std::{fmt, mem};

use crate::sync::Mutex;

/// A piece of work that a thread does once.
pub type Task = Box<dyn FnOnce() + Send>;
/// A task that may wait.
pub(super) type WaitingTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A queue for the parts of tasks.
pub(super) trait LaneQueue: Send + Sync {
    fn queue(&self, lane: u64, task: Task);
}

/// The task waits. Waking it queues it.
const WAITS: u8 = 0;
const QUEUED: u8 = 1;
const RUNS: u8 = 2;
/// The task was woken while it ran, so it is queued afterwards.
const WOKEN: u8 = 3;
const OVER: u8 = 4;

/// A task that may wait. Its wakers own it: if all of them are dropped while it waits, the task is dropped.
pub(super) struct SuspendedTask {
    queue: Weak<dyn LaneQueue>,
    lane: u64,
    stage: AtomicU8,
    /// Locked only by the thread that runs the task.
    task: Mutex<Option<WaitingTask>>,
}

impl SuspendedTask {
    /// Runs a task on this thread until it waits.
    pub(super) fn start(queue: Weak<dyn LaneQueue>, lane: u64, task: WaitingTask) {
        let stage = AtomicU8::new(QUEUED);
        Arc::new(SuspendedTask { queue, lane, stage, task: Mutex::new(Some(task)) }).run();
    }

    fn run(self: Arc<Self>) {
        self.stage.store(RUNS, Ordering::Release);
        let waker = Waker::from(Arc::clone(&self));
        let mut task = self.task.lock();
        let is_over = task.as_mut().is_none_or(|task| task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        if is_over {
            self.stage.store(OVER, Ordering::Release);
            let task = mem::take(&mut *task);
            drop(task);
            return;
        }
        drop(task);
        if self.stage.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.stage.store(QUEUED, Ordering::Release);
            self.queue_again();
        }
    }

    fn queue_again(self: Arc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            let lane = self.lane;
            queue.queue(lane, Box::new(move || self.run()));
        }
    }
}

impl Wake for SuspendedTask {
    fn wake(self: Arc<Self>) {
        let woken = |stage| match stage {
            WAITS => Some(QUEUED),
            RUNS => Some(WOKEN),
            _ => None,
        };
        if self.stage.fetch_update(Ordering::AcqRel, Ordering::Acquire, woken) == Ok(WAITS) {
            self.queue_again();
        }
    }
}

impl fmt::Debug for SuspendedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuspendedTask").field("lane", &self.lane).finish_non_exhaustive()
    }
}
