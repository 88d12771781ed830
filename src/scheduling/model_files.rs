//! The files in which models name plug-ins, behind a trait: this room does not know models.

use std::path::PathBuf;

/// The files in which models name the plug-in that decides for them. The repository of models implements it.
pub trait ModelFiles: Send + Sync {
    /// The hash that a file names of a plug-in which decides for its model, because the file says so: each file that names one.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Has each of those name this hash: all of them, or none, with the reason. The models whose file is another now.
    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<String>, String>;
}
