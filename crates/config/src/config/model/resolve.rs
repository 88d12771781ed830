//! Converts a valid configuration to the server's own types. It repeats no checks: invalid parts, which cannot occur, are left out.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sequor_core::{DataType, Dialect, Dims, LoadLimits, Shape};
use sequor_proto::batch_input::Kind as ProtoBatchInputKind;
use sequor_proto::model_instance_group::Kind as InstanceKind;
use sequor_proto::model_queue_policy::TimeoutAction;
use sequor_proto::model_sequence_batching::{
    Control as ProtoControl, State, StrategyChoice, control::Kind, initial_state::StateData,
};
use sequor_proto::{
    ModelConfig, ModelDynamicBatching, ModelQueuePolicy, ModelSequenceBatching, ModelTensorReshape,
    model_config::SchedulingChoice,
};

use super::report::Report;
use super::sequor_toml::{self, OnCancel, Rows, Rules, Storage, Watch, WhenExpired};
use super::settings::{
    BackendKind, BatchInput, BatchInputKind, BatchSource, Constant, Control, ControlKind, DurabilityWhen,
    EnsembleSettings, EnsembleStep, FalseTrue, Initial, InitialData, Input, ModelSettings, Output, Processor,
    QueueLevels, QueueSettings, ReloadSettings, Scheduling, SequenceSettings, SequenceStrategy, StateSettings,
    VersionPolicy,
};
use super::signature::Signature;
use super::{constant, dtype, features, fit, names, padding, rates, state_padding, warmup};

/// Maximum live sequences of an ensemble. The slots of its members are the effective limit.
const ENSEMBLE_SLOTS: u32 = 1 << 30;

/// Default number of steps between two writes of a sequence's state.
const EVERY: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// The settings of a configuration without faults.
pub(super) fn resolve(report: &Report<'_>, graph: &Signature) -> ModelSettings {
    let config = report.config;
    let is_plugin = report.toml.keys.model.is_some();
    let processors = if is_plugin { vec![Processor::Cpu] } else { processors(config) };
    ModelSettings {
        name: config.name.clone(),
        directory: report.directory.to_owned(),
        backend: if is_plugin { BackendKind::Plugin } else { backend(config) },
        file_name: config.default_model_filename.clone(),
        versions: versions(config),
        max_batch_size: unsigned(config.max_batch_size),
        inputs: inputs(report, graph),
        outputs: outputs(report, graph),
        constants: constants(report, graph),
        batch_inputs: batch_inputs(report, graph),
        scheduling: scheduling(report),
        durability: durability(report),
        reload: reload(report),
        features: features::features(report),
        scheduler: features::scheduler(report),
        processor_plugins: features::processors(report),
        initializer: features::initializer(report),
        stateful: None,
        instances: u16::try_from(processors.len()).unwrap_or(u16::MAX),
        processors,
        rates: rates::rates(config),
        proto: Arc::new(config.clone()),
        warmup: warmup::samples(config, report.directory),
        notes: Vec::new(),
        ensemble: ensemble(config).map(Arc::new),
    }
}

pub(super) fn backend(config: &ModelConfig) -> BackendKind {
    if names::is_ensemble(config) { BackendKind::Ensemble } else { BackendKind::OnnxRuntime }
}

fn ensemble(config: &ModelConfig) -> Option<EnsembleSettings> {
    let Some(SchedulingChoice::EnsembleScheduling(of)) = &config.scheduling_choice else { return None };
    let pairs =
        |map: &BTreeMap<String, String>| map.iter().map(|(port, tensor)| (port.clone(), tensor.clone())).collect();
    let step = |step: &sequor_proto::model_ensembling::Step| EnsembleStep {
        model: step.model_name.clone(),
        version: u64::try_from(step.model_version).ok().filter(|version| *version > 0),
        inputs: pairs(&step.input_map),
        outputs: pairs(&step.output_map),
    };
    let max_in_flight = Some(of.max_inflight_requests).filter(|n| *n > 0);
    Some(EnsembleSettings { steps: of.step.iter().map(step).collect(), max_in_flight })
}

/// The sequence settings of an ensemble. `idle` is the shortest idle time of its members. Each sequence has a slot.
pub(super) fn ensemble_sequences(report: &Report<'_>, idle: Option<Duration>) -> SequenceSettings {
    let strategy = SequenceStrategy::Oldest {
        slots: ENSEMBLE_SLOTS,
        preferred: Vec::new(),
        delay: Duration::ZERO,
        in_order: false,
    };
    let own_idle = report.toml.keys.sequence.idle;
    SequenceSettings {
        strategy,
        idle: own_idle.map_or(idle, |idle| idle.0),
        // A step that some members have run cannot be undone.
        cancel_ends: true,
        ..sequence(report, &ModelSequenceBatching::default())
    }
}

