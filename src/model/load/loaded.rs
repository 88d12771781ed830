//! A loaded incarnation of a model version: its settings and graph, and what is derived from them once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use sequor_core::{
    Dim, EndReason, Expiry, Hold, Id, LoadId, LoadLimits, LoadSpec, Refusal, RowLayout, Stages, Strategy, Time,
    Tombstone,
};

use crate::batch::Wiring;
use crate::batch::wiring::stateful;
use crate::config::fault::{Fault, code};
use crate::config::model::place::Auto;
use crate::config::model::settings::{
    BackendKind, InitialData, ModelSettings, Processor, Scheduling, SequenceStrategy, StateChunks, StateSettings,
};
use crate::error::{At, Failure, LoadError, LoadWarning, Refused};
use crate::executor::{ExecutorHandle, ModelStep};
use crate::model::runtime::LoadRates;
use crate::processing::LoadFacts;
use crate::scheduling::key_interner::KeyInterner;
use crate::scheduling::{Decider, SchedulerPort};
use crate::state::{ChunkPlan, ChunkSizes, InitialValue, StateSpec, Store};
use crate::telemetry::{BatchTimes, InlineGate, ModelMetrics, RunLog};
use crate::tensor::rows;

use super::ensemble::LoadEnsemble;
use super::handle::Handle;
use super::initializer::LoadInitializer;
use super::load_key::LoadKey;
use super::mailbox::Mailbox;
use super::metadata::{Metadata, TensorMetadata};
use super::processors::Processors;
use super::response_cache::LoadCache;
use super::tier::{LoadDurability, StateTier};

#[derive(Debug)]
pub(in crate::model) struct LoadedModel {
    pub(in crate::model) key: LoadId,
    #[allow(dead_code, reason = "only its drop matters")]
    reserved: LoadKey,
    pub(in crate::model) version: u64,
    pub(in crate::model) settings: Arc<ModelSettings>,
    pub(in crate::model) wiring: Wiring,
    pub(in crate::model) states: Vec<StateSpec>,
    pub(in crate::model) metadata: Arc<Metadata>,
    pub(in crate::model) metrics: Arc<ModelMetrics>,
    /// Triton's test aid, which `oldest` ignores.
    hold: Option<Hold>,
    /// What became of instances that may run on a GPU or on the CPU.
    pub(in crate::model) auto: Auto,
    /// What a policy is shown at most.
    candidates: u32,
    /// Batches that an instance on an accelerator may have under way.
    depth: u8,
    /// What makes the states of its sequences durable before their answers leave.
    pub(in crate::model) tier: Option<Arc<dyn StateTier>>,
    /// How its sequences outlive the process, if they do.
    pub(in crate::model) durable: Option<LoadDurability>,
    /// Texts that became key features.
    pub(in crate::model) texts: Arc<KeyInterner>,
    /// The instances, to be woken.
    pub(in crate::model) handles: OnceLock<Vec<Handle>>,
    /// Whether a connection's thread may run a step.
    pub(in crate::model) inline_gate: InlineGate,
    /// What else an instance's thread is asked to do, by instance.
    pub(in crate::model) mail: Vec<Mailbox>,
    /// Where plug-ins reach it, once one was to.
    pub(in crate::model) port: OnceLock<Arc<SchedulerPort<Decider>>>,
    /// The settings as clients see them: with processors, their inputs and outputs are those of the first one.
    pub(in crate::model) client: Arc<ModelSettings>,
    /// How many numeric features and key features it has.
    pub(in crate::model) feature_counts: (usize, usize),
    /// The processors in front of the graph, if it has any.
    pub(in crate::model) processors: Option<Processors>,
    /// What makes the first states of its sequences, if config.pbtxt does not.
    pub(in crate::model) initializer: Option<LoadInitializer>,
    /// What its instances wait for before a run, if they do.
    pub(in crate::model) rates: Option<LoadRates>,
    /// Its answers, if they are kept.
    pub(in crate::model) cache: Option<LoadCache>,
    /// Lines about its runs, if its configuration asks for some.
    run_log: Option<RunLog>,
    /// Its steps, if it is an ensemble. It has no graph then.
    pub(in crate::model) ensemble: Option<LoadEnsemble>,
    /// Faults of its files that do not keep it from serving.
    pub(in crate::model) warnings: Vec<LoadWarning>,
    /// Names of classes, by output.
    labels: Vec<Option<Arc<[String]>>>,
    /// It takes no new sequences any more.
    retired: AtomicBool,
    /// Threads that have not ended.
    running: AtomicUsize,
}

