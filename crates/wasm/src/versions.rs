//! The registry of versions: plug-ins by name, each with its current and its previous version, and their files in the plug-in folder.
//!
//! It holds the bytes of a version and its world's product (`S`). The owner's own data of a plug-in is `X`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use sequor_files::atomic_file::{self, SyncMode};

use super::component_store::Stored;
use super::journal::Journal;
use super::plugin_error::PluginError;

/// Makes a version from the name of a plug-in and the bytes of its component.
pub type MakeVersion<S> = dyn Fn(&str, &[u8]) -> Result<Arc<S>, PluginError> + Send + Sync;

/// The folders of versions.
#[derive(Debug, Clone)]
pub struct VersionFolders {
    /// The folder of `NAME.wasm`. Without one, plug-ins arrive only over the wire.
    pub plugins: Option<PathBuf>,
    /// The folder for the bytes of known components. Without one, they stay in memory.
    pub components: Option<PathBuf>,
    /// Whether a text can be the name of a plug-in.
    pub is_name: fn(&str) -> bool,
}

/// A version, and its component.
#[derive(Debug)]
pub struct Version<S: ?Sized> {
    pub source: Arc<S>,
    component: Arc<Stored>,
}

impl<S: ?Sized> Clone for Version<S> {
    fn clone(&self) -> Self {
        Version { source: Arc::clone(&self.source), component: Arc::clone(&self.component) }
    }
}

/// A named plug-in.
#[derive(Debug)]
pub struct VersionedPlugin<S: ?Sized, X> {
    pub current: Version<S>,
    pub previous: Option<Version<S>>,
    pub journal: Arc<Journal>,
    /// The data of the registry's owner.
    pub extra: X,
    /// The hash of its file in the plug-in folder, if that file waits for a model's file that names another hash.
    pub awaits: Option<String>,
    /// The file's print when it was last read.
    print: Option<FilePrint>,
    /// The version of a file that was refused for a passing reason, with the file's print.
    refused: Option<(FilePrint, Version<S>)>,
}

/// What differs once a file was written or replaced: its time and size, and the inode with the time of its last change. A copy that keeps the
/// time of its original differs in the latter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePrint {
    modified: SystemTime,
    len: u64,
    inode: u64,
    changed: (i64, i64),
}

/// The file of a plug-in before a change wrote it.
#[derive(Debug)]
pub enum FileBefore {
    /// Nothing was written.
    Same,
    Absent,
    Content(Vec<u8>),
}

pub struct VersionRegistry<S: ?Sized, X> {
    make: Box<MakeVersion<S>>,
    folders: VersionFolders,
    plugins: Mutex<BTreeMap<String, VersionedPlugin<S, X>>>,
}

impl<S: ?Sized, X> fmt::Debug for VersionRegistry<S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionRegistry").field("folders", &self.folders).finish_non_exhaustive()
    }
}

impl<S: ?Sized, X> VersionRegistry<S, X> {
    pub fn new(make: Box<MakeVersion<S>>, folders: VersionFolders) -> VersionRegistry<S, X> {
        VersionRegistry { make, folders, plugins: Mutex::default() }
    }

    pub fn names(&self) -> Vec<String> {
        self.plugins.lock().keys().cloned().collect()
    }

    /// Calls `look` with a plug-in; `None` if there is none of this name.
    pub fn with<T>(&self, name: &str, look: impl FnOnce(&VersionedPlugin<S, X>) -> T) -> Option<T> {
        self.plugins.lock().get(name).map(look)
    }

    /// Sets the hash of a plug-in's waiting file, if there is a plug-in of this name.
    pub fn set_awaits(&self, name: &str, sha256: Option<String>) {
        if let Some(plugin) = self.plugins.lock().get_mut(name) {
            plugin.awaits = sha256;
        }
    }

    /// Makes a version. Compilation can take seconds, so a thread that serves requests must not call this.
    pub fn make(&self, name: &str, component: Vec<u8>) -> Result<Version<S>, PluginError> {
        if !(self.folders.is_name)(name) {
            let what = format!("\"{name}\" is no name of a plug-in: letters, digits, '-', '_' and '.'");
            return Err(PluginError::Invalid(what));
        }
        let source = (self.make)(name, &component)?;
        Ok(Version { source, component: Arc::new(Stored::new(component, self.folders.components.as_deref())) })
    }

