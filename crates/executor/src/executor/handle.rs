//! The operations of [`ExecutorHandle`]: requests spawn tasks and defer model steps to the connection's thread, or to a group of threads.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::queue::{DeferredStep, ExecutorHandle, ModelStep};

impl ExecutorHandle {
    /// Spawns a task within the connection, which drops the task when it ends itself. After the connection's end, the task is dropped at
    /// once. Call this only from a task of the connection.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = Box::pin(task);
        let mut queue = self.0.queue.lock();
        if !queue.closed {
            queue.spawned.push(task);
            return;
        }
        // Dropping a task may drop values that take the lock.
        drop(queue);
        drop(task);
    }

    /// Whether long steps may be deferred to it too.
    pub fn gathers(&self) -> bool {
        self.0.gathers
    }

    /// Defers a model step to the connection's thread, which runs it once all requests that have arrived are in their queues. Returns false
    /// if the thread cannot take it: the connection is not being polled, or has its maximum number of steps.
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
