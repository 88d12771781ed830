//! The limits of one guest: CPU time of a call, bytes of memory, and when a guest is replaced before it runs out.

use std::time::Duration;

/// What one guest may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of a call.
    pub time: Duration,
    /// Bytes of its linear memories together. Where nobody says, [`room`] more than it starts with.
    pub memory: Option<u64>,
}

/// The most that a guest may start with, where nobody says.
pub const AT_START: u64 = 64 << 20;

/// Bytes that a guest may gather beyond what it starts with, where nobody says. Whoever starts with much brings an interpreter along, whose
/// collector of garbage does not begin before there is some.
pub fn room(at_start: u64) -> u64 {
    at_start.saturating_mul(16).clamp(16 << 20, 128 << 20)
}

/// Whether a guest has gathered three quarters of what it may, and is to be replaced before it falls.
pub fn is_full(at_start: u64, limit: u64, memory: u64) -> bool {
    memory > at_start && memory >= at_start + limit.saturating_sub(at_start) / 4 * 3
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_millis(2), memory: None }
    }
}
