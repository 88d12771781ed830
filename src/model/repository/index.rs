//! The index: every model of the repositories, and how it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::LoadError;

use super::facade::{Entry, Repository};
use super::loading::model_directories;

/// A version in the index; a model of which nothing is known has neither version nor state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexRow {
    pub model: String,
    pub version: Option<u64>,
    /// `READY`, `LOADING`, `UNLOADING`, `UNAVAILABLE`, or nothing.
    pub state: &'static str,
    pub reason: String,
}

impl Repository {
    /// Every model of the repositories with what is known of it.
    pub fn index(&self) -> Vec<IndexRow> {
        let mut rows: BTreeMap<String, Vec<IndexRow>> = BTreeMap::new();
        for directory in self.0.control.get().map(|control| control.directories.as_slice()).unwrap_or_default() {
            for path in model_directories(directory).unwrap_or_default() {
                let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
                rows.insert(name.clone(), vec![IndexRow { model: name, ..IndexRow::default() }]);
            }
        }
        for (name, entry) in self.0.models.read().iter() {
            let known = entry.index(name);
            if !known.is_empty() {
                rows.insert(name.clone(), known);
            }
        }
        rows.into_values().flatten().collect()
    }
}

impl Entry {
    fn index(&self, name: &str) -> Vec<IndexRow> {
        let loads = self.model.as_ref().map(|model| Arc::clone(&model.loads())).unwrap_or_default();
        let mut versions: BTreeSet<u64> = loads.iter().map(|load| load.version).collect();
        versions.extend(&self.known);
        let why = || self.faults.iter().map(LoadError::to_string).collect::<Vec<_>>().join("; ");
        let row = |version: u64| {
            let mut of = loads.iter().filter(|load| load.version == version);
            let (open, there) = (self.open && of.clone().any(|load| !load.is_retired()), of.next().is_some());
            let (state, reason) = match (open, self.loading, there) {
                (true, ..) => ("READY", String::new()),
                (_, true, _) => ("LOADING", String::new()),
                (.., true) => ("UNLOADING", String::new()),
                _ if self.faults.is_empty() || !self.versions.contains(&version) => {
                    ("UNAVAILABLE", "unloaded".to_owned())
                }
                _ => ("UNAVAILABLE", why()),
            };
            IndexRow { model: name.to_owned(), version: Some(version), state, reason }
        };
        if !versions.is_empty() {
            return versions.into_iter().map(row).collect();
        }
        let (state, reason) = match (self.loading, self.faults.is_empty()) {
            (true, _) => ("LOADING", String::new()),
            (_, false) => ("UNAVAILABLE", why()),
            _ => return Vec::new(),
        };
        vec![IndexRow { model: name.to_owned(), version: None, state, reason }]
    }
}
