//! The state that a connection's executor, the holders of its handle and the answering threads share.

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
    /// Runs one step of the instance on this thread, if the instance's own thread rests. Returns whether nothing is left for that thread.
    /// Steps of other models that follow from its answers may be deferred to `thread`, which is the calling one.
    fn try_step(&self, instance: u16, thread: &ExecutorHandle) -> bool;

    /// Wakes the instance's own thread.
    fn wake(&self, instance: u16);
}

/// A step deferred to a connection. The connection runs it or wakes its instance; it never drops the step.
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

/// The handle of a connection, or of a group of threads. Requests use it to spawn tasks and to defer model steps. Clones belong to the same
/// connection.
#[derive(Clone)]
pub struct ExecutorHandle(pub(super) Arc<HostQueue>);

pub(super) struct HostQueue {
    pub(super) queue: Mutex<TaskQueue>,
    /// The runtime, if the host is a task.
    pub(super) runtime: Option<Handle>,
    /// Maximum number of steps deferred to the host at a time.
    pub(super) steps: usize,
    /// Whether long steps are deferred to the host too, so that calls gather. The host then wakes their instances.
    pub(super) gathers: bool,
}

#[derive(Default)]
pub(super) struct TaskQueue {
    /// Tasks that were woken, by number.
    pub(super) woken: Vec<u64>,
    /// Tasks that have not started.
    pub(super) spawned: Vec<ConnectionTask>,
    /// Whether the connection has ended; no task starts any more.
    pub(super) closed: bool,
    /// The host's own waker, while it rests.
    pub(super) resting: Option<Waker>,
    /// Whether the host is polling its tasks. It then looks at this queue again before it rests.
    pub(super) polling: bool,
    pub(super) deferred: Vec<DeferredStep>,
    /// Until then, no step is deferred to the host.
    pub(super) refuses_until: Option<Instant>,
    /// Number of batches of answers that are being sent. While it is above 0, the host is not woken.
    pub(super) holds: u32,
}

impl TaskQueue {
    /// Whether another turn has work.
    pub(super) fn has_tasks(&self) -> bool {
        !self.woken.is_empty() || !self.spawned.is_empty()
    }

    /// The host's waker, if the host rests although it has work.
    pub(super) fn host_to_wake(&mut self) -> Option<Waker> {
        if self.holds == 0 && self.has_tasks() { self.resting.take() } else { None }
    }
}
