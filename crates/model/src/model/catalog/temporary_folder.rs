//! Folders in the system's temporary directory. A crash leaves them behind, and the next start removes them.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tempfile::TempDir;

/// The lock file in such a folder. While it is locked, the server that made the folder runs.
const LOCK: &str = ".sequor-lock";
/// The prefixes of the names of such folders.
const PREFIXES: [&str; 2] = [TemporaryFolder::MODELS, TemporaryFolder::UPLOAD];

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: TempDir,
    /// Locked as long as the folder is in use.
    _lock: File,
}

impl TemporaryFolder {
    /// The prefix of a repository made from other files.
    pub const MODELS: &str = "sequor-models-";
    /// The prefix of a model that a load request carried.
    pub const UPLOAD: &str = "sequor-model-";

    pub fn new(prefix: &str) -> io::Result<TemporaryFolder> {
        TemporaryFolder::new_in(&std::env::temp_dir(), prefix)
    }

    fn new_in(directory: &Path, prefix: &str) -> io::Result<TemporaryFolder> {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(directory)?;
        // Lock the file before it gets its name, so that no other starting server finds it unlocked.
        let unnamed = folder.path().join(".new");
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        fs_err::rename(unnamed, folder.path().join(LOCK))?;
        Ok(TemporaryFolder { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of servers that ended without removing them. A folder that cannot be removed stays.
pub fn remove_abandoned_folders() {
    remove_abandoned(&std::env::temp_dir());
}

fn remove_abandoned(directory: &Path) {
    let Ok(entries) = fs_err::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || !is_abandoned(&path) {
            continue;
        }
        match fs_err::remove_dir_all(&path) {
            Ok(()) => tracing::debug!(folder = %path.display(), "removed the folder that a crashed server left"),
            Err(error) => tracing::debug!(%error, "the folder of a crashed server stays"),
        }
    }
}

/// Whether a server of this user made the folder and has ended.
fn is_abandoned(folder: &Path) -> bool {
    let path = folder.join(LOCK);
    let user = nix::unistd::geteuid().as_raw();
    let is_ours = fs_err::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.uid() == user);
    is_ours && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_abandoned_temporary_folder_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let folder = || TemporaryFolder::new_in(directory.path(), TemporaryFolder::MODELS).unwrap();
        let (live, crashed) = (folder(), folder());
        fs_err::write(crashed.path().join("file"), "").unwrap();
        // A crash releases the lock and leaves the folder.
        let TemporaryFolder { folder, _lock: lock } = crashed;
        let crashed = folder.keep();
        drop(lock);
        let foreign = directory.path().join("sequor-models-foreign");
        fs_err::create_dir(&foreign).unwrap();
        remove_abandoned(directory.path());
        assert_eq!([live.path().exists(), crashed.exists(), foreign.exists()], [true, false, true]);
        let path = live.path().to_owned();
        drop(live);
        assert!(!path.exists());
    }
}
