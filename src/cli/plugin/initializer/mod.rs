//! Authors' commands for state initializers. A case describes the model: `--case`, or the first one in `cases/` beside the component.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::json;

use super::placed::{self, CALL_TIME, CASE_TIME, ports_json};
use super::placed_dev::{self, PlacedWords};
use super::world::{GivenComponent, Printed, Tested, WorldCommands, millis};
use super::{Failed, failed};
use crate::author::AuthorError;
use crate::author::initializer::case::InitializerCase;
use crate::author::initializer::outcome::{self, StartOutcome};
use crate::author::initializer::trial::InitializerTrial;
use crate::author::world::AuthorWorld;
use crate::author::worlds::InitializerProjects;
use crate::initializing::InitializerPorts;
use crate::processing::TensorPort;
use sequor_wasm::instances::ReplacedGuests;
use sequor_wasm::manifest;

pub(super) struct InitializerCommands;

impl WorldCommands for InitializerCommands {
    fn world(&self) -> &'static dyn AuthorWorld {
        &InitializerProjects
    }

    fn check(&self, given: GivenComponent<'_>) -> Result<Printed, String> {
        let trial = trial(given, CALL_TIME).map_err(|e| e.to_string())?;
        let declared = trial.component.declared();
        let json = json!({
            "name": declared.name, "version": declared.version, "world": declared.world,
            "contract": declared.contract, "bytes": given.bytes.len(), "imports": trial.component.imports(),
        });
        let size = given.bytes.len() as f64 / 1e3;
        let head =
            format!("{} {}, {} {}, {size:.0} KB", declared.name, declared.version, declared.world, declared.contract);
        let Some(case) = case(given).map_err(|e| e.to_string())? else {
            return Ok(Printed { text: format!("{head}; not configured: no case describes its model"), json });
        };
        let running = trial.start(&case).map_err(|problem: AuthorError| problem.to_string())?;
        let outcomes = outcome::run(&case, &running);
        let outcomes = outcomes.map_err(|what| format!("{}: {}: {what}", given.path.display(), case.path.display()))?;
        // A START may deserve a refusal. A failure is a fault of the plug-in.
        if let Some(failed) = outcomes.iter().find(|of| of.begins == "failed") {
            return Err(format!("{}: {}", given.path.display(), failed.wrong.join("; ")));
        }
        Ok(Printed { text: format!("{head}, {} STARTs of {}", outcomes.len(), case.path.display()), json })
    }

    fn test(&self, given: GivenComponent<'_>, path: &Path) -> Result<Tested, Failed> {
        let case = InitializerCase::read(path).map_err(failed)?;
        let running = trial(given, CASE_TIME)?.start(&case).map_err(failed)?;
        let outcomes = outcome::run(&case, &running);
        let outcomes = outcomes.map_err(|what| Failed::Configuration(format!("{}: {what}", path.display())))?;
        Ok(tested(given.path, path, &outcomes, running.replaced()))
    }

    fn bench(&self, given: GivenComponent<'_>, span: Duration) -> Result<Printed, Failed> {
        let trial = trial(given, CALL_TIME)?;
        let missing = "no case describes its model: cases/NAME.toml beside the component, or --case";
        let needed = || Failed::Configuration(format!("{}: {missing}", given.path.display()));
        let case = case(given)?.ok_or_else(needed)?;
        let running = trial.start(&case).map_err(failed)?;
        let (mut initialize, mut asking, began, mut rounds) = (Vec::new(), Vec::new(), Instant::now(), 0);
        while rounds < 3 || began.elapsed() < span {
            rounds += 1;
            let outcomes = outcome::run(&case, &running).map_err(Failed::Failed)?;
            let answered = || outcomes.iter().filter(|of| !of.initialize.is_zero());
            initialize.extend(answered().map(|of| of.initialize));
            asking.extend(answered().map(|of| of.asking).filter(|took| !took.is_zero()));
        }
        let (file, load, start) = (given.path.display(), millis(trial.loading), millis(running.starting));
        let mut text = format!("{file}   load {load:.1} ms, start and configure {start:.1} ms\n");
        let _ = writeln!(text, "{:>10}  {:>8}  {:>9}  {:>9}", "CALL", "CALLS", "us", "p99");
        let mut rows = Vec::new();
        for (hook, mut times) in [("initialize", initialize), ("steps", asking)] {
            times.sort_unstable();
            let at = |share: usize| {
                times.get(times.len().saturating_sub(1) * share / 100).map_or(0.0, |t| t.as_nanos() as f64 / 1e3)
            };
            let (calls, p50, p99) = (times.len(), at(50), at(99));
            if calls > 0 {
                let _ = writeln!(text, "{hook:>10}  {calls:>8}  {p50:>9.2}  {p99:>9.2}");
                rows.push(json!({ "call": hook, "calls": calls, "p50_us": p50, "p99_us": p99 }));
            }
        }
        let json = json!({ "file": given.path, "loading_ms": load, "starting_ms": start, "calls": rows });
        Ok(Printed { text, json })
    }

    fn inspect(&self, given: GivenComponent<'_>) -> Result<Printed, Failed> {
        let trial = trial(given, CALL_TIME)?;
        let case = case(given)?;
        let seen = case.as_ref().map_or_else(|| "unknown: no case describes it".to_owned(), |case| ports(&case.ports));
        let (sha256, imports) = (trial.component.sha256(), trial.component.imports());
        let manifest = manifest::section(given.bytes).ok().flatten().unwrap_or_default();
        let (file, bytes) = (given.path.display(), given.bytes.len());
        let text = format!(
            "file      {file}, {bytes} bytes\nsha256    {sha256}\nimports   {}\nmodel     {seen}\nplugin.toml\n{}",
            imports.join("  "),
            manifest.lines().map(|line| format!("  {line}\n")).collect::<String>()
        );
        let json = json!({
            "file": given.path, "bytes": bytes, "sha256": sha256, "imports": imports, "manifest": manifest,
            "states": case.as_ref().map(|case| ports_json(&case.ports.states)),
        });
        Ok(Printed { text, json })
    }

    fn dev(&self, folder: &Path, matches: &ArgMatches) -> Result<(), Failed> {
        placed_dev::run(folder, matches, PlacedWords { kind: "state initializer", does: "begins sequences of" })
    }
}

