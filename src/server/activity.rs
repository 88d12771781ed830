//! Activity of a connection: the number of active requests, and whether there was one lately. A request needs no reading of the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The requests of one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<RequestCounts>);

#[derive(Debug, Default)]
struct RequestCounts {
    active: AtomicUsize,
    /// Whether a request has begun since the last [`Activity::is_idle`].
    used: AtomicBool,
}

/// An active request. Dropping it means that its response is sent.
#[derive(Debug)]
pub(super) struct ActiveRequest(Activity);

impl Activity {
    pub(super) fn begin(&self) -> ActiveRequest {
        self.0.active.fetch_add(1, Ordering::Relaxed);
        self.0.used.store(true, Ordering::Relaxed);
        ActiveRequest(self.clone())
    }

    /// Whether no request is active and none was active since the last call.
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