/// What becomes of KIND_AUTO, and what stands around a graph or in its place.
pub(in crate::model) type LoadParts = (Auto, Option<Processors>, Option<LoadInitializer>, Option<LoadEnsemble>);

impl LoadedModel {
    pub(in crate::model) fn new(
        reserved: LoadKey,
        version: u64,
        settings: ModelSettings,
        metrics: Arc<ModelMetrics>,
        (hold, candidates, texts, depth): (Option<Hold>, u32, Arc<KeyInterner>, u8),
        (tier, durable): (Option<Arc<dyn StateTier>>, Option<LoadDurability>),
        (auto, processors, initializer, ensemble): LoadParts,
    ) -> Result<LoadedModel, LoadError> {
        let (_, states) = stateful(&settings);
        let batching = settings.max_batch_size > 0;
        let mut warnings = Vec::new();
        let states = states.iter().map(|s| state_spec(s, batching, &mut warnings)).collect::<Result<Vec<_>, _>>()?;
        for LoadWarning { at, what, .. } in &warnings {
            tracing::warn!(model = settings.name, version, "{at} {what}");
        }
        for note in &settings.notes {
            tracing::info!(model = settings.name, version, "{note}");
        }
        let notes = settings.notes.iter().cloned();
        warnings.extend(notes.map(|Fault { at, code, what }| LoadWarning { at, code, what }));
        let tier = tier.filter(|_| !states.is_empty());
        let durable = durable.filter(|_| !states.is_empty());
        let wiring = Wiring::of(&settings);
        let settings = Arc::new(settings);
        // Clients of a plug-in that is the model see what config.pbtxt says.
        let behind =
            processors.as_ref().filter(|p| settings.backend != BackendKind::Plugin || p.chain.links().len() > 1);
        let client = behind.map_or_else(|| Arc::clone(&settings), |p| Arc::new(p.client_settings(&settings)));
        let metadata = Arc::new(metadata(&client, version));
        let instances = usize::from(settings.instances.max(1));
        Ok(LoadedModel {
            key: reserved.load(),
            reserved,
            version,
            wiring,
            states,
            warnings,
            metadata,
            metrics,
            handles: OnceLock::new(),
            inline_gate: InlineGate::default(),
            hold,
            auto,
            candidates,
            texts,
            depth,
            tier,
            durable,
            port: OnceLock::new(),
            mail: std::iter::repeat_with(Mailbox::default).take(instances).collect(),
            labels: client.outputs.iter().map(|o| labels(o.labels.as_deref())).collect::<Result<_, _>>()?,
            client,
            feature_counts: feature_counts(&settings),
            processors,
            initializer,
            run_log: settings
                .stateful
                .as_ref()
                .and_then(|s| RunLog::new(&settings.name, version, s.log, Instant::now())),
            rates: None,
            cache: None,
            ensemble,
            retired: AtomicBool::new(false),
            running: AtomicUsize::new(instances),
            settings,
        })
    }

    /// Names of the classes of an output, if it has any.
    pub(in crate::model) fn labels(&self, output: &str) -> Option<Arc<[String]>> {
        let at = self.client.outputs.iter().position(|o| o.name == output)?;
        self.labels.get(at)?.clone()
    }

