//! What plug-ins need of the server, as traits that it implements.

use sequor_core::{Hooks, Load, Observed, Portion, Time};

/// Nanoseconds of the clock that the core is driven by.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> Time;
}

/// What a plug-in needs of whoever drives the core. Never called while a guest is called, except [`SchedulerHost::sequence_text`].
pub trait SchedulerHost: Send + Sync + std::fmt::Debug {
    /// Tells the core which hooks of an external policy to call for this load, `None` is none, and does `with` in the same instant: before
    /// anybody is asked for these hooks, and after the last was for others. Nothing happens to a load that is gone.
    fn attach(&self, load: Load, hooks: Option<Hooks>, with: &mut dyn FnMut());

    /// Whether the load is there still.
    fn is_there(&self, load: Load) -> bool;

    /// Who lives on this load, from this place of the table on, as far as there is room ([`sequor_core::Core::live`]); `None` once it is gone.
    fn live(&self, load: Load, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion>;

    /// The client's id of a live sequence.
    fn sequence_text(&self, handle: u64) -> Option<String>;
}

/// Tells the maintenance thread that there is something to do.
pub trait Alarm: Send + Sync + std::fmt::Debug {
    fn raise(&self);
}