    /// Adds a plug-in, unless one of this name exists by now. Returns the current version, and whether it is the given one.
    pub fn insert(
        &self,
        name: &str,
        version: Version<S>,
        print: Option<FilePrint>,
        extra: impl FnOnce() -> X,
    ) -> (Arc<S>, bool) {
        let source = Arc::clone(&version.source);
        match self.plugins.lock().entry(name.to_owned()) {
            Entry::Occupied(there) => (Arc::clone(&there.get().current.source), false),
            Entry::Vacant(place) => {
                let journal = Arc::new(Journal::new(name));
                let (previous, awaits, refused) = (None, None, None);
                let (current, extra) = (version, extra());
                place.insert(VersionedPlugin { current, previous, journal, extra, awaits, print, refused });
                (source, true)
            }
        }
    }

    /// The current version of a plug-in, and whether it was added just now. An unknown plug-in is read from the plug-in folder.
    pub fn find(&self, name: &str, extra: impl FnOnce() -> X) -> Result<(Arc<S>, bool), PluginError> {
        if let Some(source) = self.with(name, |plugin| Arc::clone(&plugin.current.source)) {
            return Ok((source, false));
        }
        let path = self.file(name).ok_or_else(|| self.absent(name))?;
        // Taken before the file is read, so that a later write counts as a change.
        let print = self.print(name);
        let component = std::fs::read(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => self.absent(name),
            _ => PluginError::Internal(format!("{}: {e}", path.display())),
        })?;
        let version = self.make(name, component)?;
        Ok(self.insert(name, version, print, extra))
    }

    /// The error that there is no plug-in of this name.
    pub fn absent(&self, name: &str) -> PluginError {
        let hand_over = format!("sequor plugin load {name} --from {name}.wasm");
        let at = self.file(name).map(|file| format!(": {} does not exist. Put it there, or", file.display()));
        let at = at.unwrap_or_else(|| ". To".to_owned());
        PluginError::Absent(format!("there is no plug-in \"{name}\"{at} hand it over: {hand_over}"))
    }

    /// Restores the current and the previous version after a promotion that failed.
    pub fn restore(&self, name: &str, current: &Version<S>, previous: Option<Version<S>>) {
        if let Some(plugin) = self.plugins.lock().get_mut(name) {
            (plugin.current, plugin.previous) = (current.clone(), previous);
        }
    }

    /// Makes this version the current one, and the current one the previous. Returns the version that was the previous one before.
    pub fn promote(&self, name: &str, version: &Version<S>) -> Option<Version<S>> {
        let mut plugins = self.plugins.lock();
        let plugin = plugins.get_mut(name)?;
        (plugin.awaits, plugin.refused) = (None, None);
        let current = std::mem::replace(&mut plugin.current, version.clone());
        plugin.previous.replace(current)
    }

    pub fn remove(&self, name: &str) {
        self.plugins.lock().remove(name);
    }

    // === the plug-in folder ===

    /// The path of a plug-in in the plug-in folder.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folders.plugins.as_ref().filter(|_| (self.folders.is_name)(name));
        folder.map(|folder| folder.join(format!("{name}.wasm")))
    }

    /// The present print of a plug-in's file.
    pub fn print(&self, name: &str) -> Option<FilePrint> {
        let file = std::fs::metadata(self.file(name)?).ok()?;
        let (modified, changed) = (file.modified().ok()?, (file.ctime(), file.ctime_nsec()));
        Some(FilePrint { modified, len: file.len(), inode: file.ino(), changed })
    }

    /// Records the present print of a plug-in's file. If the file exists, returns whether it has changed, and the hash that it waits with.
    fn note_file(&self, name: &str) -> Option<(bool, Option<String>)> {
        let print = self.print(name);
        let mut plugins = self.plugins.lock();
        let plugin = plugins.get_mut(name)?;
        let changed = std::mem::replace(&mut plugin.print, print) != print;
        print.map(|_| (changed, plugin.awaits.clone()))
    }

    /// Lets the next look find the plug-in's file changed. It was refused for a passing reason, and holds this version.
    pub(crate) fn try_again(&self, name: &str, print: Option<FilePrint>, version: Version<S>) {
        if let Some(plugin) = self.plugins.lock().get_mut(name) {
            plugin.print = None;
            plugin.refused = print.map(|print| (print, version));
        }
    }

    /// The version of the plug-in's file with this print, if it was refused for a passing reason.
    pub(crate) fn refused(&self, name: &str, print: Option<FilePrint>) -> Option<Version<S>> {
        let plugins = self.plugins.lock();
        let (refused, version) = plugins.get(name)?.refused.as_ref()?;
        (Some(*refused) == print).then(|| version.clone())
    }

    /// The plug-ins whose files must be loaded: the file has changed, or its version waits and `is_refused`, which gets the name and the hash, no
    /// longer refuses it. Each file is checked when its turn comes, so the caller may load one before the next is checked.
    pub fn changed_files<'a>(
        &'a self,
        is_refused: impl Fn(&str, &str) -> bool + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        self.names().into_iter().filter(move |name| {
            let Some((changed, awaits)) = self.note_file(name) else { return false };
            changed || awaits.is_some_and(|sha256| !is_refused(name, &sha256))
        })
    }

    /// Makes this version the file of the plug-in folder, or returns why the next start would not find it. A file that someone has put there
    /// since the change began stays, unless it is the `old` version. `seen` is the file's print at that time.
    pub fn write_file(
        &self,
        name: &str,
        version: &Version<S>,
        old: &Version<S>,
        seen: Option<FilePrint>,
    ) -> Result<FileBefore, String> {
        let Some(path) = self.file(name) else {
            return Err(format!(
                "the next start would not find {name}, which came over the wire. Set [plugins] dir to a folder that the server may write"
            ));
        };
        let now = self.print(name);
        // A file that cannot be read is not absent: a failed change could not restore it.
        let there = match std::fs::read(&path) {
            Ok(there) => Some(there),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                return Err(format!("{} cannot be read ({e}). Let the server read it, or remove it", path.display()));
            }
        };
        if there.as_ref().is_some_and(|there| version.component.is(there)) {
            return Ok(FileBefore::Same);
        }
        if now != seen && there.as_ref().is_some_and(|there| !old.component.is(there)) {
            let path = path.display();
            return Err(format!(
                "{path} was written meanwhile, and stays as it is. If it is not to serve, do this again"
            ));
        }
        version.component.read().and_then(|component| write(&path, &component)).map_err(|e| {
            let path = path.display();
            format!(
                "the next start would not find {name}, and {path} cannot be written ({e}). Let the server write [plugins] dir, or put the file there"
            )
        })?;
        self.note_print(name);
        Ok(there.map_or(FileBefore::Absent, FileBefore::Content))
    }

    /// Undoes a write of this version. A file that someone has put there since stays.
    pub fn restore_file(&self, name: &str, written: &Version<S>, before: FileBefore) -> Result<(), String> {
        let Some(path) = self.file(name) else { return Ok(()) };
        let is_ours = || std::fs::read(&path).is_ok_and(|there| written.component.is(&there));
        let restored = match before {
            FileBefore::Same => return Ok(()),
            _ if !is_ours() => return Ok(()),
            FileBefore::Absent => std::fs::remove_file(&path),
            FileBefore::Content(content) => write(&path, &content),
        };
        restored.map_err(|e| format!("{} could not be put back: {e}", path.display()))?;
        self.note_print(name);
        Ok(())
    }

    /// Records that the present file is known.
    fn note_print(&self, name: &str) {
        let print = self.print(name);
        if let Some(plugin) = self.plugins.lock().get_mut(name) {
            plugin.print = print;
        }
    }
}

