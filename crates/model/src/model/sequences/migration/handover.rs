//! Gives sequences up to other servers that share the store, and drops those that other servers have taken over.
//!
//! A sequence leaves when it is idle, as one that makes room for others does: its instance copies the state, the store writes it, and then the
//! record is released. Requests that arrive meanwhile wait at the gate. After the release they claim the sequence like a request that comes
//! first; so a sequence that two servers want goes back and forth, and each of them gets its turn.

use std::sync::Arc;

use sequor_core::{EndReason, Event, Id, Seq, SequenceView, Time, Tombstone};

use crate::model::load::{Leaving, MailReply};
use crate::model::sequences::entry::claims;
use crate::model::sequences::gate::{HandoverGate, SequenceGate};
use crate::model::sequences::offloaded::KeptSequence;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::{SequenceLookup as _, Table};
use crate::model::sequences::write_back::{can_leave, sealing, spill};
use crate::state::tier::{HandoverState, Released, TierChange, TierKey};

use super::restart;

/// The state of an id in the table when it is given up.
enum LocalSequence {
    /// It cannot leave now.
    Busy,
    /// It is idle and has a state in its slot.
    Idle(SequenceView),
    /// It is idle, and its first state is in no slot.
    Unrun(Seq, u64, Vec<u8>),
    /// The store has its state, or it has no state. So it can be released. If the release fails, it stays here.
    Free(TierChange, Option<KeptSequence>),
}

/// Begins to give up a sequence that another server wants, or continues to.
pub(in crate::model) fn hand_over(model: &Arc<ModelScheduler>, id: &Id) -> HandoverState {
    let Some(gate) = model.gate.clone() else { return HandoverState::Absent };
    let asked = match gate.close(id, model.now()) {
        // If it is released at present, the gate still has it.
        HandoverGate::Gone if gate.owns(id) => return HandoverState::Done,
        HandoverGate::Gone => return HandoverState::Absent,
        HandoverGate::Busy => return HandoverState::Busy,
        HandoverGate::Closed { asked } => asked,
    };
    match local_sequence(model, id) {
        LocalSequence::Busy => {}
        LocalSequence::Idle(view) if !asked => {
            // Set before the instance is asked, because the reply may arrive at once.
            gate.set_asked(id, true);
            if !ask_to_leave(model, &gate, id, &view) {
                gate.set_asked(id, false);
            }
        }
        LocalSequence::Idle(_) => {}
        LocalSequence::Unrun(seq, step, file) => drop(restart::leave(model, seq, Leaving::Spill, step, file)),
        LocalSequence::Free(change, kept) => {
            release(model, &gate, vec![(id.clone(), change, kept)]);
            return HandoverState::Done;
        }
    }
    HandoverState::Busy
}

/// Looks up the state of this id in the table. A stored sequence is taken out of the table, because it is released next.
fn local_sequence(model: &ModelScheduler, id: &Id) -> LocalSequence {
    let now = model.now();
    let mut table = model.table.lock();
    if table.stopping || table.is_between(id) || table.has_import(id) {
        return LocalSequence::Busy;
    }
    if let Some(seq) = table.core.find(id, None) {
        let Some(view) = table.core.view_of(seq).filter(|view| can_leave(view) && !table.is_held(seq)) else {
            return LocalSequence::Busy;
        };
        if table.core.state_of(seq).is_some() {
            return LocalSequence::Idle(view);
        }
        return match sealing::unrun_file(&table, &model.name, &view) {
            Some(Ok(file)) => LocalSequence::Unrun(seq, view.step, file),
            Some(Err(_)) | None => LocalSequence::Busy,
        };
    }
    match table.kept.get(id) {
        Some(kept) if kept.unwritten.is_some() => LocalSequence::Busy,
        Some(_) => {
            let kept = table.kept.remove(id);
            let idle_left = kept.as_ref().filter(|kept| kept.until != Time::NEVER).map(|kept| kept.until - now);
            let left = Released::Waiting { idle_left };
            LocalSequence::Free(TierChange::Release { key: TierKey::new(&model.name, id), left }, kept)
        }
        None => LocalSequence::Free(unused(&table, &model.name, id), None),
    }
}

/// Releases an id without a sequence. Other servers learn how its last sequence ended. If that sequence was lost here, its next step
/// continues from its stored state, unless another server has taken it over.
fn unused(table: &Table, model: &str, id: &Id) -> TierChange {
    let ended = table.core.end_of(id).map(|stone| table.ended_state(stone));
    let stays = ended.as_ref().is_some_and(|ended| ended.why.leaves_stored_state());
    let left = if stays { Released::AsStored { ended } } else { Released::Nothing { ended } };
    TierChange::Release { key: TierKey::new(model, id), left }
}

/// Asks the instance of an idle sequence for its state. Returns whether it was asked.
fn ask_to_leave(model: &Arc<ModelScheduler>, gate: &Arc<SequenceGate>, id: &Id, view: &SequenceView) -> bool {
    let Some(load) = model.loads().iter().find(|load| load.key == view.load).cloned() else { return false };
    let (gate, id) = (Arc::clone(gate), id.clone());
    // If it has not left, it is asked again.
    let reply = MailReply::new(move |_| gate.set_asked(&id, false));
    spill::post_leave(&model.name, &load, view, Leaving::Spill, reply)
}

