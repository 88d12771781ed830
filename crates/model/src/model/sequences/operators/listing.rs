//! The sequences of a model for operators, and how an operator ends one.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use sequor_core::{EndReason, Event, Id, SequenceView, Stage, Time, Tombstone};

use crate::error::{EndedBy, Failure};
use crate::model::sequences::entry::claims;
use crate::model::sequences::migration::restart;
use crate::model::sequences::offloaded::ImportOrigin;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::{EndersOf, Import, store_stages};
use crate::state::tier::{SharedSequence, StateHead, TierError, TierKey};
use crate::telemetry::ended_reason;

/// Places of the table that are read under one lock.
const PORTION: u32 = 256;
/// Maximum number of stored sequences of no server that are listed.
const UNOWNED: usize = 10_000;
/// Maximum number of ends that are listed.
const ENDS: usize = 10_000;

/// A live sequence.
#[derive(Debug, Clone)]
pub struct LiveSequence {
    pub id: Id,
    pub version: u64,
    pub stage: Stage,
    /// The instance, and the slot within it.
    pub placement: Option<(u16, u32)>,
    /// The last committed step.
    pub step: u64,
    pub queued: u32,
    pub queued_bytes: u64,
    pub state_bytes: u64,
    /// Whether it ends with the requests that are queued.
    pub ending: bool,
    /// Time since its last START. Of a sequence that came from the store, from an operator or from a replaced load and had no START since:
    /// time since it came.
    pub age: Duration,
    /// Time that it has waited for a slot, if it waits.
    pub waited: Option<Duration>,
    /// Time since its last request arrived or was answered.
    pub quiet: Duration,
    /// Time until it expires or leaves the backlog; `None` if it does neither.
    pub left: Option<Duration>,
}

/// A sequence that has ended and is remembered.
#[derive(Debug, Clone)]
pub struct EndedSequence {
    pub id: Id,
    pub reason: &'static str,
    /// The plug-in that ended it.
    pub by: Option<EndedBy>,
    /// The member that ended it, if it is a sequence of an ensemble.
    pub member: Option<String>,
    /// The last committed step.
    pub step: u64,
    /// Its allowed idle time; `None` means no limit.
    pub idle: Option<Duration>,
    pub ago: Duration,
}

/// A stored sequence, or a state that was given to the server or carried over from a replaced load, until the next step comes.
#[derive(Debug, Clone)]
pub struct ResumableSequence {
    pub id: Id,
    pub version: u64,
    /// Steps that its state contains.
    pub step: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Time until it expires; `None` is never.
    pub left: Option<Duration>,
    pub origin: ResumableFrom,
}

/// Where the state of a sequence that waits for its next step comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumableFrom {
    Store,
    /// An operator imported it, or copied it from another sequence.
    Operator,
    /// A replaced load of the model.
    Reload,
}

/// The sequences of a model that wait for their next step, in the order of their ids.
pub(in crate::model) fn resumable(model: &ModelScheduler) -> Vec<ResumableSequence> {
    let mut all: Vec<ResumableSequence> = restart::resumable(model, PORTION as usize)
        .into_iter()
        .map(|(id, version, head, left)| ResumableSequence::stored(id, version, &head, left))
        .collect();
    let (now, mut after) = (model.now(), None);
    loop {
        let table = model.table.lock();
        let portion = table.imports.after(after.as_ref()).take(PORTION as usize);
        let portion: Vec<_> = portion.map(|(id, import)| ResumableSequence::imported(id, import, now)).collect();
        drop(table);
        let Some(last) = portion.last() else { break };
        after = Some(last.id.clone());
        all.extend(portion);
    }
    all.extend(unowned(model));
    all.sort_by_cached_key(|kept| kept.id.to_string());
    all
}

impl ResumableSequence {
    fn stored(id: Id, version: u64, head: &StateHead, left: Option<Duration>) -> ResumableSequence {
        ResumableSequence { id, version, step: head.step, bytes: head.bytes, left, origin: ResumableFrom::Store }
    }

    fn imported(id: &Id, import: &Import, now: Time) -> ResumableSequence {
        let ImportOrigin { step, carried, given } = &import.origin;
        let version =
            carried.as_ref().map(|carried| carried.load.version).or(given.as_ref().map(|given| given.version));
        let (version, bytes) = (version.unwrap_or(0), import.snapshot.len() as u64);
        let left = (import.until() != Time::NEVER).then(|| import.until().since(now));
        let origin = if carried.is_some() { ResumableFrom::Reload } else { ResumableFrom::Operator };
        ResumableSequence { id: id.clone(), version, step: *step, bytes, left, origin }
    }
}

/// A sequence that does not live here. At least one of both is there.
#[derive(Debug, Clone)]
pub struct AbsentSequence {
    /// The other server that has it, if several servers share the store.
    pub node: Option<String>,
    /// Its stored state, or the state that waits for its next step.
    pub state: Option<ResumableSequence>,
}

