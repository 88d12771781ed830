//! Faults that the interleaving tests plant, to check that a schedule finds them.

/// Ways to lose a wake-up, to run a task twice, and to run tasks out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// The host rests although a task was woken.
    RestsWithoutLooking,
    /// A model step deferred to the connection is dropped.
    ForgetsStep,
    /// After a batch of answers, resting hosts are not woken.
    LeavesHostAsleep,
    /// One wake-up makes a task poll twice.
    PollsTwice,
    /// The timer's thread is not notified of a new time.
    ArmsSilently,
    /// The timer ticks a model twice for one time.
    TicksTwice,
    /// The thread that supervises bindings is not notified of an alarm.
    AlarmsSilently,
    /// No thread of processors is notified of a task.
    SubmitsSilently,
    /// A lane whose task has ended gets no turn for its next one.
    ForgetsTurn,
    /// A lane gets a turn for each task, also beyond the threads that it may have.
    TakesEveryThread,
    /// The threads of processors end although tasks wait.
    LeavesTasks,
}

#[cfg(not(feature = "shuttle"))]
pub fn is_planted(_: PlantedFault) -> bool {
    false
}

#[cfg(feature = "shuttle")]
pub use tests::{is_planted, with};

#[cfg(feature = "shuttle")]
mod tests {
    use std::cell::Cell;

    use super::PlantedFault;

    std::thread_local! {
        /// The checker runs all threads of a schedule on the thread of its test.
        static NOW: Cell<Option<PlantedFault>> = const { Cell::new(None) };
    }

    pub fn is_planted(fault: PlantedFault) -> bool {
        NOW.get() == Some(fault)
    }

    /// Runs a test with this fault.
    pub fn with<T>(fault: PlantedFault, test: impl FnOnce() -> T) -> T {
        NOW.set(Some(fault));
        let outcome = test();
        NOW.set(None);
        outcome
    }
}
