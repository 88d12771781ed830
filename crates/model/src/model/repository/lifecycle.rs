//! Decides which models are served: those in the repository at the start, those in it now, or those that clients request.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::server::file::ControlMode;
use crate::error::{self, Failure, LoadError, RefusedModel, SourceFault};
use crate::model::catalog::{Catalog, CatalogEntry, Fingerprint, model_directories};
use crate::model::sequences::EnsembleParts;

use super::control::{RepositoryControl, RepositorySource, is_model_name};
use super::load_attempt::LoadRequest;
use super::loader::ModelLoader;
use super::uploads::Uploads;

/// Loads and unloads the models of the repository's folders.
#[derive(Debug)]
pub(super) struct ModelLifecycle {
    loader: Arc<ModelLoader>,
    catalog: Arc<Catalog>,
    control: OnceLock<RepositoryControl>,
    uploads: OnceLock<Uploads>,
    takes_uploads: AtomicBool,
    source: OnceLock<FollowedSource>,
}

/// The source of the folders, and its fault at the last refresh.
#[derive(Debug)]
struct FollowedSource {
    source: Arc<dyn RepositorySource>,
    fault: Mutex<Option<SourceFault>>,
    /// The models that the source refused when it was last readable.
    refused: Mutex<Vec<RefusedModel>>,
}

impl ModelLifecycle {
    pub(super) fn new(loader: &Arc<ModelLoader>, catalog: &Arc<Catalog>) -> ModelLifecycle {
        let (control, uploads, source) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let takes_uploads = AtomicBool::new(false);
        let (loader, catalog) = (Arc::clone(loader), Arc::clone(catalog));
        ModelLifecycle { loader, catalog, control, uploads, takes_uploads, source }
    }

    /// The folders of models.
    pub(super) fn directories(&self) -> &[PathBuf] {
        self.control.get().map(|control| control.directories.as_slice()).unwrap_or_default()
    }

    /// Sets the folders and the control mode. Must be called once, before any request.
    pub(super) fn govern(&self, control: RepositoryControl) {
        self.loader.set_repositories(&control.directories);
        if self.control.set(control).is_err() {
            tracing::error!("who loads models was settled before");
        }
    }

    /// The control mode. Until it is set, no client can load models.
    pub(super) fn mode(&self) -> ControlMode {
        self.control.get().map_or(ControlMode::None, |control| control.mode)
    }

    /// Loads a model at a client's request. If it is loaded, loads only what has changed.
    pub(super) fn load_by_request(&self, model: &str, config: Option<&str>) -> Result<(), Failure> {
        let control = self.explicit()?;
        let absent = || {
            let (model, directories) = (model.to_owned(), control.directories.clone());
            Failure::Control(error::ControlFailure::Absent { model, directories })
        };
        let directory = control.locate(model).ok_or_else(absent)?;
        self.loader.load_model(LoadRequest::new(model, &directory, config)).map_err(|faults| {
            self.log_faults(model, &faults);
            let why = faults.iter().map(LoadError::load_reason).collect();
            Failure::Control(error::ControlFailure::Failed { model: model.to_owned(), why })
        })
    }

    /// Allows load requests that carry files, up to `limit` bytes per request. The first limit stays.
    pub(super) fn take_uploads(&self, limit: u64) {
        self.uploads.get_or_init(|| Uploads::new(limit));
        self.takes_uploads.store(true, Ordering::Relaxed);
    }

    pub(super) fn refuse_uploads(&self) {
        self.takes_uploads.store(false, Ordering::Relaxed);
    }

    fn uploads(&self) -> Option<&Uploads> {
        self.uploads.get().filter(|_| self.takes_uploads.load(Ordering::Relaxed))
    }

    /// Maximum bytes of the files of a load request, if load requests may carry files.
    pub(super) fn upload_limit(&self) -> Option<u64> {
        self.uploads().map(|uploads| uploads.limit)
    }

