//! Faults that tests plant, to prove that the properties find them. Compiled only with the feature `planted`.
#![cfg_attr(not(feature = "planted"), allow(unreachable_pub, reason = "public where it is used"))]

macro_rules! faults {
    ($($name:ident,)*) => {
        /// One wrong line of the core each.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Planted { $($name,)* }

        #[cfg(feature = "planted")]
        impl Planted {
            pub const ALL: &[Planted] = &[$(Planted::$name,)*];
        }
    };
}

faults! {
    SlotReleasedTwice,
    FreeForgotten,
    EndBeforeItsQueue,
    EndForgotten,
    StalePickAccepted,
    IdleNotRefreshed,
    CancelForgetsOne,
    BacklogLastInFirstOut,
    IdNotUnlinked,
    SecondLiveKept,
    GenerationNotBumped,
    ReleasedOutOfOrder,
    BatchOneTooLarge,
    ShapesMixed,
    StateShapeForgotten,
    WrongReason,
    TimerLate,
    RestartWithoutInit,
    AdoptForgotten,
    WakeForgotten,
    StartedWithoutEnded,
    StepOffByOne,
    DrainForgetsOne,
    EvictedTooEarly,
    LimitOffByOne,
    TwoInFlight,
    SlotOutOfOrder,
    SealSkipped,
    SealUnnamed,
    ReplayedBeforeAnswered,
    MaxWaitIgnored,
    FallbackForgotten,
    GivenUpUncounted,
    BacklogBytesLeak,
    ConsultForgotten,
    DoneUntold,
    HalvesTaken,
    NewcomerToldTwice,
    EndUntold,
    IdleUncapped,
    CancelledBetweenRuns,
    RunsMiscounted,
    ReplyForgetsStart,
    ReplyNotSealed,
    ReplyUntold,
    PreparedTwice,
    RefusalEndsNothing,
    OwnMaxWaitIgnored,
    KeptSequenceEnded,
    EndedWithoutKeys,
    RunTimeOfAnyBatch,
    HeldExpires,
    ReservedLate,
    LevelIgnored,
    LevelFullIgnored,
    LateKeepsItsPlace,
    StateShownEarly,
    ReplayedBeforeItsTurn,
    DeadlinesKept,
    NothingGoesBack,
    MovedWithoutDeadline,
    MovedStillAdmitted,
    AdoptedBesideLive,
    LostInstanceRuns,
    RolledBackEnds,
}

#[cfg(feature = "planted")]
mod on {
    use super::Planted;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
    }

    /// Plants a fault in every core that this thread calls.
    pub fn plant(fault: Option<Planted>) {
        PLANTED.set(fault);
    }

    pub(crate) fn fault(which: Planted) -> bool {
        PLANTED.get() == Some(which)
    }
}

#[cfg(feature = "planted")]
pub(crate) use on::fault;
#[cfg(feature = "planted")]
pub use on::plant;

#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn fault(_: Planted) -> bool {
    false
}
