//! Moves idle sequences to the store if a START needs their memory. They return at their next step, as after a restart.
//!
//! A START that finds no room waits before its turn. The longest idle sequences leave, as many as it needs. Their files stay in memory
//! until the store has written them, so a failed write loses none.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Event, Id, Preparation, Refusal, Seq, SequenceView, Stage, Time};

use crate::error::Failure;
use crate::executor::ModelStep as _;
use crate::model::load::{LeaveRequest, Leaving, LeftState, LoadedModel, MailReply, SequenceStore, header};
use crate::model::sequences::offloaded::{KeptSequence, MemoryWait, RefusedGrowth, UnwrittenFile};
use crate::model::sequences::table::{BY_STORE, JobStage, Live, SequenceLookup as _, Table};
use crate::state::SnapshotError;
use crate::state::budget::{Budget, NoRoom, Ticket};
use crate::state::tier::{StateHead, TierChange, TierKey};

/// After a failed write, no sequence leaves for this time.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of sequences that leave at one time.
const MOST: usize = 64;

/// An idle sequence that will leave, and its load.
type Victim = (Arc<LoadedModel>, SequenceView);

/// Whether a sequence of this load can leave to make room, or is already leaving. Sequences of ensembles never leave.
pub(in crate::model::sequences) fn can_spill(table: &Table, now: Time, load: &LoadedModel) -> bool {
    let Some(durable) = &load.durable else { return false };
    let usage = durable.store.usage();
    let fits = usage.bytes.saturating_add(load.stored_bytes()) <= usage.limit;
    let is_on = fits && !table.stopping && now >= table.spilling.paused_until;
    let has_idle = |load: &LoadedModel| table.core.idle_sequences(load.key).any(|seq| !table.is_held(seq));
    let replaced = || table.spilling.replaced.iter().any(|replaced| has_idle(replaced));
    is_on && (!table.spilling.leaving.is_empty() || has_idle(load) || replaced())
}

/// Chooses the sequences that leave to make room for these bytes. A sequence that grows does not leave for itself, because it would need
/// all its memory again.
fn victims(
    table: &mut Table,
    load: &Arc<LoadedModel>,
    (wanted, grows): (u64, Option<Seq>),
    NoRoom { used, limit, .. }: NoRoom,
) -> Vec<Victim> {
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0, u64::saturating_add);
    let coming = sum(&mut table.spilling.leaving.iter().map(|(_, bytes)| *bytes));
    let may_leave = table.spilling.may_leave(limit).saturating_sub(coming);
    // Kept answers may have taken more than the limit.
    let mut missing = wanted.saturating_add(used).saturating_sub(limit).saturating_sub(coming);
    let mut leaving = 0;
    let mut victims = Vec::new();
    let others = table.spilling.replaced.iter().filter(|other| other.key != load.key);
    // Sequences of a replaced version move to the next one anyway.
    let loads: Vec<Arc<LoadedModel>> = others.chain([load]).cloned().collect();
    'enough: for load in &loads {
        for seq in table.core.idle_sequences(load.key) {
            if missing == 0 || victims.len() >= MOST || leaving >= may_leave {
                break 'enough;
            }
            let leaves = table.spilling.leaving.iter().any(|(of, _)| *of == seq);
            // A sequence of an ensemble that returns needs its slot again while it holds those of other members. That would break the one order
            // of slots.
            let stays = leaves || grows == Some(seq) || table.is_held(seq);
            let is_free = |view: &SequenceView| !stays && can_leave(view) && table.is_sole(seq, &view.id);
            let Some(view) = table.core.view_of(seq).filter(is_free) else { continue };
            if table.core.state_of(seq).is_some() {
                let bytes = load.state_bytes_of(view.state_bytes);
                let answer = table.live(seq).map_or(0, Live::answer_bytes);
                missing = missing.saturating_sub(bytes).saturating_sub(answer);
                leaving += bytes;
                victims.push((Arc::clone(load), view));
            }
        }
    }
    let bytes = |(load, view): &Victim| (view.seq, load.state_bytes_of(view.state_bytes));
    table.spilling.leaving.extend(victims.iter().map(bytes));
    victims
}

/// Ends a sequence whose state has been copied, if it has not changed since. If it leaves to make room, the store gets its file before the
/// table is unlocked. So the sequence's next step is behind that file in the store's queue.
pub(in crate::model::sequences) fn leave<H: SpillHost>(
    host: &Arc<H>,
    table: &mut Table,
    now: Time,
    seq: Seq,
    why: Leaving,
    left: &LeftState,
) -> bool {
    let as_it_was = table.core.view_of(seq).filter(|view| view.step == left.head.step);
    match (why, as_it_was) {
        (_, None) => return false,
        (Leaving::Stop, Some(_)) => table.apply(now, Event::End(seq, EndReason::Drained)),
        (Leaving::Spill, Some(view)) if is_free(table, now, &view) => {
            let until = view.due;
            table.apply(now, Event::End(seq, EndReason::Spilled));
            let counter = Arc::clone(&table.spilling.unwritten);
            let unwritten = (!left.is_stored).then(|| Arc::new(UnwrittenFile::new(Bytes::clone(&left.file), &counter)));
            let (head, incarnation) = (Arc::clone(&left.head), left.head.incarnation);
            table.keep_again(left.id.clone(), KeptSequence { head, incarnation, until, unwritten, doubt: None });
            if !left.is_stored {
                write(host, table, now, (left.id.clone(), Arc::clone(&left.head), Bytes::clone(&left.file)));
            }
        }
        (Leaving::Spill | Leaving::Carry, Some(_)) => return false,
    }
    true
}