    pub(in crate::model) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(in crate::model) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        if let Some(processors) = &self.processors {
            processors.chain.retire();
        }
        if let Some(of) = &self.initializer {
            of.initializer.retire();
        }
    }

    /// Why it refuses requests though it is loaded, if it does.
    pub(in crate::model) fn unready(&self) -> Option<String> {
        let processors = self.processors.as_ref().and_then(|processors| processors.chain.parked());
        processors.or_else(|| self.initializer.as_ref()?.initializer.parked())
    }

    /// Whether a plug-in in front of it may call other models.
    pub(in crate::model) fn calls_models(&self) -> bool {
        self.processors.as_ref().is_some_and(|processors| processors.chain.calls_models())
    }

    /// One of its threads ends. Whether it was the last.
    pub(in crate::model) fn thread_ends(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) <= 1
    }

    /// Bytes a sequence holds: its states and the scratch of processors.
    pub(in crate::model) fn state_bytes(&self) -> u64 {
        let scratch = self.processors.as_ref().map_or(0, |processors| processors.chain.scratch_bytes());
        self.states.iter().map(StateSpec::bytes).sum::<u64>() + scratch
    }

    /// Names of the processors whose scratch its sequences have, if there are any.
    pub(in crate::model) fn scratch_owners(&self) -> Option<String> {
        self.processors.as_ref().map(Processors::names)
    }

    /// Whether the states of its sequences change in size.
    pub(in crate::model) fn grows(&self) -> bool {
        self.states.iter().any(StateSpec::grows)
    }

    /// What `[sequence] rows` is for a `direct` model.
    pub(in crate::model) fn rows(&self) -> Option<&'static str> {
        let Scheduling::Sequence(sequence) = &self.settings.scheduling else { return None };
        match sequence.strategy {
            SequenceStrategy::Direct { compact, .. } => Some(if compact { "compact" } else { "fixed" }),
            SequenceStrategy::Oldest { .. } => None,
        }
    }

    /// Whether a row's place in the batch is its slot's.
    pub(in crate::model) fn has_fixed_rows(&self) -> bool {
        let Scheduling::Sequence(sequence) = &self.settings.scheduling else { return false };
        matches!(sequence.strategy, SequenceStrategy::Direct { compact: false, .. })
    }

    /// How the memory of its states grows, if its configuration says so.
    pub(in crate::model) fn chunk_plan(&self) -> Option<ChunkPlan> {
        let StateChunks { first, next, count, grow_below, shrink_above } = self.settings.stateful.as_ref()?.chunks?;
        Some(ChunkPlan { sizes: ChunkSizes { first, next }, count, grow_below, shrink_above })
    }

    /// Counts a run.
    pub(in crate::model) fn ran(&self, times: &BatchTimes) {
        self.metrics.executed(times);
        if let Some(log) = &self.run_log {
            log.ran(times, Instant::now());
        }
        self.metrics.ran_at(SystemTime::now());
    }

    fn handle(&self, instance: u16) -> Option<&Handle> {
        self.handles.get()?.get(usize::from(instance))
    }

    pub(in crate::model) fn wake_all(&self) {
        for handle in self.handles.get().into_iter().flatten() {
            handle.thread.unpark();
        }
    }

    /// A refusal with what its sentence needs.
    pub(in crate::model) fn refused(&self, refusal: Refusal, id: Id, may_retry: bool, now: Time) -> Failure {
        let (ended_ago, idle) = match &refusal {
            // Before the clock began: how long ago is not known.
            Refusal::Unknown(Some(stone)) => ((stone.at > Time::ZERO).then(|| now - stone.at), stone.idle),
            _ => (None, None),
        };
        let rejection = match &refusal {
            Refusal::Policy(code) => self.port.get().and_then(|port| port.rejection(*code)),
            _ => None,
        };
        let by_member = matches!(
            &refusal,
            Refusal::Ended(EndReason::Member) | Refusal::Unknown(Some(Tombstone { why: EndReason::Member, .. }))
        );
        let member = self.ensemble.as_ref().filter(|_| by_member).and_then(|ensemble| ensemble.blamed(&id));
        Failure::Refused(Box::new(Refused {
            refusal,
            model: self.settings.name.clone(),
            id,
            ended_ago,
            idle,
            may_retry,
            rejection,
            member,
        }))
    }

    /// Batches that an instance may have under way. The host has one; and so does `direct`, whose rows wait for each other.
    fn depth(&self, strategy: &Strategy) -> u8 {
        let away = self.settings.processors.iter().any(|processor| matches!(processor, Processor::Gpu(_)));
        if away && !matches!(strategy, Strategy::Direct { .. }) { self.depth.max(1) } else { 1 }
    }

    /// The load as the core sees it.
    pub(in crate::model) fn spec(&self) -> LoadSpec {
        let settings = &self.settings;
        let strategy = strategy(settings);
        let base = LoadSpec {
            version: self.version,
            max_batch: settings.max_batch_size.max(1),
            instances: settings.instances.max(1),
            depth: self.depth(&strategy),
            limits: LoadLimits::default(),
            expiry: Expiry::Never,
            idle_longest: None,
            idle_soft: None,
            cancel_ends: true,
            stages: Stages {
                seal: self.tier.is_some(),
                initialize: self.initializer.is_some(),
                pre: self.processors.is_some() || self.ensemble.is_some(),
                // A state with scratch is made durable once the processors are done.
                post: self.processors.as_ref().is_some_and(|of| of.chain.posts() || self.tier.is_some()),
                ..Stages::default()
            },
            initial_state_shape: Store::initial_shape_class(&self.states),
            external: None,
            hold: self.hold.filter(|_| !matches!(strategy, Strategy::Oldest { .. })),
            strategy,
        };
        let mut spec = match &settings.scheduling {
            Scheduling::Sequence(sequence) => LoadSpec {
                limits: sequence.limits,
                expiry: match (sequence.idle_scan, sequence.idle) {
                    (Some(every), _) => Expiry::TwoScans { every },
                    (None, idle) => idle.map_or(Expiry::Never, Expiry::Idle),
                },
                idle_longest: sequence.idle_longest,
                idle_soft: sequence.idle_soft,
                cancel_ends: sequence.cancel_ends,
                ..base
            },
            Scheduling::Dynamic { .. } | Scheduling::Each => base,
        };
        spec.limits.candidates = self.candidates.max(1);
        spec
    }
}

