//! One load, as plug-ins reach it: the hooks that its core calls, and its event feed. One per load, and the same for every plug-in that decides there.

use std::sync::Arc;

use parking_lot::Mutex;
use sequor_core::{Hooks, Load, Observed, Roster};

use super::guest::Events;
use super::inbox::Inbox;
use super::scheduler_host::SchedulerHost;
use crate::wasm::background::give_way;

/// Places of the core's table of sequences that are looked at while it is held: some microseconds.
const PORTION: usize = 256;

#[derive(Debug)]
pub struct SchedulerPort {
    load: Load,
    driver: Arc<dyn SchedulerHost>,
    calls: Mutex<Calls>,
    inbox: Mutex<Inbox>,
}

#[derive(Debug, Default)]
struct Calls {
    /// The hooks of the plug-in that decides; `None`: none does.
    decides: Option<Hooks>,
    /// Those who come and must know what happens meanwhile.
    subscribers: usize,
    /// What the core calls for now.
    now: Option<Hooks>,
}

/// While it lives, the core reports events even if the plug-in that decides wants none.
#[derive(Debug)]
pub(super) struct Subscription(Arc<SchedulerPort>);

/// A place in the event feed.
#[derive(Debug)]
pub(super) struct Reader {
    port: Arc<SchedulerPort>,
    number: u64,
    /// How often something was lost before it came.
    losses: u64,
}

impl Calls {
    /// A subscriber changes no questions: then only more events are reported.
    fn wanted(&self) -> Option<Hooks> {
        match self.decides {
            Some(hooks) => Some(Hooks { observe: hooks.observe || self.subscribers > 0, ..hooks }),
            None => (self.subscribers > 0).then(|| Hooks { observe: true, ..Hooks::default() }),
        }
    }
}

impl SchedulerPort {
    pub fn new(load: Load, driver: Arc<dyn SchedulerHost>) -> Arc<SchedulerPort> {
        Arc::new(SchedulerPort { load, driver, calls: Mutex::default(), inbox: Mutex::default() })
    }

    pub(super) fn load(&self) -> Load {
        self.load
    }

    pub(super) fn driver(&self) -> &Arc<dyn SchedulerHost> {
        &self.driver
    }

    pub(super) fn is_there(&self) -> bool {
        self.driver.is_there(self.load)
    }

    /// Who lives, portion by portion: requests go on between two of them. `None`: the load is gone.
    pub(super) fn live(&self) -> Option<Roster> {
        let (mut roster, mut room) = (Roster::default(), Vec::with_capacity(PORTION));
        while let Some(place) = roster.place() {
            room = roster.add(self.driver.live(self.load, place, room)?);
            give_way();
        }
        Some(roster)
    }

    /// Has the core call for these hooks, and does `with` in the same instant: no question is made for the one and put to the other. Neither,
    /// unless `may` allows it, which is asked once no other thread can change the hooks. `with` runs under locks: it stores, and drops nothing.
    pub(super) fn set_hooks(&self, may: impl FnOnce() -> bool, hooks: Option<Hooks>, with: &mut dyn FnMut()) {
        let mut calls = self.calls.lock();
        if !may() {
            return;
        }
        calls.decides = hooks;
        self.settle(&mut calls, with);
    }

    fn settle(&self, calls: &mut Calls, with: &mut dyn FnMut()) {
        let wanted = calls.wanted();
        if wanted == calls.now {
            return with();
        }
        calls.now = wanted;
        self.driver.attach(self.load, wanted, with);
    }

    /// From now on the core tells what happens.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription {
        let mut calls = self.calls.lock();
        calls.subscribers += 1;
        self.settle(&mut calls, &mut || {});
        Subscription(Arc::clone(self))
    }

    /// From now on events are kept until they are read.
    pub(super) fn reader(self: &Arc<Self>) -> Reader {
        let (number, losses) = self.inbox.lock().enter();
        Reader { port: Arc::clone(self), number, losses }
    }

    /// What happened, from this serial number on; `lost`: something before it is missing for good. Says how often that was so.
    pub fn put(&self, first: u64, news: Vec<Observed>, lost: bool) -> u64 {
        self.inbox.lock().put(first, news, lost)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut calls = self.0.calls.lock();
        calls.subscribers -= 1;
        self.0.settle(&mut calls, &mut || {});
    }
}

impl Reader {
    /// It knows who lives, and is to be told what happens beyond that.
    pub(super) fn goes_on_from(&self, roster: Roster) {
        self.port.inbox.lock().goes_on_from(self.number, roster);
    }

    /// Appends at most about `most` of what comes next.
    pub(super) fn read(&self, keys: usize, most: usize, into: &mut Events) {
        self.port.inbox.lock().read(self.number, keys, most, into);
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.port.inbox.lock().leave(self.number);
    }
}
