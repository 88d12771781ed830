//! What plug-ins need of the server, as traits that it implements.

use sequor_core::{LoadId, Observed, Portion, Time};

use super::load_policy::LoadPolicy;

/// Nanoseconds of the clock that the core is driven by.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Time;
}

/// What plug-ins need of the owner of a core. Never called while a guest is called, except [`SchedulerHost::sequence_text`].
pub trait SchedulerHost<D>: Send + Sync + std::fmt::Debug {
    /// Changes which policy decides for a load, under the lock of its core, and gives the core the event of the change. `change` takes no lock
    /// but a binding's `health`. Does nothing if the load is gone.
    fn change(&self, load: LoadId, change: &mut dyn FnMut(&mut LoadPolicy<D>));

    /// The plug-in that decides for a load.
    fn decider(&self, load: LoadId) -> Option<D>;

    /// Whether the load is there still.
    fn is_there(&self, load: LoadId) -> bool;

    /// The sequences that live on this load, from this place of the table on, as far as there is room ([`sequor_core::Core::live`]). `None` once
    /// the load is gone.
    fn live(&self, load: LoadId, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion>;

    /// The client's id of a live sequence.
    fn sequence_text(&self, handle: u64) -> Option<String>;
}

/// Tells the maintenance thread that there is something to do.
pub trait Alarm: Send + Sync + std::fmt::Debug {
    fn raise(&self);
}
