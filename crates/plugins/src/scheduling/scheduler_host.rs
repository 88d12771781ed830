//! The server as plug-ins need it, as traits that it implements.

use sequor_core::{LoadId, Observed, Portion, Time};

use super::load_policy::LoadPolicy;

/// The clock that drives the core, in nanoseconds.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Time;
}

/// The owner of a core, as plug-ins need it. Never called during a guest's call, except [`SchedulerHost::sequence_text`].
pub trait SchedulerHost<D>: Send + Sync + std::fmt::Debug {
    /// Changes the policy that decides for a load, under the lock of its core, and gives the core the event of the change. `change` takes
    /// no lock except a binding's `health`. Does nothing if the load is gone.
    fn change(&self, load: LoadId, change: &mut dyn FnMut(&mut LoadPolicy<D>));

    /// The plug-in that decides for a load.
    fn decider(&self, load: LoadId) -> Option<D>;

    /// Whether the load still exists.
    fn is_there(&self, load: LoadId) -> bool;

    /// The live sequences of this load, from this place of the table on, as far as `room` allows ([`sequor_core::Core::live`]). `None` once
    /// the load is gone.
    fn live(&self, load: LoadId, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion>;

    /// The client's id of a live sequence.
    fn sequence_text(&self, handle: u64) -> Option<String>;
}

/// Wakes the maintenance thread because there is something to do.
pub trait Alarm: Send + Sync + std::fmt::Debug {
    fn raise(&self);
}