    /// Loads a model from files that the request carried.
    pub(super) fn load_files(&self, model: &str, config: &str, files: &[(PathBuf, Vec<u8>)]) -> Result<(), Failure> {
        self.explicit()?;
        let uploads = self.uploads().filter(|_| is_model_name(model));
        let absent =
            || Failure::Control(error::ControlFailure::Absent { model: model.to_owned(), directories: Vec::new() });
        uploads.ok_or_else(absent)?.load(&self.loader, model, config, files)
    }

    /// Unloads a model at a client's request, with the members of an ensemble if `dependents` is set. A model that is not loaded counts as
    /// unloaded.
    pub(super) fn unload_by_request(&self, model: &str, dependents: bool) -> Result<(), Failure> {
        self.explicit()?;
        match dependents {
            true => self.unload_with_members(model),
            false => self.unload(model),
        }
        Ok(())
    }

    /// Unloads a model and its members. A member of another ensemble in service stays loaded.
    fn unload_with_members(&self, model: &str) {
        let (mut waiting, mut seen) = (vec![model.to_owned()], BTreeSet::new());
        while let Some(next) = waiting.pop() {
            let needs_it = |_: &String, entry: &CatalogEntry| entry.served_members().contains(&next).then_some(());
            let is_needed = next != model && !self.catalog.collect(needs_it).is_empty();
            if is_needed || !seen.insert(next.clone()) {
                continue;
            }
            // The members of an ensemble that never served may have been loaded for it.
            let members = |entry: &CatalogEntry| {
                let served = entry.served_members();
                served.into_iter().chain(entry.tried_members.iter().cloned()).collect::<Vec<_>>()
            };
            waiting.extend(self.catalog.look(&next, members).unwrap_or_default());
            self.unload(&next);
        }
    }

    /// Whether there is a model of this name, served or not.
    pub(super) fn is_known(&self, model: &str) -> bool {
        let is_located = || self.control.get().is_some_and(|control| control.locate(model).is_some());
        let was_loaded = |entry: &CatalogEntry| entry.model.is_some() || entry.status.is_some();
        self.catalog.look(model, was_loaded).unwrap_or_default() || is_located()
    }

    fn explicit(&self) -> Result<&RepositoryControl, Failure> {
        let explicit = self.control.get().filter(|control| control.mode == ControlMode::Explicit);
        explicit.ok_or(Failure::Control(error::ControlFailure::NotExplicit))
    }

    /// Loads these models at the start; `*` means all. The catalog records the failures.
    pub(super) fn load_wanted(&self, models: &[String]) -> Result<(), LoadError> {
        let Some(control) = self.control.get() else { return Ok(()) };
        self.refresh_at_start();
        if models.iter().any(|name| name == "*") {
            self.loader.load_each(&control.all_models()?);
            return Ok(());
        }
        for name in models.iter().take_while(|_| !self.loader.is_stopped()) {
            match control.locate(name) {
                Some(directory) => self.loader.load(&directory),
                None => self.miss(name, &control.directories),
            }
        }
        Ok(())
    }

    /// Records that a wanted model was not found.
    fn miss(&self, name: &str, directories: &[PathBuf]) {
        let path = directories.first().cloned().unwrap_or_default().join(name);
        let fault = LoadError::File { path, what: "there is no such model".to_owned() };
        self.catalog.edit(name, |entry| {
            entry.wanted = true;
            entry.fail(name, vec![fault], Duration::ZERO);
        });
    }

    /// Takes a model out of service at once, and the ensembles that cannot run without it: their sequences end, and running requests are
    /// answered.
    fn unload(&self, name: &str) {
        let (mut waiting, mut seen) = (vec![(name.to_owned(), None)], BTreeSet::from([name.to_owned()]));
        while let Some((next, member)) = waiting.pop() {
            self.unload_one(&next, member.as_deref());
            let needs_it = |ensemble: &String, entry: &CatalogEntry| {
                entry.served_members().contains(&next).then(|| ensemble.clone())
            };
            for ensemble in self.catalog.collect(needs_it) {
                if seen.insert(ensemble.clone()) {
                    tracing::warn!(model = ensemble, member = next, "unloaded with its member");
                    waiting.push((ensemble, Some(next.clone())));
                }
            }
        }
    }

