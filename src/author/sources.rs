//! The sources of a plug-in's folder at one moment. A build reads them while it runs, so they are compared before and after it.

use std::collections::BTreeMap;
use std::fs::{Metadata, ReadDir};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::AuthorError;

/// The names of folders that hold no sources: fetched packages, and what Python has compiled.
const NO_SOURCES: [&str; 2] = ["node_modules", "__pycache__"];
/// Ends of the names of files that are results, or that no build reads.
const NO_SOURCE: [&str; 5] = [".wasm", ".pyc", ".md", "~", "Cargo.lock"];
/// The files that mark a virtual environment of Python, and a folder of results that cargo or another program made under any name.
const MARKS_OF_RESULTS: [&str; 2] = ["pyvenv.cfg", "CACHEDIR.TAG"];
/// Bytes that are read at once.
const PART: usize = 64 << 10;

/// The sources of a folder: of each file its content, and the marks that change with every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PluginSources(BTreeMap<PathBuf, SourceFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceFile {
    sha256: [u8; 32],
    marks: SourceMarks,
}

/// Device, inode, and the time of the last change of a file. A file that was changed and changed back has another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceMarks {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl SourceMarks {
    fn new(data: &Metadata) -> SourceMarks {
        SourceMarks { device: data.dev(), inode: data.ino(), changed: (data.ctime(), data.ctime_nsec()) }
    }
}

/// The marks of every source of a folder, without their contents. What cannot be read is left out.
pub fn source_marks(folder: &Path) -> BTreeMap<PathBuf, SourceMarks> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    let _ = visit((folder, entries), &mut |path, data| {
        found.insert(path.to_owned(), SourceMarks::new(data));
        Ok(())
    });
    found
}

