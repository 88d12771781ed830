//! Tries a scheduler's component as a server would.

use std::path::Path;

use serde::Serialize;
use serde_json::json;

use crate::author::scheduler::trial::SchedulerTrial;
use crate::author::trial::TrialOptions;
use crate::author::{AuthorError, Machine};
use crate::cli::plugin::file;
use crate::cli::plugin::world::{GivenComponent, Printed};
use crate::scheduling::guest::Source;

/// A component that a server would accept.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct CheckedComponent {
    name: String,
    version: String,
    world: String,
    contract: String,
    bytes: usize,
    /// Microseconds of the fastest plan with 64 candidates. `None` if it does not plan.
    plan_us: Option<f64>,
    imports: Vec<String>,
    /// A probable mistake in a component that a server would accept.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

/// The note about a component that wants the hook `plan` but never decides. If an author misspells the hook, the kit's default runs.
const NEVER_PLANS: &str = "plan left every trial round to the built-in policy; does the plug-in define plan?";

/// Tries a scheduler.
pub(super) fn scheduler(given: GivenComponent<'_>) -> Result<Printed, String> {
    let good = tried(given.path, file::trial_options(given.matches).map_err(|e| e.to_string())?, given.machine)?;
    Ok(Printed { text: format!("{} {}, {}", good.name, good.version, good.summary()), json: json!(good) })
}

/// Tries the component of this file. The error is the reason why a server would not accept it.
pub(in crate::cli) fn tried(path: &Path, options: TrialOptions, machine: &Machine) -> Result<CheckedComponent, String> {
    let text = |problem: AuthorError| problem.to_string();
    let bytes = file::bytes(path).map_err(text)?;
    let trial = SchedulerTrial::new(path, &bytes, machine, options).map_err(text)?;
    let mut running = trial.start().map_err(text)?;
    let at = |what: String| format!("{}: {what}", path.display());
    running.exercise().map_err(at)?;
    let mut plan_us = None;
    if running.hooks().plan {
        // The first calls are slower, because nothing is warm.
        let sizes = [1, 2, 64, 1024, 64, 64, 64];
        let took = sizes.into_iter().zip(1..).map(|(size, round)| running.plan(size, round));
        let took = took.collect::<Result<Vec<_>, String>>().map_err(at)?;
        plan_us = took.iter().rev().take(3).min().map(|best| best.as_nanos() as f64 / 1e3);
    }
    let note = (running.hooks().plan && !running.has_decided()).then_some(NEVER_PLANS);
    let (declared, manifest) = (trial.component.declared(), trial.component.manifest());
    Ok(CheckedComponent {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        world: declared.world.clone(),
        contract: declared.contract.clone(),
        bytes: bytes.len(),
        plan_us,
        imports: trial.component.imports().iter().filter_map(|name| short(name)).map(str::to_owned).collect(),
        note,
    })
}

impl CheckedComponent {
    /// A summary without the name.
    pub(in crate::cli) fn summary(&self) -> String {
        let CheckedComponent { world, contract, bytes, plan_us, imports, .. } = self;
        let plan = plan_us.map(|us| format!(", plan of 64: {us:.1} us")).unwrap_or_default();
        let imports = if imports.is_empty() { "none".to_owned() } else { imports.join(" ") };
        let size = *bytes as f64 / 1e3;
        let note = self.note.map(|note| format!("; note: {note}")).unwrap_or_default();
        format!("{world} {contract}, {size:.0} KB{plan}, imports: {imports}{note}")
    }
}

/// Shortens `sequor:plugin/host@0.1.0` to `host`. Types are left out, because they give a component no rights.
fn short(import: &str) -> Option<&str> {
    let name = import.split('@').next().unwrap_or(import);
    let name = name.strip_prefix("sequor:plugin/").unwrap_or(name);
    Some(name).filter(|name| *name != "types")
}
