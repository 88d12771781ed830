//! The limits of one guest: CPU time of a call, bytes of memory, and the point at which a guest is replaced before it runs out.

use std::time::Duration;

/// The limits of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of a call.
    pub time: Duration,
    /// Maximum bytes of its linear memories together. Default: [`room`] beyond its memory at start.
    pub memory: Option<u64>,
}

/// Default maximum of the bytes that a guest may have at start.
pub const AT_START: u64 = 64 << 20;

/// Default of the bytes that a guest may add to its memory at start. A guest with much memory at start contains an interpreter, and its
/// garbage collector does not run earlier.
pub fn room(at_start: u64) -> u64 {
    at_start.saturating_mul(16).clamp(16 << 20, 128 << 20)
}

/// Whether a guest uses 75 % of the memory that it may add. Then it is replaced before it runs out.
pub fn is_full(at_start: u64, limit: u64, memory: u64) -> bool {
    memory > at_start && memory >= at_start + limit.saturating_sub(at_start) / 4 * 3
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_millis(2), memory: None }
    }
}
