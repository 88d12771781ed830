//! Operations on models: the same as in KServe's repository extension, with an audit line.

use super::{Admin, Caller};
use crate::api::{Code, Status, control};
use crate::model::VersionOverview;

impl Admin {
    /// Reads folders, so it runs on a thread for blocking work.
    pub(super) async fn models(&self) -> Result<Vec<VersionOverview>, Status> {
        let repository = self.api().repository().clone();
        control::aside(move || Ok(repository.overview())).await
    }

    pub(super) async fn load_model(&self, caller: &Caller, model: String) -> Result<(), Status> {
        let outcome = control::load(self.api(), model.clone(), Vec::new(), None).await;
        self.changes().note(caller, "model load", &model, outcome.as_ref().copied());
        outcome
    }

    pub(super) async fn unload_model(&self, caller: &Caller, model: String) -> Result<(), Status> {
        let outcome = self.unload_known(model.clone()).await;
        self.changes().note(caller, "model unload", &model, outcome.as_ref().copied());
        outcome
    }

    /// Clients of KServe get no failure for a name that no model has, as from Triton. An operator may have mistyped it.
    async fn unload_known(&self, model: String) -> Result<(), Status> {
        control::check_explicit(self.api())?;
        let (repository, name) = (self.api().repository().clone(), model.clone());
        if !control::aside(move || Ok(repository.is_known(&name))).await? {
            return Err(Status::new(Code::NotFound, "not_served", format!("there is no model {model}")));
        }
        control::unload(self.api(), model, Vec::new()).await
    }
}
