//! The catalog: the models by name, with those that are unloaded or still to be loaded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::RwLock;

use crate::error::Failure;
use crate::model::sequences::{ModelScheduler, VersionStatistics, usage};

use super::entry::{CatalogEntry, ModelStatus};
use super::model_handle::ModelHandle;

#[derive(Debug, Default)]
pub(in crate::model) struct Catalog {
    pub(in crate::model) entries: RwLock<BTreeMap<String, CatalogEntry>>,
    /// Names, in lower case, of the headers that features come from.
    headers: ArcSwap<Vec<String>>,
}

impl Catalog {
    /// Changes an entry. Creates it if there is none.
    pub(in crate::model) fn edit<T>(&self, name: &str, change: impl FnOnce(&mut CatalogEntry) -> T) -> T {
        change(self.entries.write().entry(name.to_owned()).or_default())
    }

    /// Reads an entry, if there is one.
    pub(in crate::model) fn look<T>(&self, name: &str, look: impl FnOnce(&CatalogEntry) -> T) -> Option<T> {
        self.entries.read().get(name).map(look)
    }

    /// Reads every entry, in the order of the names.
    pub(in crate::model) fn collect<T>(&self, mut look: impl FnMut(&String, &CatalogEntry) -> Option<T>) -> Vec<T> {
        self.entries.read().iter().filter_map(|(name, entry)| look(name, entry)).collect()
    }

    /// Finds a model. `version` is the client's text; if it is empty, the server chooses.
    pub(in crate::model) fn find(&self, model: &str, version: &str) -> Result<ModelHandle, Failure> {
        ModelHandle::find(self.entries.read().get(model), model, version).map_err(Failure::NotServed)
    }

    /// Every model that was loaded and not forgotten, open or not.
    pub(in crate::model) fn models(&self) -> Vec<Arc<ModelScheduler>> {
        self.collect(|_, entry| entry.model.clone())
    }

    /// The model of this name, open or not.
    pub(in crate::model) fn model(&self, name: &str) -> Option<Arc<ModelScheduler>> {
        self.look(name, |entry| entry.model.clone())?
    }

    /// Whether every model that is wanted is ready.
    pub(in crate::model) fn is_complete(&self) -> bool {
        self.entries.read().values().all(CatalogEntry::is_complete)
    }

    /// The result of the last load of every model.
    pub(in crate::model) fn statuses(&self) -> Vec<ModelStatus> {
        self.collect(|_, entry| entry.status.clone())
    }

    /// Statistics of this model and version. An empty name or version selects all.
    pub(in crate::model) fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Failure> {
        if !model.is_empty() {
            return Ok(self.find(model, version)?.statistics());
        }
        let models = self.collect(|_, entry| entry.model.clone().filter(|_| entry.open));
        Ok(models.iter().flat_map(|model| usage::statistics(model, None)).collect())
    }

    // === files ===

    /// Marks the present contents of this file as loaded, so that Sequor does not reload the model.
    pub(in crate::model) fn note_file(&self, model: &str, file: &Path) {
        self.edit(model, |entry| {
            for print in [&mut entry.tried, &mut entry.served].into_iter().flatten() {
                print.renew(file);
            }
        });
    }

    /// Names, in lower case, of the headers that APIs pass on with a request.
    pub(in crate::model) fn headers(&self) -> Arc<Vec<String>> {
        self.headers.load_full()
    }

    /// Updates the names of the headers that features come from.
    pub(in crate::model) fn refresh_headers(&self) {
        let mut names: Vec<String> = Vec::new();
        for model in self.models() {
            names.extend(model.loads().iter().flat_map(|l| l.settings.feature_headers()).map(str::to_owned));
        }
        names.sort_unstable();
        names.dedup();
        self.headers.store(Arc::new(names));
    }
}
