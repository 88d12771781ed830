//! Queues the work that a table has for the store, while the table is locked. So the store gets it in the order in which the table decided it:
//! a state cannot arrive behind the end of its sequence, nor an earlier state behind a later one. The store is woken after the lock
//! (`carry_out`).

use std::sync::Arc;

use sequor_core::Time;

use crate::model::load::{StateTier, UnstoredState};
use crate::model::sequences::offloaded::{Forgotten, LookTask, StoreTask};
use crate::model::sequences::table::{DeferredActions, KeptStages, SealAction, SealWaiting, SealingRow, StoreAction};
use crate::model::sequences::write_back::sealing;
use crate::state::tier::ClosedTask;

use super::carry_out::{ActionHost, change};

/// Queues the work for the store.
pub(super) fn queue<H: ActionHost>(host: &Arc<H>, actions: &mut DeferredActions) {
    let Some(actions) = actions.rare.as_deref_mut().filter(|rare| !rare.to_store.is_empty()) else { return };
    let store = host.kept_store().get().map(|store| Arc::clone(store) as Arc<dyn StateTier>);
    actions.tiers.extend(store);
    for action in std::mem::take(&mut actions.to_store) {
        let closed = match action {
            StoreAction::Seal(action) => {
                actions.tiers.push(Arc::clone(&action.tier));
                seal(host, action)
            }
            StoreAction::Take(task) => take(host, task),
            StoreAction::Forget(forgotten) => forget(host, forgotten),
            StoreAction::Look(task) => look(host, &task),
        };
        actions.closed.extend(closed);
    }
}

/// Queues states for a tier. The tier's report releases or refuses the answers.
fn seal<H: ActionHost>(host: &Arc<H>, SealAction { tier, waiting, rows, batch }: SealAction) -> Option<ClosedTask> {
    let host = Arc::downgrade(host);
    let sealed = move |failed: Vec<UnstoredState>| {
        if let Some(host) = host.upgrade() {
            apply_sealed(&host, waiting, &rows, &failed);
        }
    };
    tier.seal(batch, Box::new(sealed))
}

/// Applies the tier's report. Sequences whose states are not durable may be in the store from then on, and expire there.
fn apply_sealed<H: ActionHost>(host: &Arc<H>, waiting: SealWaiting, rows: &[SealingRow], failed: &[UnstoredState]) {
    if failed.is_empty() {
        return change(host, |table, now| sealing::sealed(table, now, waiting, rows, failed));
    }
    host.kept_store().set_kept(true);
    let mut due = Time::NEVER;
    change(host, |table, now| {
        sealing::sealed(table, now, waiting, rows, failed);
        due = table.kept_due;
    });
    if due != Time::NEVER {
        host.arm_timer(due);
    }
}

/// Queues a request's task, which the store does on its own thread.
fn take<H: ActionHost>(host: &Arc<H>, task: StoreTask) -> Option<ClosedTask> {
    let weak = Arc::downgrade(host);
    host.kept_store().queue_take(task, move |task, outcome| {
        if let Some(host) = weak.upgrade() {
            change(&host, |table, now| table.stored(now, task, outcome));
        }
    })
}

/// Queues a look at the state that the store has of a sequence.
fn look<H: ActionHost>(host: &Arc<H>, task: &LookTask) -> Option<ClosedTask> {
    let (weak, of) = (Arc::downgrade(host), task.clone());
    host.kept_store().queue_look(task, move |found| {
        if let Some(host) = weak.upgrade() {
            change(&host, |table, now| table.looked(now, &of, found));
        }
    })
}

/// Queues the removal of a sequence that has ended. Answers that wait for that leave then.
fn forget<H: ActionHost>(host: &Arc<H>, forgotten: Forgotten) -> Option<ClosedTask> {
    let (weak, id) = (Arc::downgrade(host), forgotten.id.clone());
    host.kept_store().queue_forget(host.model_name(), forgotten, move |error| {
        if let Some(host) = weak.upgrade() {
            change(&host, |table, _| table.pending_ends.finish(&id, error.as_deref()));
        }
    })
}