/// Finds the sequence of an id that does not live here: its state here, or else its record in the store that servers share. Reads one record
/// and no list. An error if that store does not answer.
pub(in crate::model) fn find(model: &ModelScheduler, id: &Id) -> Result<Option<AbsentSequence>, Failure> {
    let here = restart::find_resumable(model, id)
        .map(|(id, version, head, left)| ResumableSequence::stored(id, version, &head, left))
        .or_else(|| model.table.lock().imports.get(id).map(|of| ResumableSequence::imported(id, of, model.now())));
    if here.is_some() {
        return Ok(Some(AbsentSequence { node: None, state: here }));
    }
    let Some(gate) = model.gate.as_ref().filter(|gate| gate.is_active()) else { return Ok(None) };
    let Some(shared) = gate.store().shared() else { return Ok(None) };
    let failed =
        |error: TierError| Failure::Store { model: model.name.clone(), id: id.clone(), why: error.to_string() };
    let found = shared.find(&TierKey::new(&model.name, id)).map_err(failed)?;
    Ok(found.map(|SharedSequence { node, stored }| {
        let state = stored.map(|(head, left)| {
            ResumableSequence::stored(
                id.clone(),
                head.version,
                &head,
                left.or(head.idle_left).filter(|_| node.is_none()),
            )
        });
        AbsentSequence { node, state }
    }))
}

/// Stored sequences that belong to no server, if several servers share the store. At most [`UNOWNED`].
fn unowned(model: &ModelScheduler) -> Vec<ResumableSequence> {
    let Some(shared) = model.store.get().and_then(|store| store.shared()) else { return Vec::new() };
    match shared.unowned(&model.name, UNOWNED) {
        Ok(found) => found
            .into_iter()
            .map(|(id, head, left)| ResumableSequence::stored(id, head.version, &head, left.or(head.idle_left)))
            .collect(),
        Err(error) => {
            tracing::warn!(model = model.name, %error, "sequences that belong to no server are not listed");
            Vec::new()
        }
    }
}

/// Every live sequence of a model, in no particular order. All ages are of one time.
pub(in crate::model) fn live(model: &ModelScheduler) -> Vec<LiveSequence> {
    let (mut all, mut from, now) = (Vec::new(), Some(0), model.now());
    while let Some(place) = from {
        let (seen, rest) = model.seen(place, PORTION);
        all.extend(seen.into_iter().map(|seen| shown(model, seen, now)));
        from = rest;
    }
    all
}

fn shown(model: &ModelScheduler, seen: SequenceView, now: Time) -> LiveSequence {
    let loads = model.loads();
    let load = loads.iter().find(|load| load.key == seen.load);
    // The bytes that the last run reported, and at least the fixed size of a sequence in a slot.
    let fixed = load.filter(|_| seen.placement.is_some()).map_or(0, |load| load.state_bytes());
    LiveSequence {
        id: seen.id,
        version: load.map_or(0, |load| load.version),
        stage: seen.stage,
        placement: seen.placement,
        step: seen.step,
        queued: seen.queued,
        queued_bytes: seen.queued_bytes,
        state_bytes: seen.state_bytes.max(fixed),
        ending: seen.ending,
        age: now.since(seen.began),
        waited: seen.waits_since.map(|since| now.since(since)),
        quiet: now.since(seen.touched),
        left: (seen.due != Time::NEVER).then(|| seen.due.since(now)),
    }
}

/// The live sequence of an id. If there are two, it is the one that has replaced the other, which is ending.
pub(in crate::model) fn find_live(model: &ModelScheduler, id: &Id) -> Option<LiveSequence> {
    let table = model.table.lock();
    let seq = table.core.find(id, None).or_else(|| table.core.find_ending(id))?;
    let seen = table.core.view_of(seq)?;
    drop(table);
    Some(shown(model, seen, model.now()))
}

/// The last sequences of a model that ended, the latest first.
pub(in crate::model) fn ended(model: &ModelScheduler) -> Vec<EndedSequence> {
    let (now, ended) = (model.now(), model.ended(ENDS));
    ended.into_iter().map(|(id, stone, enders)| EndedSequence::new(id, stone, enders, now)).collect()
}

/// The end of the last sequence of an id, if it is remembered.
pub(in crate::model) fn find_ended(model: &ModelScheduler, id: &Id) -> Option<EndedSequence> {
    let table = model.table.lock();
    let stone = table.core.end_of(id)?;
    let enders = table.enders_of(id, stone);
    drop(table);
    Some(EndedSequence::new(id.clone(), stone, enders, model.now()))
}

impl EndedSequence {
    fn new(id: Id, stone: Tombstone, (by, member): EndersOf, now: Time) -> EndedSequence {
        let Tombstone { why, at, step, idle } = stone;
        EndedSequence { id, reason: ended_reason(why), by, member, step, idle, ago: now.since(at) }
    }
}

/// Ends a sequence that lives or is stored. Its queued requests are refused. If it is in the store, waits until the store has removed it.
/// Returns false if there is none of this id. If the store cannot remove it, returns the error. The store tries again, the last time when it
/// closes. If the disk is still full then, the sequence comes back with the next server.
pub(in crate::model) fn end(model: &Arc<ModelScheduler>, id: &Id, why: EndReason) -> Result<bool, Failure> {
    claims::take_over(model, id);
    let (report, removed) = sync_channel(1);
    let load = model.load_for(None).map(|load| load.key);
    let mut is_there = true;
    model.change(|table, now| {
        let is_written = match table.core.find(id, None) {
            Some(seq) => {
                let is_written =
                    table.live(seq).is_some_and(|live| live.written.is_some()) || table.kept.contains_key(id);
                table.apply(now, Event::End(seq, why));
                is_written
            }
            None => {
                is_there = store_stages::drop_kept(table, now, load, id, why);
                is_there
            }
        };
        if is_written {
            table.pending_ends.report(id.clone(), report);
        }
    });
    match removed.recv().ok().flatten() {
        None => Ok(is_there),
        Some(error) => Err(Failure::Internal(format!(
            "sequence {id} has ended, and its stored state is not removed: {error}; a restart may resume it"
        ))),
    }
}
