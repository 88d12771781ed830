//! Bytes of requests that wait for their answers, all models and surfaces together, against `limits.queued`. A request that does not fit is
//! refused before anything of its sequence is touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::kinds::Gauge;

/// Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct Queued(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    used: AtomicU64,
    limit: u64,
    shown: Gauge,
}

/// Counted as long as this lives.
#[derive(Debug)]
pub(crate) struct Held {
    queued: Queued,
    bytes: u64,
}

impl Queued {
    /// `shown` follows the count.
    pub(crate) fn new(limit: u64, shown: Gauge) -> Queued {
        Queued(Arc::new(Inner { used: AtomicU64::new(0), limit, shown }))
    }

    /// Counts these bytes, or says how many there are already. Whoever brings none is always let in.
    pub(crate) fn take(&self, bytes: u64) -> Result<Held, u64> {
        let Inner { used, limit, shown } = &*self.0;
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= *limit || bytes == 0);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
        shown.add(signed(bytes));
        Ok(Held { queued: self.clone(), bytes })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.queued.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.queued.0.shown.add(-signed(self.bytes));
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_and_takes_nothing() {
        let shown = Gauge::default();
        let queued = Queued::new(10, shown.clone());
        let (first, none) = (queued.take(8).unwrap(), queued.take(0).unwrap());
        assert_eq!(queued.take(3).map(|_| ()), Err(8));
        assert_eq!(queued.take(u64::MAX).map(|_| ()), Err(8));
        let second = queued.take(2).unwrap();
        assert!(queued.take(0).is_ok(), "full, but this needs no room");
        assert_eq!(shown.get(), 10);
        drop((first, none));
        assert_eq!((queued.take(9).map(|_| ()), shown.get()), (Err(2), 2));
        drop(second);
        assert_eq!(shown.get(), 0);
    }
}
