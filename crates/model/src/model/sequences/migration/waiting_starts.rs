//! Moves STARTs that wait for a slot of a replaced load to the load that took its place, where their sequences begin.
//!
//! A START stays on its load, and may be refused when that ends, if it was prepared for it: by a plug-in, by an initializer, or with a state that it
//! brings or copies. It also stays if its client named another version.

use std::sync::Arc;

use sequor_core::{Event, Req, Seq, Time};

use crate::model::load::LoadedModel;
use crate::model::sequences::jobs::Job;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::Table;

use super::alike::takes_same;

/// Moves the waiting STARTs of a load that is replaced, in the order in which they wait. The table is locked.
pub(super) fn move_on(model: &ModelScheduler, table: &mut Table, now: Time, old: &LoadedModel, new: &Arc<LoadedModel>) {
    if takes_same(old, new).is_err() || old.initializer.is_some() || new.initializer.is_some() {
        return;
    }
    for seq in table.core.waiting_starts(old.key) {
        let requests = table.core.requests_of(seq);
        let can_move = requests.iter().all(|req| table.job(*req).is_some_and(Job::is_as_it_came));
        if can_move && table.core.may_move(now, seq, new.key) && take_along(model, table, (seq, &requests), new) {
            table.apply(now, Event::MoveStart(seq, new.key));
        }
    }
}

/// Gives the requests of a sequence their new load, and the first of them what the sequence holds. Does nothing and returns false if there is no
/// memory for its state there.
fn take_along(
    model: &ModelScheduler,
    table: &mut Table,
    (seq, requests): (Seq, &[Req]),
    new: &Arc<LoadedModel>,
) -> bool {
    let Some(live) = table.live_mut(seq) else { return false };
    let ticket = match new.state_bytes() {
        0 => None,
        bytes if bytes == live.load.state_bytes() => live.ticket.take(),
        bytes => match model.budget().take(bytes) {
            Ok(ticket) => Some(ticket),
            Err(_) => return false,
        },
    };
    let mut held = Some((ticket, live.permit.take()));
    for req in requests {
        let Some(job) = table.job_mut(*req) else { continue };
        job.load.metrics.dequeued(1);
        new.metrics.queued();
        (job.load, job.cache_miss) = (Arc::clone(new), None);
        if let Some((ticket, permit)) = held.take() {
            (job.claims.ticket, job.claims.permit) = (ticket, permit);
        }
    }
    true
}
