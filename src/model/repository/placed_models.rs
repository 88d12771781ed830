//! The models, as the registries of processors and initializers reach them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::config::model::settings::ModelSettings;
use crate::model::catalog::{Catalog, CatalogEntry};
use crate::model::sequences::ModelScheduler;
use crate::processing::PlaceModels;

use super::loader::ModelLoader;

/// How models name plug-ins of one world.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamingRules {
    /// Whether a model names this plug-in.
    names: fn(&ModelSettings, &str) -> bool,
    /// The table of a model's file that names this plug-in.
    table: for<'a> fn(&'a toml::Table, &str) -> Option<&'a toml::Value>,
}

/// `[[plugins.processor]]`, and `[model] plugin`.
pub(super) const PROCESSORS: NamingRules = NamingRules {
    names: |settings, plugin| settings.processor_plugins.iter().any(|named| named.name == plugin),
    table: |file, plugin| {
        let model = file.get("model").filter(|at| is_named(at, "plugin", plugin));
        let processors = file.get("plugins").and_then(|plugins| plugins.get("processor")?.as_array());
        model.or_else(|| processors?.iter().find(|at| is_named(at, "use", plugin)))
    },
};

/// `[plugins.initializer]`.
pub(super) const INITIALIZERS: NamingRules = NamingRules {
    names: |settings, plugin| settings.initializer.as_ref().is_some_and(|named| named.name == plugin),
    table: |file, plugin| file.get("plugins")?.get("initializer").filter(|at| is_named(at, "use", plugin)),
};

fn is_named(at: &toml::Value, key: &str, plugin: &str) -> bool {
    at.get(key).and_then(toml::Value::as_str) == Some(plugin)
}

#[derive(Debug)]
pub(super) struct ModelsOfRegistry {
    catalog: Weak<Catalog>,
    loader: Weak<ModelLoader>,
    rules: NamingRules,
}

impl ModelsOfRegistry {
    pub(super) fn new(catalog: &Arc<Catalog>, loader: &Arc<ModelLoader>, rules: NamingRules) -> ModelsOfRegistry {
        ModelsOfRegistry { catalog: Arc::downgrade(catalog), loader: Arc::downgrade(loader), rules }
    }

    /// The hash that a file names for a plug-in. As it is now: an operator writes it there before the plug-in is replaced.
    fn pinned(&self, file: &Path, plugin: &str) -> Option<String> {
        let text = fs_err::read_to_string(file).ok()?;
        let table: toml::Table = text.parse().ok()?;
        let named = (self.rules.table)(&table, plugin)?;
        Some(named.get("sha256")?.as_str()?.to_ascii_lowercase())
    }
}

impl PlaceModels for ModelsOfRegistry {
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)> {
        let Some(catalog) = self.catalog.upgrade() else { return Vec::new() };
        let names = |model: &Arc<ModelScheduler>| {
            model.loads().iter().any(|load| !load.is_retired() && (self.rules.names)(&load.settings, plugin))
        };
        let file = |_: &String, entry: &CatalogEntry| {
            let is_named = entry.open && entry.model.as_ref().is_some_and(names);
            is_named.then(|| entry.directory.join("sequor.toml"))
        };
        let files = catalog.collect(file);
        files.into_iter().filter_map(|file| Some((file.clone(), self.pinned(&file, plugin)?))).collect()
    }

    fn reload(&self, model: &str) -> Result<(), String> {
        let Some(loader) = self.loader.upgrade() else { return Ok(()) };
        loader.reload(model).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
