//! Moves live sequences of a replaced load to the load that took its place: `[reload] then = "carry"`.
//!
//! A sequence moves between two of its steps. The thread of its instance copies the state. Under the model's lock the sequence then ends on the
//! old load, and its state waits for the next step, which begins it on the new load. So no request comes between, and the memory goes along.
//! A sequence that is busy is tried again. After [`GRACE`] the rest ends.
//!
//! Where states are written while their sequences live, the state waits in the store instead. It stays marked with the files of the old load; the
//! store knows that the new load goes on from it. That is so from the moment at which the load is replaced, and so it holds after a crash, too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Event, Id, LoadId, Seq, Time, Tombstone};

use crate::model::load::{Leaving, LoadDurability, LoadedModel, MailReply};
use crate::model::sequences::offloaded::{Carried, CarriedLoad, ImportOrigin};
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::{Import, SequenceLookup as _, Table};
use crate::model::sequences::write_back::{can_leave, post_leave};
use crate::state::tier::VersionDigest;

/// Places of the table that are looked at, at one time.
const PORTION: u32 = 64;
/// Between two portions, and between two looks at sequences that were busy.
const PAUSE: Duration = Duration::from_millis(1);
const AGAIN: Duration = Duration::from_millis(20);
/// How long sequences may be busy, once they are to move.
const GRACE: Duration = Duration::from_secs(10);

/// Takes a load out of service that another one replaces. Its live sequences go on for a time; then they move or end, as the new load says.
pub(in crate::model) fn replace(model: &Arc<ModelScheduler>, old: LoadId, new: Option<&Arc<LoadedModel>>) {
    let reload = new.map(|new| new.settings.reload).unwrap_or_default();
    let (at, before) = (model.now() + reload.drain, model.loads().iter().find(|load| load.key == old).cloned());
    let fits = before.as_ref().zip(new).map(|(before, new)| fits(before, new));
    if let (true, Some(Err(why))) = (reload.carries, &fits) {
        tracing::warn!(
            model = model.name,
            why,
            "live sequences do not move to the new version; they end after [reload] drain"
        );
    }
    let moves = reload.carries && matches!(fits, Some(Ok(())));
    if let Some(before) = &before {
        move_on(model, before, new.filter(|_| moves));
        succeed(model, before, new, moves);
    }
    if !moves {
        return model.retire(old, at);
    }
    model.retire(old, at + GRACE);
    model.carrying.lock().push(CarriedLoad { load: old, at, from: 0 });
    model.arm(at);
}

/// Why sequences of one load cannot go on with another, if they cannot: the same requests must mean the same there.
fn fits(old: &LoadedModel, new: &LoadedModel) -> Result<(), String> {
    for load in [old, new] {
        if load.processors.is_some() || load.ensemble.is_some() {
            return Err(format!("version {} has processors or is an ensemble", load.version));
        }
    }
    let (before, now) = (&old.settings, &new.settings);
    let inputs = |of: &LoadedModel| -> Vec<_> {
        of.settings.inputs.iter().map(|i| (i.name.clone(), i.dtype, i.dims.clone(), i.optional)).collect()
    };
    let outputs = |of: &LoadedModel| -> Vec<_> {
        of.settings.outputs.iter().map(|o| (o.name.clone(), o.dtype, o.dims.clone())).collect()
    };
    if inputs(old) != inputs(new)
        || outputs(old) != outputs(new)
        || before.max_batch_size.min(1) != now.max_batch_size.min(1)
    {
        return Err("its inputs or outputs are others".to_owned());
    }
    if before.features != now.features {
        return Err("its features are others".to_owned());
    }
    for state in &old.states {
        let name = &state.input;
        match new.states.iter().find(|of| of.input == *name) {
            None => return Err(format!("it has no state \"{name}\"")),
            Some(of) if of.dtype != state.dtype || of.dims != state.dims => {
                let (was, is) = (format!("{} {}", state.dtype, state.dims), format!("{} {}", of.dtype, of.dims));
                return Err(format!("state \"{name}\" was {was} and is {is}"));
            }
            Some(_) => {}
        }
    }
    match new.states.iter().find(|of| old.states.iter().all(|state| state.input != of.input)) {
        Some(more) => Err(format!("state \"{}\" is new", more.input)),
        None => Ok(()),
    }
}

/// Notes whether the new load goes on from stored states of a replaced one. Returns once that is durable.
fn succeed(model: &ModelScheduler, old: &LoadedModel, new: Option<&Arc<LoadedModel>>, moves: bool) {
    let (Some(store), Some(from)) = (model.store.get(), stored_as(old)) else { return };
    let successions = {
        let mut table = model.table.lock();
        let is_new = match new.and_then(|new| stored_as(new)) {
            Some(to) if moves => table.successions.add(from, to),
            // The states of the new load are its own again, if it was there before.
            to => table.successions.keep_only(|of| of != from && Some(of) != to),
        };
        is_new.then(|| table.successions.clone())
    };
    // The lock is free: this waits for the store, whose other work takes it.
    if let Some(successions) = successions {
        store.succeed(&model.name, successions);
    }
}

