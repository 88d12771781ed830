//! Writes a file whole or not at all: a reader finds the earlier contents or the new ones, never a part.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Whether the new contents survive a crash of the machine once the write has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// After a crash the file may have its earlier contents, but it is whole.
    Later,
    Now,
}

/// Replaces the file with these bytes. The file gets this mode. `None` keeps the existing file's mode; without a file it is 0644.
pub fn replace(path: &Path, contents: &[&[u8]], mode: Option<u32>, durability: SyncMode) -> io::Result<()> {
    replace_with(path, contents, mode, durability, &File::sync_all)
}

/// As [`replace`], with the function that writes a file or a folder to the disk.
fn replace_with(
    path: &Path,
    contents: &[&[u8]],
    mode: Option<u32>,
    durability: SyncMode,
    sync: &dyn Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let kept = || std::fs::metadata(path).map(|file| file.permissions());
    let permissions = mode.map_or_else(|| kept().unwrap_or(Permissions::from_mode(0o644)), Permissions::from_mode);
    let mut new = tempfile::Builder::new().prefix(".").suffix(".new").tempfile_in(folder)?;
    for part in contents {
        new.write_all(part)?;
    }
    new.as_file().set_permissions(permissions)?;
    // File systems may write the new name before the contents. After a crash the file would be empty then.
    sync(new.as_file())?;
    new.persist(path).map_err(|e| e.error)?;
    if durability == SyncMode::Now {
        sync(&File::open(folder)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        replace(&path, &[b"one"], None, SyncMode::Now).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (b"one".to_vec(), 0o644));
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        replace(&path, &[b"tw", b"o"], None, SyncMode::Later).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), mode(&path)), (b"two".to_vec(), 0o640));
        replace(&path, &[b"three"], Some(0o600), SyncMode::Later).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn contents_are_on_the_disk_before_the_file_has_its_name() {
        for (durability, folders) in [(SyncMode::Later, 0), (SyncMode::Now, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("file");
            let (files, dirs) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
            let sync = |file: &File| {
                let is_dir = file.metadata()?.is_dir();
                let count = if is_dir { &dirs } else { &files };
                count.set(count.get() + 1);
                assert_eq!(path.exists(), is_dir, "the contents first, then the folder with the name");
                Ok(())
            };
            replace_with(&path, &[b"one"], None, durability, &sync).unwrap();
            assert_eq!((files.get(), dirs.get()), (1, folders), "{durability:?}");
            let failed = replace_with(&path, &[b"two"], None, durability, &|_| Err(io::ErrorKind::StorageFull.into()));
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(std::fs::read(&path).unwrap(), b"one");
        }
    }

    #[test]
    fn a_write_that_fails_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("folder");
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, &[b"x"], None, SyncMode::Later).is_err());
        assert!(path.is_dir());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
