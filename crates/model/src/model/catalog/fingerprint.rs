//! Detects changes of a model's files by their paths, sizes, times and inodes. Contents are not read.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::config::model::versions::version_of;

/// Maximum depth of folders that are searched. Links may form a circle.
const DEEPEST: usize = 8;

/// The files of a model's directory at one time, and the configuration that a client sent in place of `config.pbtxt`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::model) struct Fingerprint {
    config: Option<String>,
    shared: Vec<FileMark>,
    versions: BTreeMap<u64, Vec<FileMark>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileMark {
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
    /// The inode, and the time of its last change: a file that is copied over another with its time kept differs in these.
    inode: u64,
    changed: (i64, i64),
}

impl Fingerprint {
    pub(in crate::model) fn compute(directory: &Path, config: Option<&str>) -> io::Result<Fingerprint> {
        let mut print = Fingerprint { config: config.map(str::to_owned), ..Fingerprint::default() };
        for entry in fs_err::read_dir(directory)? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let version = name.to_str().and_then(version_of).filter(|_| path.is_dir());
            let marks = version.map_or(&mut print.shared, |version| print.versions.entry(version).or_default());
            look(path, DEEPEST, marks);
        }
        print.shared.sort_unstable();
        for marks in print.versions.values_mut() {
            marks.sort_unstable();
        }
        Ok(print)
    }

    /// Updates the mark of one of the files that all versions share.
    pub(in crate::model) fn renew(&mut self, file: &Path) {
        self.shared.retain(|mark| mark.path != file);
        look(file.to_owned(), DEEPEST, &mut self.shared);
        self.shared.sort_unstable();
    }

    /// The configuration that a client sent in place of `config.pbtxt`.
    pub(in crate::model) fn config(&self) -> Option<&str> {
        self.config.as_deref()
    }

    /// Whether this version has the same files and configuration in `self` and in `other`.
    pub(in crate::model) fn is_same(&self, other: &Fingerprint, version: u64) -> bool {
        self.config == other.config
            && self.shared == other.shared
            && self.versions.contains_key(&version)
            && self.versions.get(&version) == other.versions.get(&version)
    }
}

/// Adds the marks of a file, or of the files in a folder. A file that vanishes meanwhile is left out.
fn look(path: PathBuf, depth: usize, marks: &mut Vec<FileMark>) {
    let Ok(metadata) = fs_err::metadata(&path) else { return };
    if !metadata.is_dir() {
        let (inode, changed) = (metadata.ino(), (metadata.ctime(), metadata.ctime_nsec()));
        return marks.push(FileMark { path, len: metadata.len(), modified: metadata.modified().ok(), inode, changed });
    }
    let Ok(entries) = fs_err::read_dir(&path) else { return };
    for entry in entries.filter_map(Result::ok).filter(|_| depth > 0) {
        look(entry.path(), depth - 1, marks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_same_until_its_own_or_the_shared_files_change() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        let print = |config| Fingerprint::compute(folder.path(), config).unwrap();
        write("config.pbtxt", "a");
        write("1/model.onnx", "a");
        write("2/deep/er/data", "a");
        let (before, given) = (print(None), print(Some("{}")));
        assert_eq!(before, print(None));
        assert!(before.is_same(&print(None), 1) && !before.is_same(&print(None), 3) && !before.is_same(&given, 1));
        write("2/deep/er/data", "ab");
        let after = print(None);
        assert!(before.is_same(&after, 1) && !before.is_same(&after, 2));
        write("sequor.toml", "a");
        let mut renewed = after.clone();
        renewed.renew(&folder.path().join("sequor.toml"));
        assert!(renewed != after && renewed == print(None));
        fs_err::remove_file(folder.path().join("sequor.toml")).unwrap();
        renewed.renew(&folder.path().join("sequor.toml"));
        assert_eq!(renewed, after);
        write("initial_state/zero", "");
        assert!(!after.is_same(&print(None), 1));
    }

    #[test]
    fn a_file_with_the_size_and_time_of_the_one_before_is_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let (graph, next) = (folder.path().join("1/model.onnx"), folder.path().join("1/next"));
        fs_err::create_dir(folder.path().join("1")).unwrap();
        let put = |content: &str| {
            fs_err::write(&next, content).unwrap();
            std::fs::File::options().write(true).open(&next).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            fs_err::rename(&next, &graph).unwrap();
            Fingerprint::compute(folder.path(), None).unwrap()
        };
        let before = put("a");
        assert!(!before.is_same(&put("b"), 1));
    }
}
