//! Which models there are, and what may be asked of them. A model that fails says why and stops no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use sequor_core::{DataType, Hold, Id};
use sequor_proto as proto;

use crate::backend::{Backend, LoadOptions};
use crate::config::model;
use crate::device::cuda::Driver;
use crate::device::{Accelerators, Pool};
use crate::error::{Failure, Invalid, LoadError, LoadWarning, NotServed};
use crate::model::catalog::{Fingerprint, SchedulerChoice};
use crate::model::execute::placement;
use crate::model::load::{Loaded, Metadata, StateTier};
use crate::model::request::{InferRequest, intake};
use crate::model::runtime::{Clock, Timer, Upkeep, sync};
use crate::model::sequences::{Model, Pending, SequenceOwner, TransferError, VersionStatistics};
use crate::recording::Recorder;
use crate::scheduling::Registry;
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::telemetry::Metrics;

use super::control::Control;

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
    /// Batches that an instance on an accelerator may have under way, where its strategy allows more than one.
    pub depth: u8,
    /// What instances of KIND_GPU run on. It is not asked for anything before a model wants some.
    pub accelerators: Arc<dyn Accelerators>,
    /// What drives the cores.
    pub clock: Clock,
    /// Where states are made durable, so that sequences outlive the process.
    pub tier: Option<Arc<dyn StateTier>>,
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
            depth: 2,
            accelerators: Arc::new(Driver),
            clock: Clock::default(),
            tier: None,
        }
    }
}

/// Everything that is served. Cheap to clone; all clones are one repository.
#[derive(Debug, Clone)]
pub struct Repository(pub(in crate::model) Arc<Shared>);

#[derive(Debug)]
pub(in crate::model) struct Shared {
    pub(in crate::model) backend: Arc<dyn Backend>,
    pub(in crate::model) options: Options,
    pub(in crate::model) metrics: Metrics,
    pub(in crate::model) clock: Clock,
    pub(in crate::model) timer: Timer,
    pub(in crate::model) budget: Budget,
    pub(in crate::model) chunk_cache: ChunkCache,
    pub(in crate::model) pool: Pool,
    pub(in crate::model) models: RwLock<BTreeMap<String, Entry>>,
    pub(in crate::model) control: OnceLock<Control>,
    /// Threads of instances, to be waited for at the end.
    pub(in crate::model) threads: Mutex<Vec<sync::JoinHandle<()>>>,
    pub(in crate::model) gpus: Mutex<placement::InUse>,
    pub(in crate::model) recorder: OnceLock<Recorder>,
    /// Names of the headers that features come from.
    pub(in crate::model) headers: ArcSwap<Vec<String>>,
    /// Plug-ins, if the server has any.
    pub(in crate::model) registry: OnceLock<Registry>,
    /// Somebody is loading what is wanted from the start.
    loading: AtomicU32,
    /// Nothing is loaded any more.
    pub(super) stopped: AtomicBool,
}

/// For as long as it lives, the repository is not ready.
#[derive(Debug)]
pub struct Loading(Repository);

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.0.loading.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A model name that is, was or shall be served.
#[derive(Debug, Default)]
pub(in crate::model) struct Entry {
    /// One for all loads of the name, so that its sequences live through a reload.
    pub(in crate::model) model: Option<Arc<Model>>,
    /// Whether requests are taken.
    pub(in crate::model) open: bool,
    /// Whether the server is not ready without it.
    pub(in crate::model) wanted: bool,
    pub(super) loading: bool,
    /// What became of it when it was last loaded; where a reload failed, what serves on.
    pub(in crate::model) status: Option<ModelStatus>,
    /// Why the last load failed, if it did.
    pub(in crate::model) faults: Vec<LoadError>,
    pub(in crate::model) directory: PathBuf,
    /// The versions last chosen, and all that ever were.
    pub(in crate::model) versions: Vec<u64>,
    pub(in crate::model) known: BTreeSet<u64>,
    /// What is served was made from this; what was tried last, from that.
    pub(in crate::model) served: Option<Fingerprint>,
    pub(in crate::model) tried: Option<Fingerprint>,
    /// Who says which plug-in decides for it.
    pub(in crate::model) decides: SchedulerChoice,
    /// Held while the model is loaded or unloaded: one after the other.
    pub(in crate::model) gate: Arc<Mutex<()>>,
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
    /// `fixed` or `compact`, for `direct`.
    pub rows: Option<&'static str>,
    /// What is wrong with its files although it is served.
    pub warnings: Vec<LoadWarning>,
    /// Where its instances run, if that is not just the CPU: `GPU 0`, `GPU 0 1 and CPU`, `CPU: ` and why not on a GPU.
    pub on: Option<String>,
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
        let clock = options.clock.clone();
        let budget = Budget::new(options.state_limit);
        let reads = clock.clone();
        let chunk_cache = ChunkCache::new(budget.clone(), move || reads.now());
        let upkeep = Upkeep::new(chunk_cache.clone(), Arc::clone(&backend));
        let shared = Shared {
            backend,
            metrics,
            timer: Timer::start(clock.clone(), upkeep)?,
            clock,
            budget,
            chunk_cache,
            pool: Pool::new(options.reply_pool),
            models: RwLock::default(),
            threads: Mutex::default(),
            gpus: Mutex::default(),
            loading: AtomicU32::new(0),
            recorder: OnceLock::new(),
            headers: ArcSwap::default(),
            registry: OnceLock::new(),
            control: OnceLock::new(),
            stopped: AtomicBool::new(false),
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
        let version = match parse_version(version) {
            Ok(version) => version,
            Err(what) => return not_served(what),
        };
        let models = self.0.models.read();
        let Some(entry) = models.get(model) else {
            return not_served(NotServed::UnknownModel { model: model.to_owned() });
        };
        let Some(found) = entry.model.as_ref().filter(|_| entry.open) else {
            let model = model.to_owned();
            return not_served(match version.filter(|_| entry.loading) {
                Some(version) => NotServed::NotReady { model, version },
                None => NotServed::NoVersion { model },
            });
        };
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

    /// Whether every model that is wanted is ready.
    pub fn complete(&self) -> bool {
        let is_ready =
            |entry: &Entry| matches!(&entry.status, Some(ModelStatus { availability: Availability::Ready(_), .. }));
        self.0.models.read().values().filter(|entry| entry.wanted).all(is_ready)
    }

    /// What became of every model that was loaded, by name.
    pub fn statuses(&self) -> Vec<ModelStatus> {
        self.0.models.read().values().filter_map(|entry| entry.status.clone()).collect()
    }

    /// What was counted of this model and version, or of all where the name or the version is empty.
    pub fn statistics(&self, model: &str, version: &str) -> Result<Vec<VersionStatistics>, Failure> {
        if !model.is_empty() {
            let found = self.find(model, version)?;
            return Ok(found.model.statistics(found.version));
        }
        let models: Vec<Arc<Model>> =
            self.0.models.read().values().filter(|e| e.open).filter_map(|e| e.model.clone()).collect();
        Ok(models.iter().flat_map(|model| model.statistics(None)).collect())
    }

    /// Names, in lower case, of the headers that surfaces hand over with a request.
    pub fn headers(&self) -> Arc<Vec<String>> {
        self.0.headers.load_full()
    }

    /// Admits a request: checks it, and puts it in its queue. Requests submitted one after the other keep that order.
    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.find(&request.model, &request.version)?.submit(request)
    }

