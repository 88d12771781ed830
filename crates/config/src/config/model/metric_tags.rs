//! `metric_tags`: labels of the model's metrics.

use crate::config::fault::code;

use super::report::Report;

/// Labels that the metrics of models already have.
const TAKEN: [&str; 11] =
    ["model", "version", "reason", "phase", "path", "state", "tier", "le", "api", "code", "gpu_uuid"];

pub(super) fn check(report: &mut Report<'_>) {
    for tag in report.config.metric_tags.keys() {
        let what = if !is_label(tag) {
            format!(
                "metric_tags: \"{tag}\" is not the name of a label: letters, digits and _, no digit first, no __ in front"
            )
        } else if TAKEN.contains(&tag.as_str()) {
            format!("metric_tags: the metrics of models already have a label \"{tag}\"")
        } else {
            continue;
        };
        report.entry_fault("metric_tags", tag, code::VALUE, what);
    }
}

/// Whether Prometheus accepts the name as a label.
fn is_label(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && !name.starts_with("__");
    starts && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
