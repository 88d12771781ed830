//! The sources of a plug-in's folder at one moment. A build reads them while it runs, so they are compared before and after it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::AuthorError;

/// The names of folders that hold no sources: results of builds, fetched packages, cases.
const NO_SOURCES: [&str; 4] = ["target", "node_modules", "__pycache__", "cases"];
/// Ends of the names of files that are results, or that no build reads.
const NO_SOURCE: [&str; 5] = [".wasm", ".pyc", ".md", "~", "Cargo.lock"];
/// The files that mark a virtual environment of Python, and a folder of results that cargo or another program made under any name.
const MARKS_OF_RESULTS: [&str; 2] = ["pyvenv.cfg", "CACHEDIR.TAG"];

/// The sources of a folder: of each file its content, and the marks that change with every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PluginSources(BTreeMap<PathBuf, SourceFile>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SourceFile {
    sha256: [u8; 32],
    /// Device, inode, and the time of the last change. A file that was changed and changed back has another time.
    marks: (u64, u64, i64, i64),
}

impl PluginSources {
    /// Reads all sources of a folder. Hidden folders have none.
    pub(super) fn read(folder: &Path) -> Result<PluginSources, AuthorError> {
        let mut sources = PluginSources::default();
        sources.add(folder, folder)?;
        Ok(sources)
    }

    fn add(&mut self, folder: &Path, at: &Path) -> Result<(), AuthorError> {
        for entry in std::fs::read_dir(at).map_err(|e| AuthorError::file(at, e))? {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            let name = name.to_string_lossy();
            if name.starts_with('.') {
                continue;
            }
            // A file that is gone again is no source. The comparison after the build finds what changed.
            let Ok(data) = std::fs::metadata(&path) else { continue };
            let has_sources =
                !NO_SOURCES.contains(&name.as_ref()) && !MARKS_OF_RESULTS.iter().any(|mark| path.join(mark).exists());
            if data.is_dir() && has_sources {
                self.add(folder, &path)?;
            } else if data.is_file() && !NO_SOURCE.iter().any(|end| name.ends_with(end)) {
                // The marks were taken first, so that a write after them shows.
                let content = std::fs::read(&path).map_err(|e| AuthorError::file(&path, e))?;
                let marks = (data.dev(), data.ino(), data.ctime(), data.ctime_nsec());
                let name = path.strip_prefix(folder).unwrap_or(&path).to_owned();
                self.0.insert(name, SourceFile { sha256: Sha256::digest(content).into(), marks });
            }
        }
        Ok(())
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
        let sources = ["plugin.c", "table.inc", "_own/data.json", "plugin.toml"];
        sources.into_iter().for_each(write);
        let others =
            ["mine.wasm", "README.md", "target/x.c", "cases/a.toml", ".git/x.c", "__pycache__/x.py", "env/lib.py"];
        others.into_iter().for_each(write);
        ["env/pyvenv.cfg", "out/CACHEDIR.TAG", "out/x.rlib"].into_iter().for_each(write);
        let read = PluginSources::read(folder.path()).unwrap();
        let names: Vec<&str> = read.0.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(names, ["_own/data.json", "plugin.c", "plugin.toml", "table.inc"]);
        assert_eq!(read.contents().count(), 3, "a change of the manifest builds nothing again");
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
