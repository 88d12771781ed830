//! Moves live sequences of a replaced load to the load that took its place: `[reload] then = "carry"`.
//!
//! A sequence moves between two of its steps. The thread of its instance copies the state. Then, under the model's lock, the sequence ends on
//! the old load and its state waits for the next step, which begins it on the new load. So no request can come between, and the memory moves
//! along. A busy sequence is tried again. After [`GRACE`] the remaining sequences end.
//!
//! If states are written while their sequences live, the state waits in the store instead. It stays marked with the files of the old load.
//! The store also records that the new load continues from it. Sequor writes that record before the new load serves, so that it holds after a
//! crash.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Event, Id, LoadId, Seq, SequenceView, Time, Tombstone};

use crate::model::load::{Leaving, LoadDurability, LoadedModel, MailReply};
use crate::model::sequences::offloaded::{Carried, CarriedLoad, ImportOrigin, KeptSequence};
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::{Import, SequenceLookup as _, Table};
use crate::model::sequences::write_back::{can_leave, post_leave};
use crate::state::tier::{Successions, VersionDigest};

use super::alike::fits;
use super::waiting_starts;

/// Places of the table that are read at a time.
const PORTION: u32 = 64;
/// Pauses: between two portions, and before busy sequences are tried again.
const PAUSE: Duration = Duration::from_millis(1);
const AGAIN: Duration = Duration::from_millis(20);
/// Maximum time for which sequences may be busy, once they have to move.
const GRACE: Duration = Duration::from_secs(10);

/// The replaced loads of a model, and whether their sequences move.
#[derive(Debug)]
pub(in crate::model) struct Handover {
    replaced: Vec<ReplacedLoad>,
    /// The successions that hold once the new loads serve.
    after: Successions,
}

#[derive(Debug)]
struct ReplacedLoad {
    old: Arc<LoadedModel>,
    new: Option<Arc<LoadedModel>>,
    /// Whether its sequences move to the new load.
    moves: bool,
}

impl Handover {
    /// Stores which states the new loads continue from, before these serve. Returns once that is durable or its write has failed. Until the
    /// new loads serve, the present successions hold for the old loads.
    pub(in crate::model) fn begin(
        model: &ModelScheduler,
        old: Vec<Arc<LoadedModel>>,
        fresh: &[Arc<LoadedModel>],
    ) -> Handover {
        let loads = model.loads();
        let stays = loads.iter().filter(|load| !load.is_retired() && old.iter().all(|old| old.key != load.key));
        let newest = stays.chain(fresh).max_by_key(|load| load.version);
        let replaced = |old: Arc<LoadedModel>| {
            // A version that gets a new load is its own successor.
            let new = fresh.iter().find(|new| new.version == old.version).or(newest).cloned();
            let moves = new.as_ref().is_some_and(|new| moves(model, &old, new));
            ReplacedLoad { old, new, moves }
        };
        let replaced: Vec<ReplacedLoad> = old.into_iter().map(replaced).collect();
        let mut table = model.table.lock();
        let mut after = table.successions.clone();
        if after.is_full() {
            let stored: HashSet<VersionDigest> = table.kept.values().map(KeptSequence::version_digest).collect();
            after.keep_only(|of| stored.contains(&of) || loads.iter().any(|load| stored_as(load) == Some(of)));
        }
        succeed(&mut after, &replaced, fresh);
        table.coming = Some(after.clone());
        drop(table);
        write(model, &after);
        Handover { replaced, after }
    }

    /// Takes the old loads out of service. Their live sequences continue for a time. Then they move or end, as the new load specifies.
    pub(in crate::model) fn complete(self, model: &Arc<ModelScheduler>) {
        model.change(|table, _| (table.successions, table.coming) = (self.after, None));
        for replaced in &self.replaced {
            replace(model, replaced);
        }
    }

    /// Stores the present successions again, because the new loads do not serve.
    pub(in crate::model) fn withdraw(self, model: &ModelScheduler) {
        let before = {
            let mut table = model.table.lock();
            table.coming = None;
            table.successions.clone()
        };
        write(model, &before);
    }
}

/// Whether sequences of one load move to another that replaces it.
fn moves(model: &ModelScheduler, old: &LoadedModel, new: &LoadedModel) -> bool {
    let fits = fits(old, new);
    if let (true, Err(why)) = (new.settings.reload.carries, &fits) {
        tracing::warn!(
            model = model.name,
            why,
            "live sequences do not move to the new version; they end after [reload] drain"
        );
    }
    new.settings.reload.carries && fits.is_ok()
}

/// Updates the successions for these replaced loads. States that a new load's own files made belong to it again.
fn succeed(successions: &mut Successions, replaced: &[ReplacedLoad], fresh: &[Arc<LoadedModel>]) {
    successions.keep_only(|of| fresh.iter().all(|new| stored_as(new) != Some(of)));
    for ReplacedLoad { old, new, moves } in replaced {
        let Some(from) = stored_as(old) else { continue };
        match new.as_deref().filter(|_| *moves).and_then(stored_as) {
            Some(to) => _ = successions.add(from, to),
            None => _ = successions.keep_only(|of| of != from),
        }
    }
}

