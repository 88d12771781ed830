//! Models of Triton's stateful backend (`backend: "stateful"`), translated to sequence batching with states.
//!
//! Such a configuration declares no states. It names pairs of tensors in a parameter or in the graph's description, and every input and
//! output marks its batch dimension with -1. `translate` builds the configuration for the rest of the server. Clients see the original one.
//!
//! # Layout
//!
//! - [`settings`]: settings of such a model besides its sequences and states.
//! - `parameters`: the keys of `parameters` and their rules · `pairs`: the names of states.
//! - `translate`: the configuration with its states, and the rules that need the graph.

mod pairs;
mod parameters;
pub mod settings;
mod translate;

#[cfg(test)]
mod tests;

use sequor_proto::model_sequence_batching::{StrategyChoice, StrategyOldest};
use sequor_proto::{ModelConfig, model_config::SchedulingChoice, model_instance_group::Kind};

use super::fields::FieldStatus;
use super::report::Report;
use crate::config::fault::{Fault, code};

pub use parameters::STATEFUL_PARAMETERS;
pub(super) use translate::translate;

pub(super) const STATEFUL: &str = "stateful";

/// Default for the rows of a batch.
const MAX_BATCH: i32 = 64;
/// The default idle time: 100 s, in microseconds.
const IDLE: u64 = 100_000_000;
const CANDIDATES: i32 = 1280;

pub(super) fn is_stateful(config: &ModelConfig) -> bool {
    config.backend == STATEFUL
}

/// Sets the file of the graph, which this backend names in a parameter.
pub(super) fn fill_file_name(config: &mut ModelConfig) {
    if let Some(name) = config.parameters.get("onnx_file_name").filter(|name| !name.string_value.is_empty()) {
        config.default_model_filename = name.string_value.clone();
    }
}

/// Writes the backend's defaults where they differ from Triton's.
pub(super) fn fill_defaults(config: &mut ModelConfig) {
    if config.max_batch_size == 0 {
        config.max_batch_size = MAX_BATCH;
    }
    let Some(SchedulingChoice::SequenceBatching(sequence)) = &mut config.scheduling_choice else { return };
    if sequence.max_sequence_idle_microseconds == 0 {
        sequence.max_sequence_idle_microseconds = IDLE;
    }
    if let Some(StrategyChoice::Oldest(StrategyOldest { max_candidate_sequences, .. })) = &mut sequence.strategy_choice
        && *max_candidate_sequences == 0
    {
        *max_candidate_sequences = CANDIDATES;
    }
}

/// Checks everything that needs no graph. Returns a note for each value without effect. `report` is for the normalised configuration;
/// `written` is the one without defaults.
pub(super) fn check(report: &mut Report<'_>, written: &ModelConfig) -> Vec<Fault> {
    match report.sequence() {
        None => {
            let what = "backend \"stateful\" needs sequence_batching, with a control input for the start of a sequence";
            report.fault("backend", code::SEQUENCE, what);
        }
        Some(sequence) if !sequence.state.is_empty() => {
            let what = "backend \"stateful\" names its states in parameter state_pairs, not in sequence_batching.state";
            report.fault("sequence_batching.state", code::STATE, what);
        }
        Some(_) => {}
    }
    let groups = &written.instance_group;
    let may_use_gpus = groups.is_empty() || groups.iter().any(|group| group.kind() != Kind::Cpu);
    parameters::check(report, may_use_gpus)
}

/// How a parameter is handled, if the model has this backend and the backend has the key.
pub(super) fn parameter(backend: &str, key: &str) -> Option<FieldStatus> {
    parameters::status(key).filter(|_| backend == STATEFUL)
}
