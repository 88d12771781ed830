//! One load of a model version: its settings, and values that are derived from them once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use sequor_core::{EndReason, Hold, Id, LoadId, Refusal, Time, Tombstone};

use crate::batch::Wiring;
use crate::config::fault::{Fault, code};
use crate::config::model::place::Auto;
use crate::config::model::settings::{
    BackendKind, ControlKind, ModelSettings, Scheduling, SequenceStrategy, StateChunks,
};
use crate::error::{LoadError, LoadWarning, Refused};
use crate::executor::InlineGate;
use crate::executor::{ExecutorHandle, ModelStep};
use crate::model::request::AnswerRoom;
use crate::model::runtime::{KeepsUnused, LoadRates};
use crate::scheduling::key_interner::KeyInterner;
use crate::scheduling::{Decider, SchedulerPort};
use crate::state::budget::HeldBytes;
use crate::state::{ChunkPlan, ChunkSizes, StateSpec, sides};
use crate::telemetry::{BatchTimes, ModelMetrics, RunLog};

use super::ensemble::LoadEnsemble;
use super::initial_states::state_specs;
use super::initializer::LoadInitializer;
use super::instance_handle::Handle;
use super::load_key::LoadKey;
use super::mailbox::Mailbox;
use super::metadata::{Metadata, class_names};
use super::parts::LoadParts;
use super::processors::Processors;
use super::response_cache::LoadCache;
use super::sealing::StateTier;
use super::sequence_store::LoadDurability;

#[derive(Debug)]
pub(in crate::model) struct LoadedModel {
    pub(in crate::model) key: LoadId,
    #[allow(dead_code, reason = "only its drop matters")]
    reserved: LoadKey,
    pub(in crate::model) version: u64,
    pub(in crate::model) settings: Arc<ModelSettings>,
    pub(in crate::model) wiring: Wiring,
    pub(in crate::model) states: Vec<StateSpec>,
    sizes: StateSizes,
    pub(in crate::model) metadata: Arc<Metadata>,
    pub(in crate::model) metrics: Arc<ModelMetrics>,
    /// Triton's test aid, which `oldest` ignores.
    pub(super) hold: Option<Hold>,
    /// The placement of instances of kind `KIND_AUTO`.
    pub(in crate::model) auto: Auto,
    /// Maximum number of candidates that a policy sees.
    pub(super) candidates: u32,
    /// Maximum number of batches in flight on an instance that uses an accelerator.
    pub(super) depth: u8,
    /// Makes the states of its sequences durable, if `[durability]` asks for it.
    pub(in crate::model) tier: Option<Arc<dyn StateTier>>,
    /// How its sequences are stored, if they are.
    pub(in crate::model) durable: Option<LoadDurability>,
    /// The texts of key features.
    pub(in crate::model) texts: Arc<KeyInterner>,
    /// Handles that wake the instances.
    pub(in crate::model) handles: OnceLock<Vec<Handle>>,
    /// Whether a connection's thread may run a step.
    pub(in crate::model) inline_gate: InlineGate,
    /// Bytes of its sequences' states beyond their size at START.
    pub(in crate::model) grown: HeldBytes,
    /// Requests to an instance's thread for a sequence's state, by instance.
    pub(in crate::model) mail: Vec<Mailbox>,
    /// The port through which plug-ins reach it, made at the first use.
    pub(in crate::model) port: OnceLock<Arc<SchedulerPort<Decider>>>,
    /// The settings as clients see them. With processors, inputs and outputs are those of the first processor.
    pub(in crate::model) client: Arc<ModelSettings>,
    /// Number of numeric features and of key features.
    pub(in crate::model) feature_counts: (usize, usize),
    /// The processors in front of the graph, if it has any.
    pub(in crate::model) processors: Option<Processors>,
    /// The state initializer, if it has one.
    pub(in crate::model) initializer: Option<LoadInitializer>,
    /// What the rate limiter knows of its instances, if the server rates runs.
    pub(in crate::model) rates: Option<LoadRates>,
    /// The limit on answers that clients have not taken.
    pub(in crate::model) answers: AnswerRoom,
    /// Its part of the response cache, if it has one.
    pub(in crate::model) cache: Option<LoadCache>,
    /// Writes log lines about its runs, if its configuration asks for them.
    run_log: Option<RunLog>,
    /// Its plan, if it is an ensemble. An ensemble has no graph.
    pub(in crate::model) ensemble: Option<LoadEnsemble>,
    /// Faults of its files that do not prevent it from serving.
    pub(in crate::model) warnings: Vec<LoadWarning>,
    /// Names of classes, by output.
    class_names: Vec<Option<Arc<[String]>>>,
    /// The failure of each instance's accelerator, if it has failed.
    lost: Vec<OnceLock<String>>,
    /// Whether it takes no more new sequences.
    retired: AtomicBool,
    /// Number of its threads that have not ended.
    running: AtomicUsize,
}