/// Stores the successions, if the store does not have them. Call it without the table's lock: it waits for the store's thread, which may need
/// that lock.
fn write(model: &ModelScheduler, successions: &Successions) {
    if let Some(store) = model.store.get() {
        store.succeed(&model.name, successions.clone());
    }
}

fn replace(model: &Arc<ModelScheduler>, ReplacedLoad { old, new, moves }: &ReplacedLoad) {
    let reload = new.as_ref().map(|new| new.settings.reload).unwrap_or_default();
    let (at, is_replaced) = (model.now() + reload.drain, new.is_some());
    let (newest, new) = (new.clone(), new.as_ref().filter(|_| *moves));
    // Sequences that should move to the old load move to the new one, or end with their own load.
    model.carrying.lock().retain_mut(|of| {
        if of.to.key != old.key {
            return true;
        }
        let load = model.loads().iter().find(|load| load.key == of.load).cloned();
        let next = new.filter(|new| load.is_some_and(|load| fits(&load, new).is_ok()));
        next.inspect(|new| of.to = Arc::clone(new)).is_some()
    });
    model.change(|table, now| {
        // Under the lock, so that no sequence moves to a retired load.
        old.retire();
        move_on(table, now, old, new);
        if let Some(newest) = &newest {
            waiting_starts::move_on(model, table, now, old, newest);
        }
        if is_replaced && new.is_none() && is_waited_for(table, &model.loads(), old) {
            table.apply(now, Event::Stay(old.key));
        }
        table.spilling.replaced.push(Arc::clone(old));
        let Table { spilling, successions, .. } = table;
        let loads = model.loads();
        spilling.replaced.retain(|load| {
            let next = stored_as(load).map(|from| successions.successor_of(from));
            next.is_some() && loads.iter().any(|load| !load.is_retired() && stored_as(load) == next)
        });
    });
    let Some(new) = new else { return model.retire(old.key, at) };
    model.retire(old.key, at + GRACE);
    model.carrying.lock().push(CarriedLoad { load: old.key, to: Arc::clone(new), at, from: 0 });
    model.arm(at);
}

/// Whether there are stored sequences that can continue on this load alone. They get as much time for it as live ones.
fn is_waited_for(table: &Table, loads: &[Arc<LoadedModel>], old: &LoadedModel) -> bool {
    let Some(made_by) = stored_as(old) else { return false };
    let serves = loads.iter().any(|load| !load.is_retired() && stored_as(load) == Some(made_by));
    !serves && table.kept.values().any(|kept| kept.version_digest() == made_by)
}

/// The version and digest that mark a load's stored states. `None` if its states are not stored.
fn stored_as(load: &LoadedModel) -> Option<VersionDigest> {
    load.durable.as_ref().map(|durable| durable.version_digest(load.version))
}

fn is_in_store(load: &LoadedModel) -> bool {
    load.durable.as_ref().is_some_and(LoadDurability::is_continual)
}

/// Passes states that wait for a replaced load on to the next load, or ends their sequences.
fn move_on(table: &mut Table, now: Time, old: &LoadedModel, new: Option<&Arc<LoadedModel>>) {
    for (id, import) in table.imports.take_for(old) {
        let Import { origin: ImportOrigin { step, carried, .. }, snapshot, ticket, .. } = import;
        let Some(carried) = carried else { continue };
        let idle = carried.idle;
        match new {
            Some(new) => {
                let carried = Carried { load: Arc::clone(new), ..carried };
                table.imports.insert(id, Import::carried(step, carried, snapshot, ticket));
            }
            None => {
                let stone = Tombstone { why: EndReason::Drained, at: now, step, idle };
                table.core.remember(old.key, id, stone);
            }
        }
    }
}

/// Moves the sequences of loads that are due, and ends those whose state has waited for a step for too long. Called by the timer.
pub(in crate::model::sequences) fn tick(model: &Arc<ModelScheduler>) {
    expire(model);
    let now = model.now();
    let due: Vec<CarriedLoad> = model.carrying.lock().iter().filter(|of| of.at <= now).cloned().collect();
    for of in due {
        let load = model.loads().iter().find(|load| load.key == of.load).cloned();
        let next = load.and_then(|load| ask_some(model, &load, &of));
        let mut carrying = model.carrying.lock();
        // The target may have changed meanwhile.
        match next.zip(carrying.iter_mut().find(|other| other.load == of.load)) {
            Some(((at, from), of)) => (of.at, of.from) = (at, from),
            None => carrying.retain(|other| other.load != of.load),
        }
    }
    // Also for loads that were not due, because the timer keeps only the soonest deadline.
    let next = model.carrying.lock().iter().map(|of| of.at).min();
    if let Some(at) = next {
        model.arm(at);
    }
}