fn durability(report: &Report<'_>) -> DurabilityWhen {
    let keys = report.toml.keys.durability.as_ref();
    match keys.and_then(|keys| keys.when) {
        None | Some(sequor_toml::When::Never) => DurabilityWhen::Never,
        Some(sequor_toml::When::Drain) => DurabilityWhen::Drain,
        Some(sequor_toml::When::Step) => DurabilityWhen::Step,
        Some(sequor_toml::When::Every) => {
            DurabilityWhen::Every(keys.and_then(|keys| keys.every).and_then(NonZeroU32::new).unwrap_or(EVERY))
        }
    }
}

fn reload(report: &Report<'_>) -> ReloadSettings {
    let (keys, default) = (&report.toml.keys.reload, ReloadSettings::default());
    ReloadSettings {
        drain: keys.drain.map_or(default.drain, |drain| drain.0),
        carries: keys.then == Some(sequor_toml::WhenDrained::Carry),
    }
}

/// The processor of each instance: group by group, and within a group GPU by GPU. At least one.
pub(super) fn processors(config: &ModelConfig) -> Vec<Processor> {
    let mut out = Vec::new();
    for group in config.instance_group.iter().filter(|g| !g.passive) {
        let each = unsigned(group.count) as usize;
        match group.kind() {
            InstanceKind::Gpu => {
                let gpus = group.gpus.iter().filter_map(|gpu| u16::try_from(*gpu).ok());
                out.extend(gpus.flat_map(|gpu| std::iter::repeat_n(Processor::Gpu(gpu), each)));
            }
            _ => out.extend(std::iter::repeat_n(Processor::Cpu, each)),
        }
    }
    out.truncate(usize::from(u16::MAX));
    if out.is_empty() {
        out.push(Processor::Cpu);
    }
    out
}

