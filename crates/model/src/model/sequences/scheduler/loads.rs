//! The loads of one model name.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sequor_core::LoadId;

use crate::model::load::{LoadKey, LoadKeys, LoadedModel};

/// The loads at one point in time.
pub(super) type LoadsNow = arc_swap::Guard<Arc<Vec<Arc<LoadedModel>>>>;

/// The existing loads, newest last, and their keys. Read without a lock.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct ModelLoads {
    keys: LoadKeys,
    there: ArcSwap<Vec<Arc<LoadedModel>>>,
}

impl ModelLoads {
    pub(in crate::model::sequences) fn now(&self) -> LoadsNow {
        self.there.load()
    }

    /// Reserves the key of a load that is about to be made. Dropping the key frees its place.
    pub(in crate::model::sequences) fn reserve(&self) -> LoadKey {
        self.keys.reserve()
    }

    /// Whether a later request may go to another load than now: there are several loads, or one is being made.
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

    /// The load that serves this version. If none is named, the load that the server chooses.
    pub(super) fn of_version(&self, version: Option<u64>) -> Option<Arc<LoadedModel>> {
        let loads = self.now();
        let fits = loads.iter().filter(|l| version.is_none_or(|v| v == l.version));
        // A retired load is the last choice: it serves only its live sequences and refuses others with the reason. Of equals, `max_by_key`
        // returns the last, which is the newest.
        fits.max_by_key(|l| (!l.is_retired(), l.version)).cloned()
    }
}
