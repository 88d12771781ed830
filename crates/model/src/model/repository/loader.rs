//! Loads models into the repository, and replaces their old loads. A load serves only once it is ready, and the old load serves until then.
//! Live sequences finish on the old load, or move to the new one with `[reload] then = "carry"`.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::config::model::Draft;
use crate::error::LoadError;
use crate::model::catalog::{Catalog, CatalogEntry, ModelSource, directories_of, model_directories};
use crate::model::decide::Deciders;
use crate::model::load::LoadedModel;
use crate::model::runtime::{KeepsUnused, StartGate, Timer};
use crate::model::sequences::carry::Handover;
use crate::model::sequences::{EnsembleParts, Member, ModelScheduler, restart};
use crate::recording::Recorder;

use super::ensembles::check_circle;
use super::instance_threads::{InstanceThreads, start_all};
use super::load_attempt::{LoadAttempt, LoadRequest};
use super::options::{RepositoryOptions, first_id_now};
use super::preparer::{Faults, Prepared, VersionPreparer, chosen_versions};
use super::resources::Resources;

/// New loads of a model that are about to serve.
pub(super) struct PendingLoad {
    model: Arc<ModelScheduler>,
    pub(super) prepared: Vec<Prepared>,
    /// Versions whose loads stay, because their files have not changed.
    kept: Vec<u64>,
    versions: Vec<u64>,
    /// The configuration, if it is an ensemble.
    ensemble: Option<Draft>,
}

/// Loads models into the catalog, and owns the threads of their instances.
#[derive(Debug)]
pub(super) struct ModelLoader {
    pub(super) resources: Arc<Resources>,
    pub(super) catalog: Arc<Catalog>,
    deciders: Arc<Deciders>,
    pub(super) preparer: VersionPreparer,
    timer: Timer,
    pub(super) recorder: OnceLock<Recorder>,
    threads: InstanceThreads,
    /// The repositories of the server. A model whose name is in two of them is not loaded from either.
    repositories: OnceLock<Vec<PathBuf>>,
    /// Held while an ensemble goes into service, so that its members do not change from the check of circles until then.
    binding: Mutex<()>,
    /// Whether the loader loads no more models.
    stopped: AtomicBool,
}

