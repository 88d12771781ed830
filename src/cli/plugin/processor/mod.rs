//! Authors' commands for processors. A stand-in answers in place of the model. A case describes its inputs and outputs: `--case`, or the
//! first one in `cases/` beside the component.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::{Value, json};

use super::placed::{self, CALL_TIME, CASE_TIME, ports_json};
use super::placed_dev::{self, PlacedWords};
use super::world::{GivenComponent, Printed, Tested, WorldCommands, millis};
use super::{Failed, failed};
use crate::author::AuthorError;
use crate::author::processor::case::{PacketSize, ProcessorCase};
use crate::author::processor::outcome::{self, CaseOutcome};
use crate::author::processor::trial::{ProcessorTrial, TrialChain};
use crate::author::world::AuthorWorld;
use crate::author::worlds::ProcessorProjects;
use crate::processing::{TensorPort, TensorSignature};
use sequor_wasm::manifest;

pub(super) struct ProcessorCommands;

impl WorldCommands for ProcessorCommands {
    fn world(&self) -> &'static dyn AuthorWorld {
        &ProcessorProjects
    }

    fn check(&self, given: GivenComponent<'_>) -> Result<Printed, String> {
        let text = |problem: AuthorError| problem.to_string();
        let trial = trial(given, CALL_TIME).map_err(|e| e.to_string())?;
        let declared = trial.component.declared();
        let mut json = json!({
            "name": declared.name, "version": declared.version, "world": declared.world,
            "contract": declared.contract, "bytes": given.bytes.len(), "imports": trial.component.imports(),
        });
        let size = given.bytes.len() as f64 / 1e3;
        let head =
            format!("{} {}, {} {}, {size:.0} KB", declared.name, declared.version, declared.world, declared.contract);
        let Some(case) = case(given).map_err(|e| e.to_string())? else {
            return Ok(Printed { text: format!("{head}; not configured: no case names its model"), json });
        };
        let running = trial.start(&case).map_err(text)?;
        let at = |what: String| format!("{}: {}: {what}", given.path.display(), case.path.display());
        for (packet, id) in case.packets.iter().zip(1..) {
            outcome::run(&case, &running, *packet, id).map_err(at)?;
        }
        let signature = running.signature();
        if let Some(fields) = json.as_object_mut() {
            fields.insert("inputs".to_owned(), ports_json(&signature.inputs));
            fields.insert("outputs".to_owned(), ports_json(&signature.outputs));
        }
        Ok(Printed { text: format!("{head}, {}", signature_text(&signature)), json })
    }

    fn test(&self, given: GivenComponent<'_>, path: &Path) -> Result<Tested, Failed> {
        let case = ProcessorCase::read(path).map_err(failed)?;
        let running = trial(given, CASE_TIME)?.start(&case).map_err(failed)?;
        let in_case = |what: String| Failed::Configuration(format!("{}: {what}", path.display()));
        let mut outcomes = Vec::new();
        for (packet, id) in case.packets.iter().zip(1..) {
            outcomes.push(outcome::run(&case, &running, *packet, id).map_err(in_case)?);
        }
        let mut wrong = Vec::new();
        for of in &outcomes {
            let mut all = of.against(&case).map_err(in_case)?;
            all.extend(outcomes.first().map(|first| of.against_other(first)).unwrap_or_default());
            wrong.extend(all.into_iter().map(|what| format!("packets of {}: {what}", of.packet)));
        }
        Ok(tested(given.path, path, &outcomes, &wrong))
    }

    fn bench(&self, given: GivenComponent<'_>, span: Duration) -> Result<Printed, Failed> {
        let trial = trial(given, CALL_TIME)?;
        let case = needed(given)?;
        let running = trial.start(&case).map_err(failed)?;
        let (file, load, start) = (given.path.display(), millis(trial.loading), millis(running.starting));
        let mut text = format!("{file}   load {load:.1} ms, start and configure {start:.1} ms\n");
        let _ = writeln!(
            text,
            "{:>10}  {:>8}  {:>9}  {:>9}  {:>9}  {:>9}",
            "PACKETS", "CALLS", "PRE us", "p99", "POST us", "p99"
        );
        let mut rows = Vec::new();
        for packet in &case.packets {
            let (pre, post) = measure(&case, &running, *packet, span).map_err(Failed::Failed)?;
            let at = |of: &[Duration], share: usize| {
                of.get(of.len().saturating_sub(1) * share / 100).map_or(0.0, |t| t.as_nanos() as f64 / 1e3)
            };
            let [a, b, c, d] = [at(&pre, 50), at(&pre, 99), at(&post, 50), at(&post, 99)];
            let calls = pre.len();
            let _ = writeln!(text, "{packet:>10}  {calls:>8}  {a:>9.2}  {b:>9.2}  {c:>9.2}  {d:>9.2}");
            rows.push(json!({
                "packets": packet.to_string(), "calls": calls, "pre_p50_us": a, "pre_p99_us": b, "post_p50_us": c, "post_p99_us": d,
            }));
        }
        let json = json!({ "file": given.path, "loading_ms": load, "starting_ms": start, "packets": rows });
        Ok(Printed { text, json })
    }

    fn inspect(&self, given: GivenComponent<'_>) -> Result<Printed, Failed> {
        let trial = trial(given, CALL_TIME)?;
        let signature = match case(given)? {
            Some(case) => trial.start(&case).map(|running| running.signature()).map_err(|problem| problem.to_string()),
            None => Err("no case names its model".to_owned()),
        };
        let (sha256, imports) = (trial.component.sha256(), trial.component.imports());
        let manifest = manifest::section(given.bytes).ok().flatten().unwrap_or_default();
        let (file, bytes) = (given.path.display(), given.bytes.len());
        let seen = signature.as_ref().map_or_else(|what| format!("unknown: {what}"), signature_text);
        let text = format!(
            "file      {file}, {bytes} bytes\nsha256    {sha256}\nimports   {}\nclients   {seen}\nplugin.toml\n{}",
            imports.join("  "),
            manifest.lines().map(|line| format!("  {line}\n")).collect::<String>()
        );
        let signature = signature.ok();
        let json = json!({
            "file": given.path, "bytes": bytes, "sha256": sha256, "imports": imports, "manifest": manifest,
            "inputs": signature.as_ref().map(|s| ports_json(&s.inputs)),
            "outputs": signature.as_ref().map(|s| ports_json(&s.outputs)),
        });
        Ok(Printed { text, json })
    }

    fn dev(&self, folder: &Path, matches: &ArgMatches) -> Result<(), Failed> {
        placed_dev::run(folder, matches, PlacedWords { kind: "processor", does: "prepares requests of" })
    }
}

