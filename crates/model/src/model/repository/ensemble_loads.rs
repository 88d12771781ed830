//! Loads ensembles with their members, and reloads ensembles in service after a new load of a member.

use std::path::Path;
use std::sync::Arc;

use crate::error::LoadError;
use crate::model::catalog::{CatalogEntry, Fingerprint, ModelSource};
use crate::model::load::LoadedModel;

use super::ensembles::{BoundMembers, ComingLoads, check_circle, directory_of, is_outdated};
use super::load_attempt::LoadRequest;
use super::loader::{ModelLoader, PendingLoad};
use super::preparer::Faults;

/// An ensemble in service whose plan was made for another signature of a member.
struct OutdatedEnsemble {
    name: String,
    source: ModelSource,
}

impl ModelLoader {
    /// Loads the members of an ensemble that are not in service. The catalog keeps the faults of a member.
    pub(super) fn load_members(
        &self,
        path: &[&str],
        name: &str,
        directory: &Path,
        config: Option<&str>,
    ) -> Result<(), Faults> {
        // Faults of the configuration are reported when it is prepared.
        let Ok(draft) = self.preparer.draft(directory, config) else { return Ok(()) };
        let path: Vec<&str> = path.iter().copied().chain([name]).collect();
        check_circle(&self.catalog, &path, &draft)?;
        for member in draft.members() {
            let is_open = self.catalog.look(&member, |entry| entry.open).unwrap_or_default();
            if let Some(directory) = directory_of(&self.catalog, &member, directory).filter(|_| !is_open) {
                let _ = self.load_within(&path, LoadRequest::new(&member, &directory, None));
            }
        }
        Ok(())
    }

    /// Loads the ensembles with this member that could not be loaded before, from the same files.
    pub(super) fn retry_ensembles(&self, member: &str) {
        let open = self.catalog.collect(|name, entry| entry.open.then(|| name.clone()));
        let failed = |name: &String, entry: &CatalogEntry| {
            let is_failed = !entry.open && !entry.loading && !entry.faults.is_empty();
            let members = &entry.tried_members;
            // A member that an operator has unloaded does not come back with another one.
            let has_it = members.iter().any(|of| of == member) && members.iter().all(|of| open.contains(of));
            let config = entry.tried.as_ref().and_then(Fingerprint::config).map(str::to_owned);
            (is_failed && has_it).then(|| (name.clone(), ModelSource { directory: entry.directory.clone(), config }))
        };
        for (name, ModelSource { directory, config }) in self.catalog.collect(failed) {
            let _ = self.load_model(LoadRequest::new(&name, &directory, config.as_deref()));
        }
    }

    /// The ensembles in service whose plans were made for another signature of this member.
    fn outdated_ensembles(&self, member: &str, coming: Option<ComingLoads<'_>>) -> Vec<OutdatedEnsemble> {
        let has_it = |name: &String, entry: &CatalogEntry| {
            let source = entry.served_source().filter(|_| entry.served_members().contains(member))?;
            Some((entry.model.as_ref()?.load_for(None)?, OutdatedEnsemble { name: name.clone(), source }))
        };
        // This runs without the catalog's lock, because looking up members takes it too.
        let all = self.catalog.collect(has_it).into_iter();
        let outdated = all.filter(|(load, _)| {
            load.ensemble.as_ref().is_some_and(|ensemble| is_outdated(&self.catalog, ensemble, member, coming))
        });
        outdated.map(|(_, ensemble)| ensemble).collect()
    }

    /// Refuses new loads of a member if they fit an ensemble in service neither by its plan nor by its current files.
    pub(super) fn check_ensembles(
        &self,
        name: &str,
        pending: Option<PendingLoad>,
    ) -> Result<Option<PendingLoad>, Faults> {
        let Some(pending) = pending else { return Ok(None) };
        let loads: Vec<Arc<LoadedModel>> = pending.prepared.iter().map(|new| Arc::clone(&new.load)).collect();
        let coming = ComingLoads { model: name, loads: &loads };
        let mut faults = Vec::new();
        for OutdatedEnsemble { name: ensemble, source } in self.outdated_ensembles(name, Some(coming)) {
            let ModelSource { directory, config } = source;
            let planned = self.preparer.draft(&directory, config.as_deref()).and_then(|draft| {
                let members = BoundMembers::find(&self.catalog, &draft, Some(coming)).map_err(|fault| vec![fault])?;
                members.plan(&draft).map(drop)
            });
            faults.extend(planned.err().into_iter().flatten().map(|fault| {
                LoadError::Runtime(format!(
                    "{name}: ensemble '{ensemble}' is in service and does not fit this load: {fault}; change both configurations, or unload '{ensemble}' first"
                ))
            }));
        }
        if faults.is_empty() { Ok(Some(pending)) } else { Err(faults) }
    }

    /// Reloads the ensembles whose plans were made for another signature of this member.
    pub(super) fn renew_ensembles(&self, member: &str) {
        for OutdatedEnsemble { name: ensemble, .. } in self.outdated_ensembles(member, None) {
            if let Err(faults) = self.reload(&ensemble) {
                for fault in faults {
                    tracing::error!(model = ensemble, member, "{fault}");
                }
            }
        }
    }
}
