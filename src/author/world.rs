//! The trait of a world, as folders and builds need it. Code for only one world is in that world's file in `worlds/`.

use std::fmt::Debug;
use std::path::Path;

use super::sdk::{Kit, WitWorld};
use crate::config::fault::Fault;

/// A world, from an author's side.
pub trait AuthorWorld: Debug + Sync {
    /// The name for `--world` and in plugin.toml.
    fn name(&self) -> &'static str;

    /// A description of its plug-ins, for the README of a new folder.
    fn about(&self) -> &'static str;

    /// The world in the contract.
    fn wit(&self) -> &'static WitWorld;

    /// The module of the Python kit that exports the world; `None` if that kit does not support it.
    fn python_entry(&self) -> Option<&'static str>;

    /// The files of every new folder.
    fn common(&self) -> Kit;

    /// The further files of a new folder in this language; `None` if the language's kit does not support this world.
    fn template(&self, language: &str) -> Option<Kit>;

    /// Checks a plugin.toml like a server.
    fn check_manifest(&self, path: &Path, text: &str) -> Result<(), Fault>;

    /// The line of `cases/` that a new folder's README shows.
    fn case(&self) -> &'static str;
}
