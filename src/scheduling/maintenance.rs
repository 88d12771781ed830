//! The thread that supervises all bindings: restarts, saves, parking. It sleeps until something is due or the alarm is raised.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use sequor_core::Time;

use super::scheduler_host::Alarm;

#[derive(Debug, Default)]
pub(super) struct Maintenance {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Alarm for Maintenance {
    fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_one();
    }
}

impl Maintenance {
    /// Starts the thread. `tend` does what is due and says when something is due next and what time it is; it ends with `None`.
    pub(super) fn start(
        self: &Arc<Self>,
        tend: impl Fn() -> Option<(Option<Time>, Time)> + Send + 'static,
    ) -> std::io::Result<()> {
        let maintenance = Arc::clone(self);
        let run = move || {
            while let Some((due, now)) = tend() {
                maintenance.sleep(due.map(|due| due - now));
            }
        };
        std::thread::Builder::new().name("sequor-plugins".to_owned()).spawn(run).map(drop)
    }

    /// Until the alarm is raised, or for this long.
    fn sleep(&self, span: Option<std::time::Duration>) {
        let mut raised = self.raised.lock();
        if !*raised {
            match span {
                Some(span) => drop(self.changed.wait_for(&mut raised, span)),
                None => self.changed.wait(&mut raised),
            }
        }
        *raised = false;
    }
}
