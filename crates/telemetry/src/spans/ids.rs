//! Ids of traces and spans, and the decision which of several traces to keep.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes ids that no other process makes, without a lock: the hash of a counter, with a key of this process.
#[derive(Debug, Default)]
pub(super) struct IdSource {
    key: RandomState,
    next: AtomicU64,
}

impl IdSource {
    /// A new id, which is never 0.
    pub(super) fn next(&self) -> u64 {
        self.key.hash_one(self.next.fetch_add(1, Relaxed)).max(1)
    }

    /// A value that is the same for the same id while this process runs, from which the id cannot be found.
    pub(super) fn hash(&self, id: &impl std::hash::Hash) -> u64 {
        self.key.hash_one(id)
    }
}

/// The share of traces that are kept. It can change; clones share it.
#[derive(Debug, Clone)]
pub(super) struct SampleShare(Arc<AtomicU64>);

/// Values of [`SampleShare`] from none to all: 2 to the power of 63.
const ALL: u64 = 1 << 63;

impl SampleShare {
    pub(super) fn new(share: f64) -> SampleShare {
        SampleShare(Arc::new(AtomicU64::new(limit(share))))
    }

    pub(super) fn set(&self, share: f64) {
        self.0.store(limit(share), Relaxed);
    }

    /// Whether a trace whose id ends with these random bits is kept.
    pub(super) fn keeps(&self, bits: u64) -> bool {
        bits >> 1 < self.0.load(Relaxed)
    }
}

/// The number of values of 63 bits that are kept.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2^63")]
fn limit(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * ALL as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_kept_traces_is_the_one_that_is_set() {
        let ids = IdSource::default();
        let kept = |share: f64| (0..40_000).filter(|_| SampleShare::new(share).keeps(ids.next())).count();
        let quarter = kept(0.25);
        assert!((9_000..11_000).contains(&quarter), "{quarter}");
        assert_eq!((kept(0.0), kept(1.0)), (0, 40_000));
        assert!(SampleShare::new(1.0).keeps(u64::MAX));
    }

    #[test]
    fn ids_differ_and_hashes_stay() {
        let (ids, others) = (IdSource::default(), IdSource::default());
        assert_ne!(ids.next(), ids.next());
        assert_eq!(ids.hash(&"call-7"), ids.hash(&"call-7"));
        assert_ne!(ids.hash(&"call-7"), others.hash(&"call-7"));
    }
}
