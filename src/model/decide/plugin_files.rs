//! The files of models that name the plug-in which decides for them, for the registry of plug-ins: where another version takes its place, they
//! say so.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use super::schedule_file;
use crate::model::catalog::{Catalog, CatalogEntry, SchedulerChoice};
use crate::model::sequences::ModelScheduler;
use crate::scheduling::ModelFiles;
use crate::scheduling::report::PluginError;

#[derive(Debug)]
pub(super) struct ModelPluginFiles(pub(super) Weak<Catalog>);

/// A model for which a plug-in decides, and its folder.
struct Naming {
    model: String,
    directory: PathBuf,
}

impl Naming {
    fn file(&self) -> PathBuf {
        self.directory.join("sequor.toml")
    }

    /// What it says, and the hash it names.
    fn read(&self, plugin: &str) -> Option<(String, String)> {
        let text = fs_err::read_to_string(self.file()).ok()?;
        let pinned = schedule_file::pinned(&text, plugin)?;
        Some((text, pinned))
    }
}

impl ModelPluginFiles {
    /// The models it decides for, by their file or by an operator: a version that a file names is protected in both cases.
    fn decided(&self, catalog: &Catalog, plugin: &str, by: impl Fn(&SchedulerChoice) -> bool) -> Vec<Naming> {
        let decides = |name: &String, entry: &CatalogEntry| {
            let at = entry.model.as_ref().filter(|_| entry.open)?.decider()?;
            let is_one = by(&entry.decides) && at.binding().plugin() == plugin;
            is_one.then(|| Naming { model: name.clone(), directory: entry.directory.clone() })
        };
        catalog.collect(decides)
    }

    /// Those for which it decides because their file says so.
    fn naming(&self, catalog: &Catalog, plugin: &str) -> Vec<Naming> {
        self.decided(catalog, plugin, |choice| matches!(choice, SchedulerChoice::File))
    }
}

impl ModelFiles for ModelPluginFiles {
    fn pins(&self, plugin: &str) -> Vec<(PathBuf, String)> {
        let Some(catalog) = self.0.upgrade() else { return Vec::new() };
        let decided = self.decided(&catalog, plugin, |_| true);
        decided.iter().filter_map(|of| Some((of.file(), of.read(plugin)?.1))).collect()
    }

    fn pin(&self, plugin: &str, sha256: &str) -> Result<Vec<String>, String> {
        let Some(catalog) = self.0.upgrade() else { return Ok(Vec::new()) };
        let mut written: Vec<(Naming, String)> = Vec::new();
        for of in self.naming(&catalog, plugin) {
            let Ok((_, gate)) = serving(&catalog, &of.model) else { continue };
            // The model is not loaded while its file is being rewritten.
            let _held = gate.lock();
            let Some((was, pinned)) = of.read(plugin).filter(|(_, pinned)| pinned != sha256) else { continue };
            let wrote = schedule_file::with_pin(&was, sha256).and_then(|text| schedule_file::write(&of.file(), &text));
            if let Err(why) = wrote {
                let short = pinned.get(..7).unwrap_or(&pinned);
                written.iter().for_each(|(of, was)| put_back(&catalog, of, was));
                return Err(format!("the file of {} names {short}, and cannot be written: {why}", of.model));
            }
            catalog.note_files(&of.model, &of.directory);
            written.push((of, was));
        }
        Ok(written.into_iter().map(|(of, _)| of.model).collect())
    }
}

fn put_back(catalog: &Catalog, of: &Naming, was: &str) {
    if let Err(why) = schedule_file::write(&of.file(), was) {
        tracing::error!(model = of.model, "its file says another version than serves: {why}");
    }
    catalog.note_files(&of.model, &of.directory);
}

/// An open model, and the lock that keeps it from being loaded or unloaded meanwhile.
pub(super) fn serving(
    catalog: &Catalog,
    name: &str,
) -> Result<(Arc<ModelScheduler>, Arc<parking_lot::Mutex<()>>), PluginError> {
    let of = |entry: &CatalogEntry| Some((entry.model.clone().filter(|_| entry.open)?, Arc::clone(&entry.gate)));
    catalog.look(name, of).flatten().ok_or_else(|| PluginError::Absent(format!("no model \"{name}\" is served")))
}
