//! Detects changes of files that are read again. A check costs only a few system calls, so it is made whenever the files are used.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The stamp of a file's content: modification time, length and inode.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The stamps of some files from the last check.
#[derive(Debug)]
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    marks: Vec<FileStamp>,
}

impl Watched {
    /// Create this before reading the files. A change during the read is then found by the next check.
    pub(super) fn new(paths: Vec<PathBuf>) -> Watched {
        let marks = paths.iter().map(|path| mark(path)).collect();
        Watched { paths, marks }
    }

    /// Whether a file has changed since the last check. A removed file counts as changed.
    pub(super) fn changed(&mut self) -> bool {
        let marks: Vec<FileStamp> = self.paths.iter().map(|path| mark(path)).collect();
        let changed = marks != self.marks;
        self.marks = marks;
        changed
    }
}

fn mark(path: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    let file = fs_err::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_change_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        let mut watched = Watched::new(vec![file.clone()]);
        assert!(!watched.changed());
        fs_err::write(&file, "a").unwrap();
        assert_eq!((watched.changed(), watched.changed()), (true, false));
        fs_err::write(&file, "longer").unwrap();
        assert_eq!((watched.changed(), watched.changed()), (true, false));
        fs_err::remove_file(&file).unwrap();
        assert_eq!((watched.changed(), watched.changed()), (true, false));
    }
}
