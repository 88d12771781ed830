//! Implements the traits by which other parts use a model: carrying out actions, and moving states between memory and the store.

use std::sync::Arc;

use sequor_core::{Id, LoadId, Req, Time};

use crate::executor::ExecutorHandle;
use crate::model::load::SequenceStore;
use crate::model::sequences::ensembles::EnsembleParts;
use crate::model::sequences::jobs::RecentRefusals;
use crate::model::sequences::offloaded::KeptStore;
use crate::model::sequences::table::{PolicyNotice, Table};
use crate::model::sequences::write_back::SpillHost;
use crate::recording::Recorder;
use crate::scheduling::Decider;
use crate::state::budget::Budget;

use super::carry_out::ActionHost;
use super::loads::LoadsNow;
use super::model_scheduler::ModelScheduler;

impl SpillHost for ModelScheduler {
    fn change_table(self: &Arc<Self>, change: &mut dyn FnMut(&mut Table, Time)) {
        self.change(|table, now| change(table, now));
    }

    fn state_budget(&self) -> &Budget {
        self.budget()
    }

    fn sequence_store(&self) -> Option<&Arc<SequenceStore>> {
        self.store.get()
    }

    fn model_name(&self) -> &str {
        &self.name
    }
}

impl ActionHost for ModelScheduler {
    fn loads_now(&self) -> LoadsNow {
        self.loads()
    }

    fn with_table(&self, with: &mut dyn FnMut(&mut Table)) {
        with(&mut self.table.lock());
    }

    fn kept_store(&self) -> &KeptStore {
        &self.store
    }

    fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    fn refusals(&self) -> &RecentRefusals {
        &self.refusals
    }

    fn notify_plugin(&self, load: LoadId, decider: Option<Decider>, notice: PolicyNotice) {
        self.notify_policy(load, decider, notice);
    }

    fn note_unused(&self, ids: Vec<Id>) {
        if let Some(gate) = &self.gate {
            gate.note_unused(ids);
        }
    }

    fn arm_timer(self: &Arc<Self>, due: Time) {
        self.arm(due);
    }

    fn start_flow(self: &Arc<Self>, req: Req, load: LoadId, thread: Option<&ExecutorHandle>) {
        self.begin_flow(req, load, thread);
    }
}