/// The bytes of a sequence's states at START.
#[derive(Debug, Clone, Copy)]
struct StateSizes {
    /// Each state once, as a run reads it and a store keeps it.
    once: u64,
    /// The second copies of states of a fixed size, if slots have two sides.
    second_sides: u64,
}

impl StateSizes {
    /// `sides`: the copies of a state of a fixed size in a slot. Sizes that no machine has do not wrap to small ones.
    fn new(states: &[StateSpec], sides: u8) -> StateSizes {
        let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
        let more_sides = u64::from(sides).saturating_sub(1);
        let fixed = sum(&mut states.iter().filter(|state| !state.grows()).map(StateSpec::bytes));
        let once = sum(&mut states.iter().map(StateSpec::bytes));
        StateSizes { once, second_sides: fixed.saturating_mul(more_sides) }
    }
}

impl LoadedModel {
    pub(in crate::model) fn new(
        reserved: LoadKey,
        version: u64,
        settings: ModelSettings,
        parts: LoadParts,
    ) -> Result<LoadedModel, LoadError> {
        let mut warnings = Vec::new();
        let states = state_specs(&settings, &mut warnings)?;
        log_notes(&settings, version, &mut warnings);
        let wiring = Wiring::new(&settings);
        let settings = Arc::new(settings);
        // If a plug-in is the model, clients see the settings of config.pbtxt.
        let behind =
            parts.processors.as_ref().filter(|p| settings.backend != BackendKind::Plugin || p.chain.links().len() > 1);
        let client = behind.map_or_else(|| Arc::clone(&settings), |p| Arc::new(p.client_settings(&settings)));
        let class_names = client.outputs.iter().map(|o| class_names(o.labels.as_deref()));
        let class_names = class_names.collect::<Result<_, _>>()?;
        let run_log = settings.stateful.as_ref();
        let run_log = run_log.and_then(|s| RunLog::new(&settings.name, version, s.log, Instant::now()));
        let instances = usize::from(settings.instances.max(1));
        let LoadParts { metrics, hold, candidates, texts, depth, auto, processors, initializer, .. } = parts;
        Ok(LoadedModel {
            key: reserved.load(),
            reserved,
            version,
            wiring,
            tier: parts.tier.filter(|_| !states.is_empty()),
            durable: parts.durable.filter(|_| !states.is_empty()),
            sizes: StateSizes::new(&states, sides(&states, is_direct(&settings))),
            states,
            warnings,
            metadata: Arc::new(Metadata::new(&client, version)),
            metrics,
            handles: OnceLock::new(),
            inline_gate: InlineGate::default(),
            grown: HeldBytes::default(),
            hold,
            auto,
            candidates,
            texts,
            depth,
            port: OnceLock::new(),
            mail: std::iter::repeat_with(Mailbox::default).take(instances).collect(),
            class_names,
            client,
            feature_counts: feature_counts(&settings),
            processors,
            initializer,
            run_log,
            rates: parts.rates,
            answers: parts.answers,
            cache: parts.cache,
            ensemble: parts.ensemble,
            lost: std::iter::repeat_with(OnceLock::new).take(instances).collect(),
            retired: AtomicBool::new(false),
            running: AtomicUsize::new(instances),
            settings,
        })
    }

