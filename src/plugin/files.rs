//! The plug-in folder as the registry knows it: NAME.wasm becomes a plug-in when it is first asked for, and one that has changed takes the place
//! of what serves.

use std::path::PathBuf;
use std::sync::Arc;

use super::guest::Source;
use super::journal::Level;
use super::registry::{Print, Registry};
use super::report::{By, PluginError};

impl Registry {
    /// The current version, from the plug-in folder if it was not asked for before.
    pub fn find(&self, name: &str) -> Result<Arc<dyn Source>, PluginError> {
        if let Ok(source) = self.with(name, |p| Arc::clone(&p.current)) {
            return Ok(source);
        }
        let path = self.file(name).ok_or_else(|| self.absent(name))?;
        // As it was before it was read: what is written later is news.
        let print = self.print(name);
        let component = fs_err::read(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                PluginError::Absent(format!("there is no plug-in \"{name}\": {} does not exist", path.display()))
            }
            _ => PluginError::Internal(e.to_string()),
        })?;
        let source = self.make(name, component)?;
        if self.with(name, |_| ()).is_err() {
            self.take_in(name, Arc::clone(&source), print, By("plugins.dir"));
        }
        Ok(source)
    }

    /// Where the plug-in folder has it.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        let is_name = crate::config::model::is_plugin_name(name);
        self.0.rules.dir.as_ref().filter(|_| is_name).map(|dir| dir.join(format!("{name}.wasm")))
    }

    pub(super) fn print(&self, name: &str) -> Option<Print> {
        let file = fs_err::metadata(self.file(name)?).ok()?;
        Some((file.modified().ok()?, file.len()))
    }

    /// Looks at the files of all plug-ins that are known: one that has changed takes the place of the current version. A bad one is logged.
    pub fn look(&self) {
        let names: Vec<String> = self.0.plugins.lock().keys().cloned().collect();
        for name in names {
            let print = self.print(&name);
            let changed = {
                let mut plugins = self.0.plugins.lock();
                let Some(plugin) = plugins.get_mut(&name) else { continue };
                std::mem::replace(&mut plugin.print, print) != print
            };
            if changed && print.is_some() {
                self.look_at(&name);
            }
        }
    }

    fn look_at(&self, name: &str) {
        let Some(file) = self.file(name) else { return };
        let read = fs_err::read(&file).map_err(|e| PluginError::Internal(e.to_string()));
        if let Err(error) = read.and_then(|component| self.replace(name, component, By("plugins.dir"))) {
            let _ = self.with(name, |p| p.journal.write(Level::Error, &error.to_string()));
        }
    }
}
