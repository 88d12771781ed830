//! Checks `client_state` of `[sequence]`: only a model with states can take states from clients.

use crate::config::fault::code;
use crate::config::model::names;
use crate::config::model::report::Report;
use crate::config::model::stateful::is_stateful;

pub(super) fn check(report: &mut Report<'_>) {
    if !report.toml.keys.sequence.client_state {
        return;
    }
    // The graph determines the states of the stateful backend, so they are not known yet.
    let has_none = report.sequence().is_some_and(|sequence| sequence.state.is_empty()) && !is_stateful(report.config);
    let what = match names::is_ensemble(report.config) {
        true => {
            "client_state is for the states of a model, and an ensemble has none; clients can START its members with states"
        }
        false if has_none => "client_state is for the states of a model, and this one has none",
        false => return,
    };
    report.toml_fault(&["sequence", "client_state"], code::STATE, what);
}