/// Loads the component for a trial. `time` is the default CPU time of a call.
fn trial(given: GivenComponent<'_>, time: Duration) -> Result<InitializerTrial, Failed> {
    let options = placed::trial_options(given, time)?;
    let refused = |problem: AuthorError| Failed::Configuration(problem.to_string());
    InitializerTrial::new(given.path, given.bytes, given.machine, options).map_err(refused)
}

/// The case that describes the model: the given one, or the first beside the component.
fn case(given: GivenComponent<'_>) -> Result<Option<InitializerCase>, Failed> {
    placed::case_path(given).map(|path| InitializerCase::read(&path).map_err(failed)).transpose()
}

fn tested(component: &Path, path: &Path, outcomes: &[StartOutcome], replaced: ReplacedGuests) -> Tested {
    let is_good = outcomes.iter().all(|of| of.wrong.is_empty());
    let how = if is_good { "ok" } else { "NOT AS EXPECTED" };
    let mut text = format!("{}   {how}\n", path.display());
    let _ = writeln!(text, "{:>5}  {:>5}  BEGINS WITH", "START", "STEPS");
    let mut rows = Vec::new();
    for (n, StartOutcome { begins, steps, wrong, .. }) in (1..).zip(outcomes) {
        let _ = writeln!(text, "{n:>5}  {steps:>5}  {begins}");
        for what in wrong {
            let _ = writeln!(text, "  {what}");
        }
        rows.push(json!({ "begins": begins, "steps": steps, "wrong": wrong }));
    }
    if let Some(what) = placed::replaced_text(replaced) {
        let _ = writeln!(text, "  {what}");
    }
    let name = component.file_name().unwrap_or(component.as_os_str()).to_string_lossy();
    let replaced = placed::replaced_json(replaced);
    let json = json!({ "component": name, "case": path, "ok": is_good, "starts": rows, "replaced": replaced });
    Tested { is_good, printed: Printed { text, json } }
}

fn ports(InitializerPorts { states, request, step }: &InitializerPorts) -> String {
    let each = |ports: &[TensorPort]| {
        let port = |port: &TensorPort| format!("{} {}{}", port.name, port.dtype, port.dims);
        ports.iter().map(port).collect::<Vec<_>>().join(", ")
    };
    format!("states {}; requests {}; steps {}", each(states), each(request), each(step))
}
