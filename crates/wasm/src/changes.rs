//! Changes of versions: operators load, replace, roll back and unload plug-ins, and a changed file replaces the version that serves.
//!
//! Changes run one after the other, and each writes one audit line. A new version replaces the old one at all [`VersionPlaces`] of a plug-in,
//! or at none. Each step before the last one can fail, and then the steps before it are undone.

use std::path::PathBuf;
use std::sync::Arc;

use sequor_sync::Mutex;

use super::audit::PluginChange;
use super::component::Component;
use super::journal::Level;
use super::plugin_error::PluginError;
use super::versions::{FileBefore, FilePrint, Version, VersionRegistry};
use super::world::World;

/// A version, as its component's hash names it.
pub trait Hashed {
    fn sha256(&self) -> &str;
}

impl<W: World> Hashed for Component<W> {
    fn sha256(&self) -> &str {
        Component::sha256(self)
    }
}

/// The source of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOrigin<'a> {
    /// An operator. A parked plug-in serves again. `seen` is the print of the plug-in's file when the change began.
    Operator { by: &'a str, seen: Option<FilePrint> },
    /// A changed file. A parked plug-in stays parked. The change never writes that file: a newer file may be there by now. `again`: whether
    /// this file was refused before for a passing reason.
    Folder { again: bool },
}

impl<'a> ChangeOrigin<'a> {
    fn by(self) -> &'a str {
        match self {
            ChangeOrigin::Operator { by, .. } => by,
            ChangeOrigin::Folder { .. } => "plugins.dir",
        }
    }

    pub fn is_operator(self) -> bool {
        matches!(self, ChangeOrigin::Operator { .. })
    }
}

/// The replacement of a version by another.
#[derive(Debug)]
pub struct VersionChange<'a, S: ?Sized> {
    pub name: &'a str,
    pub origin: ChangeOrigin<'a>,
    pub old: &'a Version<S>,
    pub new: &'a Version<S>,
}

/// A model's file in which the hash of a plug-in was replaced, with the text from before.
#[derive(Debug)]
pub struct PinnedFile {
    pub model: String,
    /// The folder of the model's `sequor.toml`.
    pub directory: PathBuf,
    pub before: String,
}

/// The models' files that name hashes of plug-ins.
pub trait NamingFiles: Send + Sync {
    /// The files that name a hash of this plug-in, each with that hash.
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)>;

    /// Writes this hash into every file that names a hash of the plug-in. If one file cannot be written, all keep their old text.
    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String>;

    /// Restores the old text of these files.
    fn restore_files(&self, files: &[PinnedFile]);
}

/// The places where the plug-ins of one registry serve.
pub trait VersionPlaces<S: ?Sized> {
    /// Tried guests of a new version, for all places. If it is dropped, nothing has changed.
    type Ready;

    /// The advice for operators if a file cannot be written; empty, or a sentence after a space.
    const UNSAVED: &'static str = "";

    fn files(&self) -> Option<&dyn NamingFiles>;

    /// Whether the next start needs the version, because a model's file names the plug-in.
    fn is_named(&self, plugin: &str) -> bool;

    /// Whether the plug-in is parked wherever it serves.
    fn is_parked(&self, plugin: &str) -> bool;

    /// Counts a change, and whether it was made.
    fn count(&self, plugin: &str, ok: bool);

