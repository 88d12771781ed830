//! What a config.pbtxt may say, and is understood, but is not served yet. Each is refused by its name, at its line; never ignored.

use sequor_proto::{ModelConfig, model_config::SchedulingChoice, model_instance_group};

use crate::config::fault::code;

use super::report::{Report, nth};

pub(super) fn check(report: &mut Report<'_>) {
    for field in not_served(report.config) {
        let what = format!("{} is not served yet", plain(&field));
        report.fault(&field, code::NOT_SERVED, what);
    }
    if report.config.parameters.contains_key("TRITON_BATCH_STRATEGY_PATH") {
        let what = "parameter TRITON_BATCH_STRATEGY_PATH (a custom batching library) is not served";
        report.fault("parameters", code::NOT_SERVED, what);
    }
    groups(report);
}

/// A field's path without its indices.
fn plain(field: &str) -> String {
    field.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}

/// The fields that are set and not served.
fn not_served(config: &ModelConfig) -> Vec<String> {
    let on = |is: bool, field: &str| is.then(|| field.to_owned());
    let mut fields: Vec<Option<String>> = vec![
        on(!config.batch_input.is_empty(), "batch_input"),
        on(!config.batch_output.is_empty(), "batch_output"),
        on(!config.model_warmup.is_empty(), "model_warmup"),
        on(config.response_cache.is_some_and(|c| c.enable), "response_cache.enable"),
        on(config.model_transaction_policy.is_some_and(|p| p.decoupled), "model_transaction_policy.decoupled"),
        on(config.model_repository_agents.as_ref().is_some_and(|a| !a.agents.is_empty()), "model_repository_agents"),
        on(config.model_operations.as_ref().is_some_and(|o| !o.op_library_filename.is_empty()), "model_operations"),
    ];
    for (i, input) in config.input.iter().enumerate() {
        fields.push(on(input.is_shape_tensor, &format!("input[{i}].is_shape_tensor")));
        fields.push(on(input.allow_ragged_batch, &format!("input[{i}].allow_ragged_batch")));
        fields.push(on(input.is_non_linear_format_io, &format!("input[{i}].is_non_linear_format_io")));
    }
    for (i, output) in config.output.iter().enumerate() {
        fields.push(on(output.is_shape_tensor, &format!("output[{i}].is_shape_tensor")));
        fields.push(on(output.is_non_linear_format_io, &format!("output[{i}].is_non_linear_format_io")));
    }
    match &config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(dynamic)) => {
            fields.push(on(dynamic.priority_levels > 0, "dynamic_batching.priority_levels"));
            fields.push(on(dynamic.default_queue_policy.is_some(), "dynamic_batching.default_queue_policy"));
            fields.push(on(!dynamic.priority_queue_policy.is_empty(), "dynamic_batching.priority_queue_policy"));
        }
        Some(SchedulingChoice::SequenceBatching(sequence)) => {
            fields.push(on(sequence.iterative_sequence, "sequence_batching.iterative_sequence"));
            for (i, state) in sequence.state.iter().enumerate() {
                let field = format!("sequence_batching.state[{i}].use_growable_memory");
                fields.push(on(state.use_growable_memory, &field));
            }
        }
        _ => {}
    }
    fields.into_iter().flatten().collect()
}

fn groups(report: &mut Report<'_>) {
    use model_instance_group::Kind;
    for (i, group) in report.config.instance_group.iter().enumerate() {
        let field = nth("instance_group", i);
        match group.kind() {
            Kind::Model => {
                let what = "instance groups of KIND_MODEL are not served: the backend does not place instances itself; \
                            KIND_CPU, KIND_GPU and KIND_AUTO are";
                report.fault(&format!("{field}.kind"), code::NOT_SERVED, what);
            }
            Kind::Auto | Kind::Cpu | Kind::Gpu => {}
        }
        if group.rate_limiter.is_some() {
            report.fault(
                &format!("{field}.rate_limiter"),
                code::NOT_SERVED,
                "instance_group.rate_limiter is not served yet",
            );
        }
        if !group.secondary_devices.is_empty() {
            let what = "instance_group.secondary_devices is not served yet";
            report.fault(&format!("{field}.secondary_devices"), code::NOT_SERVED, what);
        }
        if !group.profile.is_empty() {
            let what = "instance_group.profile is for TensorRT alone";
            report.fault(&format!("{field}.profile"), code::INSTANCES, what);
        }
    }
}
