//! The repository as the rest of the server sees it. Each call is passed to the part that handles it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sequor_core::{EndReason, Id};
use sequor_wasm::room::GuestRoom;

use crate::backend::Backend;
use crate::config::model::draft;
use crate::config::server::file::ControlMode;
use crate::error::{Failure, LoadError, NoVersionReason, NotServed};
use crate::initializing::{Initializer, InitializerRegistry};
use crate::model::catalog::{self, Catalog, IndexRow, ModelHandle, ModelStatus, VersionOverview};
use crate::model::decide::Deciders;
use crate::model::load::SequenceStore;
use crate::model::request::{AnswerLimit, InferRequest};
use crate::model::runtime::Timer;
use crate::model::sequences::{
    AbsentSequence, EndedSequence, EnsembleParts, LiveSequence, ModelScheduler, Pending, ResumableSequence,
    SequenceHistory, VersionStatistics, history, listing, restart, usage,
};
use crate::processing::link::ChainLink;
use crate::processing::registry::MakePlaced;
use crate::processing::{PlaceRules, ProcessorRegistry};
use crate::recording::Recorder;
use crate::scheduling::{MakeSource, PluginRules, Registry};
use crate::state::tier::SharedUsage;
use crate::telemetry::{Metrics, SharedFigures};

use super::control::{RepositoryControl, RepositorySource};
use super::lifecycle::ModelLifecycle;
use super::loader::ModelLoader;
use super::options::RepositoryOptions;
use super::placed_models::{INITIALIZERS, ModelsOfRegistry, PROCESSORS};
use super::processor_host::ProcessorHost;
use super::resources::Resources;
use super::shared_models::SharedModels;

/// All served models. Cheap to clone; all clones are one repository.
#[derive(Debug, Clone)]
pub struct Repository(pub(in crate::model) Arc<RepositoryParts>);

#[derive(Debug)]
pub(in crate::model) struct RepositoryParts {
    pub(in crate::model) resources: Arc<Resources>,
    pub(in crate::model) catalog: Arc<Catalog>,
    pub(super) deciders: Arc<Deciders>,
    pub(super) loader: Arc<ModelLoader>,
    lifecycle: ModelLifecycle,
    /// Number of server parts that still load the models wanted at the start.
    loading: AtomicU32,
}

/// Keeps the repository not ready until it is dropped.
#[derive(Debug)]
pub struct Loading(Repository);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.0.loading.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Repository {
    pub fn new(backend: Arc<dyn Backend>, options: RepositoryOptions, metrics: Metrics) -> std::io::Result<Repository> {
        let resources = Arc::new(Resources::new(backend, options, metrics));
        let timer = Timer::start(resources.clock.clone(), resources.upkeep())?;
        let catalog = Arc::<Catalog>::default();
        if let Some(store) = &resources.options.store {
            store.join(Arc::new(SharedModels::new(&catalog)))?;
        }
        let deciders = Arc::new(Deciders::new(&catalog, resources.clock.clone(), resources.metrics.clone()));
        let loader = Arc::new(ModelLoader::new(&resources, &catalog, &deciders, timer));
        let lifecycle = ModelLifecycle::new(&loader, &catalog);
        let shared = RepositoryParts { resources, catalog, deciders, loader, lifecycle, loading: AtomicU32::new(0) };
        Ok(Repository(Arc::new(shared)))
    }

    /// A repository without models. It is ready.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "only tests use it")]
    pub fn empty() -> Repository {
        let backend = Arc::new(crate::backend::mock::MockBackend::default());
        Repository::new(backend, RepositoryOptions::default(), Metrics::new(true)).unwrap()
    }

    /// A repository of models that the stand-in backend loads: their names, configurations and programs. It keeps the models in the
    /// returned folder.
    #[cfg(any(test, feature = "testing"))]
    #[allow(clippy::unwrap_used, reason = "only tests use it")]
    pub fn of_models(models: &[(&str, &str, &str)]) -> (Repository, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        for (name, config, program) in models {
            let model = folder.path().join(name);
            std::fs::create_dir_all(model.join("1")).unwrap();
            std::fs::write(model.join("config.pbtxt"), config).unwrap();
            std::fs::write(model.join("1/model.onnx"), program).unwrap();
        }
        let repository = Repository::empty();
        repository.load_all(folder.path()).unwrap();
        assert!(repository.ready(), "{:?}", repository.statuses());
        (repository, folder)
    }

