//! What the owner of a connection's tasks, the holders of its handle and the threads that answer share.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use tokio::runtime::Handle;

use crate::sync::Mutex;

/// A future that runs to its end.
pub type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A load whose instances have steps that a connection's thread may run.
pub trait ModelStep: Debug + Send + Sync {
    /// Runs one step of the instance on this thread, if its own thread rests. Returns whether nothing is left for that thread. Steps of other models
    /// that follow from its answers may be left to `thread`, which is this one.
    fn try_step(&self, instance: u16, thread: &ExecutorHandle) -> bool;

    /// Wakes the instance's own thread.
    fn wake(&self, instance: u16);
}

/// A step that was left to a connection. It is run, or its instance is woken: a deferred step is never dropped.
#[derive(Debug)]
pub(super) struct DeferredStep {
    pub(super) load: Arc<dyn ModelStep>,
    pub(super) instance: u16,
}

impl DeferredStep {
    pub(super) fn run(self, thread: &ExecutorHandle) {
        if !self.load.try_step(self.instance, thread) {
            self.wake();
        }
    }

    pub(super) fn wake(self) {
        self.load.wake(self.instance);
    }
}

/// The handle of a connection, or of a group of threads: requests spawn tasks by it, and leave model steps to the connection's thread. Clones belong
/// to the same connection.
#[derive(Clone)]
pub struct ExecutorHandle(pub(super) Arc<HostQueue>);

pub(super) struct HostQueue {
    pub(super) queue: Mutex<TaskQueue>,
    /// Where the host is a task.
    pub(super) runtime: Option<Handle>,
    /// Maximum number of steps that are left to the host at a time.
    pub(super) steps: usize,
    /// Whether long steps are left to the host too, so that calls gather. It wakes their instances later.
    pub(super) gathers: bool,
}

#[derive(Default)]
pub(super) struct TaskQueue {
    /// Tasks that were woken, by number.
    pub(super) woken: Vec<u64>,
    /// Tasks that have not begun.
    pub(super) spawned: Vec<ConnectionTask>,
    /// The connection has ended: no task begins any more.
    pub(super) closed: bool,
    /// The host's own waker, while it rests.
    pub(super) resting: Option<Waker>,
    /// Whether the host polls its tasks just now, and will look here before it rests.
    pub(super) polling: bool,
    pub(super) deferred: Vec<DeferredStep>,
    /// Until then no step is left to the host.
    pub(super) refuses_until: Option<Instant>,
    /// Batches of answers that are being sent. Until they are, the host is not woken.
    pub(super) holds: u32,
}

impl TaskQueue {
    /// Whether there is a turn to be done.
    pub(super) fn has_tasks(&self) -> bool {
        !self.woken.is_empty() || !self.spawned.is_empty()
    }

    /// The host's waker, if the host rests although there is something to do.
    pub(super) fn host_to_wake(&mut self) -> Option<Waker> {
        if self.holds == 0 && self.has_tasks() { self.resting.take() } else { None }
    }
}