/// Asks a portion of the load's sequences to leave. Returns when and at which place to continue. `None` if no sequence lives on the load.
fn ask_some(model: &Arc<ModelScheduler>, load: &Arc<LoadedModel>, of: &CarriedLoad) -> Option<(Time, u32)> {
    if model.usage(load.key).live == 0 {
        return None;
    }
    let (views, rest) = model.seen(of.from, PORTION);
    for view in views.iter().filter(|view| view.load == load.key && can_leave(view)) {
        if !return_to_store(model, view) {
            post_leave(&model.name, load, view, Leaving::Carry, MailReply::new(|_| ()));
        }
    }
    let pause = if rest.is_some() { PAUSE } else { AGAIN };
    Some((model.now() + pause, rest.unwrap_or(0)))
}

/// Returns a state to where it came from, if no step has run with it since. It is in no slot, so no thread can copy it.
fn return_to_store(model: &Arc<ModelScheduler>, view: &SequenceView) -> bool {
    let mut is_back = false;
    model.change(|table, now| {
        let found = table.live(view.seq).is_some_and(|live| live.origin.is_some() && live.first_state.is_some());
        if found && table.core.state_of(view.seq).is_none() && is_as_seen(table, now, view.seq, view.step).is_some() {
            table.apply(now, Event::End(view.seq, EndReason::Spilled));
            is_back = true;
        }
    });
    is_back
}

/// The view of a sequence, if it is at this step and can move.
fn is_as_seen(table: &Table, now: Time, seq: Seq, step: u64) -> Option<SequenceView> {
    let view = table.core.view_of(seq).filter(|view| view.step == step && can_leave(view) && view.due > now)?;
    let may_move = !table.stopping && !table.is_held(seq) && table.is_sole(seq, &view.id);
    may_move.then_some(view)
}

/// Moves a sequence whose state at this step was copied, if it has not changed since. Returns the file if the state has to wait in the store.
/// Called by the thread that runs the sequence's steps.
pub(in crate::model::sequences) fn leave(
    model: &Arc<ModelScheduler>,
    seq: Seq,
    step: u64,
    file: Vec<u8>,
) -> Option<Vec<u8>> {
    let (old, is_written, is_paused) = {
        let table = model.table.lock();
        let live = table.live(seq)?;
        is_as_seen(&table, model.now(), seq, step)?;
        (Arc::clone(&live.load), live.is_written(step), model.now() < table.spilling.paused_until)
    };
    let target = model.carrying.lock().iter().find(|of| of.load == old.key).map(|of| Arc::clone(&of.to))?;
    if is_in_store(&old) && target.durable.is_some() {
        if is_written || (!is_paused && model.room_to_leave() > 0) {
            return Some(file);
        }
        // If the store has no room, the sequence stays and is asked again. Sequor does not wait for a store that fails.
        if !is_paused {
            return None;
        }
    }
    move_in_memory(model, seq, step, (file, &target));
    None
}

fn move_in_memory(model: &Arc<ModelScheduler>, seq: Seq, step: u64, (file, target): (Vec<u8>, &Arc<LoadedModel>)) {
    let mut until = Time::NEVER;
    model.change(|table, now| {
        if target.is_retired() {
            return;
        }
        let Some(SequenceView { id, due, idle, .. }) = is_as_seen(table, now, seq, step) else { return };
        let Some(live) = table.live_mut(seq) else { return };
        let (mut ticket, written) = (live.ticket.take(), live.written.as_ref().map(|written| written.incarnation));
        // The slots of the new load may have two sides.
        match &mut ticket {
            Some(ticket) => ticket.raise_to(target.state_bytes()),
            None => ticket = Some(model.budget().count(target.state_bytes())),
        }
        if target.grows() {
            let grown = model.budget().count(file.len() as u64);
            match &mut ticket {
                Some(ticket) => ticket.merge(grown),
                None => ticket = Some(grown),
            }
        }
        table.apply(now, Event::End(seq, EndReason::Spilled));
        // The stored state becomes out of date with the next step.
        if let Some(incarnation) = written {
            table.forget_state(id.clone(), incarnation);
        }
        let carried = Carried { load: Arc::clone(target), until: due, idle };
        table.imports.insert(id, Import::carried(step, carried, Bytes::from(file), ticket));
        until = due;
    });
    if until != Time::NEVER {
        model.arm(until);
    }
}

/// Ends sequences whose state has waited for a step for longer than their idle time.
fn expire(model: &Arc<ModelScheduler>) {
    if model.table.lock().imports.is_empty() {
        return;
    }
    let mut next = Time::NEVER;
    model.change(|table, now| next = expire_imports(table, now, model.load_for(None).map(|load| load.key)));
    if next != Time::NEVER {
        model.arm(next);
    }
}

fn expire_imports(table: &mut Table, now: Time, load: Option<LoadId>) -> Time {
    let (ended, next): (Vec<(Id, Tombstone)>, Time) = table.imports.expire(now);
    for (id, stone) in ended {
        if let Some(load) = load {
            table.core.remember(load, id, stone);
        }
    }
    next
}
