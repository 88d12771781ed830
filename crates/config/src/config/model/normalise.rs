//! Writes defaults into a configuration, so that the config endpoints show the effective values.

use sequor_proto::model_optimization_policy::PinnedMemoryBuffer;
use sequor_proto::model_sequence_batching::{StrategyChoice, StrategyDirect};
use sequor_proto::model_version_policy::{Latest, PolicyChoice};
use sequor_proto::{
    ModelConfig, ModelInstanceGroup, ModelVersionPolicy, model_config::SchedulingChoice, model_instance_group::Kind,
};

use super::names::{ONNXRUNTIME, is_ensemble};

/// One second.
const DEFAULT_IDLE_MICROSECONDS: u64 = 1_000_000;
/// Instances of a CPU group for ONNX Runtime without a count, as in Triton. Instances of a load share one graph, so an instance costs
/// threads and slots, but no second copy of the weights.
const DEFAULT_ONNX_CPU_INSTANCES: i32 = 2;

/// Writes the defaults. Call it after completion, which may set `max_batch_size` and the scheduler.
pub(super) fn normalise(config: &mut ModelConfig) {
    let choice = config.version_policy.get_or_insert_with(ModelVersionPolicy::default);
    match &mut choice.policy_choice {
        Some(PolicyChoice::Latest(latest)) => latest.num_versions = latest.num_versions.max(1),
        Some(_) => {}
        none => *none = Some(PolicyChoice::Latest(Latest { num_versions: 1 })),
    }
    if is_ensemble(config) {
        return;
    }
    let optimization = config.optimization.get_or_insert_default();
    optimization.input_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
    optimization.output_pinned_memory.get_or_insert(PinnedMemoryBuffer { enable: true });
    scheduling(config);
    instance_groups(config);
}

fn scheduling(config: &mut ModelConfig) {
    let whole = (config.max_batch_size > 0).then_some(config.max_batch_size);
    match &mut config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(dynamic)) if dynamic.preferred_batch_size.is_empty() => {
            dynamic.preferred_batch_size.extend(whole);
        }
        Some(SchedulingChoice::SequenceBatching(sequence)) => {
            if sequence.max_sequence_idle_microseconds == 0 {
                sequence.max_sequence_idle_microseconds = DEFAULT_IDLE_MICROSECONDS;
            }
            match &mut sequence.strategy_choice {
                Some(StrategyChoice::Oldest(oldest)) if oldest.preferred_batch_size.is_empty() => {
                    oldest.preferred_batch_size.extend(whole);
                }
                Some(_) => {}
                none => *none = Some(StrategyChoice::Direct(StrategyDirect::default())),
            }
        }
        _ => {}
    }
}

/// Adds a group if there is none.
pub(super) fn a_group(config: &mut ModelConfig) {
    if config.instance_group.is_empty() {
        config.instance_group.push(ModelInstanceGroup { name: config.name.clone(), ..ModelInstanceGroup::default() });
    }
}

/// Sets name, kind and count of all groups. Groups that [`super::place`] has not put on a GPU are on the CPU.
fn instance_groups(config: &mut ModelConfig) {
    a_group(config);
    for (i, group) in config.instance_group.iter_mut().enumerate() {
        if group.name.is_empty() {
            group.name = format!("{}_{i}", config.name);
        }
        if group.kind() == Kind::Auto {
            group.set_kind(Kind::Cpu);
            group.gpus.clear();
        }
        if group.count < 1 {
            let onnx_cpu = config.backend == ONNXRUNTIME && group.kind() == Kind::Cpu;
            group.count = if onnx_cpu { DEFAULT_ONNX_CPU_INSTANCES } else { 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::model::text;

    fn normal(text: &str) -> ModelConfig {
        let mut config = text::parse(std::path::Path::new("config.pbtxt"), text).unwrap();
        normalise(&mut config);
        config
    }

    #[test]
    fn unset_fields_get_their_defaults() {
        let config = normal("name: 'm' backend: 'onnxruntime' max_batch_size: 8 sequence_batching { oldest { } }");
        let Some(SchedulingChoice::SequenceBatching(sequence)) = &config.scheduling_choice else { panic!() };
        let Some(StrategyChoice::Oldest(oldest)) = &sequence.strategy_choice else { panic!() };
        assert_eq!(
            (sequence.max_sequence_idle_microseconds, oldest.preferred_batch_size.as_slice()),
            (1_000_000, &[8][..])
        );
        let group = &config.instance_group[0];
        assert_eq!((group.name.as_str(), group.kind(), group.count), ("m", Kind::Cpu, 2));
        let latest = PolicyChoice::Latest(Latest { num_versions: 1 });
        assert_eq!(config.version_policy.unwrap().policy_choice, Some(latest));
        assert!(config.optimization.unwrap().input_pinned_memory.unwrap().enable);
    }

    #[test]
    fn set_fields_keep_their_values() {
        let config = normal(
            "name: 'm' backend: 'onnxruntime' instance_group [ { count: 3 kind: KIND_CPU }, { name: 'g' } ] \
             optimization { input_pinned_memory { enable: false } } dynamic_batching { preferred_batch_size: 2 }",
        );
        let groups: Vec<_> = config.instance_group.iter().map(|g| (g.name.as_str(), g.count)).collect();
        assert_eq!(groups, [("m_0", 3), ("g", 2)]);
        assert!(!config.optimization.unwrap().input_pinned_memory.unwrap().enable);
        let Some(SchedulingChoice::DynamicBatching(dynamic)) = config.scheduling_choice else { panic!() };
        assert_eq!(dynamic.preferred_batch_size, [2]);
    }

    #[test]
    fn a_missing_strategy_becomes_direct() {
        let config = normal("name: 'm' sequence_batching { }");
        let Some(SchedulingChoice::SequenceBatching(sequence)) = config.scheduling_choice else { panic!() };
        assert!(matches!(sequence.strategy_choice, Some(StrategyChoice::Direct(_))));
    }
}