/// A record to release, and the sequence that it was taken from.
type ReleasedId = (Id, TierChange, Option<KeptSequence>);

/// Releases these records. Requests that wait for one claim it afterwards.
fn release(model: &Arc<ModelScheduler>, gate: &Arc<SequenceGate>, of: Vec<ReleasedId>) {
    let (mut ids, mut changes) = (Vec::new(), Vec::new());
    for (id, change, kept) in of {
        if gate.release(&id) {
            ids.push((id, kept));
            changes.push(change);
        } else if let Some(kept) = kept {
            model.table.lock().keep_again(id, kept);
        }
    }
    if ids.is_empty() {
        return;
    }
    let (weak, gate) = (Arc::downgrade(model), Arc::clone(gate));
    gate.store().clone().write(changes, move |failed| {
        let Some(model) = weak.upgrade() else { return };
        for (place, (id, kept)) in ids.into_iter().enumerate() {
            match failed.iter().find(|(of, _)| *of == place) {
                None => released(&model, &gate, &id),
                Some((_, error)) => {
                    tracing::debug!(model = model.name, %error, "a sequence is not released yet");
                    not_released(&model, &gate, &id, kept);
                }
            }
        }
    });
}

/// Handles an id that another server may own now: the requests that wait for it claim it.
fn released(model: &Arc<ModelScheduler>, gate: &Arc<SequenceGate>, id: &Id) {
    if let Some(begins) = gate.released(id, false) {
        claims::claim(model, gate, id.clone(), begins);
    }
}

/// Handles a failed release. If the store refused it, the sequence continues here. If there was no answer, another server may have the
/// sequence. So this server drops it, and the next request claims it. The store has all of its state.
fn not_released(model: &Arc<ModelScheduler>, gate: &Arc<SequenceGate>, id: &Id, kept: Option<KeptSequence>) {
    let key = TierKey::new(&model.name, id);
    let shared = gate.store().shared();
    if shared.is_some_and(|shared| !shared.holds(&key)) {
        released(model, gate, id);
        // If the release did not reach Redis, the sequence would stay with this server.
        return shared.into_iter().for_each(|shared| shared.disown(key.clone()));
    }
    if let Some(kept) = kept {
        model.table.lock().keep_again(id.clone(), kept);
    }
    gate.note_unused(vec![id.clone()]);
    if gate.released(id, true).is_some() {
        claims::go_on(model, gate, id, true);
    }
}

/// Handles a sequence that did not become idle in time: it stays here, and the requests that waited continue.
pub(in crate::model) fn keep(model: &Arc<ModelScheduler>, id: &Id) {
    let Some(gate) = model.gate.clone() else { return };
    if gate.reopen(id) {
        claims::go_on(model, &gate, id, true);
    }
}

/// Drops a sequence that another server owns now. None of its requests is answered with outputs.
pub(in crate::model) fn lost(model: &Arc<ModelScheduler>, id: &Id) {
    let Some(gate) = model.gate.clone() else { return };
    let load = model.load_for(None).map(|load| load.key);
    model.change(|table, now| {
        let here = [table.core.find(id, None), table.core.find_ending(id)];
        for seq in here.into_iter().flatten() {
            table.fence(seq);
            table.apply(now, Event::End(seq, EndReason::Fenced));
        }
        if here == [None; 2]
            && let Some((kept, load)) = table.kept.remove(id).zip(load)
        {
            let stone = Tombstone { why: EndReason::Fenced, at: now, step: kept.head.step, idle: kept.head.idle };
            table.core.remember(load, id.clone(), stone);
        }
    });
    if let Some(begins) = gate.lose(id) {
        claims::claim(model, &gate, id.clone(), begins);
    }
}

/// Releases ids that this server owns and that have no sequence here: those that were noted, or all.
pub(in crate::model) fn release_unused(model: &Arc<ModelScheduler>, all: bool) {
    let Some(gate) = model.gate.clone().filter(|gate| !gate.store().has_lapsed()) else { return };
    let mut ids = gate.take_unused();
    if all {
        ids.extend(gate.held());
    }
    for portion in ids.chunks(PORTION) {
        let free = {
            let table = model.table.lock();
            portion.iter().filter(|id| !is_used(&table, id)).cloned().collect::<Vec<Id>>()
        };
        let free = free.into_iter().filter_map(|id| closed_if_unused(model, &gate, id)).collect();
        release(model, &gate, free);
    }
}

/// Ids that are looked at under one lock.
const PORTION: usize = 256;

fn is_used(table: &Table, id: &Id) -> bool {
    table.stopping || table.core.find(id, None).is_some() || table.has_elsewhere(id)
}

/// Keeps requests of an id from the table. If the table still has no sequence of it then, the id is to be released.
fn closed_if_unused(model: &Arc<ModelScheduler>, gate: &Arc<SequenceGate>, id: Id) -> Option<ReleasedId> {
    if !gate.try_close(&id) {
        return None;
    }
    let table = model.table.lock();
    let is_between = table.is_between(&id);
    if !is_between && !is_used(&table, &id) {
        let change = unused(&table, &model.name, &id);
        drop(table);
        return Some((id, change, None));
    }
    drop(table);
    if gate.reopen(&id) {
        claims::go_on(model, gate, &id, true);
    }
    None
}