    /// Does what has come due, as the timer would.
    #[cfg(all(test, feature = "shuttle"))]
    pub(in crate::model) fn tick(&self) {
        // Nothing is held where others may come in between.
        let models: Vec<_> = self.0.models.read().values().filter_map(|entry| entry.model.clone()).collect();
        models.into_iter().for_each(crate::model::runtime::Tick::tick);
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

    /// Does the upkeep of memory that the timer's thread will do after this time.
    pub fn upkeep_after(&self, span: Duration) {
        Upkeep::new(self.0.chunk_cache.clone(), Arc::clone(&self.0.backend)).run(self.0.clock.now() + span);
    }

    /// Brings the gauges of all models up to date, before they are shown.
    pub fn observe(&self) {
        self.observe_gpus();
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
        self.0.stopped.store(true, Ordering::Release);
        // Whoever loads now either sees that, or is seen by what follows.
        let gates: Vec<_> = self.0.models.read().values().map(|entry| Arc::clone(&entry.gate)).collect();
        let _held: Vec<_> = gates.iter().map(|gate| gate.lock()).collect();
        self.drain(Duration::ZERO);
        for thread in std::mem::take(&mut *self.0.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("an instance's thread has panicked");
            }
        }
    }
}

/// Parses a version as Triton does (`stol`): white space in front and anything behind the digits is ignored, so `1.0` and ` 1` are 1.
fn parse_version(text: &str) -> Result<Option<u64>, NotServed> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = || NotServed::BadVersion { version: text.to_owned() };
    let number = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let version: u64 = digits.get(..end).and_then(|digits| digits.parse().ok()).ok_or_else(bad)?;
    match i64::try_from(version) {
        Err(_) => Err(bad()),
        Ok(1..) if number.starts_with('-') => Err(NotServed::NegativeVersion { version: text.to_owned() }),
        Ok(_) => Ok(Some(version)),
    }
}

impl Served {
    /// The type that the model declares for an input.
    pub fn input_type(&self, name: &str) -> Option<DataType> {
        self.load.settings.inputs.iter().find(|input| input.name == name).map(|input| input.dtype)
    }

    /// Checks the names of a request's inputs before their data is read.
    pub fn check_inputs(&self, names: &[&str]) -> Result<(), Invalid> {
        intake::check_names(&self.load.settings, names)
    }

    pub fn metadata(&self) -> Arc<Metadata> {
        let mut metadata = (*self.load.metadata).clone();
        metadata.versions = self.model.loads().iter().filter(|l| !l.is_retired()).map(|l| l.version).collect();
        metadata.versions.sort_unstable();
        metadata.versions.dedup();
        Arc::new(metadata)
    }

    pub fn config(&self) -> Arc<proto::ModelConfig> {
        Arc::clone(&self.load.settings.proto)
    }

    /// Names of the classes of an output, if it has any.
    pub fn labels(&self, output: &str) -> Option<Arc<[String]>> {
        self.load.labels(output)
    }

    pub fn submit(&self, request: InferRequest) -> Result<Pending, Failure> {
        self.submit_of(request, None)
    }

    /// Submits a request of a client whose live sequences are counted.
    pub fn submit_of(&self, request: InferRequest, owner: Option<&Arc<dyn SequenceOwner>>) -> Result<Pending, Failure> {
        let (answer, req) = self.model.submit(request, self.version, owner)?;
        Ok(Pending::new(answer, Arc::clone(&self.model), req))
    }

    /// The state of a live sequence as a `.safetensors` file. Waits until no batch of its instance runs.
    pub fn export(&self, id: &Id) -> Result<Vec<u8>, TransferError> {
        self.model.export(id, self.version)
    }

    /// Keeps a state for a sequence that does not live here; its next step goes on from there.
    pub fn import(&self, id: Id, file: Vec<u8>) -> Result<(), TransferError> {
        self.model.import(&self.load, id, file)
    }
}
