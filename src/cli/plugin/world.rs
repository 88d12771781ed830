//! The authors' commands that each world implements. `worlds` is the table of all worlds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use serde_json::Value;

use super::Failed;
use crate::author::Machine;
use crate::author::processor::outcome;
use crate::author::world::AuthorWorld;

/// The output of a command for one component: for people, and for programs.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) text: String,
    pub(super) json: Value,
}

/// The component that a command is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenComponent<'a> {
    pub(super) path: &'a Path,
    pub(super) bytes: &'a [u8],
    pub(super) matches: &'a ArgMatches,
    pub(super) machine: &'a Machine,
}

/// The authors' commands of one world.
pub(super) trait WorldCommands: Sync {
    fn world(&self) -> &'static dyn AuthorWorld;

    /// Tries a component as a server would. The error is a sentence that names the file. The text follows the component's name.
    fn check(&self, given: GivenComponent<'_>) -> Result<Printed, String>;

    /// Runs one case. `Err` means that the case cannot be run. Unmet expectations are counted in the result.
    fn test(&self, given: GivenComponent<'_>, case: &Path) -> Result<Tested, Failed>;

    /// Measures calls, each kind for this long.
    fn bench(&self, given: GivenComponent<'_>, span: Duration) -> Result<Printed, Failed>;

    /// Shows what a component declares.
    fn inspect(&self, given: GivenComponent<'_>) -> Result<Printed, Failed>;

    /// Builds on every change, and lets a running server use the result.
    fn dev(&self, folder: &Path, matches: &ArgMatches) -> Result<(), Failed>;
}

/// The result of a case.
#[derive(Debug)]
pub(super) struct Tested {
    pub(super) is_good: bool,
    pub(super) printed: Printed,
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// The cases beside a component.
pub(super) fn cases(component: &Path) -> Result<Vec<PathBuf>, Failed> {
    let folder = component.parent().unwrap_or(Path::new("")).join("cases");
    let found = outcome::cases(component).map_err(|e| {
        Failed::Configuration(format!("{}: {e}; cases lie there, or --case names them", folder.display()))
    })?;
    if found.is_empty() {
        return Err(Failed::Configuration(format!("{} holds no case (NAME.toml)", folder.display())));
    }
    Ok(found)
}