    /// Sets the limit on answers that clients have not taken. Only the first call has an effect.
    pub fn limit_answers(&self, limit: Arc<dyn AnswerLimit>) {
        self.0.resources.answers.set(limit);
    }

    /// Records the models loaded from now on, in this file, up to `most` bytes. A second call is refused.
    pub fn record(&self, path: &Path, most: u64) -> std::io::Result<()> {
        let (recorder, twice) = (&self.0.loader.recorder, || std::io::Error::other("a recording is under way"));
        if recorder.get().is_some() {
            return Err(twice());
        }
        recorder.set(Recorder::open(path, most, self.0.resources.clock.zero_unix_us())?).map_err(|_| twice())
    }

    /// The room for the instances of all plug-ins. The engine that starts them counts them there.
    pub fn plugin_room(&self) -> &GuestRoom {
        &self.0.resources.plugin_room
    }

    /// Sets the source of processors. Must be called once, before any model is loaded.
    pub fn run_processors(&self, rules: PlaceRules, make: Box<MakePlaced<ChainLink>>) -> std::io::Result<()> {
        let Resources { clock, metrics, processors, .. } = &*self.0.resources;
        let registry = ProcessorRegistry::new(rules, make, Arc::new(clock.clone()), metrics.clone());
        registry.reach_models(Box::new(ModelsOfRegistry::new(&self.0.catalog, &self.0.loader, PROCESSORS)));
        let twice = |_| std::io::Error::other("processors were settled before");
        processors.set(ProcessorHost::new(registry, &self.0.catalog, clock)).map_err(twice)
    }

    /// Sets the source of initializers. Must be called once, after [`Repository::run_processors`] and before any model is loaded.
    pub fn run_initializers(&self, rules: PlaceRules, make: Box<MakePlaced<Initializer>>) -> std::io::Result<()> {
        let Resources { clock, metrics, initializers, .. } = &*self.0.resources;
        let registry = InitializerRegistry::new(rules, make, Arc::new(clock.clone()), metrics.clone());
        registry.reach_models(Box::new(ModelsOfRegistry::new(&self.0.catalog, &self.0.loader, INITIALIZERS)));
        let twice = |_| std::io::Error::other("initializers were settled before");
        initializers.set(registry).map_err(twice)
    }

    /// The processors, if the server has any.
    pub fn processors(&self) -> Option<&ProcessorRegistry> {
        self.0.resources.processors.get().map(|host| &host.registry)
    }

    /// The initializers, if the server has any.
    pub fn initializers(&self) -> Option<&InitializerRegistry> {
        self.0.resources.initializers.get()
    }

    /// Sets the source of scheduler plug-ins. Must be called once, before any model is loaded.
    pub fn run_plugins(&self, rules: PluginRules, loader: Box<MakeSource>) -> std::io::Result<()> {
        self.0.deciders.start(rules, loader)
    }

    /// The scheduler plug-ins, if the server has any.
    pub fn registry(&self) -> Option<&Registry> {
        self.0.deciders.registry()
    }

    // === requests ===

    /// Finds a model. `version` is as the client wrote it; if it is empty, the server chooses.
    pub fn find(&self, model: &str, version: &str) -> Result<ModelHandle, Failure> {
        self.0.catalog.find(model, version).map_err(|failure| match failure {
            // Which models there are is not known before the folders have been read.
            Failure::NotServed(
                NotServed::UnknownModel { model } | NotServed::NoVersion { model, why: NoVersionReason::Unloaded },
            ) if self.is_loading() => Failure::NotServed(NotServed::NoVersion { model, why: NoVersionReason::Loading }),
            failure => failure,
        })
    }

