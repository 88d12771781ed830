//! The models, for the registries of processors and initializers.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use sequor_wasm::changes::{NamingFiles, PinnedFile};

use crate::config::model::settings::ModelSettings;
use crate::model::catalog::{Catalog, CatalogEntry};
use crate::model::decide::{NamingModel, PluginTables, pin_models, restore_files};
use crate::model::sequences::ModelScheduler;
use crate::processing::PlaceModels;

use super::loader::ModelLoader;

/// How models name plug-ins of one world.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamingRules {
    /// Whether a model names this plug-in.
    names: fn(&ModelSettings, &str) -> bool,
    /// The tables of a model's file that can name it.
    tables: PluginTables,
}

/// `[[plugins.processor]]`, and `[model] plugin`.
pub(super) const PROCESSORS: NamingRules = NamingRules {
    names: |settings, plugin| settings.processor_plugins.iter().any(|named| named.name == plugin),
    tables: PluginTables::Processor,
};

/// `[plugins.initializer]`.
pub(super) const INITIALIZERS: NamingRules = NamingRules {
    names: |settings, plugin| settings.initializer.as_ref().is_some_and(|named| named.name == plugin),
    tables: PluginTables::Initializer,
};

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

    /// The served models that name a plug-in.
    fn naming(&self, catalog: &Catalog, plugin: &str) -> Vec<NamingModel> {
        let names = |model: &Arc<ModelScheduler>| {
            model.loads().iter().any(|load| !load.is_retired() && (self.rules.names)(&load.settings, plugin))
        };
        let naming = |name: &String, entry: &CatalogEntry| {
            let is_named = entry.open && entry.model.as_ref().is_some_and(names);
            is_named.then(|| NamingModel { model: name.clone(), directory: entry.directory.clone() })
        };
        catalog.collect(naming)
    }
}

impl NamingFiles for ModelsOfRegistry {
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)> {
        let Some(catalog) = self.catalog.upgrade() else { return Vec::new() };
        // Read the files now: an operator writes a hash there before the plug-in's file changes.
        let pins = |of: &NamingModel| {
            let (file, pins) = (of.file(), of.pins(self.rules.tables, plugin));
            pins.into_iter().map(move |pinned| (file.clone(), pinned)).collect::<Vec<_>>()
        };
        self.naming(&catalog, plugin).iter().flat_map(pins).collect()
    }

    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String> {
        let Some(catalog) = self.catalog.upgrade() else { return Ok(Vec::new()) };
        pin_models(&catalog, self.naming(&catalog, plugin), self.rules.tables, plugin, sha256)
    }

    fn restore_files(&self, files: &[PinnedFile]) {
        if let Some(catalog) = self.catalog.upgrade() {
            restore_files(&catalog, files);
        }
    }
}

impl PlaceModels for ModelsOfRegistry {
    fn reload(&self, model: &str) -> Result<(), String> {
        let Some(loader) = self.loader.upgrade() else { return Ok(()) };
        loader.reload(model).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
