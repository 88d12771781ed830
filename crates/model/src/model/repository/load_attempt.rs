//! One attempt to load a model, from the time it holds the model's gate until its outcome. It is all that changes the model's entry in the
//! catalog meanwhile. An attempt that panics has failed. A failed attempt leaves what the entry says of the loads in service as it was.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::error::LoadError;
use crate::model::catalog::{Catalog, Fingerprint, ModelSource, UploadedModel};
use crate::model::sequences::ModelScheduler;

use super::preparer::Faults;

/// What to load.
#[derive(Debug)]
pub(super) struct LoadRequest<'a> {
    pub(super) name: &'a str,
    pub(super) source: ModelSource,
    /// Whether the server is not ready without the model.
    pub(super) wanted: bool,
    /// Whether the source that serves is loaded again, although none of its files has changed. `source` is then only where it was last seen.
    pub(super) force: bool,
    /// The files of the source, if a client sent them.
    pub(super) uploaded: Option<UploadedModel>,
}

impl<'a> LoadRequest<'a> {
    /// A request to load what has changed.
    pub(super) fn new(name: &'a str, directory: &Path, config: Option<&str>) -> LoadRequest<'a> {
        let source = ModelSource { directory: directory.to_owned(), config: config.map(str::to_owned) };
        LoadRequest { name, source, wanted: false, force: false, uploaded: None }
    }
}

/// An attempt in progress.
#[derive(Debug)]
pub(super) struct LoadAttempt<'a> {
    pub(super) request: LoadRequest<'a>,
    catalog: &'a Catalog,
    /// The models of the steps, as far as the attempt has read them.
    members: Vec<String>,
    /// The time that it took to prepare the loads.
    took: Duration,
    _gate: MutexGuard<'a, ()>,
}

impl<'a> LoadAttempt<'a> {
    pub(super) fn begin(catalog: &'a Catalog, gate: MutexGuard<'a, ()>, request: LoadRequest<'a>) -> LoadAttempt<'a> {
        catalog.edit(request.name, |entry| {
            entry.wanted |= request.wanted;
            entry.loading = true;
        });
        LoadAttempt { request, catalog, members: Vec::new(), took: Duration::ZERO, _gate: gate }
    }

    pub(super) fn name(&self) -> &'a str {
        self.request.name
    }

    /// Records the files of the attempt. Returns those in service, unless all are to be loaded again.
    pub(super) fn note_files(&self) -> Result<(Fingerprint, Option<Fingerprint>), Faults> {
        let ModelSource { directory, config } = &self.request.source;
        let file = |e: std::io::Error| vec![LoadError::File { path: directory.clone(), what: e.to_string() }];
        let print = Fingerprint::compute(directory, config.as_deref()).map_err(file)?;
        let served = self.catalog.edit(self.name(), |entry| {
            entry.tried = Some(print.clone());
            entry.served.clone().filter(|_| entry.open && !self.request.force)
        });
        Ok((print, served))
    }

    pub(super) fn note_members(&mut self, members: Vec<String>) {
        self.members = members;
    }

    pub(super) fn note_versions(&self, versions: &[u64]) {
        self.catalog.edit(self.name(), |entry| {
            entry.known.extend(versions);
            versions.clone_into(&mut entry.versions);
        });
    }

    pub(super) fn note_time(&mut self, took: Duration) {
        self.took = took;
    }

    pub(super) fn took(&self) -> Duration {
        self.took
    }

    /// Records that the files in service have not changed.
    pub(super) fn keep(&self) {
        self.catalog.edit(self.name(), |entry| {
            entry.loading = false;
            entry.faults.clear();
        });
    }

    /// Records that the new loads serve. Returns the files that a client sent and that no new sequence uses any more. The caller drops them
    /// without a lock of the catalog.
    pub(super) fn commit(&mut self, model: &Arc<ModelScheduler>, versions: Vec<u64>) -> Option<UploadedModel> {
        let name = self.request.name;
        let LoadRequest { source: ModelSource { directory, .. }, uploaded, .. } = &mut self.request;
        self.catalog.edit(name, |entry| {
            entry.loading = false;
            entry.take(name, model, versions, self.took);
            entry.directory.clone_from(directory);
            entry.tried_members.clear();
            let is_same = entry.uploaded.as_ref().is_some_and(|of| of.directory() == *directory);
            if is_same { None } else { std::mem::replace(&mut entry.uploaded, uploaded.take()) }
        })
    }

    /// Records that the attempt failed. If no load is in service, the entry names its files, so that it can be repeated. Files that a client
    /// sent are removed with the attempt.
    pub(super) fn fail(&self, faults: &Faults) {
        let LoadRequest { name, source, uploaded, .. } = &self.request;
        self.catalog.edit(name, |entry| {
            entry.loading = false;
            entry.fail(name, faults.clone(), self.took);
            if !entry.open && uploaded.is_none() && entry.was_unique() {
                entry.directory.clone_from(&source.directory);
                entry.tried_members.clone_from(&self.members);
            }
        });
    }
}

impl Drop for LoadAttempt<'_> {
    fn drop(&mut self) {
        // Without an outcome, it has panicked.
        if self.catalog.edit(self.name(), |entry| entry.loading) {
            self.fail(&vec![LoadError::Runtime("the load has panicked: see the server's log".to_owned())]);
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn an_attempt_without_an_outcome_has_failed() {
        let (catalog, gate) = (Catalog::default(), Mutex::new(()));
        drop(LoadAttempt::begin(&catalog, gate.lock(), LoadRequest::new("sum", Path::new("/nowhere"), None)));
        assert!(gate.try_lock().is_some());
        catalog.edit("sum", |entry| assert!(!entry.loading && !entry.faults.is_empty()));
    }
}
