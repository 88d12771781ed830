//! The loads of one model name, by the driver's keys.

use crate::ids::LoadId;
use crate::load::LoadState;

/// Loads under generation-checked keys. The driver's table is dense, so this one is too: its length is the maximum number of loads of this
/// name at one time.
#[derive(Debug, Default)]
pub(crate) struct Loads(Vec<Option<LoadState>>);

impl Loads {
    pub(crate) fn get(&self, key: LoadId) -> Option<&LoadState> {
        self.0.get(key.ix as usize)?.as_ref().filter(|l| l.key == key)
    }

    pub(crate) fn get_mut(&mut self, key: LoadId) -> Option<&mut LoadState> {
        self.0.get_mut(key.ix as usize)?.as_mut().filter(|l| l.key == key)
    }

    pub(crate) fn insert(&mut self, state: LoadState) {
        let ix = state.key.ix as usize;
        if self.0.len() <= ix {
            self.0.resize_with(ix + 1, || None);
        }
        if let Some(entry) = self.0.get_mut(ix) {
            *entry = Some(state);
        }
    }

    pub(crate) fn remove(&mut self, key: LoadId) {
        if let Some(entry) = self.0.get_mut(key.ix as usize) {
            entry.take_if(|l| l.key == key);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LoadState> {
        self.0.iter().flatten()
    }

    /// Entries, including empty ones.
    pub(crate) fn capacity(&self) -> usize {
        self.0.len()
    }
}