impl ModelStep for LoadedModel {
    fn try_step(&self, instance: u16, thread: &ExecutorHandle) -> bool {
        let inline = self.handle(instance).and_then(|handle| handle.inline.as_ref()?.upgrade());
        inline.is_some_and(|instance| instance.try_step(thread))
    }

    fn wake(&self, instance: u16) {
        if let Some(handle) = self.handle(instance) {
            handle.thread.unpark();
        }
    }
}

fn feature_counts(settings: &ModelSettings) -> (usize, usize) {
    let (numbers, keys) = settings.feature_names();
    (numbers.len(), keys.len())
}

/// What processors learn of a load.
pub(in crate::model) fn load_facts(settings: &ModelSettings, version: u64) -> LoadFacts {
    let strategy = strategy(settings);
    let (numbers, keys) = settings.feature_names();
    let max_batch = settings.max_batch_size.max(1);
    let (name, slots) = match &strategy {
        Strategy::Direct { .. } => ("direct", max_batch),
        Strategy::Oldest { slots, .. } | Strategy::Deadline { slots } => ("oldest", *slots),
        Strategy::Stateless { .. } => ("stateless", 0),
    };
    LoadFacts {
        name: settings.name.clone(),
        version,
        strategy: name,
        max_batch,
        instances: u32::from(settings.instances.max(1)),
        slots,
        numbers,
        keys,
    }
}

/// A strategy's name, as operators and recordings read it.
pub(in crate::model) fn strategy_name(strategy: &Strategy) -> &'static str {
    match strategy {
        Strategy::Stateless { batching: false, .. } => "default",
        Strategy::Stateless { .. } => "dynamic",
        Strategy::Direct { .. } => "direct",
        Strategy::Oldest { .. } => "oldest",
        Strategy::Deadline { .. } => "deadline",
    }
}