/// Makes the store write the file of a sequence that has left. If the store is closed, because the process ends, the file stays in memory.
fn write<H: SpillHost>(host: &Arc<H>, table: &mut Table, now: Time, (id, head, file): (Id, Arc<StateHead>, Bytes)) {
    let Some(store) = host.sequence_store() else { return };
    table.spilling.writing += 1;
    let key = TierKey::new(host.model_name(), &id);
    let (weak, change) = (Arc::downgrade(host), TierChange::Put { key, head: Arc::clone(&head), file });
    let (of, as_of) = (id.clone(), Arc::clone(&head));
    let is_taken = store.try_write(vec![change], move |failed| {
        let Some(host) = weak.upgrade() else { return };
        if let Some((_, error)) = failed.first() {
            let model = host.model_name();
            tracing::error!(model, %error, "an idle sequence is not written and stays in memory");
        }
        let mut is_waited_for = false;
        host.change_table(&mut |table, now| {
            spilled(table, now, &id, &head, failed.is_empty());
            is_waited_for = !table.spilling.waiting.is_empty();
        });
        if is_waited_for {
            make_room(&host);
        }
    });
    if !is_taken {
        spilled(table, now, &of, &as_of, false);
    }
}

/// Records whether the store has written the file of a sequence that left.
fn spilled(table: &mut Table, now: Time, id: &Id, head: &Arc<StateHead>, is_written: bool) {
    table.spilling.writing = table.spilling.writing.saturating_sub(1);
    if !is_written {
        table.spilling.paused_until = now + PAUSE;
        table.spilling.failed.push((id.clone(), Arc::clone(head)));
    } else if let Some(kept) = table.kept.get_mut(id).filter(|kept| Arc::ptr_eq(&kept.head, head)) {
        kept.unwritten = None;
    }
}

/// Retries the files that the store could not write. Files of sequences that have continued or ended since are dropped.
fn write_again<H: SpillHost>(host: &Arc<H>, table: &mut Table, now: Time) {
    if now < table.spilling.paused_until || table.stopping {
        return;
    }
    let most = table.spilling.failed.len().min(MOST);
    let failed: Vec<_> = table.spilling.failed.drain(..most).collect();
    for (id, head) in failed {
        let kept = table.kept.get(&id).filter(|kept| Arc::ptr_eq(&kept.head, &head));
        if let Some(unwritten) = kept.and_then(|kept| kept.unwritten.clone()) {
            write(host, table, now, (id, head, Bytes::clone(&unwritten.file)));
        }
    }
}

/// Gives a request the memory that it waited for. The request continues with the next preparation before its turn.
fn has_room(table: &mut Table, now: Time, wait: &MemoryWait, ticket: Ticket) {
    let MemoryWait { req, seq, wanted, .. } = *wait;
    let Some(job) = table.jobs.get_mut(req).and_then(JobStage::job_mut) else { return };
    let lends_on = job.source.store.is_some() || job.processed.is_some() || job.in_ensemble.reservation.is_some();
    let start = job.facts.start;
    match seq.filter(|_| start).and_then(|seq| table.live_mut(seq)) {
        Some(live) => live.ticket = Some(ticket),
        None => {
            if let Some(job) = table.jobs.get_mut(req).and_then(JobStage::job_mut) {
                job.claims.ticket = Some(ticket);
            }
        }
    }
    if lends_on {
        if let Some(event) = table.lend_to_prepare(req, seq) {
            table.apply(now, event);
        }
        return;
    }
    table.set_stage(req, JobStage::Queued);
    table.apply(now, Event::Prepared(req, Preparation::Run(wanted.meta)));
}

fn has_no_room(table: &mut Table, now: Time, wait: &MemoryWait, no_room: NoRoom) {
    let Some(job) = table.jobs.get_mut(wait.req).and_then(JobStage::job_mut) else { return };
    let NoRoom { wanted, used, limit } = no_room;
    let (model, id) = (job.load.settings.name.clone(), job.id.clone());
    job.failure = Some(Failure::StateMemory { model, id, wanted, used, limit });
    table.set_stage(wait.req, JobStage::Queued);
    let refusal = Refusal::Failed(BY_STORE);
    table.apply(now, Event::Prepared(wait.req, Preparation::Refuse { refusal, ends: true }));
}

/// Whether a sequence can wait in the store for its next step.
fn is_free(table: &Table, now: Time, view: &SequenceView) -> bool {
    can_leave(view) && view.due > now && !table.is_held(view.seq) && table.is_sole(view.seq, &view.id)
}

