//! What the server does once a second, on the timer's thread: it releases memory that was kept long enough.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::Time;

use crate::backend::Backend;
use crate::device::trim_heaps;
use crate::state::ChunkCache;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
#[cfg_attr(feature = "shuttle", allow(dead_code, reason = "there is no timer thread"))]
pub(in crate::model) struct Upkeep {
    chunk_cache: ChunkCache,
    backend: Arc<dyn Backend>,
    next: Time,
}

impl Upkeep {
    pub(in crate::model) fn new(chunk_cache: ChunkCache, backend: Arc<dyn Backend>) -> Upkeep {
        Upkeep { chunk_cache, backend, next: Time(0) }
    }

    /// Does what is due, if a second has passed since the last time.
    #[cfg_attr(feature = "shuttle", allow(dead_code, reason = "there is no timer thread"))]
    pub(in crate::model) fn run(&mut self, now: Time) {
        if now < self.next {
            return;
        }
        self.next = now + INTERVAL;
        let states = self.chunk_cache.release_due(now);
        let tensors = self.backend.release_memory(now);
        if states || tensors {
            trim_heaps();
        }
    }
}
