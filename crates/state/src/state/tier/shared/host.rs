//! What the threads of the shared store have in common: the models that they call, the sign to stop, and how long servers wait for each other.

use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::state::tier::record::TierKey;

/// How far a sequence is that another server wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoverState {
    /// It is released, or is about to be.
    Done,
    /// No model here has it, nor is about to.
    Absent,
    /// It is busy. Ask again soon.
    Busy,
}

/// The models, as the shared store uses them. Its threads call this without a lock.
pub trait SharedHost: Send + Sync + fmt::Debug {
    /// Another server wants this sequence. Begins to give it up, or continues with that.
    fn hand_over(&self, key: &TierKey) -> HandoverState;

    /// The sequence did not become free in time. It stays here.
    fn keep(&self, key: &TierKey);

    /// Other servers own these sequences now. No request of them may be answered here.
    fn lost(&self, keys: Vec<TierKey>);

    /// Releases sequences that this server owns and that do not live here: those whose end was noted, or all.
    fn release_unused(&self, all: bool);
}

/// Figures for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedUsage {
    /// Sequences that this server owns.
    pub sequences: usize,
    /// Sequences that it has taken over or begun.
    pub claimed: u64,
    /// Those of them that another server had.
    pub taken_over: u64,
    /// Sequences that it has released.
    pub given_up: u64,
    /// Writes that came too late.
    pub fenced: u64,
    /// How often the lease ended without a heartbeat.
    pub lapsed: u64,
    pub has_lease: bool,
}

/// Stops the threads.
#[derive(Debug, Default)]
pub(super) struct StopSign {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl StopSign {
    /// Waits this long. Returns whether the threads stop.
    pub(super) fn wait(&self, span: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, span);
        }
        *is_set
    }

    pub(super) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }
}

/// Maximum time for which a sequence that another server has is asked for, besides two leases.
const HANDOVER: Duration = Duration::from_secs(2);

/// For how long one server asks another one for a sequence.
pub(super) fn handover_wait(lease: Duration) -> Duration {
    lease * 2 + HANDOVER
}
