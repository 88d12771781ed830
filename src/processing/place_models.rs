//! The access of the registry of plug-ins to the models that name them.

use std::fmt;
use std::path::PathBuf;

/// A model's file in which the hash of a plug-in was replaced, with the text from before.
#[derive(Debug)]
pub struct PinnedFile {
    pub model: String,
    /// The folder of the model's `sequor.toml`.
    pub directory: PathBuf,
    pub before: String,
}

/// The models, for the registry of plug-ins.
pub trait PlaceModels: Send + Sync + fmt::Debug {
    /// The models' files that name a hash of this plug-in, each with that hash.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Writes this hash into every model's file that names a hash of the plug-in. If one file cannot be written, all keep their old text.
    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String>;

    /// Restores the old text of these files.
    fn restore_files(&self, files: &[PinnedFile]);

    /// Loads a model again. Live sequences finish on the old load. The error is the reason why the old load stays in service.
    fn reload(&self, model: &str) -> Result<(), String>;
}
