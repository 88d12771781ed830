//! The models, as the registry of processors reaches them.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use crate::model::catalog::{Catalog, CatalogEntry};
use crate::model::sequences::ModelScheduler;
use crate::processing::ProcessorModels;

use super::loader::ModelLoader;

#[derive(Debug)]
pub(super) struct ModelsOfProcessors {
    catalog: Weak<Catalog>,
    loader: Weak<ModelLoader>,
}

impl ModelsOfProcessors {
    pub(super) fn new(catalog: &Arc<Catalog>, loader: &Arc<ModelLoader>) -> ModelsOfProcessors {
        ModelsOfProcessors { catalog: Arc::downgrade(catalog), loader: Arc::downgrade(loader) }
    }
}

impl ProcessorModels for ModelsOfProcessors {
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)> {
        let Some(catalog) = self.catalog.upgrade() else { return Vec::new() };
        let names = |model: &Arc<ModelScheduler>| {
            model.loads().iter().any(|load| {
                !load.is_retired() && load.settings.processor_plugins.iter().any(|named| named.name == plugin)
            })
        };
        let file = |_: &String, entry: &CatalogEntry| {
            let is_named = entry.open && entry.model.as_ref().is_some_and(names);
            is_named.then(|| entry.directory.join("sequor.toml"))
        };
        let files = catalog.collect(file);
        files.into_iter().filter_map(|file| Some((file.clone(), pinned(&file, plugin)?))).collect()
    }

    fn reload(&self, model: &str) -> Result<(), String> {
        let Some(loader) = self.loader.upgrade() else { return Ok(()) };
        loader.reload(model).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

/// The hash that a file names for a processor. As it is now: an operator writes it there before the processor is replaced.
fn pinned(file: &std::path::Path, plugin: &str) -> Option<String> {
    let text = fs_err::read_to_string(file).ok()?;
    let table: toml::Table = text.parse().ok()?;
    let model = table.get("model").filter(|at| at.get("plugin").and_then(toml::Value::as_str) == Some(plugin));
    let processors = table.get("plugins").and_then(|plugins| plugins.get("processor")?.as_array());
    let is_it = |at: &&toml::Value| at.get("use").and_then(toml::Value::as_str) == Some(plugin);
    let named = model.or_else(|| processors?.iter().find(is_it))?;
    Some(named.get("sha256")?.as_str()?.to_ascii_lowercase())
}