/// Calls `see` for each source below a folder, of any kind: a build may read data too. Hidden folders have none.
fn visit(
    (at, entries): (&Path, ReadDir),
    see: &mut dyn FnMut(&Path, &Metadata) -> Result<(), AuthorError>,
) -> Result<(), AuthorError> {
    for entry in entries {
        let path = entry.map_err(|e| AuthorError::file(at, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        // A file that is gone again is no source. The comparison after the build finds what changed.
        let Ok(data) = std::fs::metadata(&path) else { continue };
        if data.is_dir() && holds_sources(at, &path, &name) {
            if let Ok(entries) = std::fs::read_dir(&path) {
                visit((&path, entries), see)?;
            }
        } else if data.is_file() && is_source(at, &name) {
            see(&path, &data)?;
        }
    }
    Ok(())
}

/// `target` may also be a package of the author. Cargo makes its own beside the manifest.
fn holds_sources(at: &Path, folder: &Path, name: &str) -> bool {
    let is_cargos = name == "target" && at.join("Cargo.toml").exists();
    !is_cargos && !NO_SOURCES.contains(&name) && !MARKS_OF_RESULTS.iter().any(|mark| folder.join(mark).exists())
}

/// Cases for `sequor plugin test` are no sources. Other files of their folder may be.
fn is_source(at: &Path, name: &str) -> bool {
    let is_case = name.ends_with(".toml") && at.ends_with("cases");
    !is_case && !NO_SOURCE.iter().any(|end| name.ends_with(end))
}

/// The hash of a file. `None` if there is no such file, or if this user may not read it. Then no build reads it either.
fn sha256_of(path: &Path) -> io::Result<Option<[u8; 32]>> {
    let mut file = match std::fs::File::open(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => return Ok(None),
        file => file?,
    };
    let (mut hash, mut part) = (Sha256::new(), vec![0; PART]);
    loop {
        let count = file.read(&mut part)?;
        match part.get(..count).filter(|read| !read.is_empty()) {
            Some(read) => hash.update(read),
            None => return Ok(Some(hash.finalize().into())),
        }
    }
}

impl PluginSources {
    /// Reads all sources of a folder.
    pub(super) fn read(folder: &Path) -> Result<PluginSources, AuthorError> {
        let entries = std::fs::read_dir(folder).map_err(|e| AuthorError::file(folder, e))?;
        let mut sources = BTreeMap::new();
        visit((folder, entries), &mut |path, data| {
            // The marks were taken first, so that a write after them shows.
            let marks = SourceMarks::new(data);
            if let Some(sha256) = sha256_of(path).map_err(|e| AuthorError::file(path, e))? {
                sources.insert(path.strip_prefix(folder).unwrap_or(path).to_owned(), SourceFile { sha256, marks });
            }
            Ok(())
        })?;
        Ok(PluginSources(sources))
    }

    /// Each file's name and hash, without the manifest: it is embedded after the build.
    pub(super) fn contents(&self) -> impl Iterator<Item = (&Path, &[u8; 32])> {
        let files = self.0.iter().filter(|(name, _)| *name != Path::new("plugin.toml"));
        files.map(|(name, file)| (name.as_path(), &file.sha256))
    }

    /// The first file that was written, added or removed between the two moments.
    fn written(&self, later: &PluginSources) -> Option<&Path> {
        first_difference(self, later, |a, b| a == b)
    }

    /// The first file whose content differs. A program of a build may write files anew that are as they were.
    fn differing(&self, later: &PluginSources) -> Option<&Path> {
        first_difference(self, later, |a, b| a.map(|file| file.sha256) == b.map(|file| file.sha256))
    }

    /// An error if a source of the folder has been written since.
    pub(super) fn check_untouched(&self, folder: &Path) -> Result<(), AuthorError> {
        let later = PluginSources::read(folder)?;
        let written = self.written(&later).or_else(|| later.written(self)).map(Path::to_owned);
        written.map_or(Ok(()), |file| Err(AuthorError::Changed { path: folder.join(file) }))
    }

    /// An error if a source of the folder has another content by now.
    pub(super) fn check_same(&self, folder: &Path) -> Result<(), AuthorError> {
        let later = PluginSources::read(folder)?;
        let differing = self.differing(&later).or_else(|| later.differing(self)).map(Path::to_owned);
        differing.map_or(Ok(()), |file| Err(AuthorError::Changed { path: folder.join(file) }))
    }
}

/// The first file of `one` that is not the same in `other`.
fn first_difference<'a>(
    one: &'a PluginSources,
    other: &PluginSources,
    is_same: impl Fn(Option<&SourceFile>, Option<&SourceFile>) -> bool,
) -> Option<&'a Path> {
    let differs = |(name, file): &(&'a PathBuf, &'a SourceFile)| !is_same(Some(file), other.0.get(*name));
    one.0.iter().find(differs).map(|(name, _)| name.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_build_may_read_is_a_source() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "a").unwrap();
        };
        let sources = ["plugin.c", "table.inc", "_own/data.json", "plugin.toml", "cases/labels.js", "target/x.py"];
        sources.into_iter().for_each(write);
        let others = ["mine.wasm", "README.md", "cases/a.toml", ".git/x.c", "__pycache__/x.py", "env/lib.py"];
        others.into_iter().for_each(write);
        ["env/pyvenv.cfg", "out/CACHEDIR.TAG", "out/x.rlib"].into_iter().for_each(write);
        ["crate/Cargo.toml", "crate/target/x.c"].into_iter().for_each(write);
        std::os::unix::fs::symlink("nowhere", folder.path().join(".#plugin.c")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("gone.c")).unwrap();
        let read = PluginSources::read(folder.path()).unwrap();
        let names: Vec<&str> = read.0.keys().map(|path| path.to_str().unwrap()).collect();
        let mut expected = [&sources[..], &["crate/Cargo.toml"]].concat();
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert_eq!(read.contents().count(), 6, "a change of the manifest builds nothing again");
        let marks: Vec<PathBuf> = source_marks(folder.path()).into_keys().collect();
        assert_eq!(marks, names.iter().map(|name| folder.path().join(name)).collect::<Vec<_>>());
    }

    #[test]
    fn a_source_that_was_changed_and_changed_back_has_been_written() {
        let folder = tempfile::tempdir().unwrap();
        let write = |text: &str| {
            // A new file each time: the clock of a file system may be too coarse to show two writes.
            std::fs::write(folder.path().join("next"), text).unwrap();
            std::fs::rename(folder.path().join("next"), folder.path().join("plugin.py")).unwrap();
        };
        write("a");
        let before = PluginSources::read(folder.path()).unwrap();
        let kept = std::fs::File::open(folder.path().join("plugin.py")).unwrap();
        assert!(before.check_untouched(folder.path()).is_ok());
        write("b");
        write("a");
        let changed = before.check_untouched(folder.path()).unwrap_err().to_string();
        assert!(changed.ends_with("plugin.py: changed while it was built. Build again"), "{changed}");
        assert!(before.check_same(folder.path()).is_ok());
        std::fs::write(folder.path().join("more.py"), "").unwrap();
        assert!(before.check_same(folder.path()).unwrap_err().to_string().contains("more.py"));
        drop(kept);
    }
}
