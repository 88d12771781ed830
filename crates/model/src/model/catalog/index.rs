//! The index: every model of the repositories, with its state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::LoadError;

use super::directories::{directories_of, model_directories};
use super::entry::CatalogEntry;
use super::names::Catalog;

/// A version in the index. A model that was never loaded has neither version nor state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexRow {
    pub model: String,
    pub version: Option<u64>,
    /// `READY`, `LOADING`, `UNLOADING`, `UNAVAILABLE`, or empty.
    pub state: &'static str,
    /// Why it is not ready. If its last reload failed and it serves with its old files, why the reload failed.
    pub reason: String,
}

/// Every model in these folders and every model in the catalog, with their known states.
pub(in crate::model) fn index(catalog: &Catalog, directories: &[PathBuf]) -> Vec<IndexRow> {
    let mut all: BTreeMap<String, Vec<IndexRow>> = BTreeMap::new();
    for path in directories.iter().flat_map(|directory| model_directories(directory).unwrap_or_default()) {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let row = match all.contains_key(&name) {
            false => IndexRow { model: name.clone(), ..IndexRow::default() },
            true => repeated(&name, directories),
        };
        all.insert(name, vec![row]);
    }
    let known = catalog.collect(|name, entry| Some((name.clone(), rows(entry, name))));
    all.extend(known.into_iter().filter(|(_, rows)| !rows.is_empty()));
    all.into_values().flatten().collect()
}

/// The row of a name that was already found, in this repository or another one.
fn repeated(name: &str, directories: &[PathBuf]) -> IndexRow {
    let (model, folders) = (name.to_owned(), directories_of(name, directories));
    match folders.len() {
        0 | 1 => IndexRow { model, ..IndexRow::default() },
        _ => {
            let reason = LoadError::NotUnique { model: model.clone(), folders }.index_reason();
            IndexRow { model, version: None, state: "UNAVAILABLE", reason }
        }
    }
}

/// The rows of one model.
fn rows(entry: &CatalogEntry, name: &str) -> Vec<IndexRow> {
    let loads = entry.model.as_ref().map(|model| Arc::clone(&model.loads())).unwrap_or_default();
    let mut versions: BTreeSet<u64> = loads.iter().map(|load| load.version).collect();
    versions.extend(&entry.known);
    let why = || entry.faults.iter().map(LoadError::index_reason).collect::<Vec<_>>().join("; ");
    // If a reload to another version failed, the row of that version has the reason.
    let failed_reload = |version: u64| match entry.faults.is_empty() || !entry.versions.contains(&version) {
        true => String::new(),
        false => format!("reload failed: {}", why()),
    };
    let row = |version: u64| {
        let mut of = loads.iter().filter(|load| load.version == version);
        let (open, there) = (entry.open && of.clone().any(|load| !load.is_retired()), of.next().is_some());
        let unready =
            loads.iter().filter(|load| load.version == version && !load.is_retired()).find_map(|l| l.unready());
        let (state, reason) = match (open, entry.loading, there) {
            (true, ..) => unready.map_or_else(|| ("READY", failed_reload(version)), |why| ("UNAVAILABLE", why)),
            (_, true, _) => ("LOADING", String::new()),
            (.., true) => ("UNLOADING", String::new()),
            _ if entry.faults.is_empty() || !entry.versions.contains(&version) => {
                ("UNAVAILABLE", "unloaded".to_owned())
            }
            _ => ("UNAVAILABLE", why()),
        };
        IndexRow { model: name.to_owned(), version: Some(version), state, reason }
    };
    if !versions.is_empty() {
        return versions.into_iter().map(row).collect();
    }
    let (state, reason) = match (entry.loading, entry.faults.is_empty()) {
        (true, _) => ("LOADING", String::new()),
        (_, false) => ("UNAVAILABLE", why()),
        _ => return Vec::new(),
    };
    vec![IndexRow { model: name.to_owned(), version: None, state, reason }]
}
