//! Shows what a scheduler's component declares.

use sequor_wasm::manifest;
use serde::Serialize;

use crate::author::scheduler::trial::SchedulerTrial;
use crate::cli::Failed;
use crate::cli::plugin::file;
use crate::cli::plugin::world::{GivenComponent, Printed};

/// A component as `inspect` prints it.
#[derive(Debug, Serialize)]
struct InspectedComponent {
    file: String,
    bytes: usize,
    sha256: String,
    imports: Vec<String>,
    /// Bytes of its memory after `configure`. If that failed, `error` has the reason.
    memory: Option<u64>,
    error: Option<String>,
    /// Its plugin.toml, if it has one.
    manifest: Option<String>,
}

/// Shows a scheduler.
pub(super) fn scheduler(given: GivenComponent<'_>) -> Result<Printed, Failed> {
    let seen = look(given)?;
    Ok(Printed { text: render(&seen), json: serde_json::json!(seen) })
}

fn look(given: GivenComponent<'_>) -> Result<InspectedComponent, Failed> {
    let GivenComponent { path, bytes, matches, machine } = given;
    let trial = SchedulerTrial::new(path, bytes, machine, file::trial_options(matches)?)
        .map_err(|refused| Failed::Configuration(refused.to_string()))?;
    let (memory, error) = match trial.start() {
        Ok(running) => (Some(running.memory()), None),
        Err(problem) => (None, Some(problem.to_string())),
    };
    Ok(InspectedComponent {
        file: path.display().to_string(),
        bytes: bytes.len(),
        sha256: trial.component.sha256().to_owned(),
        imports: trial.component.imports().to_vec(),
        memory,
        error,
        manifest: manifest::section(bytes).ok().flatten().map(str::to_owned),
    })
}

fn render(seen: &InspectedComponent) -> String {
    let InspectedComponent { file, bytes, sha256, imports, memory, error, manifest } = seen;
    let memory = match (memory, error) {
        (Some(memory), _) => format!("{:.1} MiB once configured", *memory as f64 / 1_048_576.0),
        (None, error) => format!("unknown: {}", error.as_deref().unwrap_or_default()),
    };
    let manifest = match manifest {
        Some(text) => format!("plugin.toml\n{}", indented(text)),
        None => "plugin.toml   none: it is asked everything and shown everything\n".to_owned(),
    };
    let imports = imports.join("  ");
    format!("file      {file}, {bytes} bytes\nsha256    {sha256}\nimports   {imports}\nmemory    {memory}\n{manifest}")
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
