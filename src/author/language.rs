//! The trait of a language for plug-ins. Steps that only one language needs are in that language's file.

use std::fmt::Debug;
use std::path::Path;

use super::sdk::Kit;
use super::world::AuthorWorld;
use super::{AuthorError, Machine};

/// A language for plug-ins.
pub trait Language: Debug + Sync {
    /// The name for `--lang`.
    fn name(&self) -> &'static str;

    /// The file that identifies a folder of this language.
    fn source(&self) -> &'static str;

    /// The kit of this language.
    fn kit(&self) -> Kit;

    /// Maximum number of candidates that a new plug-in asks for; `None` unless the language is too slow for all of them.
    fn window(&self) -> Option<u32> {
        None
    }

    /// Builds a component from a folder's sources, without its manifest. The language's kit knows the world.
    fn component(&self, folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError>;

    /// Reports what this machine has for this language. Installs nothing.
    fn examine(&self, machine: &Machine) -> Found;

    /// Fetches what a build needs, if it is missing.
    fn install(&self, machine: &Machine) -> Result<(), AuthorError>;
}

/// The state of a language on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Ready(String),
    /// The first build fetches it.
    Fetched(String),
    Missing(String),
}
