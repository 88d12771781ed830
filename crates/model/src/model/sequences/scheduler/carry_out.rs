//! Carries out the actions that a model's table asked for, once its lock is released.

use std::sync::{Arc, Weak};

use sequor_core::{Id, LoadId, Req, Time};

use crate::executor::ExecutorHandle;
use crate::model::load::{run_with_plugins, submit_to_plugins};
use crate::model::sequences::jobs::{
    LentRequest, PostTask, PrepareHost, PrepareTask, Preparer, RecentRefusals, TaskGuard,
};
use crate::model::sequences::offloaded::KeptStore;
use crate::model::sequences::table::{DeferredActions, PluginStages, PolicyNotice, RareActions, Table};
use crate::model::sequences::write_back::{SpillHost, spill};
use crate::recording::Recorder;
use crate::scheduling::Decider;

use super::inline;
use super::loads::LoadsNow;

/// A model as its deferred actions use it.
pub(in crate::model::sequences) trait ActionHost: SpillHost + PrepareHost {
    fn loads_now(&self) -> LoadsNow;

    /// Calls `with` on the table under its lock, for changes that cause no actions.
    fn with_table(&self, with: &mut dyn FnMut(&mut Table));

    fn kept_store(&self) -> &KeptStore;

    /// The recorder of finished requests.
    fn recorder(&self) -> Option<&Recorder>;

    /// The last refused requests.
    fn refusals(&self) -> &RecentRefusals;

    /// Passes a notice to the plug-in that decides for a load.
    fn notify_plugin(&self, load: LoadId, decider: Option<Decider>, notice: PolicyNotice);

    /// Records ids whose sequences have ended, if several servers share them.
    fn note_unused(&self, ids: Vec<Id>);

    /// Arms the timer for a deadline.
    fn arm_timer(self: &Arc<Self>, due: Time);

    /// Starts the flow of an ensemble's request. Its first steps may be left to `thread`.
    fn start_flow(self: &Arc<Self>, req: Req, load: LoadId, thread: Option<&ExecutorHandle>);
}

/// The steps that may be left to the thread that carries out actions.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::model::sequences) struct ActingThread<'a> {
    /// Runs steps of this model, to which it has just submitted a request.
    pub(in crate::model::sequences) wakes: Option<&'a ExecutorHandle>,
    /// Runs steps of other models that follow from an answer within an ensemble.
    pub(in crate::model::sequences) answers: Option<&'a ExecutorHandle>,
}

/// Carries out actions, in the order of their dependencies.
pub(in crate::model::sequences) fn carry_out<H: ActionHost>(
    host: &Arc<H>,
    thread: ActingThread<'_>,
    mut actions: DeferredActions,
    now: Time,
) {
    let ActingThread { wakes, answers } = thread;
    let mut rare = actions.rare.take();
    if let Some(rare) = &mut rare {
        before_answers(host, rare);
    }
    for (instance, decider) in actions.wake.drain(..) {
        if let Some(load) = host.loads_now().iter().find(|l| l.key == instance.load) {
            inline::wake(load, instance.n, wakes, decider.as_ref(), now);
        }
    }
    actions.send_answers(now, (host.recorder(), host.refusals()), answers);
    if let Some(due) = actions.due {
        host.arm_timer(due);
    }
    if let Some(rare) = rare {
        after_answers(host, *rare, answers);
    }
}

/// Wakes the store, and ends the members' sequences of ensembles: a client that reads its answer must find its sequence ended in all members.
#[inline(never)]
fn before_answers<H: ActionHost>(host: &Arc<H>, rare: &mut RareActions) {
    rare.tiers.drain(..).for_each(|tier| tier.wake());
    for (members, why) in rare.ended_ensembles.drain(..) {
        members.end(why);
        host.with_table(&mut |table| table.forget_ending_members(&members));
    }
}

/// Carries out the rare actions that answers do not wait for.
#[inline(never)]
fn after_answers<H: ActionHost>(host: &Arc<H>, rare: RareActions, thread: Option<&ExecutorHandle>) {
    if rare.wants_memory {
        spill::make_room(host);
    }
    for task in rare.closed {
        task.fail();
    }
    if !rare.unused.is_empty() {
        host.note_unused(rare.unused);
    }
    for task in rare.prepare {
        prepare(host, task);
    }
    for task in rare.post {
        post(host, task);
    }
    for (load, decider, notice) in rare.policies {
        host.notify_plugin(load, decider, notice);
    }
    for (holder, why) in rare.lost_members {
        holder.end(why, host.model_name());
    }
    for step in rare.lost_steps {
        step.lose(thread);
    }
    for (reservation, req, seq) in rare.granted {
        reservation.grant(req, seq, thread);
    }
    for (req, load) in rare.flows {
        host.start_flow(req, load, thread);
    }
}

/// Lets the plug-ins of a request's load prepare it, on their threads.
fn prepare<H: ActionHost>(host: &Arc<H>, LentRequest { req, load }: LentRequest) {
    let host = Arc::downgrade(host);
    let prepare = move || {
        let Some(model) = host.upgrade() else { return };
        let (mut task, guard) = (None, TaskGuard::new(host, req));
        model.with_table(&mut |table| task = table.begin_prepare(req));
        // Preparing a request that was cancelled while it waited would be wasted.
        if let Some(task) = task {
            Preparer(model).prepare(PrepareTask { guard: Some(guard), ..task });
        }
    };
    submit_to_plugins(&load, Box::new(prepare));
}

/// Lets the processors of a request's load finish it, on their threads.
fn post<H: ActionHost>(host: &Arc<H>, mut task: PostTask) {
    let (load, host) = (Arc::clone(&task.load), Arc::downgrade(host));
    let of_task: Weak<H> = Weak::clone(&host);
    task.guard = Some(TaskGuard::new(of_task, task.req));
    let post = move || {
        let load = Arc::clone(&task.load);
        let finish = async move {
            let Some((req, finished)) = task.run().await else { return };
            if let Some(host) = host.upgrade() {
                change(&host, |table, now| table.posted(now, req, finished));
            }
        };
        run_with_plugins(&load, finish);
    };
    submit_to_plugins(&load, Box::new(post));
}

/// Changes the table under its lock, and carries out the resulting actions.
pub(super) fn change<H: SpillHost>(host: &Arc<H>, change: impl FnOnce(&mut Table, Time)) {
    let mut change = Some(change);
    host.change_table(&mut |table, now| {
        if let Some(change) = change.take() {
            change(table, now);
        }
    });
}
