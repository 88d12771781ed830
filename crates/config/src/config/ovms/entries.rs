//! Files, links and folders of a generated directory. An entry that is right is not touched: a new modification time makes
//! the server load the model again.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use sequor_files::atomic_file::{self, SyncMode};

/// How a file gets into the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionFiles {
    Link,
    Copy,
}

/// Writes a file whole, unless it already has this content. A write that fails leaves what was there.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if !path.is_symlink() && fs_err::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if path.is_dir() && !path.is_symlink() {
        remove(path)?;
    }
    atomic_file::replace(path, &[bytes], Some(0o644), SyncMode::Later)
}

/// Links or copies a file or a folder.
pub(super) fn place(from: &Path, to: &Path, files: VersionFiles) -> io::Result<()> {
    match files {
        VersionFiles::Link => link(from, to),
        VersionFiles::Copy => copy(from, to, &copy_file),
    }
}

/// Gives a file a second name, or copies it. ONNX Runtime opens the data beside a graph only if it is in the folder of that graph, so a
/// link does not do for a graph that was written.
pub(super) fn place_beside_graph(from: &Path, to: &Path) -> io::Result<()> {
    copy(from, to, &|from, to| {
        let target = fs_err::canonicalize(from)?;
        fs_err::hard_link(target, to).or_else(|_| copy_file(from, to))
    })
}

/// Creates a link to a file or folder, unless it exists.
fn link(target: &Path, at: &Path) -> io::Result<()> {
    if fs_err::read_link(at).is_ok_and(|there| there == target) {
        return Ok(());
    }
    remove(at)?;
    symlink(target, at)
}

/// Copies a file, or a folder with all its files, by this function.
fn copy(from: &Path, to: &Path, by: &dyn Fn(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    if !from.is_dir() {
        if is_same(from, to) {
            return Ok(());
        }
        remove(to)?;
        return by(from, to);
    }
    if !to.is_dir() || to.is_symlink() {
        remove(to)?;
    }
    fs_err::create_dir_all(to)?;
    remove_entries(to, |name| !from.join(name).exists())?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), by)?;
    }
    Ok(())
}

/// Copies a file and its modification time, but not its mode: the copy of a read-only file can be replaced.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (fs_err::File::open(from)?, fs_err::File::create(to)?);
    io::copy(&mut from, &mut to)?;
    to.file().set_modified(from.metadata()?.modified()?)
}

/// Whether the second path has the first one's file, or a copy of it.
fn is_same(from: &Path, to: &Path) -> bool {
    let (Ok(from), Ok(to)) = (fs_err::metadata(from), fs_err::symlink_metadata(to)) else { return false };
    let is_one_file = from.dev() == to.dev() && from.ino() == to.ino();
    let times = (from.modified().ok(), to.modified().ok());
    to.is_file() && (is_one_file || (from.len() == to.len() && times.0.is_some() && times.0 == times.1))
}

/// Removes a file, a link or a folder, if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs_err::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs_err::remove_dir_all(path),
        Ok(_) => fs_err::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Removes the entries of a folder whose names match.
pub(super) fn remove_entries(folder: &Path, is_gone: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if is_gone(&entry.file_name()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_it_should_be_keeps_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs_err::create_dir(&from).unwrap();
        fs_err::write(from.join("data"), "one").unwrap();
        let time = || fs_err::metadata(to.join("data")).unwrap().modified().unwrap();
        for place in [&place_beside_graph, &|from: &Path, to: &Path| place(from, to, VersionFiles::Copy)]
            as [&dyn Fn(&Path, &Path) -> io::Result<()>; 2]
        {
            place(&from, &to).unwrap();
            let before = time();
            place(&from, &to).unwrap();
            assert_eq!((time(), fs_err::read(to.join("data")).unwrap()), (before, b"one".to_vec()));
            // A file that is replaced is followed, and one that is gone is removed.
            fs_err::write(from.join("next"), "other").unwrap();
            fs_err::rename(from.join("next"), from.join("data")).unwrap();
            fs_err::write(to.join("old"), "").unwrap();
            place(&from, &to).unwrap();
            assert_eq!(fs_err::read(to.join("data")).unwrap(), b"other");
            assert!(!to.join("old").exists());
            fs_err::write(from.join("data"), "one").unwrap();
            remove(&to).unwrap();
        }
    }
}