/// What stored states of a load are marked with.
fn stored_as(load: &LoadedModel) -> Option<VersionDigest> {
    load.durable.as_ref().map(|durable| durable.version_digest(load.version))
}

/// Whether a sequence that is to move waits in the store for its next step.
pub(in crate::model::sequences) fn goes_over_the_store(model: &ModelScheduler, seq: Seq) -> bool {
    let Some(old) = model.table.lock().live(seq).map(|live| Arc::clone(&live.load)) else { return false };
    let new = model.load_for(None).filter(|new| !new.is_retired() && fits(&old, new).is_ok());
    let Some(new) = new.filter(|new| is_in_store(&old) && new.durable.is_some()) else { return false };
    // A third load may have come since.
    succeed(model, &old, Some(&new), true);
    true
}

fn is_in_store(load: &LoadedModel) -> bool {
    load.durable.as_ref().is_some_and(LoadDurability::is_continual)
}

/// Sends states that wait for a replaced load on to the next, or ends their sequences.
fn move_on(model: &Arc<ModelScheduler>, old: &LoadedModel, new: Option<&Arc<LoadedModel>>) {
    model.change(|table, now| {
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
    });
}

/// Moves sequences whose time has come, and ends what waited for a step for too long. Called by the timer.
pub(in crate::model::sequences) fn tick(model: &Arc<ModelScheduler>) {
    expire(model);
    let now = model.now();
    let due: Vec<CarriedLoad> = model.carrying.lock().iter().filter(|of| of.at <= now).copied().collect();
    for of in due {
        let load = model.loads().iter().find(|load| load.key == of.load).cloned();
        let next = load.and_then(|load| ask_some(model, &load, of));
        let mut carrying = model.carrying.lock();
        carrying.retain(|other| other.load != of.load);
        carrying.extend(next);
        drop(carrying);
        if let Some(next) = next {
            model.arm(next.at);
        }
    }
}

/// Asks a portion of the sequences to leave. Returns what comes next, if any live.
fn ask_some(model: &Arc<ModelScheduler>, load: &Arc<LoadedModel>, of: CarriedLoad) -> Option<CarriedLoad> {
    if model.usage(load.key).live == 0 {
        return None;
    }
    let (views, rest) = model.seen(of.from, PORTION);
    let mut room = if is_in_store(load) { model.room_to_leave() } else { u64::MAX };
    for view in views.iter().filter(|view| view.load == load.key && can_leave(view)) {
        if room == 0 {
            break;
        }
        room = room.saturating_sub(view.state_bytes.max(load.state_bytes()));
        post_leave(&model.name, load, view, Leaving::Carry, MailReply::new(|_| ()));
    }
    let pause = if rest.is_some() { PAUSE } else { AGAIN };
    Some(CarriedLoad { at: model.now() + pause, from: rest.unwrap_or(0), ..of })
}

/// Moves a sequence whose state of this step was copied, if it is as it was. Called by the thread that runs its steps.
pub(in crate::model::sequences) fn leave(model: &Arc<ModelScheduler>, seq: Seq, step: u64, file: Vec<u8>) {
    let Some(new) = model.load_for(None).filter(|new| !new.is_retired()) else { return };
    let old = model.table.lock().live(seq).map(|live| Arc::clone(&live.load));
    // A third load may have come since.
    if old.is_none_or(|old| fits(&old, &new).is_err()) {
        return;
    }
    let mut until = Time::NEVER;
    model.change(|table, now| {
        let view = table.core.view_of(seq).filter(|view| view.step == step && can_leave(view) && view.due > now);
        let Some(view) = view.filter(|view| table.is_sole(seq, &view.id)) else { return };
        let (id, due, idle) = (view.id, view.due, view.idle);
        let Some(live) = table.live_mut(seq).filter(|live| live.holder.is_none()) else { return };
        let mut ticket = live.ticket.take();
        if let Some(ticket) = ticket.as_mut().filter(|_| new.grows()) {
            ticket.merge(model.budget().count(file.len() as u64));
        }
        table.apply(now, Event::End(seq, EndReason::Spilled));
        let carried = Carried { load: Arc::clone(&new), until: due, idle };
        table.imports.insert(id, Import::carried(step, carried, Bytes::from(file), ticket));
        until = due;
    });
    if until != Time::NEVER {
        model.arm(until);
    }
}

/// Ends what waited for a step for longer than its sequence may be idle.
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
