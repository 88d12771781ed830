//! Runs a scheduler's case in the simulator, beside the built-in policy.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cli::Failed;
use crate::cli::plugin::world::{GivenComponent, Printed, Tested};
use crate::cli::plugin_host::cache;
use crate::simulate::file::WorkloadFile;
use crate::simulate::{ComparedPolicy, Costs, Experiment, PluginSpec, SimulateError, SimulationReport};
use sequor_wasm::limits::Limits;

/// The result of a case.
struct CaseResult {
    component: String,
    case: PathBuf,
    /// Sentences about expectations that did not hold.
    wrong: Vec<String>,
    report: SimulationReport,
}

/// Runs a case of a scheduler.
pub(super) fn scheduler(given: GivenComponent<'_>, case: &Path) -> Result<Tested, Failed> {
    let tried = one(given.path, given.bytes, case).map_err(|e| Failed::Configuration(e.to_string()))?;
    let text = render(&tried);
    let CaseResult { component, case, wrong, report } = tried;
    let is_good = wrong.is_empty();
    let json = json!({ "component": component, "case": case, "ok": is_good, "wrong": wrong, "report": report });
    Ok(Tested { is_good, printed: Printed { text, json } })
}

fn render(tried: &CaseResult) -> String {
    let how = if tried.wrong.is_empty() { "ok" } else { "NOT AS EXPECTED" };
    let wrong: String = tried.wrong.iter().map(|what| format!("  {what}\n")).collect();
    format!("{}   {how}\n{}{wrong}", tried.case.display(), tried.report.table())
}

/// Runs a case.
fn one(component: &Path, bytes: &[u8], case: &Path) -> Result<CaseResult, SimulateError> {
    let text = std::fs::read_to_string(case)
        .map_err(|e| SimulateError::File { path: case.to_owned(), what: e.to_string() })?;
    let load = WorkloadFile::read(case, &text)?;
    let config = serde_json::to_string(&load.config).map_err(|e| SimulateError::Given(e.to_string()))?;
    let name = component.file_name().unwrap_or(component.as_os_str()).to_string_lossy().into_owned();
    let plug =
        PluginSpec::new(&name, bytes, &config, Limits::default(), cache().as_ref()).map_err(SimulateError::Given)?;
    let seed = load.seed.unwrap_or(1);
    let (workload, serving) = (load.workload(seed)?, load.serve.clone().resolve().map_err(SimulateError::Given)?);
    let instances = serving.instances.first().copied().unwrap_or(1);
    plug.try_out(&workload.facts(serving.facts(instances)))
        .map_err(|what| SimulateError::Given(format!("{name}: {what}")))?;
    let policies =
        vec![ComparedPolicy::named("oldest").map_err(SimulateError::Given)?, ComparedPolicy::plugin(&name, plug)];
    let report = Experiment { workload, serving, costs: Costs::default(), policies, seed }.run();
    let runs = report.runs.iter().filter(|run| run.policy == name);
    let wrong: Vec<String> = runs.flat_map(|run| load.expect.against(run)).collect();
    Ok(CaseResult { component: name, case: case.to_owned(), wrong, report })
}
