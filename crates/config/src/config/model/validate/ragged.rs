//! Checks `batch_input` and `batch_output`: tensors that describe a batch, and the division of flat outputs.

use std::collections::BTreeSet;

use sequor_proto::{BatchInput, BatchOutput, DataType};

use crate::config::fault::{code, did_you_mean};
use crate::config::model::report::Report;

pub(super) fn check(report: &mut Report<'_>) {
    for (i, input) in report.config.input.iter().enumerate() {
        if input.allow_ragged_batch && input.optional {
            let what = format!(
                "model input '{}' is ragged and optional for {}; a ragged input is always sent",
                input.name,
                report.model()
            );
            report.fault(&format!("input[{i}].optional"), code::INPUT, what);
        }
    }
    for (i, input) in report.config.batch_input.iter().enumerate() {
        batch_input(report, &format!("batch_input[{i}]"), input);
    }
    let mut targets = BTreeSet::new();
    for (i, output) in report.config.batch_output.iter().enumerate() {
        batch_output(report, &format!("batch_output[{i}]"), output, &mut targets);
    }
}

fn batch_input(report: &mut Report<'_>, field: &str, input: &BatchInput) {
    if input.target_name.is_empty() {
        report.fault(field, code::INPUT, format!("batch input must specify 'target_name' for {}", report.model()));
    }
    let kind = input.kind().as_str_name();
    source(report, field, "input", kind, &input.source_input);
    if !matches!(input.data_type(), DataType::TypeInt32 | DataType::TypeFp32) {
        let what = "batch input data type must be TYPE_INT32 or TYPE_FP32";
        report.fault(&format!("{field}.data_type"), code::INPUT, what);
    }
}

fn batch_output<'a>(report: &mut Report<'_>, field: &str, output: &'a BatchOutput, targets: &mut BTreeSet<&'a str>) {
    if output.target_name.is_empty() {
        report.fault(field, code::OUTPUT, format!("batch output must specify 'target_name' for {}", report.model()));
    }
    source(report, field, "output", output.kind().as_str_name(), &output.source_input);
    for name in &output.target_name {
        let field = format!("{field}.target_name");
        let names = || report.config.output.iter().map(|o| o.name.as_str());
        if !report.config.output.is_empty() && !names().any(|n| n == name) {
            let what = format!("unknown target output name '{name}'{}", did_you_mean(name, names()));
            report.fault(&field, code::OUTPUT, what);
        } else if !targets.insert(name) {
            report.fault(&field, code::OUTPUT, format!("target output name '{name}' can only be specified once"));
        }
    }
}

/// Checks that it has exactly one of the clients' inputs as its source.
fn source(report: &mut Report<'_>, field: &str, side: &str, kind: &str, sources: &[String]) {
    let names = || report.config.input.iter().map(|i| i.name.as_str());
    let what = match sources {
        [name] if names().any(|n| n == name) => return,
        [name] => format!("unknown source input name '{name}'{}", did_you_mean(name, names())),
        many => format!("batch {side} kind '{kind}' expects 1 source input, got {}", many.len()),
    };
    report.fault(&format!("{field}.source_input"), code::INPUT, what);
}