/// Writes a file whole or not at all. It survives a crash of the machine.
fn write(path: &Path, component: &[u8]) -> io::Result<()> {
    atomic_file::replace(path, &[component], Some(0o644), SyncMode::Now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A registry whose versions are their bytes.
    fn registry(folder: &Path) -> VersionRegistry<[u8], u32> {
        let make = |_: &str, bytes: &[u8]| match bytes {
            b"bad" => Err(PluginError::Invalid("bad".to_owned())),
            bytes => Ok(Arc::from(bytes)),
        };
        let folders = VersionFolders {
            plugins: Some(folder.to_owned()),
            components: None,
            is_name: |name| name.chars().all(char::is_alphanumeric),
        };
        VersionRegistry::new(Box::new(make), folders)
    }

    #[test]
    fn a_plug_in_has_a_current_and_a_previous_version() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        assert_eq!(
            registry.make("a/b", b"1".to_vec()).unwrap_err().to_string().split(':').next(),
            Some("\"a/b\" is no name of a plug-in")
        );
        assert_eq!(registry.make("p", b"bad".to_vec()).unwrap_err(), PluginError::Invalid("bad".to_owned()));
        let one = registry.make("p", b"1".to_vec()).unwrap();
        assert_eq!(registry.insert("p", one.clone(), None, || 7), (Arc::from(&b"1"[..]), true));
        let two = registry.make("p", b"2".to_vec()).unwrap();
        assert_eq!(registry.insert("p", two.clone(), None, || 8), (Arc::from(&b"1"[..]), false), "the first stays");
        registry.promote("p", &two);
        let is =
            registry.with("p", |p| (p.current.source.to_vec(), p.previous.clone().unwrap().source.to_vec(), p.extra));
        assert_eq!((is, registry.names()), (Some((b"2".to_vec(), b"1".to_vec(), 7)), vec!["p".to_owned()]));
        registry.remove("p");
        assert!(registry.with("p", |_| ()).is_none());
    }

    #[test]
    fn only_a_file_that_the_registry_did_not_write_counts_as_changed() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let one = registry.make("p", b"1".to_vec()).unwrap();
        registry.insert("p", one.clone(), None, || 0);
        assert_eq!(registry.note_file("p"), None, "there is no file");
        assert!(matches!(registry.write_file("p", &one, &one, None), Ok(FileBefore::Absent)));
        assert_eq!(std::fs::read(registry.file("p").unwrap()).unwrap(), b"1");
        assert_eq!(registry.note_file("p"), Some((false, None)));
        std::fs::write(registry.file("p").unwrap(), "another").unwrap();
        registry.set_awaits("p", Some("its hash".to_owned()));
        assert_eq!(registry.note_file("p"), Some((true, Some("its hash".to_owned()))));
        assert_eq!(registry.note_file("p").map(|(changed, _)| changed), Some(false));
    }

    #[test]
    fn a_file_with_the_size_and_time_of_another_is_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        registry.insert("p", registry.make("p", b"1".to_vec()).unwrap(), None, || 0);
        let path = registry.file("p").unwrap();
        let put = |content: &str| {
            let next = folder.path().join("next");
            std::fs::write(&next, content).unwrap();
            std::fs::File::options().write(true).open(&next).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            std::fs::rename(&next, &path).unwrap();
        };
        put("1");
        assert_eq!(registry.note_file("p").map(|(changed, _)| changed), Some(true));
        // The first file is kept, so that the second has another inode.
        std::fs::hard_link(&path, folder.path().join("kept")).unwrap();
        registry.note_file("p");
        put("2");
        assert_eq!(registry.note_file("p").map(|(changed, _)| changed), Some(true));
    }

    #[test]
    fn a_file_that_someone_wrote_meanwhile_is_neither_overwritten_nor_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let [one, two] = ["1", "2"].map(|text| registry.make("p", text.into()).unwrap());
        registry.insert("p", one.clone(), None, || 0);
        let path = registry.file("p").unwrap();
        std::fs::write(&path, "1").unwrap();
        let seen = registry.print("p");
        std::fs::write(&path, "by hand").unwrap();
        let refused = registry.write_file("p", &two, &one, seen).unwrap_err();
        assert!(refused.contains("p.wasm was written meanwhile"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"by hand");
        // A file that was there before the change is replaced, and put back.
        let before = registry.write_file("p", &two, &one, registry.print("p")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
        registry.restore_file("p", &two, before).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"by hand");
        let before = registry.write_file("p", &two, &one, registry.print("p")).unwrap();
        std::fs::write(&path, "later").unwrap();
        registry.restore_file("p", &two, before).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"later");
        // The version that served may be there under another print.
        std::fs::write(&path, "1").unwrap();
        registry.write_file("p", &two, &one, None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_neither_overwritten_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let registry = registry(folder.path());
        let [one, two] = ["1", "2"].map(|text| registry.make("p", text.into()).unwrap());
        registry.insert("p", one.clone(), None, || 0);
        let path = registry.file("p").unwrap();
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let refused = registry.write_file("p", &two, &one, None).unwrap_err();
        assert!(refused.contains("p.wasm cannot be read"), "{refused}");
        assert!(path.is_symlink());
    }
}