    /// Names of the classes of an output, if it has any.
    pub(in crate::model) fn labels(&self, output: &str) -> Option<Arc<[String]>> {
        let at = self.client.outputs.iter().position(|o| o.name == output)?;
        self.class_names.get(at)?.clone()
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

    /// Why it refuses requests although it is loaded. `None` if it does not.
    pub(in crate::model) fn unready(&self) -> Option<String> {
        let processors = self.processors.as_ref().and_then(|processors| processors.chain.parked());
        let parked = processors.or_else(|| self.initializer.as_ref()?.initializer.parked());
        parked.or_else(|| self.all_lost())
    }

    /// Records that the accelerator of an instance has failed. Returns the number of instances that are left, or `None` if the failure was
    /// known.
    pub(in crate::model) fn lose(&self, instance: u16, why: String) -> Option<usize> {
        self.lost.get(usize::from(instance))?.set(why).ok()?;
        Some(self.lost.iter().filter(|of| of.get().is_none()).count())
    }

    /// Why no instance is left, if the accelerators of all have failed.
    fn all_lost(&self) -> Option<String> {
        let whys: Option<Vec<&String>> = self.lost.iter().map(OnceLock::get).collect();
        let why = whys?.into_iter().next()?;
        Some(format!("the accelerators of all its instances have failed ({why}); restart the server"))
    }

    /// Whether a plug-in in front of it may call other models.
    pub(in crate::model) fn calls_models(&self) -> bool {
        self.processors.as_ref().is_some_and(|processors| processors.chain.calls_models())
    }

    /// Records the end of one of its threads. Returns whether it was the last one.
    pub(in crate::model) fn thread_ends(&self) -> bool {
        self.running.fetch_sub(1, Ordering::AcqRel) <= 1
    }

    /// Bytes a sequence holds: its states, on both sides if slots have two, and the scratch of processors.
    pub(in crate::model) fn state_bytes(&self) -> u64 {
        self.stored_bytes().saturating_add(self.sizes.second_sides)
    }

    /// Bytes of a sequence outside its slot, without second sides.
    pub(in crate::model) fn stored_bytes(&self) -> u64 {
        let scratch = self.processors.as_ref().map_or(0, |processors| processors.chain.scratch_bytes());
        self.sizes.once.saturating_add(scratch)
    }

    /// Bytes a sequence holds whose states outside its slot have this size, which may be more than at START.
    pub(in crate::model) fn state_bytes_of(&self, stored: u64) -> u64 {
        self.stored_bytes().max(stored).saturating_add(self.sizes.second_sides)
    }

    /// Names of the processors that keep scratch for its sequences, if there are any.
    pub(in crate::model) fn scratch_owners(&self) -> Option<String> {
        self.processors.as_ref().map(Processors::names)
    }

    /// Whether the states of its sequences change in size.
    pub(in crate::model) fn grows(&self) -> bool {
        self.states.iter().any(StateSpec::grows)
    }

    /// The value of `[sequence] rows`, if the model is `direct`.
    pub(in crate::model) fn rows(&self) -> Option<&'static str> {
        let Scheduling::Sequence(sequence) = &self.settings.scheduling else { return None };
        match sequence.strategy {
            SequenceStrategy::Direct { compact, .. } => Some(if compact { "compact" } else { "fixed" }),
            SequenceStrategy::Oldest { .. } => None,
        }
    }

    /// Whether each slot has a fixed row in the batch.
    pub(in crate::model) fn has_fixed_rows(&self) -> bool {
        let Scheduling::Sequence(sequence) = &self.settings.scheduling else { return false };
        matches!(sequence.strategy, SequenceStrategy::Direct { compact: false, .. })
    }

