//! Tests changes of versions at stand-in places.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::changes::{Hashed, NamingFiles, PinnedFile, VersionChange, VersionChanges, VersionPlaces};
use super::plugin_error::PluginError;
use super::versions::{VersionFolders, VersionRegistry};

/// A version that is its own hash.
#[derive(Debug)]
struct StandIn(String);

impl Hashed for StandIn {
    fn sha256(&self) -> &str {
        &self.0
    }
}

/// Stand-in places, and what happened there.
#[derive(Debug, Default)]
struct Rig {
    changes: OnceLock<VersionChanges<StandIn, ()>>,
    /// Why the next versions cannot serve, and why models do not load.
    unfit: Mutex<Option<PluginError>>,
    unloadable: Mutex<Option<String>>,
    pins: Mutex<Vec<(PathBuf, String)>>,
    read_only: AtomicBool,
    events: Mutex<Vec<String>>,
    /// Whether another operator asks for the same version while it is compiled.
    asked_twice: AtomicBool,
}

impl Rig {
    /// A registry over this folder with the plug-in "p" in version "1".
    fn new(folder: &Path) -> Arc<Rig> {
        let rig = Arc::new(Rig::default());
        let at = Arc::downgrade(&rig);
        let make = move |name: &str, bytes: &[u8]| {
            let at = at.upgrade().unwrap();
            if at.asked_twice.swap(false, Ordering::Relaxed) {
                at.changes().replace(&*at, name, bytes.to_vec(), "another").unwrap();
            }
            Ok(Arc::new(StandIn(String::from_utf8_lossy(bytes).into_owned())))
        };
        let folders = VersionFolders { plugins: Some(folder.to_owned()), components: None, is_name: |_| true };
        rig.changes.set(VersionChanges::new(VersionRegistry::new(Box::new(make), folders))).unwrap();
        rig.changes().load("p", b"1".to_vec(), "one", || ()).unwrap();
        rig
    }

    fn changes(&self) -> &VersionChanges<StandIn, ()> {
        self.changes.get().unwrap()
    }

    fn replace(&self, version: &str) -> Result<(), PluginError> {
        self.changes().replace(self, "p", version.into(), "one")
    }

    fn current(&self) -> String {
        self.changes().current("p").unwrap().source.0.clone()
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut *self.events.lock())
    }

    fn lines(&self) -> Vec<String> {
        let lines = self.changes().versions.with("p", |p| p.journal.after(0)).unwrap();
        lines.into_iter().map(|line| line.message).collect()
    }

    fn note(&self, what: &str, change: &VersionChange<'_, StandIn>) {
        self.events.lock().push(format!("{what} {} -> {}", change.old.source.0, change.new.source.0));
    }
}

impl NamingFiles for Rig {
    fn pins(&self, _: &str) -> Vec<(PathBuf, String)> {
        self.pins.lock().clone()
    }

    fn pin(&self, _: &str, sha256: &str) -> Result<Vec<PinnedFile>, String> {
        if self.read_only.load(Ordering::Relaxed) {
            return Err("the file of m cannot be written".to_owned());
        }
        let written = |(file, pinned): &mut (PathBuf, String)| {
            let before = std::mem::replace(pinned, sha256.to_owned());
            PinnedFile { model: "m".to_owned(), directory: file.clone(), before }
        };
        Ok(self.pins.lock().iter_mut().map(written).collect())
    }

    fn restore_files(&self, files: &[PinnedFile]) {
        *self.pins.lock() = files.iter().map(|file| (file.directory.clone(), file.before.clone())).collect();
    }
}

impl VersionPlaces<StandIn> for Rig {
    type Ready = ();

    fn files(&self) -> Option<&dyn NamingFiles> {
        Some(self)
    }

    fn is_named(&self, _: &str) -> bool {
        true
    }

    fn is_parked(&self, _: &str) -> bool {
        false
    }

    fn count(&self, _: &str, ok: bool) {
        self.events.lock().push(format!("counted {ok}"));
    }

    fn prepare(&self, _: &VersionChange<'_, StandIn>) -> Result<(), PluginError> {
        self.unfit.lock().clone().map_or(Ok(()), Err)
    }

