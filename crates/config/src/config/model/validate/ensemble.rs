//! Checks `ensemble_scheduling` without the members: fields, and fields that an ensemble cannot have. The members are
//! checked when the ensemble is loaded.

use std::collections::BTreeMap;

use sequor_proto::model_config::SchedulingChoice;
use sequor_proto::{ModelConfig, ModelEnsembling};

use crate::config::fault::code;
use crate::config::model::report::Report;
use crate::config::model::validate::ensemble_flow;

const FIELD: &str = "ensemble_scheduling";

/// Checks the configuration of an ensemble as written, without defaults.
pub(in crate::config::model) fn check(report: &mut Report<'_>, written: &ModelConfig) {
    let name = report.model();
    if written.platform != "ensemble" {
        let what = format!("ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble");
        report.fault(FIELD, code::ENSEMBLE, what);
    }
    if !written.backend.is_empty() {
        let what = format!("Ensemble model '{name}' must have platform type 'ensemble' and empty backend type");
        report.fault("backend", code::ENSEMBLE, what);
    }
    if !written.instance_group.is_empty() {
        let what = format!("instance group should not be specified for ensemble '{name}'");
        report.fault("instance_group", code::ENSEMBLE, what);
    }
    if written.optimization.is_some() {
        let what = format!("optimization should not be specified for ensemble '{name}'");
        report.fault("optimization", code::ENSEMBLE, what);
    }
    if !written.model_warmup.is_empty() {
        let what = format!("model_warmup can not be specified for ensemble '{name}'");
        report.fault("model_warmup", code::ENSEMBLE, what);
    }
    not_for_ensembles(report, written);
    match &written.scheduling_choice {
        Some(SchedulingChoice::EnsembleScheduling(ensemble)) => steps(report, written, ensemble),
        _ => {
            let what = format!("ensemble scheduling must be set for ensemble '{name}' whose platform is ensemble");
            report.fault("platform", code::ENSEMBLE, what);
        }
    }
}

/// Reports fields about a graph, which an ensemble does not have.
fn not_for_ensembles(report: &mut Report<'_>, written: &ModelConfig) {
    let name = report.model();
    let shaped = (0..written.input.len()).map(|n| ("input", n, written.input.get(n).and_then(|i| i.reshape.as_ref())));
    let given =
        (0..written.output.len()).map(|n| ("output", n, written.output.get(n).and_then(|o| o.reshape.as_ref())));
    for (side, n, _) in shaped.chain(given).filter(|(.., reshape)| reshape.is_some()) {
        let what =
            format!("reshape has no meaning for ensemble '{name}': give the shape that the members take and give");
        report.fault(&format!("{side}[{n}].reshape"), code::ENSEMBLE, what);
    }
    for (field, is_set) in
        [("batch_input", !written.batch_input.is_empty()), ("batch_output", !written.batch_output.is_empty())]
    {
        if is_set {
            report.fault(field, code::ENSEMBLE, format!("{field} is for a member, not for ensemble '{name}'"));
        }
    }
    if report.toml.has(&["plugins"]) {
        let what = format!("[plugins] is for a member, not for ensemble '{name}'");
        report.toml_fault(&["plugins"], code::ENSEMBLE, what);
    }
}

fn steps(report: &mut Report<'_>, written: &ModelConfig, ensemble: &ModelEnsembling) {
    let name = report.model();
    if ensemble.step.is_empty() {
        report.fault(FIELD, code::ENSEMBLE, format!("must specify 'step' for ensemble '{name}'"));
        return;
    }
    let before = report.faults.len();
    let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, step) in ensemble.step.iter().enumerate() {
        let field = format!("{FIELD}.step[{n}]");
        let missing = [
            ("model_name", step.model_name.is_empty()),
            ("input_map", step.input_map.is_empty()),
            ("output_map", step.output_map.is_empty()),
        ];
        for (what, _) in missing.into_iter().filter(|(_, missing)| *missing) {
            report.fault(&field, code::ENSEMBLE, format!("must specify '{what}' in step {n} of ensemble '{name}'"));
        }
        if step.model_version < -1 {
            let version = step.model_version;
            let what = format!("model_version {version} in step {n} of ensemble '{name}' must be -1 or a version");
            report.fault(&format!("{field}.model_version"), code::ENSEMBLE, what);
        }
        let mut tensors: Vec<&str> = step.output_map.values().map(String::as_str).collect();
        tensors.sort_unstable();
        for tensor in tensors {
            let is_input = written.input.iter().any(|input| input.name == tensor);
            if is_input || writers.insert(tensor, n).is_some() {
                let what = format!(
                    "ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{name}' step {n}"
                );
                report.fault(&format!("{field}.output_map"), code::ENSEMBLE, what);
            }
        }
    }
    if report.faults.len() == before {
        ensemble_flow::check(report, written, ensemble);
    }
}
