//! Sets up plug-ins from the settings: the engine that runs them, and the folder of compiled code.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::component::Component;
use sequor_wasm::grants::GrantTable;
use sequor_wasm::loader::Loader;
use sequor_wasm::room::GuestRoom;
use sequor_wasm::world::World;

use super::Failed;
use crate::config::server::file::PluginsSection;
use crate::initializing::InitializerWorld;
use crate::model::Repository;
use crate::processing::{PlaceRules, ProcessorWorld};
use crate::scheduling::report::PluginError;
use crate::scheduling::{self, PluginRules};

/// Enables plug-ins for the repository's models.
pub(super) fn enable_plugins(repository: &Repository, settings: &PluginsSection) -> Result<(), Failed> {
    let dir = (!settings.dir.as_os_str().is_empty()).then(|| settings.dir.clone());
    if let Some(dir) = dir.as_ref().filter(|dir| !dir.is_dir()) {
        let what = format!("plugins.dir: {} is no directory", dir.display());
        return Err(Failed::Configuration(what));
    }
    let rules = PluginRules {
        dir: dir.clone(),
        require_sha256: settings.require_sha256,
        time: settings.time.0,
        memory: settings.memory.map(|size| size.0),
        strikes: settings.strikes,
        max_wait: settings.max_wait.0,
        cpu_share: settings.cpu_share,
        max_candidates: settings.max_candidates,
        rounds: base(&super::variable).map(|base| base.join("rounds")),
        components: base(&super::variable).map(|base| base.join("components")),
    };
    let grants = GrantTable::parse(settings.grants.iter().map(String::as_str)).map_err(Failed::Configuration)?;
    let loader = LazyLoader { grants: grants.clone(), room: repository.plugin_room().clone(), ..LazyLoader::default() };
    let PluginRules { require_sha256, memory, strikes, ref components, .. } = rules;
    let (components, instances) = (components.clone(), settings.instances as usize);
    let placed = PlaceRules { dir, require_sha256, memory, strikes, components, grants, instances };
    let of_processors = loader.clone();
    let load = move |name: &str, bytes: &[u8]| of_processors.component::<ProcessorWorld>(name, bytes);
    repository.run_processors(placed.clone(), Box::new(load)).map_err(|e| Failed::Failed(e.to_string()))?;
    let of_initializers = loader.clone();
    let load = move |name: &str, bytes: &[u8]| of_initializers.component::<InitializerWorld>(name, bytes);
    repository.run_initializers(placed, Box::new(load)).map_err(|e| Failed::Failed(e.to_string()))?;
    let load = move |name: &str, bytes: &[u8]| scheduling::loader::load(loader.get()?, name, bytes);
    repository.run_plugins(rules, Box::new(load)).map_err(|e| Failed::Failed(format!("no thread for plug-ins: {e}")))
}

/// Loads plug-ins with one engine. The first plug-in starts the engine, because most servers have no plug-ins.
#[derive(Clone, Default)]
struct LazyLoader {
    loader: Arc<OnceLock<Loader>>,
    /// Locked while the engine starts.
    starting: Arc<Mutex<()>>,
    grants: GrantTable,
    room: GuestRoom,
}

impl LazyLoader {
    /// The loader. If the engine does not start, the next plug-in tries again.
    fn get(&self) -> Result<&Loader, PluginError> {
        if let Some(loader) = self.loader.get() {
            return Ok(loader);
        }
        let _starting = self.starting.lock();
        if let Some(loader) = self.loader.get() {
            return Ok(loader);
        }
        let loader = Loader::new(compiled().as_deref(), self.grants.clone(), self.room.clone());
        let loader = loader.map_err(|e| PluginError::Internal(e.to_string()))?;
        Ok(self.loader.get_or_init(|| loader))
    }

    fn component<W: World>(&self, name: &str, bytes: &[u8]) -> Result<Arc<Component<W>>, PluginError> {
        let loaded = self.get()?.load::<W>(name, bytes);
        loaded.map(Arc::new).map_err(|error| PluginError::Invalid(error.to_string()))
    }
}

/// Watches the plug-ins' files. A changed file replaces the current version.
pub(super) fn watch(repository: &Repository) -> Result<(), Failed> {
    let failed = |e: std::io::Error| Failed::Failed(format!("no thread to watch plugins.dir: {e}"));
    repository.registry().map_or(Ok(()), |registry| registry.watch().map_err(failed))?;
    repository.processors().map_or(Ok(()), |processors| processors.watch().map_err(failed))?;
    repository.initializers().map_or(Ok(()), |initializers| initializers.watch().map_err(failed))
}

/// Folder of compiled code, shared by the server and the authors' commands on this machine.
fn compiled() -> Option<PathBuf> {
    base(&super::variable).map(|base| base.join(COMPILED))
}

/// The cache of compiled code, if there is a folder for it.
pub(super) fn cache() -> Option<Cache> {
    compiled().and_then(|folder| Cache::new(&folder).ok())
}

/// The base folder of compiled code, components and failed rounds: that of `SEQUOR_CACHE`, of the service manager, or of the user, in this
/// order.
fn base(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let own = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|dir| dir.join("sequor"));
    set("SEQUOR_CACHE").or_else(|| set("CACHE_DIRECTORY")).or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plug_in_cache_folder_follows_the_environment() {
        let at = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            base(&move |name| set.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
        };
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(at(&[]), None);
        assert_eq!(at(&[("HOME", "/h")]), path("/h/.cache/sequor"));
        assert_eq!(at(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")]), path("/x/sequor"));
        assert_eq!(at(&[("HOME", "/h"), ("CACHE_DIRECTORY", "/var/cache/sequor")]), path("/var/cache/sequor"));
        assert_eq!(at(&[("CACHE_DIRECTORY", "/c"), ("SEQUOR_CACHE", "/s")]), path("/s"));
    }
}
