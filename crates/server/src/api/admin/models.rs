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
        self.run_change(caller, |admin, caller| async move {
            let outcome = control::load(admin.api(), model.clone(), Vec::new(), None).await;
            admin.changes().note(&caller, "model load", &model, outcome.as_ref().copied());
            outcome
        })
        .await
    }

    pub(super) async fn unload_model(&self, caller: &Caller, model: String) -> Result<(), Status> {
        self.run_change(caller, |admin, caller| async move {
            let outcome = admin.unload_known(model.clone()).await;
            admin.changes().note(&caller, "model unload", &model, outcome.as_ref().copied());
            outcome
        })
        .await
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

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;
    use crate::api::Api;
    use crate::api::admin::AdminSetup;
    use crate::config::server::ServerLimits;
    use crate::config::server::file::ControlMode;
    use crate::model::{Repository, RepositoryControl};
    use crate::telemetry::Metrics;

    /// Begins a change, and gives it up as a client does that hangs up.
    async fn begin(change: impl Future<Output = Result<(), Status>>) {
        tokio::select! {
            biased;
            _ = change => panic!("it has ended at once"),
            () = ready(()) => {}
        }
    }

    #[tokio::test]
    async fn a_change_has_its_audit_line_although_the_client_hangs_up() {
        let repository = Repository::empty();
        repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories: Vec::new() });
        let api = Api::new(repository, Metrics::new(false), ServerLimits::default());
        let admin = Admin::new(&api, AdminSetup::default(), std::sync::Arc::new(Notify::new()));
        let caller = Caller { name: "anna".to_owned(), address: ([127, 0, 0, 1], 9).into() };
        let (model, id) = (|| "m".to_owned(), sequor_core::Id::from(7));
        begin(admin.load_model(&caller, model())).await;
        begin(admin.unload_model(&caller, model())).await;
        begin(admin.drop_sequence(&caller, model(), id.clone(), None)).await;
        begin(admin.fork(&caller, model(), id.clone(), sequor_core::Id::from(8))).await;
        begin(control::unload_for_client(&api, &caller, model(), Vec::new())).await;
        let noted = || {
            let mut all: Vec<&str> = api.changes().last().iter().map(|change| change.what).collect();
            all.sort_unstable();
            all
        };
        let all = async {
            while noted().len() < 5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), all).await;
        assert_eq!(noted(), ["model load", "model unload", "model unload", "sequence drop", "sequence fork"]);
    }
}
