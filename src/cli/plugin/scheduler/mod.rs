//! Authors' commands for schedulers. They are tried with artificial candidates, and their cases run in virtual time.

mod bench;
pub(in crate::cli) mod check;
mod dev;
mod inspect;
mod test;

use std::path::Path;
use std::time::Duration;

use clap::ArgMatches;

use super::Failed;
use super::world::{GivenComponent, Printed, Tested, WorldCommands};
use crate::author::world::AuthorWorld;
use crate::author::worlds::SchedulerProjects;

pub(super) struct SchedulerCommands;

impl WorldCommands for SchedulerCommands {
    fn world(&self) -> &'static dyn AuthorWorld {
        &SchedulerProjects
    }

    fn check(&self, given: GivenComponent<'_>) -> Result<Printed, String> {
        check::scheduler(given)
    }

    fn test(&self, given: GivenComponent<'_>, case: &Path) -> Result<Tested, Failed> {
        test::scheduler(given, case)
    }

    fn bench(&self, given: GivenComponent<'_>, span: Duration) -> Result<Printed, Failed> {
        bench::scheduler(given, span)
    }

    fn inspect(&self, given: GivenComponent<'_>) -> Result<Printed, Failed> {
        inspect::scheduler(given)
    }

    fn dev(&self, folder: &Path, matches: &ArgMatches) -> Result<(), Failed> {
        dev::scheduler(folder, matches)
    }
}
