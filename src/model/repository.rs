//! Which models there are, and their loading. A model that fails says why and stops no other.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sequor_core::{Hold, Id, Instance, Load};

use crate::backend::{Backend, Graph, LoadOptions, Signature};
use crate::config::model::settings::ModelSettings;
use crate::config::model::{self, Draft, GraphPort, GraphSignature, versions};
use crate::config::proto;
use crate::device::{Device, Host, Pool};
use crate::error::{Failure, LoadError, NotServed};
use crate::state::budget::Budget;
use crate::telemetry::{Metrics, Recorder};

use super::clock::Clock;
use super::driver::Model;
use super::execute::Executor;
use super::keep::KeepError;
use super::loaded::Loaded;
use super::timer::Timer;
use super::{InferRequest, Metadata, Pending, instance, sync};

/// How models are to be loaded.
#[derive(Debug, Clone)]
pub struct Options {
    pub config: model::draft::Options,
    pub load: LoadOptions,
    /// Bytes of state over all models.
    pub state_limit: u64,
    /// Bytes of answers' memory kept for use again.
    pub reply_pool: usize,
    /// Whether a model that is not ready makes the whole repository so.
    pub strict_readiness: bool,
    /// Triton's test aid: how much must wait before `direct` and stateless models run for the first time.
    pub hold: Option<Hold>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            config: model::draft::Options::default(),
            load: LoadOptions { threads: 1, spinning: false },
            state_limit: u64::MAX,
            reply_pool: 0,
            strict_readiness: true,
            hold: None,
        }
    }
}

/// Everything that is served. Cheap to clone; all clones are one repository.
#[derive(Debug, Clone)]
pub struct Repository(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    device: Arc<dyn Device>,
    options: Options,
    metrics: Metrics,
    clock: Clock,
    timer: Timer,
    budget: Budget,
    pool: Pool,
    models: RwLock<BTreeMap<String, Entry>>,
    /// Threads of instances, to be waited for at the end.
    threads: Mutex<Vec<sync::JoinHandle<()>>>,
    next_load: Mutex<u16>,
    recorder: OnceLock<Recorder>,
    /// Somebody is loading what is wanted from the start.
    loading: AtomicU32,
}

/// For as long as it lives, the repository is not ready.
#[derive(Debug)]
pub struct Loading(Repository);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.0.loading.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Clone)]
struct Entry {
    model: Option<Arc<Model>>,
    status: ModelStatus,
}

/// What became of a model that is wanted.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    pub name: String,
    pub availability: Availability,
    /// How long its loading took.
    pub took: Duration,
}

#[derive(Debug, Clone)]
pub enum Availability {
    Ready(Vec<ReadyVersion>),
    /// Every reason why it is not.
    Failed(Vec<LoadError>),
}

/// A version that is ready, in what an operator wants to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyVersion {
    pub version: u64,
    /// `direct`, `oldest`, `dynamic`, `default`.
    pub strategy: &'static str,
    pub instances: u16,
    /// Of all instances; 0 if it is stateless.
    pub slots: u32,
    /// Bytes of state a sequence holds.
    pub state_bytes: u64,
}

/// One version (or the server's choice of it) of one model, found and ready.
#[derive(Debug, Clone)]
pub struct Served {
    model: Arc<Model>,
    version: Option<u64>,
    load: Arc<Loaded>,
}

impl Repository {
    pub fn new(backend: Arc<dyn Backend>, options: Options, metrics: Metrics) -> std::io::Result<Repository> {
        let clock = Clock::start();
        let shared = Shared {
            backend,
            device: Arc::new(Host),
            metrics,
            timer: Timer::start(clock.clone())?,
            clock,
            budget: Budget::new(options.state_limit),
            pool: Pool::new(options.reply_pool),
            models: RwLock::default(),
            threads: Mutex::default(),
            next_load: Mutex::new(0),
            loading: AtomicU32::new(0),
            recorder: OnceLock::new(),
            options,
        };
        Ok(Repository(Arc::new(shared)))
    }