    /// How the memory of its states grows, if its configuration sets that.
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

    /// A refusal with the facts that its message needs.
    pub(in crate::model) fn refused(&self, refusal: Refusal, id: Id, may_retry: bool, now: Time) -> Refused {
        let (ended_ago, idle) = match &refusal {
            // It ended before the clock began, so it is unknown how long ago.
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
        Refused {
            refusal,
            model: self.settings.name.clone(),
            id,
            ended_ago,
            idle,
            may_retry,
            rejection,
            member,
            ended_by: None,
        }
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

impl KeepsUnused for LoadedModel {
    /// Each instance does it before it rests again.
    fn release_idle_slots(&self) {
        self.wake_all();
    }
}

/// Logs the warnings and the notes of a model's files. The notes join the warnings.
fn log_notes(settings: &ModelSettings, version: u64, warnings: &mut Vec<LoadWarning>) {
    for LoadWarning { at, what, .. } in warnings.iter() {
        tracing::warn!(model = settings.name, version, "{at} {what}");
    }
    let notes: Vec<Fault> = settings.notes.iter().cloned().chain(doubtful_initializer(settings)).collect();
    for note in &notes {
        tracing::info!(model = settings.name, version, "{note}");
    }
    warnings.extend(notes.into_iter().map(|Fault { at, code, what }| LoadWarning { at, code, what }));
}

/// The note about a state initializer whose states the graph may drop. A model that sees START may reset its state there.
fn doubtful_initializer(settings: &ModelSettings) -> Option<Fault> {
    let initializer = settings.initializer.as_ref()?;
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return None };
    let input = sequence.controls.iter().find_map(|control| match control.kind {
        ControlKind::Start(_) | ControlKind::Reset { .. } => Some(&control.input),
        _ => None,
    })?;
    let what = format!(
        "the graph sees START in \"{input}\". If it resets its state there, the values of the initializer \"{}\" have no effect",
        initializer.name
    );
    Some(Fault { at: initializer.at.clone(), code: code::NOTE_INITIALIZER, what })
}

/// Whether the rows of a batch are slots.
fn is_direct(settings: &ModelSettings) -> bool {
    let Scheduling::Sequence(sequence) = &settings.scheduling else { return false };
    matches!(sequence.strategy, SequenceStrategy::Direct { .. })
}

fn feature_counts(settings: &ModelSettings) -> (usize, usize) {
    let (numbers, keys) = settings.feature_names();
    (numbers.len(), keys.len())
}

#[cfg(test)]
mod tests {
    use sequor_core::{DataType, Dims, Shape};

    use super::*;
    use crate::state::InitialValue;

    fn state(dims: &[i64], at_start: &[u64]) -> StateSpec {
        StateSpec {
            input: "S".to_owned(),
            output: "T".to_owned(),
            dtype: DataType::Int32,
            dims: Dims::from_wire(dims),
            batch_axis: Some(0),
            storage: DataType::Int32,
            initial: InitialValue { shape: Shape::new(at_start), data: None },
            same_buffer: false,
            padding: None,
        }
    }

    #[test]
    fn states_of_a_fixed_size_count_once_for_each_side() {
        let states = [state(&[3], &[3]), state(&[-1, 2], &[5, 2])];
        let bytes = |sides: u8| {
            let StateSizes { once, second_sides } = StateSizes::new(&states, sides);
            (once, second_sides)
        };
        assert_eq!((bytes(1), bytes(2)), ((52, 0), (52, 12)));
    }

    #[test]
    fn sizes_of_states_do_not_overflow() {
        let large = state(&[1 << 61], &[1 << 61]);
        let StateSizes { once, second_sides } = StateSizes::new(&[large.clone(), large], 2);
        assert_eq!((once, second_sides), (u64::MAX, u64::MAX));
    }
}