    /// Takes a model out of service. Its loads stay until no ensemble needs them. An ensemble that loses a member is loaded again with it.
    fn unload_one(&self, name: &str, lost_member: Option<&str>) {
        let Some(gate) = self.catalog.look(name, |entry| Arc::clone(&entry.gate)) else { return };
        let _held = gate.lock();
        let (was_served, model, uploaded) = self.catalog.edit(name, |entry| {
            let was_served = entry.open;
            match lost_member {
                Some(member) => entry.lose_member(member),
                None => entry.close(),
            }
            (was_served, entry.model.clone(), entry.uploaded.take())
        });
        drop(uploaded);
        let Some(model) = model else { return };
        let now = model.now();
        let keys: Vec<_> = model.loads().iter().map(|load| load.key).collect();
        for key in keys {
            model.retire_after_ensembles(key, now);
        }
        // Each poll unloads a removed model again, so log only the first time.
        if was_served {
            tracing::info!(model = name, "unloaded");
        }
    }

    /// Sets the source that updates the folders before each poll. Must be called once.
    pub(super) fn follow(&self, source: Arc<dyn RepositorySource>) {
        self.loader.preparer.follow(Arc::clone(&source));
        let _ = self.source.set(FollowedSource { source, fault: Mutex::default(), refused: Mutex::default() });
    }

    /// Updates the folders. A fault is logged once.
    fn refresh(&self) -> Result<(), SourceFault> {
        let Some(FollowedSource { source, fault, refused }) = self.source.get() else { return Ok(()) };
        let refreshed = source.refresh();
        note_refused(refused, &refreshed);
        let found = refreshed.as_ref().err().cloned();
        let mut known = fault.lock();
        let is_known = *known == found;
        known.clone_from(&found);
        drop(known);
        if let Some(fault) = found.filter(|_| !is_known) {
            log_fault(&fault);
        }
        self.refuse_models();
        refreshed
    }

    /// Updates the folders before the first load. The caller logs the refused models together with those that fail to load.
    fn refresh_at_start(&self) {
        let Some(FollowedSource { source, fault, refused }) = self.source.get() else { return };
        if self.mode() == ControlMode::Explicit {
            let _ = self.refresh();
            return;
        }
        let refreshed = source.refresh();
        note_refused(refused, &refreshed);
        *fault.lock() = refreshed.err().filter(|fault| matches!(fault, SourceFault::Models(_)));
        self.refuse_models();
    }

    /// The models that the source refused at the last refresh.
    fn refused(&self) -> Vec<RefusedModel> {
        self.source.get().map(|source| source.refused.lock().clone()).unwrap_or_default()
    }

    /// Records the refused models that the folders do not contain as failed loads.
    fn refuse_models(&self) {
        let Some(control) = self.control.get().filter(|control| control.mode != ControlMode::Explicit) else { return };
        for RefusedModel { model, what } in self.refused() {
            if control.locate(&model).is_none() {
                self.catalog.edit(&model, |entry| {
                    entry.wanted = true;
                    entry.fail(&model, vec![LoadError::Runtime(what)], Duration::ZERO);
                });
            }
        }
    }

    /// Loads models whose files changed, at a client's request. In poll mode, and if the folders follow a source, also loads new models and
    /// unloads removed ones. Returns whether anything has changed.
    pub(super) fn reload(&self) -> Result<bool, Failure> {
        let is_followed = self.source.get().is_some();
        let control = self.control.get().filter(|control| control.mode != ControlMode::None || is_followed);
        let control = control.ok_or(Failure::Control(error::ControlFailure::NotReloaded))?;
        let refreshed = self.refresh();
        let tried = || self.catalog.collect(|name, entry| Some((name.clone(), entry.tried.clone(), entry.open)));
        let before = tried();
        if control.mode != ControlMode::Explicit {
            self.look();
        } else {
            let open = before.iter().filter(|(_, _, open)| *open);
            open.for_each(|(name, ..)| self.reload_one(control, name));
        }
        refreshed.map_err(|fault| Failure::Control(error::ControlFailure::Source(fault)))?;
        Ok(tried() != before)
    }

