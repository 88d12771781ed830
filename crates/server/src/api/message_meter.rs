//! Counts an incomplete message on an upgraded connection against `limits.queued`, from its first byte until it is complete.
//!
//! The connection's stream adds the bytes that it reads. The API handler removes them, because only it knows where a message ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::queued::QueuedBytesPermit;
use super::{Status, refusal};

/// An incomplete message of at most this many bytes does not count.
const SMALL_MESSAGE: u64 = 64 << 10;

/// The meter of one connection. Clones share it. It counts nothing before [`MessageMeter::begin`].
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageMeter(Arc<MeterState>);

#[derive(Debug, Default)]
struct MeterState {
    counts: AtomicBool,
    message: Mutex<UnfinishedMessage>,
}

#[derive(Debug, Default)]
struct UnfinishedMessage {
    bytes: u64,
    permit: Option<QueuedBytesPermit>,
    /// The reason to close the connection.
    refused: Option<Status>,
}

impl MessageMeter {
    /// Starts to count the bytes that are read.
    pub(crate) fn begin(&self, permit: QueuedBytesPermit) {
        self.0.message.lock().permit = Some(permit);
        self.0.counts.store(true, Ordering::Release);
    }

    /// Whether the connection was upgraded.
    pub(crate) fn counts(&self) -> bool {
        self.0.counts.load(Ordering::Acquire)
    }

    /// Counts bytes that were read. False if they exceed the limit. The connection must then be closed.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        let mut message = self.0.message.lock();
        let UnfinishedMessage { bytes: unfinished, permit, refused } = &mut *message;
        *unfinished = unfinished.saturating_add(bytes as u64);
        let Some(permit) = permit.as_mut().filter(|_| *unfinished > SMALL_MESSAGE) else { return true };
        match permit.resize(*unfinished) {
            Ok(()) => true,
            Err(exceeded) => {
                *refused = Some(refusal::limit(&exceeded));
                false
            }
        }
    }

    /// The message is complete.
    pub(crate) fn finish(&self) {
        self.remove(u64::MAX);
    }

    /// Removes bytes that are not part of a message.
    pub(crate) fn remove(&self, bytes: u64) {
        let mut message = self.0.message.lock();
        message.bytes = message.bytes.saturating_sub(bytes);
        let counted = if message.bytes > SMALL_MESSAGE { message.bytes } else { 0 };
        if let Some(permit) = &mut message.permit {
            // Fewer bytes always fit.
            let _ = permit.resize(counted);
        }
    }

    /// Whether an incomplete message exists.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.0.message.lock().bytes > 0
    }

    /// Marks the connection to be closed.
    pub(crate) fn refuse(&self, status: Status) {
        self.0.message.lock().refused = Some(status);
    }

    /// The reason to close the connection, if there is one.
    pub(crate) fn refused(&self) -> Option<Status> {
        self.0.message.lock().refused.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::peers::Peer;
    use crate::api::queued::QueuedBytes;
    use crate::telemetry::kinds::Gauge;

    #[test]
    fn a_message_counts_until_it_is_whole_and_control_frames_do_not() {
        let shown = Gauge::default();
        let meter = MessageMeter::default();
        assert!(!meter.counts());
        meter.begin(QueuedBytes::new(200 << 10, shown.clone()).permit(&Peer::default()));
        assert!(meter.counts() && meter.add(20) && meter.is_unfinished());
        meter.remove(20);
        assert!(!meter.is_unfinished(), "a ping");
        assert!(meter.add(60 << 10));
        assert_eq!(shown.get(), 0, "it is small");
        assert!(meter.add(60 << 10));
        meter.remove(10);
        assert_eq!((shown.get(), meter.is_unfinished()), ((120 << 10) - 10, true), "a ping between two parts");
        meter.finish();
        assert_eq!((shown.get(), meter.is_unfinished()), (0, false));
        assert!(meter.add(150 << 10) && meter.refused().is_none());
        assert!(!meter.add(150 << 10));
        assert_eq!(meter.refused().map(|status| status.reason), Some("queue_full"));
        drop(meter);
        assert_eq!(shown.get(), 0);
    }
}
