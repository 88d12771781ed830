//! Tasks that run within their connection's task instead of beside it: what they do for one client is done in one go, and what they answer
//! leaves together. The server puts a [`Beside`] into the requests that want one.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

/// Something to be run to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes tasks for the connection it belongs to. Clones are the same connection's.
#[derive(Clone, Default)]
pub struct Beside(Arc<Mutex<Vec<Task>>>);

impl Beside {
    /// Runs the task within the connection; it is dropped when that ends. To be called from a task of the connection.
    pub fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(task));
    }

    /// The tasks that came since the last time.
    pub fn take(&self) -> Vec<Task> {
        mem::take(&mut *self.0.lock())
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}
