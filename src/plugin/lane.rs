//! Where a guest sits: behind a lock of its own, with its place in what it is told. Whoever has a lane has one guest and no other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sequor_core::{Hooks, Round, Said};

use super::guest::{Events, Guest, Struck, is_full};
use super::inbox::Inbox;
use super::recent;

/// Events a guest is told in one call.
pub(super) const AT_ONCE: usize = 512;

#[derive(Debug)]
pub(super) struct Lane {
    /// What the core fills in for it; a round made for others is not for it.
    pub(super) hooks: Hooks,
    /// Bytes of its memory once it was ready: more than that is what it has gathered.
    pub(super) at_start: u64,
    /// Bytes it may have.
    pub(super) memory_limit: u64,
    /// As of its last call.
    memory: AtomicU64,
    seat: Mutex<Seat>,
}

#[derive(Debug)]
pub(super) struct Seat {
    /// Gone once it has failed.
    guest: Option<Box<dyn Guest>>,
    /// The serial number of the next event it is to be told.
    next: u64,
    events: Events,
    keys: usize,
}

impl Seat {
    pub(super) fn new(guest: Box<dyn Guest>, keys: usize) -> Seat {
        Seat { guest: Some(guest), next: 0, events: Events::default(), keys }
    }

    pub(super) fn into_lane(self, hooks: Hooks) -> Lane {
        let at_start = self.memory();
        let memory_limit = self.guest.as_ref().map_or(0, |guest| guest.memory_limit());
        Lane { hooks, at_start, memory_limit, memory: AtomicU64::new(at_start), seat: Mutex::new(self) }
    }

    pub(super) fn goes_on_from(&mut self, next: u64) {
        self.next = next;
    }

    pub(super) fn memory(&self) -> u64 {
        self.guest.as_ref().map_or(0, |guest| guest.memory())
    }

    /// Calls the guest; after a failure that ruins it, it is gone. `None`: it was gone before.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Guest) -> Result<T, Struck>,
    ) -> Option<Result<T, Struck>> {
        let result = call(self.guest.as_deref_mut()?);
        if result.is_err() {
            self.guest = None;
        }
        Some(result)
    }

    /// Tells it these, and counts none of them.
    pub(super) fn tell(&mut self, events: &Events) -> Option<Result<(), Struck>> {
        self.call(|guest| guest.observe(events))
    }

    /// Tells it what has happened since it was told last, and says whether anything has.
    pub(super) fn catch_up(&mut self, inbox: &Mutex<Inbox>) -> Option<Result<bool, Struck>> {
        let mut any = false;
        loop {
            let mut events = std::mem::take(&mut self.events);
            events.clear();
            self.next = inbox.lock().read(self.next, self.keys, AT_ONCE, &mut events);
            let told = if events.is_empty() { Some(Ok(())) } else { self.tell(&events) };
            any |= !events.is_empty();
            let through = events.len() < AT_ONCE;
            self.events = events;
            match told {
                Some(Ok(())) if !through => {}
                told => return told.map(|told| told.map(|()| any)),
            }
        }
    }

    pub(super) fn answer(&mut self, round: &mut Round) -> Option<Result<Said, Struck>> {
        self.call(|guest| recent::ask(guest, round))
    }
}

impl Lane {
    /// The seat, if it is free within this time.
    pub(super) fn enter(&self, within: Duration) -> Option<MutexGuard<'_, Seat>> {
        self.seat.try_lock().or_else(|| self.seat.try_lock_for(within))
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

    /// The seat, however long that takes.
    pub(super) fn wait(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock()
    }
}
