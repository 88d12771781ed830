//! The files in which models name plug-ins, behind a trait, because this module does not know models.

use std::path::PathBuf;

/// The files in which models name the plug-in that decides for them. The repository of models implements it.
pub trait ModelFiles: Send + Sync {
    /// The hashes of a plug-in that models' files name, with the files. Only files count that let this plug-in decide and name a hash.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Makes all of these files name this hash, or none, with the reason. Returns the models whose files changed.
    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<String>, String>;
}
