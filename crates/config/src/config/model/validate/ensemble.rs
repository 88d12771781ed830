//! Checks `ensemble_scheduling` without the members: fields, the flow of tensors, and fields that an ensemble cannot have. The members are
//! checked when the ensemble is loaded.

use std::collections::{BTreeMap, BTreeSet};

use sequor_proto::model_config::SchedulingChoice;
use sequor_proto::{ModelConfig, ModelEnsembling};

use crate::config::fault::code;
use crate::config::model::report::Report;

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
        flow(report, written, ensemble);
    }
}

/// Checks that every tensor is written before it is read, and that every input and tensor is read.
fn flow(report: &mut Report<'_>, written: &ModelConfig, ensemble: &ModelEnsembling) {
    let name = report.model();
    let read: BTreeSet<&str> =
        ensemble.step.iter().flat_map(|step| step.input_map.values()).map(String::as_str).collect();
    for (n, input) in written.input.iter().enumerate().filter(|(_, input)| !read.contains(input.name.as_str())) {
        let what = format!("ensemble input '{}' for ensemble {name}' is not used", input.name);
        report.fault(&format!("input[{n}]"), code::ENSEMBLE, what);
    }
    let ready = ready_tensors(written, ensemble);
    let all: BTreeSet<&str> = ensemble
        .step
        .iter()
        .flat_map(|step| step.output_map.values())
        .map(String::as_str)
        .chain(read.iter().copied())
        .collect();
    for (n, output) in written.output.iter().enumerate() {
        let tensor = output.name.as_str();
        if !all.contains(tensor) {
            report.fault(
                &format!("output[{n}]"),
                code::ENSEMBLE,
                format!("ensemble output '{tensor}' for ensemble {name}' is not used"),
            );
        } else if !ready.contains(tensor) {
            report.fault(
                &format!("output[{n}]"),
                code::ENSEMBLE,
                format!("output '{tensor}' for ensemble '{name}' is not written"),
            );
        }
    }
    let is_output = |tensor: &str| written.output.iter().any(|output| output.name == tensor);
    let is_used = |tensor: &str| is_output(tensor) || (ready.contains(tensor) && read.contains(tensor));
    let unused: Vec<&str> = all.iter().filter(|tensor| !is_used(tensor)).copied().collect();
    for tensor in unused {
        report.fault(FIELD, code::ENSEMBLE, format!("ensemble tensor '{tensor}' is unused in ensemble '{name}'"));
    }
}

/// The tensors that the steps compute from a request's inputs, and these inputs.
fn ready_tensors<'a>(written: &'a ModelConfig, ensemble: &'a ModelEnsembling) -> BTreeSet<&'a str> {
    let mut ready: BTreeSet<&str> = written.input.iter().map(|input| input.name.as_str()).collect();
    loop {
        let can_run =
            |step: &&sequor_proto::model_ensembling::Step| step.input_map.values().all(|t| ready.contains(t.as_str()));
        let more: Vec<&str> = ensemble
            .step
            .iter()
            .filter(can_run)
            .flat_map(|step| step.output_map.values())
            .map(String::as_str)
            .filter(|tensor| !ready.contains(tensor))
            .collect();
        if more.is_empty() {
            return ready;
        }
        ready.extend(more);
    }
}