    /// Admits a request: checks it and adds it to its queue. Requests submitted one after the other keep that order.
    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.find(&request.model, &request.version)?.submit(request)
    }

    /// Names, in lower case, of the headers that the APIs pass with a request.
    pub fn headers(&self) -> Arc<Vec<String>> {
        self.0.catalog.headers()
    }

    // === loading ===

    /// Sets the folders and the control mode. Must be called once, before any request.
    pub fn govern(&self, control: RepositoryControl) {
        self.0.lifecycle.govern(control);
    }

    /// The control mode.
    pub fn control_mode(&self) -> ControlMode {
        self.0.lifecycle.mode()
    }

    /// Loads every model in this directory. [`Repository::statuses`] lists the failures.
    pub fn load_all(&self, directory: &Path) -> Result<(), LoadError> {
        self.0.loader.load_all(directory)
    }

    /// Loads the model in this directory. The server is not ready without it.
    pub fn load(&self, directory: &Path) {
        self.0.loader.load(directory);
    }

    /// Loads these models at the start; `*` means all. [`Repository::statuses`] lists the failures.
    pub fn load_wanted(&self, models: &[String]) -> Result<(), LoadError> {
        self.0.lifecycle.load_wanted(models)
    }

    /// Loads a model at a client's request. If it is loaded, loads only what has changed.
    pub fn load_by_request(&self, model: &str, config: Option<&str>) -> Result<(), Failure> {
        self.0.lifecycle.load_by_request(model, config)
    }

    /// Allows load requests that carry files, up to `limit` bytes per request. The first limit stays.
    pub fn take_uploads(&self, limit: u64) {
        self.0.lifecycle.take_uploads(limit);
    }

    /// Allows load requests that carry files no longer.
    pub fn refuse_uploads(&self) {
        self.0.lifecycle.refuse_uploads();
    }

    /// Maximum bytes of the files of a load request; `None` if load requests may not carry files.
    pub fn upload_limit(&self) -> Option<u64> {
        self.0.lifecycle.upload_limit()
    }

    /// Loads a model from files that a client sent. Their paths are relative to the model's directory.
    pub fn load_files(&self, model: &str, config: &str, files: &[(PathBuf, Vec<u8>)]) -> Result<(), Failure> {
        self.0.lifecycle.load_files(model, config, files)
    }

    /// Unloads a model at a client's request. A model that is not loaded counts as unloaded.
    pub fn unload_by_request(&self, model: &str, dependents: bool) -> Result<(), Failure> {
        self.0.lifecycle.unload_by_request(model, dependents)
    }

    /// Whether there is a model of this name, served or not.
    pub fn is_known(&self, model: &str) -> bool {
        self.0.lifecycle.is_known(model)
    }

    /// Sets the source that updates the repository's folders before each poll. Must be called once.
    pub fn follow(&self, source: Arc<dyn RepositorySource>) {
        self.0.lifecycle.follow(source);
    }

    /// Polls the repository's folders once: loads new and changed models, unloads removed ones.
    pub fn poll(&self) {
        self.0.lifecycle.poll();
    }

    /// Polls the repository's folders at a client's request. Returns whether anything has changed. In explicit mode, served models are
    /// loaded again if their files changed.
    pub fn reload(&self) -> Result<bool, Failure> {
        self.0.lifecycle.reload()
    }

    // === readiness ===

    /// Marks the repository as loading the models wanted at the start, until the result is dropped.
    pub fn loading(&self) -> Loading {
        self.0.loading.fetch_add(1, Ordering::AcqRel);
        Loading(self.clone())
    }

    /// Whether models wanted at the start are still being loaded.
    pub fn is_loading(&self) -> bool {
        self.0.loading.load(Ordering::Acquire) > 0
    }

    /// Whether the repository is ready: the models wanted at the start have been loaded, and, if readiness is strict, all of them are
    /// ready. If the options ask for it, it is not ready without a lease.
    pub fn ready(&self) -> bool {
        let is_served = !self.0.resources.live.strict_readiness() || self.complete();
        !self.is_loading() && is_served && !self.waits_for_lease()
    }

    /// Whether the repository is not ready because this server has no lease on the sequences it shares. The readiness of single models does
    /// not depend on that.
    pub fn waits_for_lease(&self) -> bool {
        !self.ready_without_lease() && self.store().is_some_and(SequenceStore::has_lapsed)
    }

    // === options that change while the server runs ===

    /// Whether one model that is not ready makes the whole repository not ready.
    pub fn set_strict_readiness(&self, is_strict: bool) {
        self.0.resources.live.set_strict_readiness(is_strict);
    }

    /// Whether this server stays ready while it has no lease on the sequences it shares.
    pub fn set_ready_without_lease(&self, is_ready: bool) {
        self.0.resources.live.set_ready_without_lease(is_ready);
    }

    pub fn ready_without_lease(&self) -> bool {
        self.0.resources.live.ready_without_lease()
    }

    /// How configurations are read from the next load of a model on.
    pub fn set_draft_options(&self, options: draft::Options) {
        self.0.resources.live.set_draft(options);
    }

    /// How configurations of models are read.
    pub fn draft_options(&self) -> Arc<draft::Options> {
        self.0.resources.live.draft()
    }

    /// Sets the maximum bytes of state over all models. States that live stay, even beyond it.
    pub fn set_state_limit(&self, bytes: u64) {
        self.0.resources.budget.set_limit(bytes);
    }

    /// Whether every wanted model is ready.
    pub fn complete(&self) -> bool {
        self.0.catalog.is_complete()
    }

    /// The outcome of the last load of every model, by name.
    pub fn statuses(&self) -> Vec<ModelStatus> {
        self.0.catalog.statuses()
    }

    // === views for clients and operators ===

    /// Statistics of this model and version. An empty name or version selects all.
    pub fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Failure> {
        self.0.catalog.statistics(model, version)
    }

    /// Every model of the repository's folders, with its known state.
    pub fn index(&self) -> Vec<IndexRow> {
        catalog::index(&self.0.catalog, self.0.lifecycle.directories())
    }

    /// Every version of every model of the repository's folders. Reads the folders.
    pub fn overview(&self) -> Vec<VersionOverview> {
        catalog::overview(&self.0.catalog, self.0.lifecycle.directories())
    }

    /// Every live sequence of a model, in no particular order.
    pub fn live_sequences(&self, model: &str) -> Result<Vec<LiveSequence>, Failure> {
        Ok(listing::live(&*self.model(model)?))
    }

    /// The most recently ended sequences of a model, latest first.
    pub fn ended_sequences(&self, model: &str) -> Result<Vec<EndedSequence>, Failure> {
        Ok(listing::ended(&*self.model(model)?))
    }

    /// The live sequence of an id. If there are two, it is the younger one.
    pub fn find_live(&self, model: &str, id: &Id) -> Result<Option<LiveSequence>, Failure> {
        Ok(listing::find_live(&*self.model(model)?, id))
    }

    /// The end of the last sequence of an id, if it is remembered.
    pub fn find_ended(&self, model: &str, id: &Id) -> Result<Option<EndedSequence>, Failure> {
        Ok(listing::find_ended(&*self.model(model)?, id))
    }

    /// The last steps and refusals of the last sequence of an id, as far as they are remembered.
    pub fn sequence_history(&self, model: &str, id: &Id) -> Result<SequenceHistory, Failure> {
        Ok(history::history(&*self.model(model)?, id))
    }

    /// The members of an ensemble that have sequences, in the order of its steps. None for another model.
    pub fn sequence_members(&self, model: &str) -> Result<Vec<String>, Failure> {
        let load = self.model(model)?.load_for(None);
        let steps = load.iter().filter_map(|load| load.ensemble.as_ref()).flat_map(|ensemble| &ensemble.plan.steps);
        Ok(steps.filter(|step| step.is_stateful).map(|step| step.model.clone()).collect())
    }

    /// Ends a live or stored sequence and refuses its queued requests. If it is stored, waits until the store has removed it. Returns false
    /// if no sequence has this id.
    pub fn drop_sequence(&self, model: &str, id: &Id) -> Result<bool, Failure> {
        listing::end(&self.model(model)?, id, EndReason::Admin)
    }

    fn model(&self, name: &str) -> Result<Arc<ModelScheduler>, Failure> {
        let unknown = || Failure::NotServed(NotServed::UnknownModel { model: name.to_owned() });
        self.0.catalog.model(name).ok_or_else(unknown)
    }

    /// Number of live sequences of all models.
    pub fn live(&self) -> u64 {
        let of = |model: &Arc<ModelScheduler>| -> u64 {
            model.loads().iter().map(|load| u64::from(model.usage(load.key).live)).sum()
        };
        self.0.catalog.models().iter().map(of).sum()
    }

    /// Bytes of state in use, and the limit.
    pub fn state_bytes(&self) -> (u64, u64) {
        let budget = &self.0.resources.budget;
        (budget.used(), budget.limit())
    }

    /// Updates the gauges of all models before they are read.
    pub fn observe(&self) {
        self.0.loader.observe_gpus();
        if let Some(store) = self.store() {
            let usage = store.usage();
            self.0.resources.metrics.set_store(usage.states, usage.bytes, usage.limit, store.free_bytes());
            if let Some(shared) = store.shared() {
                let SharedUsage { sequences, claimed, taken_over, given_up, fenced, lapsed, has_lease } =
                    shared.usage();
                let figures = SharedFigures { sequences, has_lease, claimed, taken_over, given_up, fenced, lapsed };
                self.0.resources.metrics.set_shared(figures);
            }
        }
        self.0.catalog.models().iter().for_each(|model| usage::observe(model));
    }

    // === time ===

    /// Does the timer's upkeep of memory now, as of this much later.
    pub fn upkeep_after(&self, span: Duration) {
        let resources = &self.0.resources;
        resources.upkeep().run(resources.clock.now() + span);
    }

    /// Handles everything that is due, as the timer would.
    #[cfg(test)]
    pub(in crate::model) fn tick(&self) {
        self.0.catalog.models().into_iter().for_each(crate::model::runtime::Tick::tick);
    }

    /// Stops taking new sequences. Live ones are ended after `finish`.
    pub fn drain(&self, finish: Duration) {
        let until = self.0.resources.clock.now() + finish;
        for model in self.0.catalog.models() {
            for load in model.loads().iter() {
                model.retire_after_ensembles(load.key, until);
            }
        }
    }

    /// Live sequences that end if the server stops, because their loads do not keep sequences.
    pub fn live_unkept(&self) -> u64 {
        let of = |model: &Arc<ModelScheduler>| -> u64 {
            let loads = model.loads();
            let unkept = loads.iter().filter(|load| load.durable.is_none());
            unkept.map(|load| u64::from(model.usage(load.key).live)).sum()
        };
        self.0.catalog.models().iter().map(of).sum()
    }

    /// The store of sequences that outlive the process.
    pub fn store(&self) -> Option<&SequenceStore> {
        self.0.resources.options.store.as_deref()
    }

    /// The stored sequences of a model that were not resumed yet.
    pub fn resumable(&self, model: &str) -> Result<Vec<ResumableSequence>, Failure> {
        Ok(listing::resumable(&*self.model(model)?))
    }

    /// Finds the sequence of an id that does not live here: where its state waits, or which server has it.
    pub fn find_absent(&self, model: &str, id: &Id) -> Result<Option<AbsentSequence>, Failure> {
        listing::find(&*self.model(model)?, id)
    }

    /// Refuses further loads. A load in progress continues.
    pub fn refuse_loads(&self) {
        self.0.loader.refuse();
    }

    pub fn refuses_loads(&self) -> bool {
        self.0.loader.is_stopped()
    }

    /// Stores the live sequences of models that keep them. Waits neither for loads nor for threads, because the process ends next.
    pub fn leave(&self) {
        self.0.loader.refuse();
        self.keep_live();
        if let Some(store) = &self.0.resources.options.store {
            store.close();
        }
    }

    /// Stores the live sequences of models that keep them, ends all other sequences at once, and waits for the threads.
    pub fn stop(&self) {
        self.0.loader.stop();
        self.keep_live();
        self.drain(Duration::ZERO);
        self.0.loader.join();
        if let Some(store) = &self.0.resources.options.store {
            store.close();
        }
    }

    fn keep_live(&self) {
        if self.0.resources.options.store.is_none() {
            return;
        }
        let began = Instant::now();
        for model in self.0.catalog.models() {
            let restart::KeptLive { kept, lost, why } = restart::keep_live(&model);
            let (model, seconds) = (&model.name, began.elapsed().as_secs_f64());
            if kept > 0 {
                tracing::info!(model, kept, seconds, "live sequences are written, and resume when the server is back");
            }
            if let Some(why) = why {
                tracing::error!(model, lost, why, "live sequences are lost: their states could not be written");
            }
        }
    }
}
