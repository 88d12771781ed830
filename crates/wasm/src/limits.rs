//! The limits of one guest: CPU time of a call, bytes of memory, and when a guest is replaced before it runs out.

use std::time::Duration;

/// What one guest may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of a call.
    pub time: Duration,
    /// Maximum bytes of its linear memories together. Default: [`room`] more than it starts with.
    pub memory: Option<u64>,
}

/// Maximum bytes that a guest may start with, by default.
pub const AT_START: u64 = 64 << 20;

/// Bytes that a guest may gather beyond what it starts with, by default. A guest that starts with much brings an interpreter along, whose garbage
/// collector does not begin earlier.
pub fn room(at_start: u64) -> u64 {
    at_start.saturating_mul(16).clamp(16 << 20, 128 << 20)
}

/// Whether a guest uses 75 % of what it may gather, and is to be replaced before it runs out.
pub fn is_full(at_start: u64, limit: u64, memory: u64) -> bool {
    memory > at_start && memory >= at_start + limit.saturating_sub(at_start) / 4 * 3
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_millis(2), memory: None }
    }
}
