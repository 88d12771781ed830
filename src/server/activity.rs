//! Whether a connection is in use: how many of its requests are active, and whether one was lately. No clock is read for a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The requests of one connection. Clones belong to the same connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    active: AtomicUsize,
    /// A request has begun since [`Activity::is_idle`] was last asked.
    used: AtomicBool,
}

/// A request whose response is not yet sent, as long as this lives.
#[derive(Debug)]
pub(super) struct ActiveRequest(Activity);

impl Activity {
    pub(super) fn begin(&self) -> ActiveRequest {
        self.0.active.fetch_add(1, Ordering::Relaxed);
        self.0.used.store(true, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Whether no request is active and none has been since the last call.
    pub(super) fn is_idle(&self) -> bool {
        let used = self.0.used.swap(false, Ordering::Relaxed);
        !used && self.0.active.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.0.active.fetch_sub(1, Ordering::Relaxed);
        self.0.0.used.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_if_nothing_was_active_since_the_last_look() {
        let activity = Activity::default();
        assert!(activity.is_idle());
        let request = activity.begin();
        assert_eq!((activity.is_idle(), activity.is_idle()), (false, false));
        drop(request);
        assert_eq!((activity.is_idle(), activity.is_idle()), (false, true));
    }
}
