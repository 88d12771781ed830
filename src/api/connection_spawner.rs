//! Tasks that run within their connection's task: their answers are written together. The dispatcher puts a [`ConnectionSpawner`] into the
//! requests that need one.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

/// A future that runs to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes tasks for one connection. Clones belong to the same connection.
#[derive(Clone, Default)]
pub struct ConnectionSpawner(Arc<Mutex<Vec<Task>>>);

impl ConnectionSpawner {
    /// Runs the task within the connection, which drops it when it ends. Call this from a task of the connection only.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(task));
    }

    /// Returns the tasks that were spawned since the last call.
    pub fn take(&self) -> Vec<Task> {
        mem::take(&mut *self.0.lock())
    }
}

impl std::fmt::Debug for ConnectionSpawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionSpawner")
    }
}
