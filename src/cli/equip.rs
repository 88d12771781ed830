//! From settings to plug-ins: the engine that runs them, made when the first is asked for, and where compiled code is kept.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use sequor_wasm::cache::{COMPILED, Cache};
use sequor_wasm::grants::GrantTable;
use sequor_wasm::loader::Loader;

use super::Failed;
use crate::config::server::file::PluginsSection;
use crate::initializing::{InitializerComponent, InitializerWorld};
use crate::model::Repository;
use crate::processing::{PlaceRules, ProcessorComponent, ProcessorWorld};
use crate::scheduling::PluginRules;
use crate::scheduling::guest::Source;
use crate::scheduling::report::PluginError;

/// Lets plug-ins decide for the repository's models.
pub(super) fn equip(repository: &Repository, settings: &PluginsSection) -> Result<(), Failed> {
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
    let (of_models, instances) = (grants.clone(), settings.instances as usize);
    let cache = compiled();
    // Most servers have no plug-in, and an engine is not for nothing.
    let loader: Arc<OnceLock<Result<Loader, PluginError>>> = Arc::default();
    let start = move || Loader::new(cache.as_deref(), grants.clone()).map_err(|e| PluginError::Internal(e.to_string()));
    let (start, same) = (Arc::new(start), Arc::clone(&loader));
    let again = Arc::clone(&start);
    let (third, once_more) = (Arc::clone(&loader), Arc::clone(&start));
    let make = move |name: &str, component: &[u8]| -> Result<Arc<dyn Source>, PluginError> {
        match loader.get_or_init(&*start) {
            Ok(loader) => crate::scheduling::loader::load(loader, name, component),
            Err(error) => Err(error.clone()),
        }
    };
    let make_processor = move |name: &str, component: &[u8]| -> Result<Arc<ProcessorComponent>, PluginError> {
        let loader = same.get_or_init(&*again).as_ref().map_err(Clone::clone)?;
        let loaded = loader.load::<ProcessorWorld>(name, component);
        loaded.map(Arc::new).map_err(|error| PluginError::Invalid(error.to_string()))
    };
    let make_initializer = move |name: &str, component: &[u8]| -> Result<Arc<InitializerComponent>, PluginError> {
        let loader = third.get_or_init(&*once_more).as_ref().map_err(Clone::clone)?;
        let loaded = loader.load::<InitializerWorld>(name, component);
        loaded.map(Arc::new).map_err(|error| PluginError::Invalid(error.to_string()))
    };
    let PluginRules { require_sha256, memory, strikes, ref components, .. } = rules;
    let components = components.clone();
    let placed = PlaceRules { dir, require_sha256, memory, strikes, components, grants: of_models, instances };
    let ran = repository.run_processors(placed.clone(), Box::new(make_processor));
    ran.map_err(|e| Failed::Failed(e.to_string()))?;
    let ran = repository.run_initializers(placed, Box::new(make_initializer));
    ran.map_err(|e| Failed::Failed(e.to_string()))?;
    repository.run_plugins(rules, Box::new(make)).map_err(|e| Failed::Failed(format!("no thread for plug-ins: {e}")))
}

/// Lets changed files take the place of what serves.
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

/// The compiled code that is kept, if there is a place for it.
pub(super) fn cache() -> Option<Cache> {
    compiled().and_then(|folder| Cache::new(&folder).ok())
}

/// Where compiled code, components and rounds that went wrong are kept: what was said, what the service manager gives, or the user's own; nowhere without any.
fn base(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|text| !text.is_empty()).map(PathBuf::from);
    let own = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache"))).map(|dir| dir.join("sequor"));
    set("SEQUOR_CACHE").or_else(|| set("CACHE_DIRECTORY")).or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_a_place() {
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