    /// Loads a served model again if its files changed. A configuration or files that a client sent still replace those of the repository.
    fn reload_one(&self, control: &RepositoryControl, name: &str) {
        let given = |entry: &CatalogEntry| {
            let config = entry.served.as_ref().and_then(|served| served.config().map(str::to_owned));
            entry.uploaded.is_none().then_some(config)
        };
        if let (Some(Some(config)), Some(path)) = (self.catalog.look(name, given), control.locate(name)) {
            self.poll_one(&path, config.as_deref(), &mut BTreeSet::new());
        }
    }

    // === polling ===

    /// Polls the repository once: loads new and changed models, unloads removed ones.
    pub(super) fn poll(&self) {
        if !self.loader.is_stopped() {
            let _ = self.refresh();
            self.look();
        }
    }

    fn look(&self) {
        let Some(control) = self.control.get().filter(|_| !self.loader.is_stopped()) else { return };
        let (mut present, mut complete) = (BTreeSet::new(), true);
        for directory in &control.directories {
            match model_directories(directory) {
                Ok(models) => models.iter().for_each(|path| self.poll_one(path, None, &mut present)),
                Err(error) => {
                    tracing::error!(%error, "the model repository cannot be read");
                    complete = false;
                }
            }
        }
        present.extend(self.refused().into_iter().map(|refused| refused.model));
        // If a folder is unreadable, no model counts as removed.
        if complete {
            let gone = self.catalog.collect(|name, _| (!present.contains(name)).then(|| name.clone()));
            gone.iter().for_each(|name| self.unload(name));
        }
    }

    fn poll_one(&self, path: &Path, config: Option<&str>, present: &mut BTreeSet<String>) {
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else { return };
        if !present.insert(name.clone()) {
            return;
        }
        let was_unique = self.catalog.look(&name, CatalogEntry::was_unique).unwrap_or(true);
        let is_unique = self.loader.check_unique(&name, path).is_ok();
        let tried = self.catalog.look(&name, |entry| entry.tried.clone().filter(|_| entry.is_settled())).flatten();
        let is_same = || tried.is_some() && Fingerprint::compute(path, config).ok() == tried;
        if is_unique == was_unique && (!is_unique || is_same()) {
            return;
        }
        let request = LoadRequest { wanted: true, ..LoadRequest::new(&name, path, config) };
        if let Err(faults) = self.loader.load_model(request) {
            self.log_faults(&name, &faults);
        }
    }

    /// Logs why a load failed.
    fn log_faults(&self, name: &str, faults: &[LoadError]) {
        let serves = self.catalog.look(name, |entry| entry.open).unwrap_or_default();
        for fault in faults {
            if serves {
                tracing::error!(model = name, why = %fault, "reload failed; what was loaded before goes on serving");
            } else {
                tracing::error!(model = name, "{fault}");
            }
        }
    }
}

/// Records the models that a source refused. If the source is unusable, the previous record stays.
fn note_refused(refused: &Mutex<Vec<RefusedModel>>, refreshed: &Result<(), SourceFault>) {
    match refreshed {
        Ok(()) => refused.lock().clear(),
        Err(SourceFault::Models(models)) => refused.lock().clone_from(models),
        Err(SourceFault::Unreadable(_) | SourceFault::Invalid(_)) => {}
    }
}

/// Logs why the folders do not match their source.
fn log_fault(fault: &SourceFault) {
    match fault {
        SourceFault::Unreadable(why) | SourceFault::Invalid(why) => {
            tracing::error!(why, "the file that names the models cannot be used; every model stays as it was");
        }
        SourceFault::Models(refused) => {
            for RefusedModel { model, what } in refused {
                tracing::error!(model, why = what, "the model is refused; if it was served, it stays as it was");
            }
        }
    }
}