fn strategy(settings: &ModelSettings) -> Strategy {
    match &settings.scheduling {
        Scheduling::Each => {
            Strategy::Stateless { batching: false, preferred: Vec::new(), delay: Duration::ZERO, in_order: false }
        }
        Scheduling::Dynamic { preferred, delay, in_order, .. } => {
            Strategy::Stateless { batching: true, preferred: preferred.clone(), delay: *delay, in_order: *in_order }
        }
        Scheduling::Sequence(sequence) => match &sequence.strategy {
            SequenceStrategy::Direct { compact, delay, min_use } => Strategy::Direct {
                rows: if *compact { RowLayout::Compact } else { RowLayout::Fixed },
                delay: *delay,
                min_use: *min_use,
            },
            SequenceStrategy::Oldest { slots, preferred, delay, in_order } => {
                Strategy::Oldest { slots: *slots, preferred: preferred.clone(), delay: *delay, in_order: *in_order }
            }
        },
    }
}

fn state_spec(state: &StateSettings, batching: bool, warnings: &mut Vec<LoadWarning>) -> Result<StateSpec, LoadError> {
    let data = match &state.initial.data {
        InitialData::Zero => None,
        InitialData::File(path) => first_value(state, path, warnings)?,
    };
    Ok(StateSpec {
        input: state.input.clone(),
        output: state.output.clone(),
        dtype: state.dtype,
        dims: state.dims.clone(),
        batch_axis: batching.then_some(state.batch_axis),
        storage: state.storage,
        initial: InitialValue { shape: state.initial.shape.clone(), data },
        same_buffer: state.same_buffer,
    })
}

/// The first value of a state that a file gives. A longer file is cut; texts that are not in the BYTES layout are replaced by empty ones.
fn first_value(
    state: &StateSettings,
    path: &Path,
    warnings: &mut Vec<LoadWarning>,
) -> Result<Option<Arc<[u8]>>, LoadError> {
    let mut bytes = fs_err::read(path).map_err(|e| LoadError::File { path: path.to_owned(), what: e.to_string() })?;
    let elements = state.initial.shape.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let len = match state.dtype.size() {
        Some(size) => elements.saturating_mul(size),
        None => match rows::texts_len(&bytes, elements) {
            Ok(len) => len,
            Err(why) => {
                let input = &state.input;
                let what = format!(
                    "the data_file of state '{input}' is not in the BYTES layout, so its sequences start with empty texts: {why}"
                );
                let at = At { path: path.to_owned(), ..At::default() };
                warnings.push(LoadWarning { at, code: code::NOTE_INITIAL, what });
                return Ok(None);
            }
        },
    };
    bytes.truncate(len);
    Ok(Some(Arc::from(bytes)))
}

fn labels(path: Option<&Path>) -> Result<Option<Arc<[String]>>, LoadError> {
    let Some(path) = path else { return Ok(None) };
    let text =
        fs_err::read_to_string(path).map_err(|e| LoadError::File { path: path.to_owned(), what: e.to_string() })?;
    Ok(Some(text.lines().map(str::to_owned).collect()))
}

fn metadata(settings: &ModelSettings, version: u64) -> Metadata {
    let batching = settings.max_batch_size > 0;
    let whole = |dims: &sequor_core::Dims| if batching { dims.with(0, Dim::Any) } else { dims.clone() };
    let proto = &settings.proto;
    Metadata {
        name: settings.name.clone(),
        versions: vec![version],
        platform: if proto.platform.is_empty() { proto.backend.clone() } else { proto.platform.clone() },
        inputs: settings
            .inputs
            .iter()
            .map(|i| TensorMetadata { name: i.name.clone(), dtype: i.dtype, dims: whole(&i.dims) })
            .collect(),
        outputs: settings
            .outputs
            .iter()
            .map(|o| TensorMetadata { name: o.name.clone(), dtype: o.dtype, dims: whole(&o.dims) })
            .collect(),
    }
}
