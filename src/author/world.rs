//! A world of plug-ins, as far as folders and builds go. What only one world needs is in the file of its name, in `worlds/`.

use std::fmt::Debug;
use std::path::Path;

use super::sdk::{Kit, WitWorld};
use crate::config::fault::Fault;

/// What plug-ins of one kind have in common for their authors.
pub trait AuthorWorld: Debug + Sync {
    /// What `--world` and plugin.toml call it.
    fn name(&self) -> &'static str;

    /// What a plug-in of it is, for the README of a new folder.
    fn about(&self) -> &'static str;

    /// The world in the contract.
    fn wit(&self) -> &'static WitWorld;

    /// The module of Python's kit that exports it; none, if that kit does not know it.
    fn python_entry(&self) -> Option<&'static str>;

    /// What every new folder holds.
    fn common(&self) -> Kit;

    /// What a new folder in this language holds besides; none, if the language's kit does not know this world.
    fn template(&self, language: &str) -> Option<Kit>;

    /// Checks a plugin.toml as a server does.
    fn check_manifest(&self, path: &Path, text: &str) -> Result<(), Fault>;

    /// The line of `cases/` that a new folder's README shows.
    fn case(&self) -> &'static str;
}
