//! Finds the members of an ensemble, and plans the ensemble for them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::fault::{Fault, code};
use crate::config::model::Draft;
use crate::config::model::settings::Scheduling;
use crate::ensemble::{EnsemblePlan, MemberSignature};
use crate::error::LoadError;
use crate::model::catalog::{Catalog, CatalogEntry};
use crate::model::load::{LoadEnsemble, LoadedModel};
use crate::model::sequences::ModelScheduler;

/// The members of an ensemble that is being loaded, in the order of its steps.
pub(super) struct BoundMembers {
    pub(super) models: Vec<Arc<ModelScheduler>>,
    loads: Vec<Arc<LoadedModel>>,
}

/// New loads of a model that are about to serve.
#[derive(Debug, Clone, Copy)]
pub(super) struct ComingLoads<'a> {
    pub(super) model: &'a str,
    pub(super) loads: &'a [Arc<LoadedModel>],
}

impl ComingLoads<'_> {
    fn find(&self, model: &str, version: Option<u64>) -> Option<Arc<LoadedModel>> {
        let fits = self.loads.iter().filter(|load| self.model == model && version.is_none_or(|v| v == load.version));
        fits.max_by_key(|load| load.version).cloned()
    }
}

/// The model of a step and the load that serves it, or will serve it.
fn member(
    catalog: &Catalog,
    (name, version): (&str, Option<u64>),
    coming: Option<ComingLoads<'_>>,
) -> Option<(Arc<ModelScheduler>, Arc<LoadedModel>)> {
    let model = catalog.look(name, |entry| entry.model.clone().filter(|_| entry.open)).flatten()?;
    let serves = model.load_for(version).filter(|load| !load.is_retired());
    let comes = coming.and_then(|coming| coming.find(name, version));
    let load =
        comes.into_iter().chain(serves).reduce(|one, other| if other.version > one.version { other } else { one });
    Some((model, load?))
}

fn signature(load: &LoadedModel) -> MemberSignature {
    let sequences = match &load.settings.scheduling {
        Scheduling::Sequence(sequence) => Some(sequence.idle_scan.or(sequence.idle)),
        _ => None,
    };
    MemberSignature::new(&load.client, sequences)
}

/// Whether a member of an ensemble now has another signature than the ensemble was planned for.
pub(super) fn is_outdated(
    catalog: &Catalog,
    ensemble: &LoadEnsemble,
    of: &str,
    coming: Option<ComingLoads<'_>>,
) -> bool {
    let mut steps = ensemble.plan.steps.iter().zip(&ensemble.members).filter(|(step, _)| step.model == of);
    steps.any(|(step, planned)| {
        let now = member(catalog, (&step.model, step.version), coming);
        now.is_some_and(|(_, load)| signature(&load) != *planned)
    })
}

impl BoundMembers {
    /// Finds the models of all steps. Each must be in service. `coming`: loads that are about to replace those in service.
    pub(super) fn find(
        catalog: &Catalog,
        draft: &Draft,
        coming: Option<ComingLoads<'_>>,
    ) -> Result<BoundMembers, LoadError> {
        let settings = draft.settle_ensemble(None);
        let steps = settings.ensemble.as_deref().map(|ensemble| ensemble.steps.as_slice()).unwrap_or_default();
        let (mut models, mut loads, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            match member(catalog, (&step.model, step.version), coming) {
                Some((model, load)) => {
                    models.push(model);
                    loads.push(load);
                }
                None if missing.contains(&step.model) => {}
                None => missing.push(step.model.clone()),
            }
        }
        if missing.is_empty() {
            return Ok(BoundMembers { models, loads });
        }
        let (name, missing) = (&draft.name, missing.join(", "));
        let what = format!("ensemble {name} contains models that are not available: {missing}");
        Err(LoadError::Config { at: draft.step_at(None), code: code::ENSEMBLE, what })
    }

    fn signatures(&self) -> Vec<MemberSignature> {
        self.loads.iter().map(|load| signature(load)).collect()
    }

    /// The idle time that every member allows; `None` if no member has sequences.
    pub(super) fn sequences(&self) -> Option<Option<Duration>> {
        let all: Vec<Option<Duration>> = self.signatures().into_iter().filter_map(|member| member.sequences).collect();
        (!all.is_empty()).then(|| all.into_iter().flatten().min())
    }

    /// Maximum number of live sequences for which all members have slots.
    fn slots(&self) -> u32 {
        let slots = |load: &Arc<LoadedModel>| load.spec().slots().saturating_mul(u32::from(load.spec().instances));
        self.loads.iter().map(slots).filter(|slots| *slots > 0).min().unwrap_or(0)
    }

    /// The plan of the ensemble, or every reason why it does not fit its members.
    pub(super) fn plan(&self, draft: &Draft) -> Result<LoadEnsemble, Vec<LoadError>> {
        let settings = draft.settle_ensemble(None);
        let Some(ensemble) = &settings.ensemble else { return Err(vec![LoadError::Runtime("no steps".to_owned())]) };
        let members = self.signatures();
        let plan = EnsemblePlan::new(&settings, ensemble, &members).map_err(|faults| {
            let fault = |fault: crate::ensemble::EnsembleFault| {
                LoadError::from(Fault { at: draft.step_at(fault.step), code: code::ENSEMBLE, what: fault.what })
            };
            faults.into_iter().map(fault).collect::<Vec<_>>()
        })?;
        Ok(LoadEnsemble::new(plan, members, self.slots()))
    }
}

/// The directory of a member: the one it was loaded from, otherwise one beside the ensemble's.
pub(super) fn directory_of(catalog: &Catalog, member: &str, ensemble: &Path) -> Option<PathBuf> {
    let known = catalog.look(member, |entry| entry.directory.clone()).filter(|path| path.is_dir());
    let is_name = !member.is_empty() && !member.contains(['/', '\0']) && member != "." && member != "..";
    known.or_else(|| Some(ensemble.parent()?.join(member)).filter(|path| is_name && path.is_dir()))
}

/// Refuses an ensemble that would contain itself. `path`: the ensembles that are loaded, the outermost first and this one last. Its members are
/// followed as they serve now.
pub(super) fn check_circle(catalog: &Catalog, path: &[&str], draft: &Draft) -> Result<(), Vec<LoadError>> {
    let members = draft.members();
    let circle = path.last().zip(members.iter().find(|member| leads_to(catalog, member, path)));
    let Some((name, member)) = circle else { return Ok(()) };
    let what = format!("circular dependency between ensembles: {member} -> ... -> {name} -> {member}");
    Err(vec![LoadError::Config { at: draft.step_at(None), code: code::ENSEMBLE, what }])
}

/// Whether a model is one of these, or has one of them as a member at any depth.
fn leads_to(catalog: &Catalog, model: &str, ends: &[&str]) -> bool {
    let (mut waiting, mut seen) = (vec![model.to_owned()], BTreeSet::new());
    while let Some(next) = waiting.pop() {
        if ends.contains(&next.as_str()) {
            return true;
        }
        if !seen.contains(&next) {
            waiting.extend(catalog.look(&next, CatalogEntry::served_members).unwrap_or_default());
            seen.insert(next);
        }
    }
    false
}
