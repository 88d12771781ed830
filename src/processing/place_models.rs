//! The models, as the registry of plug-ins that models name reaches them.

use std::fmt;
use std::path::PathBuf;

/// A model's file that names another hash of a plug-in now, and its text before.
#[derive(Debug)]
pub struct PinnedFile {
    pub model: String,
    /// The folder of the model's `sequor.toml`.
    pub directory: PathBuf,
    pub before: String,
}

/// The models, as the registry reaches them.
pub trait PlaceModels: Send + Sync + fmt::Debug {
    /// The files of models that name the hash of a plug-in, each with that hash.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Has the files of models that name the hash of a plug-in name this one. If one cannot be written, all are as they were.
    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String>;

    /// Writes these files as they were before.
    fn restore_files(&self, files: &[PinnedFile]);

    /// Loads a model anew. Live sequences finish on the load before. The error says why the load before goes on for all.
    fn reload(&self, model: &str) -> Result<(), String>;
}
