//! Updates the hashes in the files of models that name a plug-in, when another version replaces it.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use sequor_wasm::changes::{NamingFiles, PinnedFile};

use super::pins::PluginTables;
use super::schedule_file;
use crate::model::catalog::{Catalog, CatalogEntry, SchedulerChoice};
use crate::model::sequences::ModelScheduler;
use crate::scheduling::report::PluginError;

#[derive(Debug)]
pub(super) struct ModelPluginFiles(pub(super) Weak<Catalog>);

/// A served model that names a plug-in, and its folder.
#[derive(Debug)]
pub(in crate::model) struct NamingModel {
    pub(in crate::model) model: String,
    pub(in crate::model) directory: PathBuf,
}

impl NamingModel {
    pub(in crate::model) fn file(&self) -> PathBuf {
        self.directory.join("sequor.toml")
    }

    /// The hashes that the file gives for a plug-in now.
    pub(in crate::model) fn pins(&self, tables: PluginTables, plugin: &str) -> Vec<String> {
        let text = fs_err::read_to_string(self.file()).unwrap_or_default();
        tables.pins(&text, plugin)
    }

    /// Replaces other hashes of the plug-in in the file with this one. `None` if the file gives none or has this one already.
    fn pin(
        self,
        catalog: &Catalog,
        tables: PluginTables,
        plugin: &str,
        sha256: &str,
    ) -> Result<Option<PinnedFile>, String> {
        let Ok((_, gate)) = serving(catalog, &self.model) else { return Ok(None) };
        // The model is not loaded while its file is being rewritten.
        let _held = gate.lock();
        let Ok(before) = fs_err::read_to_string(self.file()) else { return Ok(None) };
        let pins = tables.pins(&before, plugin);
        let Some(other) = pins.iter().find(|pinned| *pinned != sha256) else { return Ok(None) };
        let text = tables.with_pin(&before, plugin, sha256);
        let written = text.and_then(|text| schedule_file::write(&self.file(), &text));
        written.map_err(|why| {
            let short = other.get(..7).unwrap_or(other);
            format!("the file of {} names {short}, and cannot be written: {why}", self.model)
        })?;
        catalog.note_file(&self.model, &self.file());
        Ok(Some(PinnedFile { model: self.model, directory: self.directory, before }))
    }
}

/// Writes this hash to the files of these models that give a hash for the plug-in. If a file cannot be written, all files are restored.
pub(in crate::model) fn pin_models(
    catalog: &Catalog,
    models: Vec<NamingModel>,
    tables: PluginTables,
    plugin: &str,
    sha256: &str,
) -> Result<Vec<PinnedFile>, String> {
    let mut written = Vec::new();
    for model in models {
        match model.pin(catalog, tables, plugin, sha256) {
            Ok(file) => written.extend(file),
            Err(why) => {
                restore_files(catalog, &written);
                return Err(why);
            }
        }
    }
    Ok(written)
}

/// Restores these files to their previous contents.
pub(in crate::model) fn restore_files(catalog: &Catalog, files: &[PinnedFile]) {
    for PinnedFile { model, directory, before } in files {
        let gate = serving(catalog, model).ok().map(|(_, gate)| gate);
        let _held = gate.as_ref().map(|gate| gate.lock());
        let file = directory.join("sequor.toml");
        if let Err(why) = schedule_file::write(&file, before) {
            tracing::error!(model, "its file says another version than serves: {why}");
        }
        catalog.note_file(model, &file);
    }
}

impl ModelPluginFiles {
    /// The served models for which this plug-in decides, if `by` accepts where that choice came from: the file or an operator.
    fn decided(&self, catalog: &Catalog, plugin: &str, by: impl Fn(&SchedulerChoice) -> bool) -> Vec<NamingModel> {
        let decides = |name: &String, entry: &CatalogEntry| {
            let at = entry.model.as_ref().filter(|_| entry.open)?.decider()?;
            let is_one = by(&entry.decides) && at.binding().plugin() == plugin;
            is_one.then(|| NamingModel { model: name.clone(), directory: entry.directory.clone() })
        };
        catalog.collect(decides)
    }
}

impl NamingFiles for ModelPluginFiles {
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)> {
        let Some(catalog) = self.0.upgrade() else { return Vec::new() };
        let decided = self.decided(&catalog, plugin, |_| true);
        let pins = |of: &NamingModel| Some((of.file(), of.pins(PluginTables::Scheduler, plugin).into_iter().next()?));
        decided.iter().filter_map(pins).collect()
    }

    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<PinnedFile>, String> {
        let Some(catalog) = self.0.upgrade() else { return Ok(Vec::new()) };
        let by_file = self.decided(&catalog, plugin, |choice| matches!(choice, SchedulerChoice::File));
        pin_models(&catalog, by_file, PluginTables::Scheduler, plugin, sha256)
    }

    fn restore_files(&self, files: &[PinnedFile]) {
        if let Some(catalog) = self.0.upgrade() {
            restore_files(&catalog, files);
        }
    }
}

/// A served model, and its gate. While the gate is locked, Sequor neither loads nor unloads the model.
pub(super) fn serving(
    catalog: &Catalog,
    name: &str,
) -> Result<(Arc<ModelScheduler>, Arc<parking_lot::Mutex<()>>), PluginError> {
    let of = |entry: &CatalogEntry| Some((entry.model.clone().filter(|_| entry.open)?, Arc::clone(&entry.gate)));
    catalog.look(name, of).flatten().ok_or_else(|| PluginError::Absent(format!("no model \"{name}\" is served")))
}
