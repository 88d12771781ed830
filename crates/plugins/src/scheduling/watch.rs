//! Watches the plug-in folder. A changed file is tried, and then replaces the version that serves.

use sequor_wasm::folder_watch;

use super::registry::Registry;

impl Registry {
    /// Watches the folder, if there is one, until the registry is dropped.
    pub fn watch(&self) -> std::io::Result<()> {
        let Some(folder) = self.rules().dir.clone() else { return Ok(()) };
        let registry = self.downgrade();
        folder_watch::watch(folder, move || registry.upgrade().map(|registry| registry.look()).is_some())
    }
}