fn unsigned(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

/// The version policy; without one, the newest version.
pub(super) fn versions(config: &ModelConfig) -> VersionPolicy {
    VersionPolicy::from_config(config).unwrap_or(VersionPolicy::Latest(1))
}

fn inputs(report: &Report<'_>, graph: &Signature) -> Vec<Input> {
    let input = |input: &sequor_proto::ModelInput| {
        let dims = Dims::from_wire(&input.dims);
        let scalar = graph.input(&input.name).is_some_and(|port| fit::is_scalar(report, port, &dims));
        let reshape = reshape(report, input.reshape.as_ref(), scalar);
        let dtype = dtype::from_proto(input.data_type)?;
        Some(Input {
            name: input.name.clone(),
            dtype,
            dims,
            reshape,
            optional: input.optional,
            batch_dim: None,
            ragged: padding::ragged(report, input),
        })
    };
    report.config.input.iter().filter_map(input).collect()
}

fn outputs(report: &Report<'_>, graph: &Signature) -> Vec<Output> {
    let output = |output: &sequor_proto::ModelOutput| {
        let dims = Dims::from_wire(&output.dims);
        let scalar = graph.output(&output.name).is_some_and(|port| fit::is_scalar(report, port, &dims));
        let reshape = reshape(report, output.reshape.as_ref(), scalar);
        let dtype = dtype::from_proto(output.data_type)?;
        let labels = Some(&output.label_filename).filter(|f| !f.is_empty()).map(|f| report.directory.join(f));
        let cut_like = cut_like(report.config, &output.name);
        Some(Output {
            name: output.name.clone(),
            dtype,
            dims,
            reshape,
            batch_dim: None,
            labels,
            cut_like,
            crop: padding::crop(report, output),
        })
    };
    report.config.output.iter().filter_map(output).collect()
}

fn batch_inputs(report: &Report<'_>, graph: &Signature) -> Vec<BatchInput> {
    let config = report.config;
    let batch_input = |input: &sequor_proto::BatchInput| {
        Some(BatchInput {
            targets: input.target_name.clone(),
            kind: match input.kind() {
                ProtoBatchInputKind::BatchElementCount => BatchInputKind::ElementCount,
                ProtoBatchInputKind::BatchAccumulatedElementCount => BatchInputKind::AccumulatedElementCount,
                ProtoBatchInputKind::BatchAccumulatedElementCountWithZero => {
                    BatchInputKind::AccumulatedElementCountWithZero
                }
                ProtoBatchInputKind::BatchMaxElementCountAsShape => BatchInputKind::MaxElementCountAsShape,
                ProtoBatchInputKind::BatchItemShape => BatchInputKind::ItemShape,
                ProtoBatchInputKind::BatchItemShapeFlatten => BatchInputKind::ItemShapeFlatten,
            },
            dtype: dtype::from_proto(input.data_type)?,
            source: BatchSource::Input(input_named(config, input.source_input.first()?)?),
        })
    };
    let declared = config.batch_input.iter().filter_map(batch_input);
    declared.chain(padding::batch_inputs(report, graph)).chain(state_padding::batch_inputs(report, graph)).collect()
}

fn cut_like(config: &ModelConfig, output: &str) -> Option<usize> {
    let of = config.batch_output.iter().find(|b| b.target_name.iter().any(|name| name == output))?;
    input_named(config, of.source_input.first()?)
}

fn input_named(config: &ModelConfig, name: &str) -> Option<usize> {
    config.input.iter().position(|input| input.name == *name)
}

/// The shape on the graph's side. A plug-in that is the model gets tensors in the clients' shape.
fn reshape(report: &Report<'_>, reshape: Option<&ModelTensorReshape>, scalar: bool) -> Option<Dims> {
    let reshape = reshape.filter(|_| report.toml.keys.model.is_none());
    if scalar { Some(Dims::default()) } else { reshape.map(|r| Dims::from_wire(&r.shape)) }
}

fn constants(report: &Report<'_>, graph: &Signature) -> Vec<Constant> {
    let of = |(name, keys): (&String, &sequor_toml::InputSection)| {
        constant::constant(graph.input(name)?, keys.constant.as_ref()?).ok()
    };
    report.toml.keys.input.iter().filter_map(of).collect()
}

fn scheduling(report: &Report<'_>) -> Scheduling {
    match &report.config.scheduling_choice {
        Some(SchedulingChoice::SequenceBatching(s)) => Scheduling::Sequence(Box::new(sequence(report, s))),
        Some(SchedulingChoice::DynamicBatching(dynamic)) => Scheduling::Dynamic {
            preferred: dynamic.preferred_batch_size.iter().copied().map(unsigned).collect(),
            delay: Duration::from_micros(dynamic.max_queue_delay_microseconds),
            in_order: dynamic.preserve_ordering,
            queue: levels(dynamic),
        },
        Some(SchedulingChoice::EnsembleScheduling(_)) | None => Scheduling::Each,
    }
}

fn levels(dynamic: &ModelDynamicBatching) -> QueueLevels {
    // Requests cannot name higher levels.
    let level = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    QueueLevels {
        count: level(dynamic.priority_levels),
        default_level: level(dynamic.default_priority_level),
        default: dynamic.default_queue_policy.as_ref().map(queue).unwrap_or_default(),
        policies: dynamic.priority_queue_policy.iter().map(|(of, policy)| (level(*of), queue(policy))).collect(),
    }
}

fn queue(policy: &ModelQueuePolicy) -> QueueSettings {
    let some = |n: u64| Some(n).filter(|n| *n > 0);
    QueueSettings {
        max_size: Some(policy.max_queue_size).filter(|n| *n > 0),
        timeout: some(policy.default_timeout_microseconds).map(Duration::from_micros),
        may_override: policy.allow_timeout_override,
        delays: policy.timeout_action() == TimeoutAction::Delay,
    }
}

fn sequence(report: &Report<'_>, sequence: &ModelSequenceBatching) -> SequenceSettings {
    let keys = &report.toml.keys;
    let own = &keys.sequence;
    let idle = Duration::from_micros(sequence.max_sequence_idle_microseconds);
    SequenceSettings {
        strategy: strategy(report.config, sequence, own.rows),
        dialect: own.rules.map(|rules| match rules {
            Rules::Triton => Dialect::TRITON,
            Rules::Ovms => Dialect::OVMS,
        }),
        iterative: sequence.iterative_sequence,
        idle: own.idle.map_or(Some(idle), |idle| idle.0),
        idle_soft: own.idle_soft.map(|s| s.0),
        idle_longest: own.idle_longest.map(|s| s.0),
        idle_scan: own.idle_scan.map(|s| s.0),
        cancel_ends: own.on_cancel != Some(OnCancel::Keep),
        limits: limits(keys),
        backlog_timeout: keys.backlog.timeout.map(|t| t.0),
        backlog_levels: keys.backlog.levels.unwrap_or(0),
        reject_expired: keys.queue.expire == Some(WhenExpired::Reject),
        end_without_inputs: own.end_without_inputs.unwrap_or(false),
        client_state: own.client_state,
        watch: own.watch == Some(Watch::Nan),
        controls: sequence
            .control_input
            .iter()
            .flat_map(|c| c.control.iter().filter_map(|x| control(&c.name, x)))
            .collect(),
        states: sequence.state.iter().filter_map(|s| state(report, s)).collect(),
    }
}

fn limits(keys: &sequor_toml::Keys) -> LoadLimits {
    let (defaults, own) = (LoadLimits::default(), &keys.sequence);
    LoadLimits {
        live: own.max_live.unwrap_or(defaults.live),
        per_sequence: own.max_queued.unwrap_or(defaults.per_sequence),
        tomb_age: own.tombstones.map_or(defaults.tomb_age, |t| t.0),
        backlog: keys.backlog.max.unwrap_or(defaults.backlog),
        ..defaults
    }
}

/// The slots for sequences of one instance.
pub(super) fn slots(config: &ModelConfig, sequence: &ModelSequenceBatching) -> u32 {
    let candidates = match &sequence.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) => unsigned(oldest.max_candidate_sequences),
        _ => 0,
    };
    if candidates == 0 { unsigned(config.max_batch_size).max(1) } else { candidates }
}

