//! One model name in the catalog: its model, and the outcome of its last load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::model::settings::DurabilityWhen;
use crate::error::{LoadError, LoadWarning, NoVersionReason};
use crate::model::execute::placement;
use crate::model::load::{LoadedModel, strategy_name};
use crate::model::sequences::ModelScheduler;

use super::fingerprint::Fingerprint;
use super::scheduler_choice::SchedulerChoice;
use super::uploaded::UploadedModel;

/// A model name that is, was or will be served.
#[derive(Debug, Default)]
pub(in crate::model) struct CatalogEntry {
    /// One scheduler for all loads of the name, so that its sequences outlive a reload.
    pub(in crate::model) model: Option<Arc<ModelScheduler>>,
    /// Whether the name takes requests.
    pub(in crate::model) open: bool,
    /// Whether the server is ready only if this model is.
    pub(in crate::model) wanted: bool,
    pub(in crate::model) loading: bool,
    /// The outcome of the last load. If a reload failed, the status of the load that still serves.
    pub(in crate::model) status: Option<ModelStatus>,
    /// Why the last load failed. Empty if it did not.
    pub(in crate::model) faults: Vec<LoadError>,
    /// The directory of the loads in service. If none is, that of the last attempt.
    pub(in crate::model) directory: PathBuf,
    /// The models of the steps of an ensemble that no load of it serves yet.
    pub(in crate::model) tried_members: Vec<String>,
    /// The versions last chosen. `known` holds every version ever chosen.
    pub(in crate::model) versions: Vec<u64>,
    pub(in crate::model) known: BTreeSet<u64>,
    /// The files of the loads in service. `tried`: the files of the last attempt.
    pub(in crate::model) served: Option<Fingerprint>,
    pub(in crate::model) tried: Option<Fingerprint>,
    /// The source of the choice of its scheduler plug-in.
    pub(in crate::model) decides: SchedulerChoice,
    /// The files that it is served from, if a load request carried them.
    pub(in crate::model) uploaded: Option<UploadedModel>,
    /// Held while the model is loaded or unloaded, so that only one such operation runs at a time.
    pub(in crate::model) gate: Arc<Mutex<()>>,
}

/// The files of a load, and the configuration that a client sent in place of `config.pbtxt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct ModelSource {
    pub(in crate::model) directory: PathBuf,
    pub(in crate::model) config: Option<String>,
}

/// The outcome of loading a wanted model.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    pub name: String,
    pub availability: Availability,
    /// The time that the load took.
    pub took: Duration,
}

#[derive(Debug, Clone)]
pub enum Availability {
    Ready(Vec<ReadyVersion>),
    /// Every reason of the failure.
    Failed(Vec<LoadError>),
}

/// A ready version, with the facts that operators see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyVersion {
    pub version: u64,
    /// `direct`, `oldest`, `dynamic`, `default`, `ensemble`.
    pub strategy: &'static str,
    pub instances: u16,
    /// Slots of all instances; 0 for a stateless model.
    pub slots: u32,
    /// Bytes of state of one sequence in memory. `stored_bytes`: without the second copies that slots of `direct` have.
    pub state_bytes: u64,
    pub stored_bytes: u64,
    /// `fixed` or `compact`, for `direct`.
    pub rows: Option<&'static str>,
    /// Whether it asks for a store of sequences, whether or not there is one.
    pub wants_store: bool,
    /// Faults of its files that do not prevent serving.
    pub warnings: Vec<LoadWarning>,
    /// The devices of its instances, if not only the CPU was possible: `GPU 0`, `GPU 0 1 and CPU`, or `CPU: ` and why not a GPU.
    pub on: Option<String>,
}

impl CatalogEntry {
    /// Records a successful load.
    pub(in crate::model) fn take(
        &mut self,
        name: &str,
        model: &Arc<ModelScheduler>,
        versions: Vec<u64>,
        took: Duration,
    ) {
        let newest = |version: &u64| model.load_for(Some(*version)).map(|load| ready(&load));
        let availability = Availability::Ready(versions.iter().filter_map(newest).collect());
        self.model = Some(Arc::clone(model));
        self.open = true;
        self.status = Some(ModelStatus { name: name.to_owned(), availability, took });
        self.faults.clear();
        self.versions = versions;
        self.served.clone_from(&self.tried);
    }