    /// Tries the new version for each place. The error is the reason only.
    fn prepare(&self, change: &VersionChange<'_, S>) -> Result<Self::Ready, PluginError>;

    /// Loads those models again where the new version, which is the current one by now, cannot take over. The error is the reason only.
    fn reload(&self, _: &VersionChange<'_, S>, _: &Self::Ready) -> Result<(), String> {
        Ok(())
    }

    /// Undoes a failed [`VersionPlaces::reload`]. The old version is the current one again, and all files are as before.
    fn go_back(&self, _: &VersionChange<'_, S>, _: Self::Ready) {}

    /// Lets the new version serve at all places, also at those that came since [`VersionPlaces::prepare`]. This cannot fail.
    fn take_over(&self, change: &VersionChange<'_, S>, ready: Self::Ready);
}

/// The versions of a registry, and their changes.
#[derive(Debug)]
pub struct VersionChanges<S: ?Sized, X> {
    pub versions: VersionRegistry<S, X>,
    /// Locked for one change. A thread that holds a model's gate must not take this lock. Nothing is compiled under it.
    changing: Mutex<()>,
}

impl<S: Hashed + ?Sized, X> VersionChanges<S, X> {
    pub fn new(versions: VersionRegistry<S, X>) -> VersionChanges<S, X> {
        VersionChanges { versions, changing: Mutex::default() }
    }

    /// Calls `change` while no version can be replaced.
    pub fn exclusive<T>(&self, change: impl FnOnce() -> T) -> T {
        let _changing = self.changing.lock();
        change()
    }

    pub fn current(&self, name: &str) -> Result<Version<S>, PluginError> {
        self.versions.with(name, |plugin| plugin.current.clone()).ok_or_else(|| self.versions.absent(name))
    }

    /// The current version. A plug-in that is asked for the first time is read from the plug-in folder.
    pub fn find(&self, name: &str, extra: impl FnOnce() -> X) -> Result<Arc<S>, PluginError> {
        // Not under the lock: a change waits for models to load, and they call this.
        let (source, is_new) = self.versions.find(name, extra)?;
        if is_new {
            PluginChange::new("load", name, "plugins.dir").record("", source.sha256());
        }
        Ok(source)
    }

    // === operators ===

    /// Adds a component. Adding the same one again changes nothing.
    pub fn load(&self, name: &str, component: Vec<u8>, by: &str, extra: impl FnOnce() -> X) -> Result<(), PluginError> {
        // Taken before the compilation, so that a later write of the file counts as a change.
        let print = self.versions.print(name);
        let version = self.versions.make(name, component)?;
        let _changing = self.changing.lock();
        let wanted = version.source.sha256().to_owned();
        let (known, is_new) = self.versions.insert(name, version, print, extra);
        if known.sha256() != wanted {
            let what = format!("{name} is loaded already ({}); sequor plugin replace {name}", short(known.sha256()));
            return Err(PluginError::Conflict(what));
        }
        if is_new {
            PluginChange::new("load", name, by).record("", &wanted);
        }
        Ok(())
    }

    /// Replaces the current version.
    pub fn replace(
        &self,
        at: &impl VersionPlaces<S>,
        name: &str,
        component: Vec<u8>,
        by: &str,
    ) -> Result<(), PluginError> {
        let (before, seen) = (self.current(name)?, self.versions.print(name));
        let new = self.make(at, name, component)?;
        let _changing = self.changing.lock();
        let now = self.current(name)?;
        let (before, now) = (before.source.sha256(), now.source.sha256());
        // A client that times out sends the same version again. Its first call may have made the change meanwhile.
        if now != before && now != new.source.sha256() {
            let (before, now) = (short(before), short(now));
            return Err(PluginError::Conflict(format!(
                "not replaced: meanwhile {now} has replaced {before} of {name}. If that one is not to serve, do this again"
            )));
        }
        self.serve(at, name, &new, ChangeOrigin::Operator { by, seen })
    }

    /// Replaces the current version with the previous one.
    pub fn rollback(&self, at: &impl VersionPlaces<S>, name: &str, by: &str) -> Result<(), PluginError> {
        let _changing = self.changing.lock();
        let current = self.current(name)?;
        let previous = self.versions.with(name, |plugin| plugin.previous.clone()).flatten();
        let nothing = || format!("{name} has no version before {}", short(current.source.sha256()));
        let previous = previous.ok_or_else(|| PluginError::Absent(nothing()))?;
        let seen = self.versions.print(name);
        self.deploy(at, "rollback", name, &previous, ChangeOrigin::Operator { by, seen })
    }

    /// Removes a plug-in, unless `in_use` returns the reason why it must stay.
    pub fn unload(&self, name: &str, by: &str, in_use: impl FnOnce() -> Option<String>) -> Result<(), PluginError> {
        let _changing = self.changing.lock();
        let current = self.current(name)?;
        if let Some(why) = in_use() {
            return Err(PluginError::Conflict(why));
        }
        self.versions.remove(name);
        PluginChange::new("unload", name, by).record(current.source.sha256(), "");
        Ok(())
    }

    // === the plug-in folder ===

    /// Checks the files of all known plug-ins. A changed file replaces the current version. If a model's file names another hash, it waits
    /// until that changes. A file that is refused for a passing reason is tried again at the next look. A bad file is logged.
    pub fn look(&self, at: &impl VersionPlaces<S>) {
        let is_pinned = |name: &str, sha256: &str| other_pin(at, name, sha256).is_some();
        for name in self.versions.changed_files(is_pinned) {
            if let Err(error) = self.take_file(at, &name) {
                let _ = self.versions.with(&name, |plugin| plugin.journal.write(Level::Error, &error.to_string()));
            }
        }
    }

    /// Lets the version in the plug-in's file serve.
    fn take_file(&self, at: &impl VersionPlaces<S>, name: &str) -> Result<(), PluginError> {
        let Some(file) = self.versions.file(name) else { return Ok(()) };
        let print = self.versions.print(name);
        let refused = self.versions.refused(name, print);
        let again = refused.is_some();
        let read = || std::fs::read(&file).map_err(|e| PluginError::Internal(format!("{}: {e}", file.display())));
        let new = refused.map_or_else(|| self.make(at, name, read()?), Ok)?;
        let _changing = self.changing.lock();
        // An older file must not replace a newer one. The next look finds that the file has changed.
        if self.versions.print(name) != print {
            return Ok(());
        }
        match self.serve(at, name, &new, ChangeOrigin::Folder { again }) {
            Err(PluginError::Unavailable(why)) => {
                self.versions.try_again(name, print, new);
                // Each look tries again, but only the first one reports the reason.
                if again { Ok(()) } else { Err(PluginError::Unavailable(why)) }
            }
            taken => taken,
        }
    }

    // === a change ===

    /// A version of a known plug-in. Compilation can take seconds, so the caller holds no lock.
    fn make(&self, at: &impl VersionPlaces<S>, name: &str, component: Vec<u8>) -> Result<Version<S>, PluginError> {
        self.current(name)?;
        self.versions.make(name, component).inspect_err(|_| at.count(name, false))
    }

    /// Makes a version serve, unless it does already. The caller holds `changing`.
    fn serve(
        &self,
        at: &impl VersionPlaces<S>,
        name: &str,
        new: &Version<S>,
        origin: ChangeOrigin<'_>,
    ) -> Result<(), PluginError> {
        if self.current(name)?.source.sha256() == new.source.sha256() {
            self.versions.set_awaits(name, None);
            return Ok(());
        }
        self.deploy(at, "replace", name, new, origin)
    }

    /// Makes a version serve everywhere. If anything fails, the current one stays everywhere. The caller holds `changing`.
    fn deploy(
        &self,
        at: &impl VersionPlaces<S>,
        what: &str,
        name: &str,
        new: &Version<S>,
        origin: ChangeOrigin<'_>,
    ) -> Result<(), PluginError> {
        let old = self.current(name)?;
        let made = self.carry_out(at, &VersionChange { name, origin, old: &old, new });
        let (before, after, by) = (old.source.sha256(), new.source.sha256(), origin.by());
        if let (ChangeOrigin::Folder { again: true }, Err(PluginError::Unavailable(_))) = (origin, &made) {
            return made.map(drop);
        }
        at.count(name, made.is_ok());
        let pinned = made.inspect_err(|why| PluginChange::new(what, name, by).refused(before, after, why))?;
        PluginChange::new(what, name, by).record(before, after);
        for PinnedFile { model, .. } in &pinned {
            PluginChange::new("save", name, by).at(model).record(before, after);
        }
        Ok(())
    }

    /// The steps of a change. Returns the models' files that name the new version now.
    fn carry_out<P: VersionPlaces<S>>(
        &self,
        at: &P,
        change: &VersionChange<'_, S>,
    ) -> Result<Vec<PinnedFile>, PluginError> {
        let VersionChange { name, old, new, .. } = *change;
        self.check_pins(at, change)?;
        let goes_on = if at.is_parked(name) { "stays parked" } else { "goes on serving" };
        let because = |why: String| format!("not replaced: {why}. {} {goes_on}.", short(old.source.sha256()));
        let ready = at.prepare(change).map_err(|error| error.map(because))?;
        let unsaved = |why| PluginError::Denied(because(why) + P::UNSAVED);
        let (file, pinned) = self.set_down(at, change).map_err(unsaved)?;
        let previous = self.versions.promote(name, new);
        if let Err(why) = at.reload(change, &ready) {
            self.versions.restore(name, old, previous);
            // Before the models. Even if one does not load, the failed version must not stay in the folder for the next restart.
            self.restore_file(name, new, file);
            if let Some(files) = at.files() {
                files.restore_files(&pinned);
            }
            at.go_back(change, ready);
            return Err(PluginError::Invalid(because(why)));
        }
        at.take_over(change, ready);
        Ok(pinned)
    }

    /// Checks that no model's file names another hash than the changed file of the plug-in folder. Otherwise that file waits until none
    /// does. An operator's change always fits, because the models' files will be rewritten.
    fn check_pins(&self, at: &impl VersionPlaces<S>, change: &VersionChange<'_, S>) -> Result<(), PluginError> {
        if change.origin.is_operator() {
            return Ok(());
        }
        let (name, is, serves) = (change.name, change.new.source.sha256(), change.old.source.sha256());
        let other = other_pin(at, name, is);
        self.versions.set_awaits(name, other.as_ref().map(|_| is.to_owned()));
        let Some((file, pinned)) = other else { return Ok(()) };
        // An operator may have let a third version serve until the server ends.
        let (goes_on, changes) = match serves == pinned {
            true => (", which goes on serving".to_owned(), "changes both"),
            false => (format!("; {} goes on serving", short(serves)), "lets it serve until the server ends"),
        };
        let (is, pinned, file) = (short(is), short(&pinned), file.display());
        Err(PluginError::Conflict(format!(
            "not replaced: {name}.wasm of plugins.dir has changed ({is}), and {file} names {pinned}{goes_on}. sequor plugin replace \
             {name} --from FILE {changes}"
        )))
    }

    /// Makes the plug-in folder and the models' files name an operator's version, for restarts and later loads. If one of them cannot be
    /// written, all keep their old content.
    fn set_down(
        &self,
        at: &impl VersionPlaces<S>,
        change: &VersionChange<'_, S>,
    ) -> Result<(FileBefore, Vec<PinnedFile>), String> {
        let VersionChange { name, old, new, .. } = *change;
        let ChangeOrigin::Operator { seen, .. } = change.origin else { return Ok((FileBefore::Same, Vec::new())) };
        if !at.is_named(name) {
            return Ok((FileBefore::Same, Vec::new()));
        }
        // Without a folder there is no file.
        let file = self.versions.file(name).map(|_| self.versions.write_file(name, new, old, seen));
        let file = file.transpose()?.unwrap_or(FileBefore::Same);
        match at.files().map_or(Ok(Vec::new()), |files| files.pin(name, new.source.sha256())) {
            Ok(pinned) => Ok((file, pinned)),
            Err(why) => {
                self.restore_file(name, new, file);
                Err(why)
            }
        }
    }

    /// Undoes a write of this version to the plug-in folder.
    pub fn restore_file(&self, name: &str, written: &Version<S>, before: FileBefore) {
        if let Err(why) = self.versions.restore_file(name, written, before) {
            tracing::error!(plugin = name, "{why}");
        }
    }
}

/// A model's file that names another hash of this plug-in.
fn other_pin<S: ?Sized>(at: &impl VersionPlaces<S>, name: &str, sha256: &str) -> Option<(PathBuf, String)> {
    at.files()?.pins(name).into_iter().find(|(_, pinned)| pinned != sha256)
}

/// The short form of a hash, for people.
pub fn short(sha256: &str) -> &str {
    sha256.get(..7).unwrap_or(sha256)
}
