//! The table of the worlds' commands. A new world is a folder with its commands, and a line here.

use std::path::Path;

use clap::ArgMatches;
use serde::Deserialize;

use super::initializer::InitializerCommands;
use super::processor::ProcessorCommands;
use super::scheduler::SchedulerCommands;
use super::world::{GivenComponent, Printed, WorldCommands};
use super::{Failed, remote};
use crate::author::Project;
use crate::cli::stdout;
use sequor_wasm::manifest;

/// All worlds. The first also handles components that name no world.
static ALL: [&dyn WorldCommands; 3] = [&SchedulerCommands, &ProcessorCommands, &InitializerCommands];

/// The commands for a component, by the world in its plugin.toml. The first world refuses a component without one, or of an unknown world.
pub(super) fn of_component(bytes: &[u8]) -> &'static dyn WorldCommands {
    #[derive(Deserialize)]
    struct Header {
        world: String,
    }
    let text = manifest::section(bytes).ok().flatten();
    let header = text.and_then(|text| toml::from_str::<Header>(text).ok());
    header.and_then(|header| find(&header.world)).unwrap_or(&SchedulerCommands)
}

/// The commands for a folder.
pub(super) fn of_folder(folder: &Path) -> Result<&'static dyn WorldCommands, Failed> {
    let project = Project::open(folder).map_err(super::failed)?;
    Ok(find(project.world.name()).unwrap_or(&SchedulerCommands))
}

fn find(world: &str) -> Option<&'static dyn WorldCommands> {
    ALL.into_iter().find(|commands| commands.world().name() == world)
}

/// Runs a command for each component, and prints the results.
pub(super) fn each(
    matches: &ArgMatches,
    mut run: impl FnMut(&dyn WorldCommands, GivenComponent<'_>) -> Result<Printed, Failed>,
) -> Result<(), Failed> {
    let (as_json, machine, mut all) = (remote::wants_json(matches), super::machine(), Vec::new());
    for path in super::file::named(matches)? {
        let bytes = super::file::bytes(&path).map_err(super::failed)?;
        let given = GivenComponent { path: &path, bytes: &bytes, matches, machine: &machine };
        let Printed { text, json } = run(of_component(&bytes), given)?;
        if as_json {
            all.push(json);
        } else {
            stdout::text(format_args!("{text}"))?;
        }
    }
    if as_json {
        remote::print_json(&all.into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::component::with_manifest;
    use crate::author::worlds::WORLDS;

    #[test]
    fn every_world_has_its_commands() {
        for world in WORLDS {
            let component = with_manifest(b"\0asm\x0d\0\x01\0", &format!("world = \"{}\"\n", world.name()));
            assert_eq!(of_component(&component).world().name(), world.name());
        }
        assert_eq!(of_component(b"\0asm\x0d\0\x01\0").world().name(), "scheduler");
        assert_eq!(ALL.len(), WORLDS.len());
    }
}