/// Loads the component for a trial. `time` is the default CPU time of a call.
fn trial(given: GivenComponent<'_>, time: Duration) -> Result<ProcessorTrial, Failed> {
    let options = placed::trial_options(given, time)?;
    let refused = |problem: AuthorError| Failed::Configuration(problem.to_string());
    ProcessorTrial::new(given.path, given.bytes, given.machine, options).map_err(refused)
}

/// The case that describes the model: the given one, or the first beside the component.
fn case(given: GivenComponent<'_>) -> Result<Option<ProcessorCase>, Failed> {
    placed::case_path(given).map(|path| ProcessorCase::read(&path).map_err(failed)).transpose()
}

fn needed(given: GivenComponent<'_>) -> Result<ProcessorCase, Failed> {
    let missing = "no case says what the model takes and gives: cases/NAME.toml beside the component, or --case";
    case(given)?.ok_or_else(|| Failed::Configuration(format!("{}: {missing}", given.path.display())))
}

/// Runs a case repeatedly. Returns the times of `pre` and of `post`, ascending.
fn measure(
    case: &ProcessorCase,
    running: &TrialChain,
    packet: PacketSize,
    span: Duration,
) -> Result<(Vec<Duration>, Vec<Duration>), String> {
    let (began, mut pre, mut post) = (Instant::now(), Vec::new(), Vec::new());
    let mut id = 0;
    while id < 3 || began.elapsed() < span {
        id += 1;
        let outcome = outcome::run(case, running, packet, id)?;
        pre.extend(outcome.pre);
        post.extend(outcome.post.into_iter().filter(|took| !took.is_zero()));
    }
    pre.sort_unstable();
    post.sort_unstable();
    Ok((pre, post))
}

fn tested(component: &Path, path: &Path, outcomes: &[CaseOutcome], wrong: &[String]) -> Tested {
    let how = if wrong.is_empty() { "ok" } else { "NOT AS EXPECTED" };
    let mut text = format!("{}   {how}\n", path.display());
    let _ = writeln!(text, "{:>10}  {:>9}  {:>9}  {:>9}", "PACKETS", "REQUESTS", "RUNS", "SCRATCH");
    for CaseOutcome { packet, requests, runs, scratch, .. } in outcomes {
        let _ = writeln!(text, "{packet:>10}  {requests:>9}  {runs:>9}  {:>9}", format!("{scratch} B"));
    }
    for CaseOutcome { packet, replaced, .. } in outcomes {
        if let Some(what) = placed::replaced_text(*replaced) {
            let _ = writeln!(text, "  packets of {packet}: {what}");
        }
    }
    for what in wrong {
        let _ = writeln!(text, "  {what}");
    }
    let rows = outcomes.iter().map(|of| {
        json!({
            "packets": of.packet.to_string(), "requests": of.requests, "runs": of.runs, "scratch": of.scratch,
            "replaced": placed::replaced_json(of.replaced),
        })
    });
    let is_good = wrong.is_empty();
    let name = component.file_name().unwrap_or(component.as_os_str()).to_string_lossy();
    let rows: Vec<Value> = rows.collect();
    let json = json!({ "component": name, "case": path, "ok": is_good, "wrong": wrong, "packets": rows });
    Tested { is_good, printed: Printed { text, json } }
}

fn signature_text(TensorSignature { inputs, outputs }: &TensorSignature) -> String {
    let ports = |ports: &[TensorPort]| {
        let each = ports.iter().map(|port| {
            let optional = if port.optional { " (optional)" } else { "" };
            format!("{} {}{}{optional}", port.name, port.dtype, port.dims)
        });
        each.collect::<Vec<_>>().join(", ")
    };
    format!("takes {}, gives {}", ports(inputs), ports(outputs))
}