fn strategy(config: &ModelConfig, sequence: &ModelSequenceBatching, rows: Option<Rows>) -> SequenceStrategy {
    match &sequence.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) => SequenceStrategy::Oldest {
            slots: slots(config, sequence),
            preferred: oldest.preferred_batch_size.iter().copied().map(unsigned).collect(),
            delay: Duration::from_micros(oldest.max_queue_delay_microseconds),
            in_order: oldest.preserve_ordering,
        },
        direct => {
            let (delay, min_use) = match direct {
                Some(StrategyChoice::Direct(d)) => (d.max_queue_delay_microseconds, d.minimum_slot_utilization),
                _ => (0, 0.0),
            };
            let compact = rows == Some(Rows::Compact);
            SequenceStrategy::Direct { compact, delay: Duration::from_micros(delay), min_use }
        }
    }
}

fn control(input: &str, control: &ProtoControl) -> Option<Control> {
    let dtype = fit::control_type(control)?;
    let kind = match control.kind() {
        Kind::ControlSequenceStart => ControlKind::Start(false_true(control, dtype)?),
        Kind::ControlSequenceReady => ControlKind::Ready(false_true(control, dtype)?),
        Kind::ControlSequenceEnd => ControlKind::End(false_true(control, dtype)?),
        Kind::ControlSequenceCorrid => ControlKind::CorrelationId(dtype),
    };
    Some(Control { input: input.to_owned(), kind })
}

fn false_true(control: &ProtoControl, dtype: DataType) -> Option<FalseTrue> {
    let value = |n: usize| match dtype {
        DataType::Int32 => control.int32_false_true.get(n).map(|v| v.to_le_bytes().to_vec()),
        DataType::Fp32 => control.fp32_false_true.get(n).map(|v| v.to_le_bytes().to_vec()),
        _ => control.bool_false_true.get(n).map(|v| vec![u8::from(*v)]),
    };
    Some(FalseTrue { dtype, no: value(0)?, yes: value(1)? })
}

fn state(report: &Report<'_>, state: &State) -> Option<StateSettings> {
    let dtype = dtype::from_proto(state.data_type)?;
    let own = report.toml.keys.state.get(&state.input_name);
    Some(StateSettings {
        input: state.input_name.clone(),
        output: state.output_name.clone(),
        dtype,
        dims: Dims::from_wire(&state.dims),
        batch_axis: report.batch_axis(&state.input_name),
        storage: match own.and_then(|s| s.storage) {
            Some(Storage::Fp16) => DataType::Fp16,
            Some(Storage::Bf16) => DataType::Bf16,
            Some(Storage::Declared) | None => dtype,
        },
        initial: initial(report.directory, state),
        same_buffer: state.use_same_buffer_for_input_output,
        pad: state_padding::pad(report, state),
    })
}

fn initial(directory: &Path, state: &State) -> Initial {
    let ones = || state.dims.iter().map(|d| u64::try_from(*d).unwrap_or(1)).collect();
    match state.initial_state.first() {
        None => Initial { shape: Shape(ones()), data: InitialData::Zero },
        Some(initial) => Initial {
            shape: Shape(initial.dims.iter().map(|d| u64::try_from(*d).unwrap_or(1)).collect()),
            data: match &initial.state_data {
                Some(StateData::DataFile(file)) => InitialData::File(initial_state_file(directory, file)),
                _ => InitialData::Zero,
            },
        },
    }
}

/// The path of a `data_file`.
pub(super) fn initial_state_file(directory: &Path, file: &str) -> PathBuf {
    directory.join("initial_state").join(file)
}
