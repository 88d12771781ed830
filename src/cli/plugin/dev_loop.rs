//! The part of `sequor plugin dev` that all worlds share: it watches the sources of a plug-in, and builds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Failed, failed, machine};
use crate::author::{self, AuthorError, Project};
use crate::cli::stdout;
use crate::cli::terminal::Leave;

/// How often the sources are checked.
const LOOK: Duration = Duration::from_millis(300);

/// Calls `round` now and after every change of the sources, until the author stops the command. Prints its results.
pub(super) fn on_every_change(folder: &Path, mut round: impl FnMut() -> Result<String, Failed>) -> Result<(), Failed> {
    let (is_building, mut seen) = (Arc::new(AtomicBool::new(false)), None);
    let builds = Arc::clone(&is_building);
    let stop = Leave::on_signals_with(move || {
        if builds.load(Ordering::Acquire) {
            eprintln!("stopping after this build");
        }
    })?;
    loop {
        let now = author::source_marks(folder);
        if seen.as_ref() != Some(&now) {
            seen = Some(now);
            // The author reads the error and continues. Only an unreachable server ends the command.
            is_building.store(true, Ordering::Release);
            let result = round();
            is_building.store(false, Ordering::Release);
            match result {
                Err(gone @ Failed::Unreachable(_)) => return Err(gone),
                Err(wrong) => eprintln!("{wrong}"),
                Ok(line) => stdout::line(format_args!("{line}"))?,
            }
        }
        if stop.within(LOOK) {
            return Ok(());
        }
    }
}

/// Builds the component of a folder into another folder.
pub(super) fn build(folder: &Path, to: &Path) -> Result<PathBuf, Failed> {
    let project = Project::open(folder).map_err(failed)?;
    let name = project.manifests.first().map_or("", |manifest| manifest.name.as_str());
    eprintln!("building {name} ...");
    let built = author::build(&project, to, &machine()).map_err(|problem| match problem {
        // The change that this error reports starts the next round.
        AuthorError::Changed { path } => Failed::Failed(format!("{}: changed meanwhile", path.display())),
        other => failed(other),
    })?;
    eprintln!("trying it at the server ...");
    built.into_iter().next().map(|built| built.path).ok_or_else(|| Failed::Failed("nothing was built".to_owned()))
}

/// The name of the first plug-in of a folder.
pub(super) fn first_name(folder: &Path) -> Result<String, Failed> {
    let project = Project::open(folder).map_err(failed)?;
    Ok(project.manifests.first().map(|manifest| manifest.name.clone()).unwrap_or_default())
}
