//! Keys of the loads of one model name. A key's place is used again once nothing holds the load any more, so tables by load stay short.

use std::sync::Arc;

use sequor_core::{LoadId, Slab};

use crate::sync::Mutex;

/// The keys that are in use. Clones share them.
#[derive(Debug, Clone, Default)]
pub(in crate::model) struct LoadKeys(Arc<Mutex<Slab<LoadId, ()>>>);

/// A key in use, until it is dropped.
#[derive(Debug)]
pub(in crate::model) struct LoadKey {
    keys: LoadKeys,
    load: LoadId,
}

impl LoadKeys {
    pub(in crate::model) fn reserve(&self) -> LoadKey {
        LoadKey { keys: self.clone(), load: self.0.lock().insert(()) }
    }
}

impl LoadKey {
    pub(in crate::model) fn load(&self) -> LoadId {
        self.load
    }
}

impl Drop for LoadKey {
    fn drop(&mut self) {
        self.keys.0.lock().remove(self.load);
    }
}
