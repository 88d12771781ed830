//! The loads of one model name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sequor_core::LoadId;

use crate::model::load::{LoadKey, LoadKeys, LoadedModel};

/// The loads as they were at one time.
pub(super) type LoadsNow = arc_swap::Guard<Arc<Vec<Arc<LoadedModel>>>>;

/// The loads that are there, newest last, and their keys. Read without a lock.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct ModelLoads {
    keys: LoadKeys,
    there: ArcSwap<Vec<Arc<LoadedModel>>>,
}

impl ModelLoads {
    pub(in crate::model::sequences) fn now(&self) -> LoadsNow {
        self.there.load()
    }

    /// Reserves the key of a load that is about to be made. Dropping the key makes its place free again.
    pub(in crate::model::sequences) fn reserve(&self) -> LoadKey {
        self.keys.reserve()
    }

    /// Whether a request may go to another load than it would at this moment: there are several, or one is being made.
    pub(in crate::model::sequences) fn may_change(&self) -> bool {
        self.keys.count() > 1
    }

    /// Whether this is the only load.
    pub(in crate::model::sequences) fn is_sole(&self, load: LoadId) -> bool {
        matches!(self.now().as_slice(), [only] if only.key == load)
    }

    pub(in crate::model::sequences) fn add(&self, load: &Arc<LoadedModel>) {
        self.there.rcu(|loads| loads.iter().cloned().chain([Arc::clone(load)]).collect::<Vec<_>>());
    }

    pub(in crate::model::sequences) fn remove(&self, load: LoadId) {
        self.there.rcu(|loads| loads.iter().filter(|l| l.key != load).cloned().collect::<Vec<_>>());
    }

    pub(in crate::model::sequences) fn find(&self, load: LoadId) -> Option<Arc<LoadedModel>> {
        self.now().iter().find(|l| l.key == load).cloned()
    }

    /// The load that serves this version, or the server's choice of one.
    pub(super) fn of_version(&self, version: Option<u64>) -> Option<Arc<LoadedModel>> {
        let loads = self.now();
        let fits = loads.iter().filter(|l| version.is_none_or(|v| v == l.version));
        // A retired one serves the sequences that live on it, and tells others what became of it. Of equals the last, which is the newest, wins.
        fits.max_by_key(|l| (!l.is_retired(), l.version)).cloned()
    }
}
