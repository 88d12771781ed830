//! The keys of a configuration's `parameters` that Sequor knows.

use super::FieldStatus::{self, NoEffect, Refused, Served};
use crate::config::model::stateful;

/// One key of `parameters`.
#[derive(Debug, Clone, Copy)]
pub struct ConfigParameter {
    pub key: &'static str,
    pub status: FieldStatus,
}

const CUDA: FieldStatus = NoEffect("Sequor chooses the options of ONNX Runtime's CUDA provider");

/// All keys with their own entries.
pub const PARAMETERS: &[ConfigParameter] = &[
    parameter_of(
        "intra_op_thread_count",
        Served("threads for one operator; overrides `[runtime] threads_per_instance`; 0 is one for each core"),
    ),
    parameter_of(
        "inter_op_thread_count",
        Served("threads for operators that run at the same time; needs `execution_mode` 1; 0 is one for each core"),
    ),
    parameter_of(
        "execution_mode",
        Served("0: operators run one after the other; 1: independent operators run in parallel"),
    ),
    parameter_of(
        "enable_mem_arena",
        Served(
            "1: ONNX Runtime's own arena, which never shrinks; 0: no arena. Without the key, runs share memory that is released after ten seconds",
        ),
    ),
    parameter_of("enable_mem_pattern", Served("1 or 0")),
    parameter_of(
        "memory.enable_memory_arena_shrinkage",
        NoEffect("memory that no run has used for ten seconds is released in any case, unless enable_mem_arena is 1"),
    ),
    parameter_of("session.use_env_allocators", Refused("choose the allocator by enable_mem_arena")),
    parameter_of("cudnn_conv_algo_search", CUDA),
    parameter_of(
        "gpu_mem_limit",
        NoEffect("sessions take the memory of a GPU that they need; there is no limit for one model"),
    ),
    parameter_of("arena_extend_strategy", CUDA),
    parameter_of("do_copy_in_default_stream", CUDA),
    parameter_of(
        "TRITON_BATCH_STRATEGY_PATH",
        Refused("a custom batching library runs foreign code; write a scheduler plug-in"),
    ),
];

const fn parameter_of(key: &'static str, status: FieldStatus) -> ConfigParameter {
    ConfigParameter { key, status }
}

/// How Sequor handles this key in a model of this backend.
pub(in crate::config::model) fn parameter(backend: &str, key: &str) -> FieldStatus {
    if let Some(status) = stateful::parameter(backend, key) {
        return status;
    }
    match PARAMETERS.iter().find(|parameter| parameter.key == key) {
        Some(parameter) => parameter.status,
        None if is_session_entry(key) => Served(""),
        None => NoEffect("neither Sequor nor ONNX Runtime has a parameter of this name"),
    }
}

/// Whether the key is passed to ONNX Runtime as an entry of its session options.
pub(in crate::config::model) fn is_session_entry(key: &str) -> bool {
    ["session.", "optimization.", "mlas."].iter().any(|prefix| key.starts_with(prefix))
}
