//! Checks the version policy, dynamic batching, and the strategy of sequence batching.

use sequor_proto::model_sequence_batching::StrategyChoice;
use sequor_proto::model_version_policy::PolicyChoice;
use sequor_proto::{
    ModelDynamicBatching, ModelQueuePolicy, ModelSequenceBatching, model_config::SchedulingChoice, model_queue_policy,
};

use crate::config::fault::code;
use crate::config::model::report::Report;
use crate::config::model::validate::instances;

pub(super) fn versions(report: &mut Report<'_>) {
    let choice = report.config.version_policy.as_ref().and_then(|p| p.policy_choice.as_ref());
    if let Some(PolicyChoice::Specific(specific)) = choice {
        for (i, version) in specific.versions.iter().enumerate().filter(|(_, v)| **v < 1) {
            let what = format!("version {version} of {} cannot be: versions count from 1", report.model());
            report.fault(&format!("version_policy.specific.versions[{i}]"), code::VERSIONS, what);
        }
    }
}

pub(super) fn dynamic(report: &mut Report<'_>) {
    let Some(SchedulingChoice::DynamicBatching(dynamic)) = &report.config.scheduling_choice else { return };
    let (model, max) = (report.model(), report.max_batch_size());
    for (i, size) in dynamic.preferred_batch_size.iter().enumerate() {
        let field = format!("dynamic_batching.preferred_batch_size[{i}]");
        if *size <= 0 {
            report.fault(
                &field,
                code::BATCHING,
                format!("dynamic batching preferred size must be positive for {model}"),
            );
        } else if *size > max {
            let what = format!("dynamic batching preferred size must be <= max batch size for {model}");
            report.fault(&field, code::BATCHING, what);
        }
    }
    priorities(report, dynamic);
}

fn priorities(report: &mut Report<'_>, dynamic: &ModelDynamicBatching) {
    let (model, levels) = (report.model(), dynamic.priority_levels);
    let delays = |policy: &ModelQueuePolicy| {
        policy.default_timeout_microseconds > 0 && policy.timeout_action() == model_queue_policy::TimeoutAction::Delay
    };
    let delayed = dynamic.default_queue_policy.iter().chain(dynamic.priority_queue_policy.values()).any(delays);
    if dynamic.preserve_ordering && (levels > 1 || delayed) {
        let what = format!("preserve_ordering cannot hold with priority levels or delayed requests for {model}");
        report.fault("dynamic_batching.preserve_ordering", code::BATCHING, what);
    }
    // Without levels the fields below have no effect.
    if levels == 0 {
        return;
    }
    if !(1..=levels).contains(&dynamic.default_priority_level) {
        let what = format!("default priority level must be in range [1, {levels}] for {model}");
        report.fault("dynamic_batching.default_priority_level", code::BATCHING, what);
    }
    if dynamic.priority_queue_policy.keys().any(|level| !(1..=levels).contains(level)) {
        let what = format!("priority queue policy must have priority level in range [1, {levels}] for {model}");
        report.fault("dynamic_batching.priority_queue_policy", code::BATCHING, what);
    }
}

pub(super) fn decoupled(report: &mut Report<'_>) {
    let is_decoupled = report.config.model_transaction_policy.is_some_and(|policy| policy.decoupled);
    if is_decoupled && report.config.response_cache.is_some_and(|cache| cache.enable) {
        let model = report.model();
        let what = format!(
            "response cache does not currently support decoupled models; turn off response_cache or decoupled for {model}"
        );
        report.fault("response_cache", code::BATCHING, what);
    }
}

pub(super) fn sequence(report: &mut Report<'_>) {
    let Some(sequence) = report.sequence() else { return };
    if report.config.response_cache.is_some_and(|c| c.enable) {
        let model = report.model();
        let what = format!(
            "response_cache cannot be used with sequence_batching for {model} [an answer depends on the steps before it]"
        );
        report.fault("response_cache", code::SEQUENCE, what);
    }
    match &sequence.strategy_choice {
        Some(StrategyChoice::Direct(direct)) if !(0.0..=1.0).contains(&direct.minimum_slot_utilization) => {
            let model = report.model();
            let what = format!("sequence batching minimum slot utilization must be in range (0.0, 1.0] for {model}");
            report.fault("sequence_batching.direct.minimum_slot_utilization", code::SEQUENCE, what);
        }
        Some(StrategyChoice::Oldest(oldest)) => {
            oldest_sizes(report, &oldest.preferred_batch_size);
            if oldest.max_candidate_sequences < 0 {
                let what = format!("max_candidate_sequences must not be negative for {}", report.model());
                report.fault("sequence_batching.oldest.max_candidate_sequences", code::SEQUENCE, what);
            }
        }
        Some(StrategyChoice::Direct(_)) | None => {}
    }
    slots(report, sequence);
}

/// Checks the number of slots, because each instance allocates a table of them.
fn slots(report: &mut Report<'_>, sequence: &ModelSequenceBatching) {
    let unsigned = |n: i32| u64::try_from(n).unwrap_or(0);
    let (field, key, each) = match &sequence.strategy_choice {
        Some(StrategyChoice::Oldest(oldest)) if oldest.max_candidate_sequences > 0 => {
            let key = "max_candidate_sequences";
            ("sequence_batching.oldest.max_candidate_sequences", key, unsigned(oldest.max_candidate_sequences))
        }
        _ => ("max_batch_size", "max_batch_size", unsigned(report.config.max_batch_size)),
    };
    let (instances, most) = (instances::active(report.config), report.limits.slots);
    let all = each.saturating_mul(instances);
    if all > most {
        let model = report.model();
        let what = format!(
            "{key}: {each} slots on each of {instances} instances of {model} are {all} slots, more than the limit of \
             {most} (limits.slots)"
        );
        report.fault(field, code::SEQUENCE, what);
    }
}

fn oldest_sizes(report: &mut Report<'_>, preferred: &[i32]) {
    let (model, max) = (report.model(), report.max_batch_size());
    for (i, size) in preferred.iter().enumerate() {
        let field = format!("sequence_batching.oldest.preferred_batch_size[{i}]");
        if *size <= 0 {
            let what = format!("sequence batching preferred batch size must be positive for {model}");
            report.fault(&field, code::SEQUENCE, what);
        } else if *size > max {
            let what = format!("sequence batching preferred batch size must be <= max batch size for {model}");
            report.fault(&field, code::SEQUENCE, what);
        }
    }
}
