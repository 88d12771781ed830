//! `sequor plugin test`: a plug-in's cases in the simulator, each beside the built-in policy.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::json;

use super::{Failed, failed, file, remote};
use crate::cli::equip::cache;
use crate::simulate::file::WorkloadFile;
use crate::simulate::{Contender, Costs, Experiment, Plug, SimulateError, SimulationReport};
use sequor_wasm::limits::Limits;

pub(super) fn command() -> Command {
    let cases = Arg::new("case").long("case").value_name("FILE").value_parser(value_parser!(PathBuf)).num_args(1..);
    Command::new("test")
        .about("Run the cases of plug-ins in virtual time, and hold them against what they expect")
        .arg(file::argument().help("Components or their folders; the cases lie in cases/ beside a component"))
        .arg(cases.help("These cases, in place of cases/*.toml"))
        .arg(remote::output())
}

/// What came of a case.
struct CaseResult {
    component: String,
    case: PathBuf,
    /// Expectations that did not hold, in words.
    wrong: Vec<String>,
    report: SimulationReport,
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failed> {
    let (as_json, mut wrong, mut all) = (remote::wants_json(matches), 0, Vec::new());
    for path in file::named(matches)? {
        let bytes = file::bytes(&path).map_err(failed)?;
        let given: Vec<PathBuf> = matches.get_many("case").into_iter().flatten().cloned().collect();
        for case in if given.is_empty() { cases(&path)? } else { given } {
            let tried = one(&path, &bytes, &case).map_err(|e| Failed::Configuration(e.to_string()))?;
            wrong += u32::from(!tried.wrong.is_empty());
            if !as_json {
                print!("{}", told(&tried));
            }
            let CaseResult { component, case, wrong, report } = tried;
            let ok = wrong.is_empty();
            all.push(json!({ "component": component, "case": case, "ok": ok, "wrong": wrong, "report": report }));
        }
    }
    let cases = all.len();
    if as_json {
        remote::print_json(&all.into());
    }
    if wrong > 0 {
        return Err(Failed::Failed(format!("{wrong} of {cases} cases are not as expected")));
    }
    Ok(())
}

fn told(tried: &CaseResult) -> String {
    let how = if tried.wrong.is_empty() { "ok" } else { "NOT AS EXPECTED" };
    let wrong: String = tried.wrong.iter().map(|what| format!("  {what}\n")).collect();
    format!("{}   {how}\n{}{wrong}", tried.case.display(), tried.report.table())
}

/// The cases beside a component.
fn cases(component: &Path) -> Result<Vec<PathBuf>, Failed> {
    let folder = component.parent().unwrap_or(Path::new("")).join("cases");
    let entries = std::fs::read_dir(&folder).map_err(|e| {
        Failed::Configuration(format!("{}: {e}; cases lie there, or --case names them", folder.display()))
    })?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    found.sort();
    if found.is_empty() {
        return Err(Failed::Configuration(format!("{} holds no case (NAME.toml)", folder.display())));
    }
    Ok(found)
}

/// Runs a case.
fn one(component: &Path, bytes: &[u8], case: &Path) -> Result<CaseResult, SimulateError> {
    let text = std::fs::read_to_string(case)
        .map_err(|e| SimulateError::File { path: case.to_owned(), what: e.to_string() })?;
    let load = WorkloadFile::read(case, &text)?;
    let config = serde_json::to_string(&load.config).map_err(|e| SimulateError::Given(e.to_string()))?;
    let name = component.file_name().unwrap_or(component.as_os_str()).to_string_lossy().into_owned();
    let plug = Plug::new(&name, bytes, &config, Limits::default(), cache().as_ref()).map_err(SimulateError::Given)?;
    let seed = load.seed.unwrap_or(1);
    let (workload, serving) = (load.workload(seed)?, load.serve.clone().settle().map_err(SimulateError::Given)?);
    let instances = serving.instances.first().copied().unwrap_or(1);
    plug.try_out(&workload.facts(serving.facts(instances)))
        .map_err(|what| SimulateError::Given(format!("{name}: {what}")))?;
    let contenders = vec![Contender::named("oldest").map_err(SimulateError::Given)?, Contender::plugin(&name, plug)];
    let report = Experiment { workload, serving, costs: Costs::default(), contenders, seed }.run();
    let runs = report.runs.iter().filter(|run| run.policy == name);
    let wrong: Vec<String> = runs.flat_map(|run| load.expect.against(run)).collect();
    Ok(CaseResult { component: name, case: case.to_owned(), wrong, report })
}