    /// Records what is loaded from now on, in this file and within so many bytes. A second call is refused.
    pub fn record(&self, path: &Path, most: u64) -> std::io::Result<()> {
        let twice = || std::io::Error::other("a recording is under way");
        if self.0.recorder.get().is_some() {
            return Err(twice());
        }
        let recorder = Recorder::open(path, most, self.0.clock.zero_unix_us())?;
        self.0.recorder.set(recorder).map_err(|_| twice())
    }

    /// Of no models; it is ready.
    #[cfg(test)]
    pub fn empty() -> Repository {
        let backend = Arc::new(crate::backend::mock::MockBackend::default());
        Repository::new(backend, Options::default(), Metrics::new(true)).unwrap()
    }

    /// Finds a model; `version` is as the client wrote it, empty for the server's choice.
    pub fn find(&self, model: &str, version: &str) -> Result<Served, Failure> {
        let not_served = |what| Err(Failure::NotServed(what));
        let version = match version {
            "" => None,
            text => match text.parse::<u64>() {
                Ok(version) => Some(version),
                Err(_) => return not_served(NotServed::BadVersion { version: text.to_owned() }),
            },
        };
        let models = self.0.models.read();
        let Some(entry) = models.get(model) else {
            return not_served(NotServed::UnknownModel { model: model.to_owned() });
        };
        let Some(found) = &entry.model else { return not_served(NotServed::NoVersion { model: model.to_owned() }) };
        let model = Arc::clone(found);
        match (model.load_for(version), version) {
            (Some(load), _) => Ok(Served { model, version, load }),
            (None, Some(version)) => not_served(NotServed::UnknownVersion { model: model.name.clone(), version }),
            (None, None) => not_served(NotServed::NoVersion { model: model.name.clone() }),
        }
    }

    /// Says that what is wanted from the start is about to be loaded.
    pub fn loading(&self) -> Loading {
        self.0.loading.fetch_add(1, Ordering::AcqRel);
        Loading(self.clone())
    }

    /// Whether it is ready as a whole: what is wanted has been loaded, and all of it is ready if readiness is strict.
    pub fn ready(&self) -> bool {
        self.0.loading.load(Ordering::Acquire) == 0 && (!self.0.options.strict_readiness || self.complete())
    }

    /// Whether no model has failed.
    pub fn complete(&self) -> bool {
        self.0.models.read().values().all(|entry| matches!(entry.status.availability, Availability::Ready(_)))
    }

    /// What became of every model, by name.
    pub fn statuses(&self) -> Vec<ModelStatus> {
        self.0.models.read().values().map(|entry| entry.status.clone()).collect()
    }

