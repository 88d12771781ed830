//! Which models a plug-in may call, and whether its calls could form a cycle.

use std::sync::Arc;

use crate::model::catalog::{Catalog, CatalogEntry};
use crate::processing::outgoing::{CallRights, ModelCaller};
use crate::telemetry::PluginMetrics;

/// The models that a plug-in of this model may call; `None` without a grant.
pub(super) fn call_rights(
    caller: &Arc<dyn ModelCaller>,
    granted: &[String],
    metrics: &PluginMetrics,
    model: &str,
) -> Option<CallRights> {
    if granted.is_empty() {
        return None;
    }
    Some(CallRights { models: granted.into(), caller: Arc::clone(caller), waiting: metrics.waiting_at(model) })
}

/// Refuses a model whose plug-ins may make calls that lead back to it. The error is a sentence. The check is repeated at each call, because
/// models may be loaded later.
pub(super) fn check_circle(catalog: &Catalog, model: &str, granted: &[String]) -> Result<(), String> {
    let mut path = vec![model.to_owned()];
    match circle(catalog, model, granted, &mut path) {
        true => Err(format!(
            "it may call models that may call '{model}' in turn: {} → {model}. Take one of these grants out of plugins.grants",
            path.join(" → ")
        )),
        false => Ok(()),
    }
}

/// Whether one of these models is `first` or may call it. Then `path` leads to it.
fn circle(catalog: &Catalog, first: &str, granted: &[String], path: &mut Vec<String>) -> bool {
    for next in granted {
        if next == first {
            return true;
        }
        if path.contains(next) {
            continue;
        }
        path.push(next.clone());
        if circle(catalog, first, &called_by(catalog, next), path) {
            return true;
        }
        path.pop();
    }
    false
}

/// The models that a served model may call: those granted to its plug-ins, and the steps of an ensemble.
fn called_by(catalog: &Catalog, model: &str) -> Vec<String> {
    let of = |entry: &CatalogEntry| entry.model.clone().filter(|_| entry.open);
    let Some(model) = catalog.look(model, of).flatten() else { return Vec::new() };
    let loads = model.loads();
    let mut called = Vec::new();
    for load in loads.iter().filter(|load| !load.is_retired()) {
        let granted = load.processors.iter().flat_map(|processors| processors.chain.may_call());
        called.extend(granted.map(str::to_owned));
        let steps = load.ensemble.iter().flat_map(|ensemble| &ensemble.plan.steps);
        called.extend(steps.map(|step| step.model.clone()));
    }
    called
}
