//! Keys of the loads of one model name. A key is used again once no holder of the load is left, so tables by load stay short.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sequor_core::{LoadId, Slab};

use crate::sync::{AtomicU64, Mutex};

/// The keys that are in use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct LoadKeys(Arc<KeysInUse>);

#[derive(Debug, Default)]
struct KeysInUse {
    keys: Mutex<Slab<LoadId, ()>>,
    count: AtomicU64,
}

/// A key in use, until it is dropped.
#[derive(Debug)]
pub(in crate::model) struct LoadKey {
    keys: LoadKeys,
    load: LoadId,
}

impl LoadKeys {
    pub(in crate::model) fn reserve(&self) -> LoadKey {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        LoadKey { keys: self.clone(), load: self.0.keys.lock().insert(()) }
    }

    /// Number of keys in use, by existing loads and by loads that are being made.
    pub(in crate::model) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }
}

impl LoadKey {
    pub(in crate::model) fn load(&self) -> LoadId {
        self.load
    }
}

impl Drop for LoadKey {
    fn drop(&mut self) {
        self.keys.0.keys.lock().remove(self.load);
        self.keys.0.count.fetch_sub(1, Ordering::AcqRel);
    }
}