    /// Admits a request: checks it, and puts it in its queue. Requests submitted one after the other keep that order.
    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.find(&request.model, &request.version)?.submit(request)
    }

    /// Does what has come due, as the timer would.
    #[cfg(all(test, feature = "shuttle"))]
    pub(super) fn tick(&self) {
        for entry in self.0.models.read().values() {
            if let Some(model) = &entry.model {
                model.tick();
            }
        }
    }

    /// Live sequences of all models.
    pub fn live(&self) -> u64 {
        let models: Vec<_> = self.0.models.read().values().filter_map(|e| e.model.clone()).collect();
        models.iter().flat_map(|m| m.loads().iter().map(|l| u64::from(m.usage(l.key).live)).collect::<Vec<_>>()).sum()
    }

    /// Bytes of state that live sequences hold, and the limit.
    pub fn state_bytes(&self) -> (u64, u64) {
        (self.0.budget.used(), self.0.budget.limit())
    }

    /// Brings the gauges of all models up to date, before they are shown.
    pub fn observe(&self) {
        for entry in self.0.models.read().values() {
            if let Some(model) = &entry.model {
                model.observe();
            }
        }
    }

    /// Takes no new sequences any more; what lives then is ended after `finish`.
    pub fn drain(&self, finish: Duration) {
        let until = self.0.clock.now() + finish;
        for entry in self.0.models.read().values() {
            let Some(model) = &entry.model else { continue };
            for load in model.loads().iter() {
                model.retire(load.key, until);
            }
        }
    }

    /// Ends everything at once and waits for the threads.
    pub fn stop(&self) {
        self.drain(Duration::ZERO);
        for thread in std::mem::take(&mut *self.0.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("an instance's thread has panicked");
            }
        }
    }

    // === loading ===

    /// Loads the models in this directory whose names are wanted. What fails is told in [`Repository::statuses`].
    pub fn load_all(&self, directory: &Path, is_wanted: &(dyn Fn(&str) -> bool + Sync)) -> Result<(), LoadError> {
        let mut models = model_directories(directory)?;
        models.retain(|path| path.file_name().and_then(OsStr::to_str).is_some_and(is_wanted));
        std::thread::scope(|scope| {
            for path in &models {
                scope.spawn(|| self.load(path));
            }
        });
        Ok(())
    }

    /// Loads the model in this directory.
    pub fn load(&self, directory: &Path) {
        let began = Instant::now();
        let name = directory.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let loaded = self.load_versions(&name, directory);
        let took = began.elapsed();
        let entry = match loaded {
            Ok((model, ready)) => {
                for load in model.loads().iter() {
                    load.metrics.loaded(took);
                }
                Entry {
                    model: Some(model),
                    status: ModelStatus { name, availability: Availability::Ready(ready), took },
                }
            }
            Err(faults) => {
                Entry { model: None, status: ModelStatus { name, availability: Availability::Failed(faults), took } }
            }
        };
        self.0.models.write().insert(entry.status.name.clone(), entry);
    }

    fn load_versions(&self, name: &str, directory: &Path) -> Result<(Arc<Model>, Vec<ReadyVersion>), Vec<LoadError>> {
        let all = |faults: Vec<crate::config::Fault>| faults.into_iter().map(LoadError::from).collect::<Vec<_>>();
        let draft = model::read(directory, &self.0.options.config).map_err(all)?;
        let there = versions::versions_in(directory)
            .map_err(|e| vec![LoadError::File { path: directory.to_owned(), what: e.to_string() }])?;
        let wanted = draft.versions.choose(&there);
        if wanted.is_empty() {
            let what =
                "has no version to serve: a directory with a number for its name that the version policy chooses"
                    .to_owned();
            return Err(vec![LoadError::File { path: directory.to_owned(), what }]);
        }
        let shared = &self.0;
        let (clock, timer, budget) = (shared.clock.clone(), shared.timer.clone(), shared.budget.clone());
        let model =
            Arc::new(Model::new(name.to_owned(), clock, timer, budget, first_id(), shared.recorder.get().cloned()));
        let mut ready = Vec::new();
        for version in wanted {
            ready.push(self.load_version(&model, &draft, version)?);
        }
        Ok((model, ready))
    }

    fn load_version(&self, model: &Arc<Model>, draft: &Draft, version: u64) -> Result<ReadyVersion, Vec<LoadError>> {
        let shared = &self.0;
        let file = draft.file(version);
        let graph = shared
            .backend
            .load(&file, &shared.options.load)
            .map_err(|e| vec![LoadError::File { path: file.clone(), what: e.to_string() }])?;
        let settings = draft
            .settle(&signature(graph.signature()))
            .map_err(|faults| faults.into_iter().map(LoadError::from).collect::<Vec<_>>())?;
        self.serve(model, version, settings, graph).map_err(|e| vec![e])
    }

    /// Starts the threads of a load and takes it into service.
    fn serve(
        &self,
        model: &Arc<Model>,
        version: u64,
        settings: ModelSettings,
        graph: Arc<dyn Graph>,
    ) -> Result<ReadyVersion, LoadError> {
        let shared = &self.0;
        let key = self.next_load();
        let metrics = shared.metrics.model(&settings.name, version);
        let load = Arc::new(Loaded::new(key, version, settings, graph, metrics, shared.options.hold)?);
        let spec = load.spec();
        let slots = spec.slots();
        let failed = |e: &dyn std::fmt::Display| LoadError::Runtime(format!("{}: {e}", load.settings.name));
        let mut executors = Vec::new();
        for _ in 0..spec.instances {
            let sided = matches!(spec.strategy, sequor_core::Strategy::Direct { .. });
            let executor = Executor::new(Arc::clone(&load), &shared.device, shared.pool.clone(), slots, sided);
            executors.push(executor.map_err(|e| failed(&e))?);
        }
        model.add(&load);
        let mut threads = Vec::new();
        for (n, executor) in (0u16..).zip(executors) {
            let (model, load, who) = (Arc::clone(model), Arc::clone(&load), Instance { load: key, n });
            let name = format!("{}.{n}", load.settings.name);
            let spawned = sync::spawn(name, move || instance::run(&model, &load, who, executor));
            threads.push(spawned.map_err(|e| failed(&e))?);
        }
        // A thread that sleeps before this is known here is not woken: wake them all once.
        let _ = load.threads.set(threads.iter().map(|t| t.thread().clone()).collect());
        for thread in &threads {
            thread.thread().unpark();
        }
        shared.threads.lock().extend(threads);
        Ok(ReadyVersion {
            version,
            strategy: strategy_name(&spec.strategy),
            instances: spec.instances,
            slots: slots * u32::from(spec.instances),
            state_bytes: load.state_bytes(),
        })
    }

    fn next_load(&self) -> Load {
        let mut next = self.0.next_load.lock();
        *next = next.wrapping_add(1);
        Load(*next)
    }
}

