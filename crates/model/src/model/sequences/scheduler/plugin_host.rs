//! The interface of a model for its plug-ins: the policies of its loads, the notices for plug-ins, and the facts that they may ask for.

use std::sync::{Arc, Weak};

use sequor_core::{Id, LoadId, Observed, Portion, Req, Seq, StateAt, Time};

use crate::error::NotCopied;
use crate::model::load::{LoadInitializer, LoadedModel};
use crate::model::runtime::Clock;
use crate::model::sequences::jobs::{Beginning, PrepareHost, PreparedJob, TaskHost};
use crate::model::sequences::table::{PluginStages, PolicyNotice};
use crate::scheduling::{self, Decider, LoadPolicy, SchedulerPort};

use super::model_scheduler::ModelScheduler;

impl scheduling::Clock for Clock {
    fn now(&self) -> Time {
        Clock::now(self)
    }
}

/// A model, as its plug-ins reach it.
#[derive(Debug)]
struct PluginHost(Weak<ModelScheduler>);

impl scheduling::SchedulerHost<Decider> for PluginHost {
    fn change(&self, load: LoadId, change: &mut dyn FnMut(&mut LoadPolicy<Decider>)) {
        if let Some(model) = self.0.upgrade() {
            model.change_policy(load, change);
        }
    }

    fn decider(&self, load: LoadId) -> Option<Decider> {
        self.0.upgrade()?.decider_of(load)
    }

    fn is_there(&self, load: LoadId) -> bool {
        self.0.upgrade().is_some_and(|model| model.has_load(load))
    }

    fn live(&self, load: LoadId, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion> {
        self.0.upgrade()?.live_on(load, from, room)
    }

    fn sequence_text(&self, handle: u64) -> Option<String> {
        self.0.upgrade()?.id_of(Seq::of_handle(handle)?).map(|id| id.to_string())
    }
}

impl ModelScheduler {
    /// Changes the policy of a load, in one lock section with the event for the core. Does nothing if the load is gone.
    fn change_policy(self: &Arc<Self>, load: LoadId, change: &mut dyn FnMut(&mut LoadPolicy<Decider>)) {
        let now = self.now();
        let mut table = self.table.lock();
        // Checked under the lock: the removal of a load takes its policy out of the table afterwards.
        if !self.has_load(load) {
            return;
        }
        let before = table.change_policy(now, load, change);
        let actions = self.take_actions(&mut table, now);
        drop(table);
        drop(before);
        self.act(actions, now);
    }

    fn has_load(&self, load: LoadId) -> bool {
        self.loads().iter().any(|l| l.key == load)
    }

    /// The port through which plug-ins reach a load.
    pub(in crate::model) fn port(self: &Arc<Self>, load: &LoadedModel) -> Arc<SchedulerPort<Decider>> {
        let made = || SchedulerPort::new(load.key, Arc::new(PluginHost(Arc::downgrade(self))));
        Arc::clone(load.port.get_or_init(made))
    }

    /// Some of the sequences that live on a load; `None` once it is gone.
    fn live_on(&self, load: LoadId, from: u32, room: Vec<(u64, Observed)>) -> Option<Portion> {
        self.has_load(load).then(|| self.table.lock().core.live(load, from, room))
    }

    pub(in crate::model) fn id_of(&self, seq: Seq) -> Option<Id> {
        self.table.lock().core.id_of(seq).cloned()
    }

    /// The plug-in that decides for a load.
    pub(in crate::model) fn decider_of(&self, load: LoadId) -> Option<Decider> {
        self.table.lock().decider(load)
    }

    /// The plug-in that decides for sequences that start now.
    pub(in crate::model) fn decider(&self) -> Option<Decider> {
        let load = self.loads().iter().find(|l| !l.is_retired()).map(|l| l.key)?;
        self.decider_of(load)
    }

    pub(super) fn notify_policy(&self, load: LoadId, decider: Option<Decider>, notice: PolicyNotice) {
        match (decider, notice) {
            (Some(decider), PolicyNotice::News(first, news, lost)) => decider.notify(first, news, lost),
            (Some(decider), PolicyNotice::Fallback) => decider.binding().fell_back(),
            (Some(decider), PolicyNotice::Stale(picks)) => decider.binding().went_stale(picks),
            // A guest may be starting, and reads the port's feed.
            (None, PolicyNotice::News(first, news, lost)) => {
                let loads = self.loads();
                let port = loads.iter().find(|l| l.key == load).and_then(|l| l.port.get());
                port.map(|port| port.append(first, news, lost));
            }
            (None, PolicyNotice::Fallback | PolicyNotice::Stale(_)) => {}
        }
    }
}

impl TaskHost for ModelScheduler {
    fn task_failed(self: Arc<Self>, req: Req) {
        self.change(|table, now| table.task_failed(now, req));
    }
}

impl PrepareHost for ModelScheduler {
    fn prepared(self: Arc<Self>, req: Req, prepared: PreparedJob, beginning: Beginning) {
        self.change(|table, now| table.prepared(now, req, prepared, beginning));
    }

    fn is_preparing(&self, req: Req) -> bool {
        self.table.lock().core.is_preparing(req)
    }

    fn copy_source(&self, load: &Arc<LoadedModel>, id: &Id) -> Result<(Seq, StateAt), NotCopied> {
        self.table.lock().copy_source(load, id)
    }

    fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), (u32, &'static str)> {
        self.table.lock().parent(of, load, keys, id)
    }
}
