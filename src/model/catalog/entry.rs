//! One model name in the catalog: what it serves, how that came about, and how its last load ended.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{LoadError, LoadWarning, NoVersionReason};
use crate::model::execute::placement;
use crate::model::load::{LoadedModel, strategy_name};
use crate::model::sequences::ModelScheduler;

use super::fingerprint::Fingerprint;
use super::scheduler_choice::SchedulerChoice;
use super::uploaded::UploadedModel;

/// A model name that is, was or shall be served.
#[derive(Debug, Default)]
pub(in crate::model) struct CatalogEntry {
    /// One for all loads of the name, so that its sequences live through a reload.
    pub(in crate::model) model: Option<Arc<ModelScheduler>>,
    /// Whether requests are taken.
    pub(in crate::model) open: bool,
    /// Whether the server is not ready without it.
    pub(in crate::model) wanted: bool,
    pub(in crate::model) loading: bool,
    /// What became of it when it was last loaded; where a reload failed, what serves on.
    pub(in crate::model) status: Option<ModelStatus>,
    /// Why the last load failed, if it did.
    pub(in crate::model) faults: Vec<LoadError>,
    pub(in crate::model) directory: PathBuf,
    /// The models of its steps, if it is an ensemble.
    pub(in crate::model) members: Vec<String>,
    /// The versions last chosen, and all that ever were.
    pub(in crate::model) versions: Vec<u64>,
    pub(in crate::model) known: BTreeSet<u64>,
    /// The files that the loads in service were made from, and those of the last attempt.
    pub(in crate::model) served: Option<Fingerprint>,
    pub(in crate::model) tried: Option<Fingerprint>,
    /// Who says which plug-in decides for it.
    pub(in crate::model) decides: SchedulerChoice,
    /// The files that it is served from, if they came with a load request.
    pub(in crate::model) uploaded: Option<UploadedModel>,
    /// Held while the model is loaded or unloaded: one after the other.
    pub(in crate::model) gate: Arc<Mutex<()>>,
}

/// What became of a model that is wanted.
#[derive(Debug, Clone)]
pub struct ModelStatus {
    pub name: String,
    pub availability: Availability,
    /// How long its loading took.
    pub took: Duration,
}

#[derive(Debug, Clone)]
pub enum Availability {
    Ready(Vec<ReadyVersion>),
    /// Every reason why it is not.
    Failed(Vec<LoadError>),
}

/// A version that is ready, in what an operator wants to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyVersion {
    pub version: u64,
    /// `direct`, `oldest`, `dynamic`, `default`, `ensemble`.
    pub strategy: &'static str,
    pub instances: u16,
    /// Of all instances; 0 if it is stateless.
    pub slots: u32,
    /// Bytes of state a sequence holds.
    pub state_bytes: u64,
    /// `fixed` or `compact`, for `direct`.
    pub rows: Option<&'static str>,
    /// Faults of its files that do not keep it from serving.
    pub warnings: Vec<LoadWarning>,
    /// Where its instances run, if that is not just the CPU: `GPU 0`, `GPU 0 1 and CPU`, `CPU: ` and why not on a GPU.
    pub on: Option<String>,
}

impl CatalogEntry {
    /// Notes that a load came about.
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

    /// Notes that a load did not come about. What serves goes on.
    pub(in crate::model) fn fail(&mut self, name: &str, faults: Vec<LoadError>, took: Duration) {
        self.faults.clone_from(&faults);
        if !self.open {
            let availability = Availability::Failed(faults);
            self.status = Some(ModelStatus { name: name.to_owned(), availability, took });
        }
    }

    /// Takes no requests any more, and forgets how its last load ended.
    pub(in crate::model) fn close(&mut self) {
        (self.open, self.wanted, self.status, self.served, self.tried) = (false, false, None, None, None);
        self.faults.clear();
    }

    /// Why none of its versions takes requests.
    pub(super) fn no_version_reason(&self) -> NoVersionReason {
        if self.loading {
            NoVersionReason::Loading
        } else if self.faults.is_empty() {
            NoVersionReason::Unloaded
        } else {
            NoVersionReason::Failed
        }
    }

    /// Whether it is ready, or need not be.
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

    /// Whether no other repository had the name when it was last loaded.
    pub(in crate::model) fn was_unique(&self) -> bool {
        !self.faults.iter().any(|fault| matches!(fault, LoadError::NotUnique { .. }))
    }

    /// Whether it was loaded, or could not be, and was not unloaded since.
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
            None => spec.slots() * u32::from(spec.instances),
        },
        state_bytes: load.state_bytes(),
        rows: load.rows(),
        warnings: load.warnings.clone(),
        on: placement::describe(&load.settings.processors, &load.auto),
    }
}
