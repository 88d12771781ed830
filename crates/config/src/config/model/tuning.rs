//! Options for loading the graph: `optimization.graph`, `optimization.execution_accelerators` and `parameters`.

use std::str::FromStr;

use crate::config::fault::code;

use super::fields::is_session_entry;
use super::report::Report;
use super::settings::{GraphLevel, SessionTuning};

/// Reads the options, and reports invalid values.
pub(super) fn read(report: &mut Report<'_>) -> SessionTuning {
    let mut tuning = SessionTuning { level: level(report), ..SessionTuning::default() };
    tuning.openvino = openvino(report);
    for (key, value) in &report.config.parameters {
        parameter(report, &mut tuning, key, &value.string_value);
    }
    tuning
}

fn level(report: &mut Report<'_>) -> GraphLevel {
    let level = report.config.optimization.as_ref().and_then(|o| o.graph.as_ref()).map_or(0, |graph| graph.level);
    match level {
        0 => GraphLevel::All,
        -1 => GraphLevel::Basic,
        1 => GraphLevel::Extended,
        2 => GraphLevel::None,
        other => {
            let what =
                format!("optimization.graph.level {other} does not exist: -1 is basic, 0 all, 1 extended, 2 none");
            report.fault("optimization.graph.level", code::VALUE, what);
            GraphLevel::All
        }
    }
}

/// The options of the OpenVINO provider, if the configuration requests it.
fn openvino(report: &mut Report<'_>) -> Option<Vec<(String, String)>> {
    let accelerators = report.config.optimization.as_ref()?.execution_accelerators.as_ref()?;
    let mut found = None;
    for (i, accelerator) in accelerators.cpu_execution_accelerator.iter().enumerate() {
        let field = format!("optimization.execution_accelerators.cpu_execution_accelerator[{i}].name");
        let name = &accelerator.name;
        if name != "openvino" {
            let what = format!("accelerator \"{name}\" is not served: \"openvino\" is the one for CPUs");
            report.fault(&field, code::NOT_SERVED, what);
        } else if found.is_some() {
            report.fault(&field, code::VALUE, "accelerator \"openvino\" is named twice");
        } else {
            found = Some(accelerator.parameters.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
        }
    }
    found
}

fn parameter(report: &mut Report<'_>, tuning: &mut SessionTuning, key: &str, value: &str) {
    match key {
        "intra_op_thread_count" => tuning.intra_threads = number(report, key, value),
        "inter_op_thread_count" => tuning.inter_threads = number(report, key, value),
        "execution_mode" => tuning.parallel = switch(report, key, value),
        "enable_mem_arena" => tuning.arena = switch(report, key, value),
        "enable_mem_pattern" => tuning.memory_pattern = switch(report, key, value),
        _ if is_session_entry(key) => tuning.entries.push((key.to_owned(), value.to_owned())),
        _ => {}
    }
}

fn number<T: FromStr>(report: &mut Report<'_>, key: &str, value: &str) -> Option<T> {
    let number = value.trim().parse().ok();
    if number.is_none() {
        let what = format!("parameter {key}: \"{value}\" is not a number of threads");
        report.entry_fault("parameters", key, code::VALUE, what);
    }
    number
}

fn switch(report: &mut Report<'_>, key: &str, value: &str) -> Option<bool> {
    match value.trim() {
        "0" => Some(false),
        "1" => Some(true),
        other => {
            report.entry_fault(
                "parameters",
                key,
                code::VALUE,
                format!("parameter {key} is \"{other}\"; it must be 0 or 1"),
            );
            None
        }
    }
}
