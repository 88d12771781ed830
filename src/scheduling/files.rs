//! The plug-in folder, as the registry reads it. `NAME.wasm` becomes a plug-in at its first use. A changed file replaces the version that serves.

use std::path::PathBuf;
use std::sync::Arc;

use sequor_wasm::audit::PluginChange;
use sequor_wasm::journal::Level;
use sequor_wasm::versions::{FileBefore, FilePrint};

use super::guest::Source;
use super::registry::{Registry, SchedulerVersion, short};
use super::report::PluginError;
use super::versions::ChangeOrigin;

impl Registry {
    /// The current version. A plug-in that is asked for the first time is read from the plug-in folder.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Source>, PluginError> {
        // Not under the lock `changing`: a change waits for models to load, and they call this.
        let (source, is_new) = self.0.versions.find(name, || self.metrics_of(name))?;
        if is_new {
            PluginChange::new("load", name, "plugins.dir").record("", source.sha256());
        }
        Ok(source)
    }

    /// Writes the current version of a plug-in to the plug-in folder, for the next start. It may have arrived over the wire. `seen` is the
    /// file's print when the change began.
    pub fn keep(&self, name: &str, seen: Option<FilePrint>) -> Result<FileBefore, PluginError> {
        let current = self.with(name, |p| p.current.clone())?;
        let kept = self.0.versions.write_file(name, &current, &current, seen);
        kept.map_err(|why| PluginError::Denied(format!("not saved: {why}")))
    }

    /// Undoes [`Registry::keep`].
    pub fn unkeep(&self, name: &str, before: FileBefore) {
        let Ok(current) = self.with(name, |p| p.current.clone()) else { return };
        self.put_back(name, &current, before);
    }

    fn put_back(&self, name: &str, written: &SchedulerVersion, before: FileBefore) {
        if let Err(why) = self.0.versions.restore_file(name, written, before) {
            tracing::error!(plugin = name, "{why}");
        }
    }

    /// The print of a plug-in's file now.
    pub fn print(&self, name: &str) -> Option<FilePrint> {
        self.0.versions.print(name)
    }

    /// Makes the plug-in folder and the models' files name an operator's version, for the next start. If one of them cannot be written, all
    /// stay as they were. Returns the models whose files changed.
    pub(super) fn set_down(
        &self,
        origin: ChangeOrigin<'_>,
        name: &str,
        old: &SchedulerVersion,
        new: &SchedulerVersion,
    ) -> Result<Vec<String>, String> {
        // A changed file is there already, and no model's file names another hash.
        let ChangeOrigin::Operator(_, seen) = origin else { return Ok(Vec::new()) };
        // Without a folder, a plug-in that arrived over the wire was not there after the next start before this change either.
        if self.file(name).is_none() {
            return Ok(Vec::new());
        }
        let file = self.0.versions.write_file(name, new, old, seen)?;
        let pinned = self.0.named.get().map_or(Ok(Vec::new()), |files| files.pin(name, new.source.sha256()));
        if pinned.is_err() {
            self.put_back(name, new, file);
        }
        pinned
    }

    /// The path of a plug-in in the plug-in folder.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        self.0.versions.file(name)
    }

    /// Checks the files of all known plug-ins. A changed file replaces the current version. If a model's file names another hash, it waits
    /// until that changes. A bad file is logged.
    pub fn look(&self) {
        let is_pinned = |name: &str, sha256: &str| self.other_pin(name, sha256).is_some();
        self.0.versions.changed_files(is_pinned).for_each(|name| self.look_at(&name));
    }

    fn look_at(&self, name: &str) {
        if let Err(error) = self.take_file(name) {
            let _ = self.with(name, |p| p.journal.write(Level::Error, &error.to_string()));
        }
    }

    /// Lets the version in the plug-in's file decide.
    fn take_file(&self, name: &str) -> Result<(), PluginError> {
        let Some(file) = self.file(name) else { return Ok(()) };
        let print = self.print(name);
        let component = fs_err::read(&file).map_err(|e| PluginError::Internal(e.to_string()))?;
        let new = self.made(name, component)?;
        let _changing = self.0.changing.lock();
        // An older file must not replace a newer one. The next look finds that the file has changed.
        if self.print(name) != print {
            return Ok(());
        }
        self.replace_if(name, &new, ChangeOrigin::Folder, |new| self.unpinned(name, new)).map(drop)
    }

    /// A model's file that names another hash of this plug-in.
    fn other_pin(&self, name: &str, sha256: &str) -> Option<(PathBuf, String)> {
        self.0.named.get()?.pins(name).into_iter().find(|(_, pinned)| pinned != sha256)
    }

    /// Checks that no model's file names another hash than this version's. Otherwise the file waits until none does.
    fn unpinned(&self, name: &str, new: &SchedulerVersion) -> Result<(), PluginError> {
        let is = new.source.sha256();
        let other = self.other_pin(name, is);
        self.0.versions.set_awaits(name, other.as_ref().map(|_| is.to_owned()));
        let Some((file, pinned)) = other else { return Ok(()) };
        let serves = self.with(name, |p| p.current.source.sha256().to_owned())?;
        // An operator may have let a third version decide until the server ends.
        let (goes_on, changes) = match serves == pinned {
            true => (", which goes on serving".to_owned(), "changes both"),
            false => (format!("; {} goes on serving", short(&serves)), "lets it decide until the server ends"),
        };
        let (is, pinned, file) = (short(is), short(&pinned), file.display());
        Err(PluginError::Conflict(format!(
            "not replaced: {name}.wasm of plugins.dir has changed ({is}), and {file} names {pinned}{goes_on}. sequor plugin replace \
             {name} --from FILE {changes}"
        )))
    }
}
