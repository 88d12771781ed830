//! One load, as plug-ins reach it: the policy that decides for it, and its event feed. All plug-ins that decide for a load share it.

use std::sync::Arc;

use crate::sync::Mutex;
use sequor_core::{LoadId, Observed, Roster};
use sequor_wasm::background::give_way;

use super::guest::Codes;
use super::inbox::{Inbox, Reader};
use super::load_policy::LoadPolicy;
use super::scheduler_host::SchedulerHost;
use crate::error::RejectionReason;

/// Places of the core's table of sequences read under its lock at a time: some microseconds.
const PORTION: usize = 256;

#[derive(Debug)]
pub struct SchedulerPort<D> {
    load: LoadId,
    host: Arc<dyn SchedulerHost<D>>,
    inbox: Arc<Mutex<Inbox>>,
    /// The codes of the plug-in that decides, or decided last, with the text that clients read of each.
    codes: Mutex<Codes>,
}

/// While it exists, the core reports events even if the plug-in that decides wants none.
#[derive(Debug)]
pub(super) struct Subscription<D>(Arc<SchedulerPort<D>>);

impl<D> SchedulerPort<D> {
    pub fn new(load: LoadId, host: Arc<dyn SchedulerHost<D>>) -> Arc<SchedulerPort<D>> {
        Arc::new(SchedulerPort { load, host, inbox: Arc::default(), codes: Mutex::default() })
    }

    /// The text and status, for clients, of a code with which the plug-in rejects requests. `None` if its plugin.toml does not name the
    /// code.
    pub fn rejection(&self, code: u32) -> Option<RejectionReason> {
        self.codes.lock().get(&code).cloned()
    }

    pub(super) fn set_codes(&self, codes: Codes) {
        *self.codes.lock() = codes;
    }

    pub(super) fn load(&self) -> LoadId {
        self.load
    }

    pub(super) fn host(&self) -> &Arc<dyn SchedulerHost<D>> {
        &self.host
    }

    pub(super) fn is_there(&self) -> bool {
        self.host.is_there(self.load)
    }

    /// The plug-in that decides for the load.
    pub(super) fn decider(&self) -> Option<D> {
        self.host.decider(self.load)
    }

    /// Changes the policy that decides, as [`SchedulerHost::change`] does. `None`: the load is gone.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut LoadPolicy<D>) -> T) -> Option<T> {
        let (mut change, mut changed) = (Some(change), None);
        self.host.change(self.load, &mut |policy| changed = change.take().map(|change| change(policy)));
        changed
    }

    /// The live sequences, read in portions, so that requests run in between. `None`: the load is gone.
    pub(super) fn live(&self) -> Option<Roster> {
        let (mut roster, mut room) = (Roster::default(), Vec::with_capacity(PORTION));
        while let Some(place) = roster.place() {
            room = roster.add(self.host.live(self.load, place, room)?);
            give_way();
        }
        Some(roster)
    }

    /// Makes the core report events from now on.
    pub(super) fn subscribe(self: &Arc<Self>) -> Subscription<D> {
        self.change(LoadPolicy::subscribe);
        Subscription(Arc::clone(self))
    }

    /// A new reader: from now on events are kept until it has read them.
    pub(super) fn reader(&self) -> Reader {
        Reader::new(&self.inbox)
    }

    /// Adds events, from this serial number on. `lost`: an event before them is missing for good. Returns the number of losses.
    pub fn append(&self, first: u64, news: Vec<Observed>, lost: bool) -> u64 {
        self.inbox.lock().append(first, news, lost)
    }
}

impl<D> Drop for Subscription<D> {
    fn drop(&mut self) {
        self.0.change(LoadPolicy::unsubscribe);
    }
}
