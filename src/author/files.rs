//! Reads and writes whole files.

use std::path::{Path, PathBuf};

use super::AuthorError;
use crate::config::atomic_file::{self, SyncMode};

/// The files below a folder with one of these extensions, sorted. Skips hidden files and folders, those of Python's caches, and
/// `node_modules`.
pub(super) fn files_of(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, AuthorError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| AuthorError::file(folder, e))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            if !name.starts_with('_') && name != "node_modules" {
                found.extend(files_of(&path, extensions)?);
            }
        } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file atomically: a process that watches the folder never reads half of it. A file with the same content stays untouched.
pub(super) fn place(path: &Path, bytes: &[u8]) -> Result<(), AuthorError> {
    if std::fs::read(path).is_ok_and(|is| is == bytes) {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(|e| AuthorError::file(parent, e))?;
    // A temporary file is readable by its owner only, but the server must read a component too.
    atomic_file::replace(path, &[bytes], Some(0o644), SyncMode::Later).map_err(|e| AuthorError::file(path, e))
}