pub(in crate::model::sequences) fn can_leave(view: &SequenceView) -> bool {
    view.stage == Stage::Idle && view.queued == 0 && !view.ending
}

/// The parts of a model that sequences need to leave.
pub(in crate::model::sequences) trait SpillHost: Send + Sync + 'static {
    /// Changes the table under its lock, and carries out the resulting actions.
    fn change_table(self: &Arc<Self>, change: &mut dyn FnMut(&mut Table, Time));

    fn state_budget(&self) -> &Budget;

    fn sequence_store(&self) -> Option<&Arc<SequenceStore>>;

    fn model_name(&self) -> &str;
}

/// Posts the request to leave to the instance that has the state. `reply` is called in every case.
pub(in crate::model::sequences) fn post_leave(
    model: &str,
    load: &LoadedModel,
    view: &SequenceView,
    why: Leaving,
    reply: MailReply<Result<LeftState, SnapshotError>>,
) -> bool {
    let Some((instance, _)) = view.placement else { return false };
    let header = header(model, load.version, view.step);
    let mailbox = load.mail.get(usize::from(instance));
    let posted = mailbox.is_some_and(|mailbox| mailbox.post(LeaveRequest { seq: view.seq, header, why, reply }));
    load.wake(instance);
    posted
}

/// Gives memory to the requests that wait for it, and makes idle sequences leave for the others. If no sequence can leave for a request, it
/// is refused.
pub(in crate::model::sequences) fn make_room<H: SpillHost>(host: &Arc<H>) {
    let mut victims = Vec::new();
    host.change_table(&mut |table, now| {
        write_again(host, table, now);
        serve_waiting(host.state_budget(), table, now, &mut victims);
        if table.spilling.waiting.is_empty() {
            make_room_to_grow(host.state_budget(), table, now, &mut victims);
        }
    });
    for (load, view) in victims {
        let (weak, seq) = (Arc::downgrade(host), view.seq);
        let reply = MailReply::new(move |left| has_left(&weak, seq, left));
        post_leave(host.model_name(), &load, &view, Leaving::Spill, reply);
    }
}

/// Gives memory to the waiting requests, in order, until one must wait longer for sequences that leave.
fn serve_waiting(budget: &Budget, table: &mut Table, now: Time, victims: &mut Vec<Victim>) {
    // The load whose sequences cannot move to the store.
    let mut exhausted = None;
    while let Some(wait) = table.spilling.waiting.pop_front() {
        let no_room = match budget.take_under_lock(wait.wanted.bytes, &mut table.actions.unneeded) {
            Ok(ticket) => {
                has_room(table, now, &wait, ticket);
                continue;
            }
            Err(no_room) => no_room,
        };
        if now >= table.spilling.paused_until && exhausted != Some(wait.load.key) {
            // As many sequences leave as all waiting requests need.
            let behind = table.spilling.waiting.iter().map(|wait| wait.wanted.bytes);
            let wanted = behind.fold(wait.wanted.bytes, u64::saturating_add);
            victims.extend(self::victims(table, &wait.load, (wanted, None), no_room));
        }
        if table.spilling.is_coming(no_room.limit) {
            table.spilling.waiting.push_front(wait);
            return;
        }
        exhausted = Some(wait.load.key);
        // The requests behind it may need less.
        has_no_room(table, now, &wait, no_room);
    }
}

/// Makes idle sequences leave for states whose growth was refused.
fn make_room_to_grow(budget: &Budget, table: &mut Table, now: Time, victims: &mut Vec<Victim>) {
    let growth = table.spilling.growth.take();
    let Some((load, RefusedGrowth { seq, bytes })) = growth.filter(|_| now >= table.spilling.paused_until) else {
        return;
    };
    if let Err(no_room) = budget.take_under_lock(bytes, &mut table.actions.unneeded).map(drop) {
        victims.extend(self::victims(table, &load, (bytes, Some(seq)), no_room));
    }
}

/// Gives the memory of a sequence that has left to the requests that wait for it.
fn has_left<H: SpillHost>(host: &Weak<H>, seq: Seq, left: Option<Result<LeftState, SnapshotError>>) {
    let Some(host) = host.upgrade() else { return };
    let (is_lost, is_failed) = (left.is_none(), matches!(left, Some(Err(_))));
    if let Some(Err(error)) = left {
        let model = host.model_name();
        tracing::error!(model, %error, "the state of an idle sequence is not copied; it stays in memory");
    }
    host.change_table(&mut |table, now| {
        table.spilling.leaving.retain(|(of, _)| *of != seq);
        // If the sequence could still leave but the reply was empty, its load is being removed.
        let can = || table.core.view_of(seq).is_some_and(|view| can_leave(&view));
        if is_failed || (is_lost && can()) {
            table.spilling.paused_until = now + PAUSE;
        }
    });
    make_room(&host);
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
#[path = "tests/spill.rs"]
mod tests;
