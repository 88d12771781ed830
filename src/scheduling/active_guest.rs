//! The guest that answers, behind a lock of its own, with its place in the event feed. A binding has at most one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::{Mutex, MutexGuard};
use sequor_core::{Hooks, PolicyAnswer, Round};
use sequor_wasm::call_error::CallError;
use sequor_wasm::instances::Single;
use sequor_wasm::limits::is_full;

use super::guest::{Codes, Events, Guest};
use super::inbox::Reader;
use super::recent;

/// Fewer events than this go with a question; more are reported before it.
pub const AT_ONCE: usize = 512;
/// A guest that holds its lock and makes no progress is most likely not on a processor. A caller waits this much longer than a call may take.
const PATIENCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct ActiveGuest {
    /// What the core fills in for it; a round made for others is not for it.
    hooks: Hooks,
    /// What clients read of the codes with which it rejects requests.
    codes: Codes,
    /// Bytes of its memory once it was ready: more than that is what it has gathered.
    pub(super) at_start: u64,
    /// Bytes it may have.
    pub(super) memory_limit: u64,
    /// As of its last call.
    memory: AtomicU64,
    /// How often events were lost before it started; `None` if it observes nothing.
    losses: Option<u64>,
    /// Since when it is called for something that may take longer than a request waits for.
    at_leisure: Mutex<Option<Instant>>,
    /// It decides no more. A thread that was handed it before still may call it, and need not.
    retired: AtomicBool,
    cell: Mutex<GuestCell>,
}

#[derive(Debug)]
pub(super) struct GuestCell {
    /// Gone once it has failed.
    guest: Single<Box<dyn Guest>>,
    /// Its place in the event feed, if it observes.
    reader: Option<Reader>,
    /// Events that go with the next question.
    events: Events,
    keys: usize,
}

impl GuestCell {
    pub(super) fn new(guest: Box<dyn Guest>, keys: usize) -> GuestCell {
        GuestCell { guest: Single::new(guest), reader: None, events: Events::default(), keys }
    }

    pub(super) fn into_active(self, hooks: Hooks, codes: Codes) -> ActiveGuest {
        let (at_start, losses) = (self.memory(), self.reader.as_ref().map(Reader::losses));
        let memory_limit = self.guest.guest().map_or(0, |guest| guest.memory_limit());
        let memory = AtomicU64::new(at_start);
        let (at_leisure, retired) = (Mutex::new(None), AtomicBool::new(false));
        let cell = Mutex::new(self);
        ActiveGuest { hooks, codes, at_start, memory_limit, memory, losses, at_leisure, retired, cell }
    }

    pub(super) fn reads(&mut self, reader: Reader) {
        self.reader = Some(reader);
    }

    pub(super) fn memory(&self) -> u64 {
        self.guest.guest().map_or(0, |guest| guest.memory())
    }

    /// Calls the guest; after a failure that ruins it, it is gone. `None`: it was gone before.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Guest) -> Result<T, CallError>,
    ) -> Option<Result<T, CallError>> {
        self.guest.call(|guest| call(guest.as_mut()))
    }

    /// Reports events without a question.
    pub(super) fn observe(&mut self, events: &Events) -> Option<Result<(), CallError>> {
        self.call(|guest| guest.observe(events))
    }

    /// Reads the events since the last call. The last of them go with the next question; if there are more, the guest observes those first.
    /// Whether it did.
    pub(super) fn catch_up(&mut self) -> Option<Result<bool, CallError>> {
        let mut any = false;
        loop {
            if let Some(reader) = &self.reader {
                reader.read(self.keys, AT_ONCE, &mut self.events);
            }
            if self.events.len() < AT_ONCE {
                return Some(Ok(any));
            }
            any = true;
            if let Err(error) = self.observe_rest()? {
                return Some(Err(error));
            }
        }
    }

    /// Reports all events since the last call without a question. Whether there were any.
    pub(super) fn catch_up_at_once(&mut self) -> Option<Result<bool, CallError>> {
        let caught_up = self.catch_up()?;
        if caught_up.is_err() || self.events.is_empty() {
            return Some(caught_up);
        }
        Some(self.observe_rest()?.map(|()| true))
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
        let answer = guest.call(|guest| recent::ask(guest.as_mut(), round, events));
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

    /// Notes that it decides no more.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// Whether it has missed something, where something was lost so often.
    pub(super) fn has_missed(&self, losses: u64) -> bool {
        self.losses.is_some_and(|before| before != losses)
    }

    /// Whether a call is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.cell.is_locked()
    }

    /// The cell, if it is free within the time that a call may take, and some.
    pub(super) fn enter(&self, within: Duration) -> Option<MutexGuard<'_, GuestCell>> {
        self.cell.try_lock().or_else(|| self.cell.try_lock_for(self.patience(within)))
    }

    /// The cell, if no call is under way.
    pub(super) fn try_enter(&self) -> Option<MutexGuard<'_, GuestCell>> {
        self.cell.try_lock()
    }

    /// How long a request waits. A call at leisure costs all that come while it lasts one such wait together: those who come later do without
    /// at once. Most such calls are short, and only seem long where the one that makes it is not on a processor.
    pub(super) fn patience(&self, within: Duration) -> Duration {
        let elapsed = self.at_leisure.lock().map_or(Duration::ZERO, |began| began.elapsed());
        (within + PATIENCE).saturating_sub(elapsed)
    }

    pub(super) fn remember(&self, memory: u64) {
        self.memory.store(memory, Ordering::Relaxed);
    }

    pub(super) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// Whether with so much memory it has gathered three quarters of what it may.
    pub(super) fn is_full(&self, memory: u64) -> bool {
        is_full(self.at_start, self.memory_limit, memory)
    }

    /// Calls the cell for something that may take long.
    pub(super) fn at_leisure<T>(&self, call: impl FnOnce(&mut GuestCell) -> T) -> T {
        let mut cell = self.cell.lock();
        *self.at_leisure.lock() = Some(Instant::now());
        let called = call(&mut cell);
        *self.at_leisure.lock() = None;
        called
    }

    /// The cell, as a call that takes long has it.
    #[cfg(test)]
    pub(super) fn wait(&self) -> MutexGuard<'_, GuestCell> {
        self.cell.lock()
    }
}
