//! Files that are read again when they have changed: one look is a few calls of the system, so it is made whenever the files are asked for.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What tells one content of a file from the next: when it was written, how long it is, which file it is.
type FileStamp = Option<(SystemTime, u64, u64)>;

/// The marks of some files when they were last read.
#[derive(Debug)]
pub(super) struct Watched {
    paths: Vec<PathBuf>,
    marks: Vec<FileStamp>,
}

impl Watched {
    /// To be made before the files are read: what changes meanwhile is then seen at the next look.
    pub(super) fn new(paths: Vec<PathBuf>) -> Watched {
        let marks = paths.iter().map(|path| mark(path)).collect();
        Watched { paths, marks }
    }

    /// Whether any of them has changed since the last look. A file that has gone is one that changed.
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
    fn a_change_is_told_once() {
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
