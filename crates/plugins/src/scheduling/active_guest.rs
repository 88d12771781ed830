//! The guest that answers, behind its own lock, with its place in the event feed. A binding has at most one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};
use sequor_core::{Hooks, PolicyAnswer, Round};
use sequor_wasm::call_error::CallError;
use sequor_wasm::instances::Single;
use sequor_wasm::limits::is_full;
use sequor_wasm::room::RoomTicket;

use super::guest::{Codes, Events, Guest};
use super::inbox::Reader;
use super::recent;

/// Up to this many events go with a question. More than that are reported before it.
pub const AT_ONCE: usize = 512;
/// Maximum calls of a guest that reports events without a question, before other work gets its turn.
pub(super) const CALLS_AT_ONCE: usize = 8;
/// The same for a guest that starts. They are enough for all events that a feed keeps.
pub(super) const CALLS_AT_START: usize = 128;
/// A caller waits this much longer for the guest than the time limit of a call, because the thread that calls the guest may get no CPU time
/// for a while.
const PATIENCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct ActiveGuest {
    /// The hooks for which the core fills in its rounds. A round made for other hooks is not for this guest.
    hooks: Hooks,
    /// The codes with which it rejects requests, and the text that clients read of each.
    codes: Codes,
    /// Bytes of its memory once it was ready. Memory beyond that counts as growth.
    pub(super) at_start: u64,
    /// Its memory limit in bytes.
    pub(super) memory_limit: u64,
    /// Bytes of its memory after its last call.
    memory: AtomicU64,
    /// Number of losses of events before it started; `None` if it does not observe.
    losses: Option<u64>,
    /// The start of a call that may take longer than a request waits, while one runs.
    long_call_began: Mutex<Option<Instant>>,
    /// Whether it no longer decides. A thread that got it before may still call it, but need not.
    retired: AtomicBool,
    cell: Mutex<GuestCell>,
}

#[derive(Debug)]
pub(super) struct GuestCell {
    /// The guest, until it fails.
    guest: Single<RoomyGuest>,
    /// Its place in the event feed, if it observes.
    reader: Option<Reader>,
    /// Events for the next question.
    events: Events,
    keys: usize,
}

/// A guest, and its room, which is free once the guest has ended.
#[derive(Debug)]
struct RoomyGuest {
    guest: Box<dyn Guest>,
    #[allow(dead_code, reason = "only its drop matters")]
    room: RoomTicket,
}

/// How far a guest has come with its events before a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CaughtUp {
    /// Whether it observed events in a call of its own.
    pub(super) observed: bool,
    /// Whether more events may wait than it has observed, or than go with a question. It must not be asked before it has observed them.
    pub(super) is_behind: bool,
}

impl GuestCell {
    pub(super) fn new(guest: Box<dyn Guest>, room: RoomTicket, keys: usize) -> GuestCell {
        GuestCell { guest: Single::new(RoomyGuest { guest, room }), reader: None, events: Events::default(), keys }
    }

    pub(super) fn into_active(self, hooks: Hooks, codes: Codes) -> ActiveGuest {
        let (at_start, losses) = (self.memory(), self.reader.as_ref().map(Reader::losses));
        let memory_limit = self.guest.guest().map_or(0, |roomy| roomy.guest.memory_limit());
        let memory = AtomicU64::new(at_start);
        let (long_call_began, retired) = (Mutex::new(None), AtomicBool::new(false));
        let cell = Mutex::new(self);
        ActiveGuest { hooks, codes, at_start, memory_limit, memory, losses, long_call_began, retired, cell }
    }

    pub(super) fn reads(&mut self, reader: Reader) {
        self.reader = Some(reader);
    }

    pub(super) fn memory(&self) -> u64 {
        self.guest.guest().map_or(0, |roomy| roomy.guest.memory())
    }