impl Served {
    pub fn metadata(&self) -> Arc<Metadata> {
        let mut metadata = (*self.load.metadata).clone();
        metadata.versions = self.model.loads().iter().map(|l| l.version).collect();
        metadata.versions.sort_unstable();
        metadata.versions.dedup();
        Arc::new(metadata)
    }

    pub fn config(&self) -> Arc<proto::ModelConfig> {
        Arc::clone(&self.load.settings.proto)
    }

    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.model.submit(request, self.version)
    }

    /// The state of a live sequence as a `.safetensors` file. Waits until no batch of its instance runs.
    pub fn export(&self, id: &Id) -> Result<Vec<u8>, KeepError> {
        self.model.export(id, self.version)
    }

    /// Keeps a state for a sequence that does not live here; its next step goes on from there.
    pub fn import(&self, id: Id, file: Vec<u8>) -> Result<(), KeepError> {
        self.model.import(&self.load, id, file)
    }
}

pub(super) fn strategy_name(strategy: &sequor_core::Strategy) -> &'static str {
    match strategy {
        sequor_core::Strategy::Stateless { batching: false, .. } => "default",
        sequor_core::Strategy::Stateless { .. } => "dynamic",
        sequor_core::Strategy::Direct { .. } => "direct",
        sequor_core::Strategy::Oldest { .. } => "oldest",
        sequor_core::Strategy::Deadline { .. } => "deadline",
    }
}

/// The first id the server gives out itself: below 2^53, and another one after every start, so that an id of a former life is unknown.
fn first_id() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    // Minutes since 2020 in the upper bits, a count of 2^29 a minute below.
    let minutes = since.as_secs().saturating_sub(1_577_836_800) / 60;
    ((minutes & 0x00ff_ffff) << 29) + 1
}

fn signature(signature: &Signature) -> GraphSignature {
    let port = |p: &crate::backend::Port| GraphPort { name: p.name.clone(), dtype: p.dtype, dims: p.dims.clone() };
    GraphSignature {
        inputs: signature.inputs.iter().map(port).collect(),
        optional: Vec::new(),
        outputs: signature.outputs.iter().map(port).collect(),
    }
}

/// The directories of models: those with a configuration or with a version directory. Anything else is passed over.
fn model_directories(directory: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let failed = |e: std::io::Error| LoadError::File { path: directory.to_owned(), what: e.to_string() };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let has_version = || versions::versions_in(&path).is_ok_and(|v| !v.is_empty());
        if path.is_dir() && (path.join("config.pbtxt").is_file() || has_version()) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