    /// Records a failed load. If an older load serves, it continues.
    pub(in crate::model) fn fail(&mut self, name: &str, faults: Vec<LoadError>, took: Duration) {
        self.faults.clone_from(&faults);
        if !self.open {
            let availability = Availability::Failed(faults);
            self.status = Some(ModelStatus { name: name.to_owned(), availability, took });
        }
    }

    /// The source of the loads in service.
    pub(in crate::model) fn served_source(&self) -> Option<ModelSource> {
        let served = self.served.as_ref().filter(|_| self.open)?;
        Some(ModelSource { directory: self.directory.clone(), config: served.config().map(str::to_owned) })
    }

    /// The models of the steps of the ensembles in service. A failed load of the name does not change them.
    pub(in crate::model) fn served_members(&self) -> BTreeSet<String> {
        let Some(model) = self.model.as_ref().filter(|_| self.open) else { return BTreeSet::new() };
        let loads = model.loads();
        let ensembles = loads.iter().filter(|load| !load.is_retired()).filter_map(|load| load.ensemble.as_ref());
        ensembles.flat_map(|ensemble| &ensemble.plan.steps).map(|step| step.model.clone()).collect()
    }

    /// Stops taking requests and forgets the outcome of the last load.
    pub(in crate::model) fn close(&mut self) {
        (self.open, self.wanted, self.status, self.served, self.tried) = (false, false, None, None, None);
        self.faults.clear();
        self.tried_members.clear();
    }

    /// Stops taking requests until the member is loaded again.
    pub(in crate::model) fn lose_member(&mut self, member: &str) {
        let (members, tried) = (self.served_members(), self.tried.clone());
        self.close();
        (self.tried_members, self.tried) = (members.into_iter().collect(), tried);
        self.faults = vec![LoadError::MemberUnloaded { member: member.to_owned() }];
    }

    /// Why none of its versions takes requests.
    pub(super) fn no_version_reason(&self) -> NoVersionReason {
        match self.faults.as_slice() {
            _ if self.loading => NoVersionReason::Loading,
            [] => NoVersionReason::Unloaded,
            [LoadError::MemberUnloaded { .. }] => NoVersionReason::MemberUnloaded,
            _ => NoVersionReason::Failed,
        }
    }

    /// Whether the model is ready or is not wanted.
    pub(super) fn is_complete(&self) -> bool {
        let is_loaded = matches!(&self.status, Some(ModelStatus { availability: Availability::Ready(_), .. }));
        !self.wanted || (is_loaded && !self.is_unready())
    }

    /// Whether a load that takes new sequences refuses requests.
    fn is_unready(&self) -> bool {
        let unready = |model: &Arc<ModelScheduler>| {
            model.loads().iter().any(|load| !load.is_retired() && load.unready().is_some())
        };
        self.model.as_ref().is_some_and(unready)
    }

    /// Whether the last load found the name in one repository only.
    pub(in crate::model) fn was_unique(&self) -> bool {
        !self.faults.iter().any(|fault| matches!(fault, LoadError::NotUnique { .. }))
    }

    /// Whether a load has succeeded or failed since the model was last unloaded.
    pub(in crate::model) fn is_settled(&self) -> bool {
        self.status.is_some()
    }
}

fn ready(load: &LoadedModel) -> ReadyVersion {
    let spec = load.spec();
    ReadyVersion {
        version: load.version,
        strategy: if load.ensemble.is_some() { "ensemble" } else { strategy_name(&spec.strategy) },
        instances: spec.instances,
        slots: match &load.ensemble {
            Some(ensemble) => ensemble.slots,
            None => spec.all_slots(),
        },
        state_bytes: load.state_bytes(),
        stored_bytes: load.stored_bytes(),
        rows: load.rows(),
        wants_store: load.settings.durability != DurabilityWhen::Never,
        warnings: load.warnings.clone(),
        on: placement::describe(&load.settings.processors, &load.auto),
    }
}