    /// Calls the guest. After a failure that ruins it, it is dropped. `None`: it was dropped before.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Guest) -> Result<T, CallError>,
    ) -> Option<Result<T, CallError>> {
        self.guest.call(|roomy| call(roomy.guest.as_mut()))
    }

    /// Reports events without a question.
    pub(super) fn observe(&mut self, events: &Events) -> Option<Result<(), CallError>> {
        self.call(|guest| guest.observe(events))
    }

    /// Reads the events since the last call. The last of them go with the next question. If there are more, the guest observes some of those
    /// first, in one call: the time of a question is limited by that of its calls.
    pub(super) fn catch_up(&mut self) -> Option<Result<CaughtUp, CallError>> {
        if !self.reads_many() {
            return Some(Ok(CaughtUp { observed: false, is_behind: false }));
        }
        let observed = self.observe_rest()?;
        Some(observed.map(|()| CaughtUp { observed: true, is_behind: self.reads_many() }))
    }

    /// Reports the events since the last call without a question, in at most this many calls.
    pub(super) fn catch_up_within(&mut self, calls: usize) -> Option<Result<CaughtUp, CallError>> {
        let mut caught_up = CaughtUp { observed: false, is_behind: true };
        for _ in 0..calls {
            caught_up.is_behind = self.reads_many();
            if self.events.is_empty() {
                break;
            }
            caught_up.observed = true;
            if let Err(error) = self.observe_rest()? {
                return Some(Err(error));
            }
            if !caught_up.is_behind {
                break;
            }
        }
        Some(Ok(caught_up))
    }

    /// Reads events. Returns whether there are too many for one question.
    fn reads_many(&mut self) -> bool {
        if let Some(reader) = &self.reader {
            reader.read(self.keys, AT_ONCE, &mut self.events);
        }
        self.events.len() >= AT_ONCE
    }

    fn observe_rest(&mut self) -> Option<Result<(), CallError>> {
        let mut events = std::mem::take(&mut self.events);
        let observed = self.observe(&events);
        events.clear();
        self.events = events;
        observed
    }

    pub(super) fn answer(&mut self, round: &mut Round) -> Option<Result<PolicyAnswer, CallError>> {
        let GuestCell { guest, events, .. } = self;
        let answer = guest.call(|roomy| recent::ask(roomy.guest.as_mut(), round, events));
        events.clear();
        answer
    }
}

impl ActiveGuest {
    pub(super) fn hooks(&self) -> Hooks {
        self.hooks
    }

    pub(super) fn codes(&self) -> Codes {
        Arc::clone(&self.codes)
    }

    /// Records that it no longer decides.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether it has missed an event, at this number of losses.
    pub(super) fn has_missed(&self, losses: u64) -> bool {
        self.losses.is_some_and(|before| before != losses)
    }

    /// Whether a call runs.
    pub(super) fn is_busy(&self) -> bool {
        self.cell.is_locked()
    }

    /// The cell, if it becomes free within the time limit of a call plus [`PATIENCE`].
    pub(super) fn enter(&self, within: Duration) -> Option<MutexGuard<'_, GuestCell>> {
        self.cell.try_lock().or_else(|| self.cell.try_lock_for(self.patience(within)))
    }

    /// The cell, if no call runs.
    pub(super) fn try_enter(&self) -> Option<MutexGuard<'_, GuestCell>> {
        self.cell.try_lock()
    }

    /// How long a request waits for the cell. The time counts from the beginning of a long call, if one runs. So all requests during one long
    /// call share one such wait, and later ones do not wait. Most of these calls are short, unless their thread gets no CPU time.
    pub(super) fn patience(&self, within: Duration) -> Duration {
        let elapsed = self.long_call_began.lock().map_or(Duration::ZERO, |began| began.elapsed());
        (within + PATIENCE).saturating_sub(elapsed)
    }

    pub(super) fn remember(&self, memory: u64) {
        self.memory.store(memory, Ordering::Relaxed);
    }

    pub(super) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// Whether at this memory it has used three quarters of the growth that its limit allows.
    pub(super) fn is_full(&self, memory: u64) -> bool {
        is_full(self.at_start, self.memory_limit, memory)
    }

    /// Calls the cell for an operation that may take long.
    pub(super) fn call_long<T>(&self, call: impl FnOnce(&mut GuestCell) -> T) -> T {
        let mut cell = self.cell.lock();
        *self.long_call_began.lock() = Some(Instant::now());
        let called = call(&mut cell);
        *self.long_call_began.lock() = None;
        called
    }

    /// The cell, held as by a call that takes long.
    #[cfg(test)]
    pub(super) fn wait(&self) -> MutexGuard<'_, GuestCell> {
        self.cell.lock()
    }
}
