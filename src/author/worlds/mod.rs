//! The table of all worlds. A new world needs a file in this folder, a line in the table, and its commands in `cli/plugin/worlds.rs`.

mod initializer;
mod processor;
mod scheduler;

use super::world::AuthorWorld;
pub use initializer::InitializerProjects;
pub use processor::ProcessorProjects;
pub use scheduler::SchedulerProjects;

/// All worlds. The first one is the world of a plug-in that names none.
pub static WORLDS: [&dyn AuthorWorld; 3] = [&SchedulerProjects, &ProcessorProjects, &InitializerProjects];

/// The world with this name. The error lists all names.
pub fn named(name: &str) -> Result<&'static dyn AuthorWorld, String> {
    let found = WORLDS.into_iter().find(|world| world.name() == name);
    found.ok_or_else(|| format!("there is no world \"{name}\"; there are {}", WORLDS.map(AuthorWorld::name).join(", ")))
}
