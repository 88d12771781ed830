//! The table of all worlds. A new one is a file beside this one, a line in the table, and its commands in `cli/plugin/worlds.rs`.

mod initializer;
mod processor;
mod scheduler;

use super::world::AuthorWorld;
pub use initializer::InitializerProjects;
pub use processor::ProcessorProjects;
pub use scheduler::SchedulerProjects;

/// All of them; the first is that of a plug-in that names none.
pub static WORLDS: [&dyn AuthorWorld; 3] = [&SchedulerProjects, &ProcessorProjects, &InitializerProjects];

/// The world of this name. The error names those that there are.
pub fn named(name: &str) -> Result<&'static dyn AuthorWorld, String> {
    let found = WORLDS.into_iter().find(|world| world.name() == name);
    found.ok_or_else(|| format!("there is no world \"{name}\"; there are {}", WORLDS.map(AuthorWorld::name).join(", ")))
}
