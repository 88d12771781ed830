//! A language of plug-ins. The steps that only one language needs are in the file of its name.

use std::fmt::Debug;
use std::path::Path;

use super::sdk::Kit;
use super::world::AuthorWorld;
use super::{AuthorError, Machine};

/// What a plug-in may be written in.
pub trait Language: Debug + Sync {
    /// What `--lang` calls it.
    fn name(&self) -> &'static str;

    /// The file that tells it.
    fn source(&self) -> &'static str;

    /// What plug-ins are written against.
    fn kit(&self) -> Kit;

    /// Candidates that a new plug-in asks to be shown at most, where the language is too slow for all of them.
    fn window(&self) -> Option<u32> {
        None
    }

    /// Makes a component of a folder's sources, without its manifest. The language's kit knows the world.
    fn component(&self, folder: &Path, world: &dyn AuthorWorld, machine: &Machine) -> Result<Vec<u8>, AuthorError>;

    /// What this machine has for it. It looks, and installs nothing.
    fn examine(&self, machine: &Machine) -> Found;

    /// Fetches what a build needs, if it is not there.
    fn install(&self, machine: &Machine) -> Result<(), AuthorError>;
}

/// What there is for a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Ready(String),
    /// The first build fetches it.
    Fetched(String),
    Missing(String),
}
