//! Refuses a request whose task at the threads of plug-ins panics. Nothing else would answer it, nor free its slot.

use std::fmt;
use std::sync::{Arc, Weak};

use sequor_core::Req;

/// The model of a request whose task may fail.
pub(in crate::model::sequences) trait TaskHost: Send + Sync {
    /// Refuses a request whose task has panicked. Does nothing if the request no longer waits for the task.
    fn task_failed(self: Arc<Self>, req: Req);
}

/// Part of the task of a request. If a panic drops it, the task cannot be finished any more.
pub(in crate::model::sequences) struct TaskGuard {
    host: Weak<dyn TaskHost>,
    req: Req,
}

impl TaskGuard {
    pub(in crate::model::sequences) fn new(host: Weak<dyn TaskHost>, req: Req) -> TaskGuard {
        TaskGuard { host, req }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        // The locks that the panicking code held are released before this.
        if std::thread::panicking()
            && let Some(host) = self.host.upgrade()
        {
            host.task_failed(self.req);
        }
    }
}

impl fmt::Debug for TaskGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGuard").field("req", &self.req).finish_non_exhaustive()
    }
}
