//! What requests do with the handle of their connection, or of a group of threads: spawn tasks, and leave model steps to its thread.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::queue::{DeferredStep, ExecutorHandle, ModelStep};

impl ExecutorHandle {
    /// Runs the task within the connection, which drops it when it ends. After its end the task is dropped at once. Call this from a task of
    /// the connection only.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = Box::pin(task);
        let mut queue = self.0.queue.lock();
        if !queue.closed {
            queue.spawned.push(task);
            return;
        }
        // A task may hold what takes the lock when it is dropped.
        drop(queue);
        drop(task);
    }

    /// Whether long steps may be left to it too.
    pub fn gathers(&self) -> bool {
        self.0.gathers
    }

    /// Leaves a model step to the connection's thread, which runs it once all requests that have come in are in their queues. False if the
    /// thread cannot: the connection is not being polled, or has as many steps as it takes.
    pub fn defer(&self, load: &Arc<impl ModelStep + 'static>, instance: u16) -> bool {
        let mut queue = self.0.queue.lock();
        let is_refused = queue.refuses_until.is_some_and(|until| Instant::now() < until);
        let can = queue.polling && !is_refused && queue.deferred.len() < self.0.steps;
        if can {
            let load = Arc::clone(load) as Arc<dyn ModelStep>;
            queue.deferred.push(DeferredStep { load, instance });
        }
        can
    }
}

impl fmt::Debug for ExecutorHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExecutorHandle")
    }
}