    fn reload(&self, change: &VersionChange<'_, StandIn>, (): &()) -> Result<(), String> {
        assert_eq!(self.current(), change.new.source.0, "models that load find the new version");
        self.unloadable.lock().clone().map_or(Ok(()), Err)
    }

    fn go_back(&self, change: &VersionChange<'_, StandIn>, (): ()) {
        assert_eq!(self.current(), change.old.source.0, "models that load find the old version");
        self.note("back", change);
    }

    fn take_over(&self, change: &VersionChange<'_, StandIn>, (): ()) {
        self.note("over", change);
    }
}

#[test]
fn a_version_replaces_another_and_can_be_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    rig.pins.lock().push(("m".into(), "1".to_owned()));
    rig.replace("2").unwrap();
    let file = || std::fs::read_to_string(folder.path().join("p.wasm")).unwrap();
    assert_eq!((file(), rig.pins.lock()[0].1.clone()), ("2".to_owned(), "2".to_owned()));
    rig.changes().rollback(&*rig, "p", "one").unwrap();
    assert_eq!((file(), rig.pins.lock()[0].1.clone(), rig.current()), ("1".to_owned(), "1".to_owned(), "1".to_owned()));
    assert_eq!(rig.events(), ["over 1 -> 2", "counted true", "over 2 -> 1", "counted true"]);
    rig.replace("1").unwrap();
    assert!(rig.events().is_empty(), "it serves already");
}

#[test]
fn a_change_that_fails_at_any_step_leaves_everything_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    rig.replace("2").unwrap();
    rig.pins.lock().push(("m".into(), "2".to_owned()));
    rig.events();
    let fails = |why: &str| {
        let error = rig.replace("3").unwrap_err().to_string();
        assert!(error.starts_with(&format!("not replaced: {why}. 2 goes on serving.")), "{error}");
        let file = std::fs::read_to_string(folder.path().join("p.wasm")).unwrap();
        assert_eq!((file, rig.pins.lock()[0].1.clone(), rig.current()), ("2".into(), "2".into(), "2".into()));
        assert_eq!(rig.changes().versions.with("p", |p| p.previous.clone().unwrap().source.0.clone()).unwrap(), "1");
    };
    *rig.unfit.lock() = Some(PluginError::Invalid("it does not fit m".to_owned()));
    fails("it does not fit m");
    *rig.unfit.lock() = None;
    rig.read_only.store(true, Ordering::Relaxed);
    fails("the file of m cannot be written");
    rig.read_only.store(false, Ordering::Relaxed);
    *rig.unloadable.lock() = Some("m does not load: no graph".to_owned());
    fails("m does not load: no graph");
    assert_eq!(rig.events(), ["counted false", "counted false", "back 2 -> 3", "counted false"]);
}

/// A client whose first call timed out sends the same version again.
#[test]
fn a_replacement_that_another_caller_has_made_meanwhile_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    rig.asked_twice.store(true, Ordering::Relaxed);
    rig.replace("2").unwrap();
    assert_eq!((rig.current(), rig.events()), ("2".to_owned(), vec!["over 1 -> 2".into(), "counted true".into()]));
}

#[test]
fn a_file_that_was_refused_for_a_passing_reason_is_tried_again_and_logged_once() {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::new(folder.path());
    std::fs::write(folder.path().join("p.wasm"), "2").unwrap();
    *rig.unfit.lock() = Some(PluginError::Unavailable("the server has no room".to_owned()));
    for _ in 0..3 {
        rig.changes().look(&*rig);
        assert_eq!(rig.lines(), ["not replaced: the server has no room. 1 goes on serving."]);
    }
    assert_eq!(rig.events(), ["counted false"]);
    *rig.unfit.lock() = None;
    rig.changes().look(&*rig);
    assert_eq!((rig.current(), rig.events()), ("2".to_owned(), vec!["over 1 -> 2".into(), "counted true".into()]));
    // Any other reason stays.
    *rig.unfit.lock() = Some(PluginError::Invalid("it does not fit m".to_owned()));
    std::fs::write(folder.path().join("p.wasm"), "three").unwrap();
    (0..3).for_each(|_| rig.changes().look(&*rig));
    assert_eq!((rig.lines().len(), rig.events()), (2, vec!["counted false".to_owned()]));
}
