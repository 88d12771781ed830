//! Checks the fields that a configuration sets. An unserved field is refused by name at its line. A field without effect gets a note. No
//! field is ignored silently.

use sequor_proto::{ModelConfig, model_instance_group::Kind};

use crate::config::fault::{Fault, code};

use super::fields::{FieldStatus, parameter, set_fields};
use super::report::Report;

/// Refuses unserved fields. Returns a note for each field without effect. `written` is the configuration without defaults.
pub(super) fn check(report: &mut Report<'_>, written: &ModelConfig) -> Vec<Fault> {
    let mut notes = Vec::new();
    for field in set_fields(written) {
        let name = plain(&field.path);
        match field.status {
            FieldStatus::Refused(why) => {
                report.fault(&field.path, code::NOT_SERVED, format!("{name} is not served: {why}"));
            }
            FieldStatus::NoEffect(why) => notes.push(report.note(&field.path, format!("{name} has no effect: {why}"))),
            FieldStatus::Served(_) => {}
        }
    }
    // In a model without a graph, the parameters belong to the plug-in.
    let parameters = written.parameters.keys().filter(|_| report.toml.keys.model.is_none());
    for key in parameters.collect::<Vec<_>>() {
        match parameter(&written.backend, key) {
            FieldStatus::Refused(why) => {
                let what = format!("parameter {key} is not served: {why}");
                report.entry_fault("parameters", key, code::NOT_SERVED, what);
            }
            FieldStatus::NoEffect(why) => {
                let what = format!("parameter {key} has no effect: {why}");
                notes.push(report.entry_note("parameters", key, what));
            }
            FieldStatus::Served(_) => {}
        }
    }
    groups(report);
    notes
}

/// A field's path without its indices.
fn plain(field: &str) -> String {
    field.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}

fn groups(report: &mut Report<'_>) {
    for (i, group) in report.config.instance_group.iter().enumerate() {
        if group.kind() == Kind::Model {
            let what = "instance groups of KIND_MODEL are not served: the backend does not place instances itself; \
                        KIND_CPU, KIND_GPU and KIND_AUTO are";
            report.fault(&format!("instance_group[{i}].kind"), code::NOT_SERVED, what);
        }
    }
}