impl ModelLoader {
    pub(super) fn new(
        resources: &Arc<Resources>,
        catalog: &Arc<Catalog>,
        deciders: &Arc<Deciders>,
        timer: Timer,
    ) -> ModelLoader {
        ModelLoader {
            resources: Arc::clone(resources),
            catalog: Arc::clone(catalog),
            deciders: Arc::clone(deciders),
            preparer: VersionPreparer::new(resources, catalog, deciders),
            timer,
            recorder: OnceLock::new(),
            threads: InstanceThreads::default(),
            repositories: OnceLock::new(),
            binding: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Updates the gauges of the GPUs in use.
    pub(super) fn observe_gpus(&self) {
        self.preparer.observe_gpus();
    }

    /// Sets the repositories of the server. Only the first call has an effect.
    pub(super) fn set_repositories(&self, repositories: &[PathBuf]) {
        let _ = self.repositories.set(repositories.to_vec());
    }

    /// Refuses a model whose name is in another repository, too.
    pub(super) fn check_unique(&self, name: &str, directory: &Path) -> Result<(), Faults> {
        let repositories = self.repositories.get().map(Vec::as_slice).unwrap_or_default();
        // Files that a client sent are elsewhere, and replace those of the repositories.
        let is_of_one = repositories.iter().any(|repository| directory.parent() == Some(repository.as_path()));
        if repositories.len() < 2 || !is_of_one {
            return Ok(());
        }
        let folders = directories_of(name, repositories);
        match folders.len() {
            0 | 1 => Ok(()),
            _ => Err(vec![LoadError::NotUnique { model: name.to_owned(), folders }]),
        }
    }

    /// Loads every model in this directory. The catalog keeps the failures.
    pub(super) fn load_all(&self, directory: &Path) -> Result<(), LoadError> {
        self.load_each(&model_directories(directory)?);
        Ok(())
    }

    /// Loads these models, as many at once as there are cores. A client of one that waits for its turn may try again.
    pub(super) fn load_each(&self, directories: &[PathBuf]) {
        for directory in directories {
            self.catalog.edit(&name_of(directory), |entry| (entry.wanted, entry.loading) = (true, true));
        }
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let next = AtomicUsize::new(0);
        let work = || {
            while !self.is_stopped()
                && let Some(directory) = directories.get(next.fetch_add(1, Ordering::Relaxed))
            {
                self.load(directory);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..cores.min(directories.len()) {
                scope.spawn(work);
            }
        });
    }

    /// Loads the model in this directory. The server is not ready without it.
    pub(super) fn load(&self, directory: &Path) {
        // The catalog keeps the faults.
        let _ = self.load_model(LoadRequest { wanted: true, ..LoadRequest::new(&name_of(directory), directory, None) });
    }

    /// Loads a model, or its versions that have changed. If that fails, the present loads continue to serve.
    pub(super) fn load_model(&self, request: LoadRequest<'_>) -> Result<(), Faults> {
        let name = request.name;
        self.load_within(&[], request)?;
        self.retry_ensembles(name);
        self.renew_ensembles(name);
        Ok(())
    }

    /// Loads a served model again, although none of its files has changed. If that fails, the present loads continue to serve.
    pub(super) fn reload(&self, name: &str) -> Result<(), Faults> {
        let Some(source) = self.catalog.look(name, CatalogEntry::served_source).flatten() else { return Ok(()) };
        self.load_model(LoadRequest { name, source, wanted: false, force: true, uploaded: None })
    }

    /// Loads a model. If it is an ensemble, loads its members first. `path`: the ensembles that this model is loaded for.
    pub(super) fn load_within(&self, path: &[&str], mut request: LoadRequest<'_>) -> Result<(), Faults> {
        let gate = self.catalog.edit(request.name, |entry| Arc::clone(&entry.gate));
        loop {
            // No gate is locked while the members load, so loads never wait for each other in a circle.
            let ModelSource { directory, config } = &request.source;
            let unique = self.check_unique(request.name, directory);
            let members = unique.and_then(|()| self.load_members(path, request.name, directory, config.as_deref()));
            let held = gate.lock();
            if self.is_stopped() {
                return Err(vec![LoadError::Runtime("the server is stopping".to_owned())]);
            }
            if request.force {
                // Another load may have replaced the source while this one waited.
                let served = self.catalog.look(request.name, CatalogEntry::served_source).flatten();
                let Some(source) = served else { return Ok(()) };
                if source != request.source {
                    request.source = source;
                    continue;
                }
            }
            return self.attempt(LoadAttempt::begin(&self.catalog, held, request), members);
        }
    }

    /// Prepares the loads of an attempt and takes them into service.
    fn attempt(&self, mut attempt: LoadAttempt<'_>, members: Result<(), Faults>) -> Result<(), Faults> {
        let (name, began) = (attempt.name(), Instant::now());
        let prepared = members.and_then(|()| self.prepare_changes(&mut attempt));
        attempt.note_time(began.elapsed());
        let checked = prepared.and_then(|pending| self.check_ensembles(name, pending));
        let has_changed = !matches!(checked, Ok(None));
        let outcome = match checked {
            Ok(Some(pending)) => self.serve(&mut attempt, pending),
            Ok(None) => {
                attempt.keep();
                Ok(())
            }
            Err(faults) => Err(faults),
        };
        if let Err(faults) = &outcome {
            attempt.fail(faults);
        }
        // A failed load of a name that only a client asked for gets no label in the metrics.
        if has_changed && (outcome.is_ok() || self.catalog.edit(name, |entry| entry.open || entry.wanted)) {
            self.resources.metrics.model_loaded(name, outcome.is_ok());
        }
        outcome
    }

    /// Prepares the versions that have changed. `None` if no file has changed.
    fn prepare_changes(&self, attempt: &mut LoadAttempt<'_>) -> Result<Option<PendingLoad>, Faults> {
        let (print, served) = attempt.note_files()?;
        if served.as_ref() == Some(&print) {
            return Ok(None);
        }
        let ModelSource { directory, config } = &attempt.request.source;
        let mut draft = self.preparer.draft(directory, config.as_deref())?;
        let auto = self.preparer.place(&mut draft)?;
        let versions = chosen_versions(&draft, directory)?;
        attempt.note_versions(&versions);
        attempt.note_members(draft.members());
        let name = attempt.name();
        let model = self.catalog.model(name).unwrap_or_else(|| self.new_model(name));
        let serves = |version: u64| model.loads().iter().any(|l| l.version == version && !l.is_retired());
        let same = |version: u64| served.as_ref().is_some_and(|served| served.is_same(&print, version));
        let (kept, fresh): (Vec<u64>, Vec<u64>) = versions.iter().partition(|v| serves(**v) && same(**v));
        let prepared = fresh
            .into_iter()
            .map(|v| self.preparer.prepare(&model, &draft, v, &auto))
            .collect::<Result<Vec<_>, _>>()?;
        let ensemble = Some(draft).filter(Draft::is_ensemble);
        Ok(Some(PendingLoad { model, prepared, kept, versions, ensemble }))
    }

    // === start of service ===

    /// Takes the new loads into service, all or none.
    fn serve(&self, attempt: &mut LoadAttempt<'_>, pending: PendingLoad) -> Result<(), Faults> {
        let PendingLoad { model, prepared, kept, versions, ensemble } = pending;
        // Two ensembles that load at the same time must not close a circle together.
        let _alone = ensemble.as_ref().map(|_| self.binding.lock());
        if let Some(draft) = &ensemble {
            check_circle(&self.catalog, &[attempt.name()], draft)?;
        }
        let is_old = |l: &&Arc<LoadedModel>| !l.is_retired() && !kept.contains(&l.version);
        let old: Vec<Arc<LoadedModel>> = model.loads().iter().filter(is_old).cloned().collect();
        let fresh: Vec<Arc<LoadedModel>> = prepared.iter().map(|of| Arc::clone(&of.load)).collect();
        let handover = Handover::begin(&model, old, &fresh);
        let mut new = Vec::new();
        for prepared in prepared {
            let load = Arc::clone(&prepared.load);
            if let Err(fault) = self.start(&model, prepared) {
                // If one of the new loads fails, none of them serves.
                let now = model.now();
                new.iter().chain([&load]).for_each(|load: &Arc<LoadedModel>| model.retire(load.key, now));
                handover.withdraw(&model);
                return Err(vec![fault]);
            }
            load.metrics.loaded(attempt.took());
            new.push(load);
        }
        if let Some((store, load)) = self.resources.options.store.as_ref().zip(new.last()) {
            restart::take_ended(&model, store, load.key);
        }
        let replaced = attempt.commit(&model, versions.clone());
        self.catalog.refresh_headers();
        handover.complete(&model);
        drop(replaced);
        for (version, sequences) in restart::without_load(&model) {
            tracing::warn!(
                model = attempt.name(),
                version,
                sequences,
                "stored sequences cannot go on: their version is not loaded, or its files have changed \
                 (docs/troubleshoot.md#not_resumed)"
            );
        }
        let (model, seconds) = (attempt.name(), attempt.took().as_secs_f64());
        tracing::info!(model, ?versions, ?kept, seconds, "loaded");
        Ok(())
    }

    /// Takes a load into service, once all its threads have started.
    fn start(&self, model: &Arc<ModelScheduler>, prepared: Prepared) -> Result<(), LoadError> {
        let Prepared { load, runners, members } = prepared;
        let scheduler = self.deciders.scheduler_for(model, &load)?;
        let (gate, mut threads) = (StartGate::default(), Vec::new());
        let started = start_all(model, &load, runners, &gate, &mut threads);
        let decided = started.and_then(|handles| {
            let _ = load.handles.set(handles);
            if let Some(ensemble) = &load.settings.ensemble {
                let members = members.into_iter().map(|member| member as Arc<dyn Member>).collect();
                model.bind_members(load.key, members, ensemble.max_in_flight);
            }
            let owner: Arc<dyn KeepsUnused> = Arc::<LoadedModel>::clone(&load);
            self.resources.owners.add(Arc::downgrade(&owner));
            model.add(&load);
            scheduler.map_or(Ok(()), |scheduler| self.deciders.let_decide(&load, &scheduler))
        });
        // A load that the model has needs its threads, even if its scheduler failed: they take the load out of service.
        gate.decide(load.handles.get().is_some());
        for thread in &threads {
            thread.thread().unpark();
        }
        self.threads.add(threads);
        decided
    }

    // === stop ===

    /// Makes later loads fail. A load in progress continues.
    pub(super) fn refuse(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Makes later loads fail. Waits for loads in progress.
    pub(super) fn stop(&self) {
        self.refuse();
        // A load in progress either sees the flag, or this waits for its gate.
        let gates = self.catalog.collect(|_, entry| Some(Arc::clone(&entry.gate)));
        gates.iter().for_each(|gate| drop(gate.lock()));
    }

    /// Waits for the threads of every instance.
    pub(super) fn join(&self) {
        self.threads.join();
    }

    fn new_model(&self, name: &str) -> Arc<ModelScheduler> {
        let Resources { clock, budget, chunk_cache, .. } = &*self.resources;
        let memory = (budget.clone(), chunk_cache.clone());
        let (clock, timer, recorder) = (clock.clone(), self.timer.clone(), self.recorder.get().cloned());
        let RepositoryOptions { store, first_id, .. } = &self.resources.options;
        let first_id = first_id.unwrap_or_else(first_id_now);
        let model =
            Arc::new(ModelScheduler::new(name.to_owned(), clock, timer, memory, first_id, (recorder, store.clone())));
        if let Some(store) = store {
            restart::keep(&model, store);
        }
        model
    }
}

/// The name of the model in this directory.
fn name_of(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
