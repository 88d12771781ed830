//! Takes over the stored sequences of a model, and writes the live ones when the server stops.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{EndReason, Event, Id, LoadId, Seq, SequenceView, Stage, Time};

use crate::model::load::{Leaving, LeftState, LoadDurability, LoadedModel, MailReply, SequenceStore};
use crate::model::sequences::offloaded::{Carried, ImportOrigin, KeptSequence};
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::{Import, KeptStages as _, SequenceLookup, Table};
use crate::model::sequences::write_back::{sealing, spill};
use crate::processing::SequenceScratch;
use crate::state::tier::{
    EndedState, FailedChanges, IdleTime, StateHead, TierChange, TierError, TierKey, VersionDigest,
};
use crate::state::{SnapshotError, with_answer, with_scratch};
use crate::tensor::NamedTensor;

use super::carry;

/// Places of the table whose states are copied at a time.
const PORTION: u32 = 64;
/// Maximum number of ends that are remembered over a restart.
const ENDS: usize = 4096;

/// The outcome for the live sequences of a server that stops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::model) struct KeptLive {
    pub(in crate::model) kept: u64,
    /// Number of sequences with a state that could not be written.
    pub(in crate::model) lost: u64,
    /// Why the first of these could not be written.
    pub(in crate::model) why: Option<String>,
}

/// The outcome of asking a sequence to leave. `None` if it has ended or changed.
type LeaveOutcome = Option<Result<LeftState, SnapshotError>>;

impl KeptLive {
    fn lose(&mut self, error: &impl ToString) {
        self.lost += 1;
        self.why.get_or_insert_with(|| error.to_string());
    }
}

/// Takes over the stored sequences of this model. Their idle time counts from now on.
pub(in crate::model) fn keep(model: &Arc<ModelScheduler>, store: &SequenceStore) {
    store.begin_running();
    let (kept, successions) = (store.list(&model.name), store.successions(&model.name));
    let now = model.now();
    let until = |head: &StateHead| store.idle_left(head).map_or(Time::NEVER, |left| now + left);
    let waiting = |head: Arc<StateHead>| {
        let (incarnation, until) = (head.incarnation, until(&head));
        KeptSequence { head, incarnation, until, unwritten: None, doubt: None }
    };
    let kept = kept.into_iter().map(|(id, head)| (id, waiting(head)));
    let mut table = model.table.lock();
    table.kept.extend(kept);
    let stored: HashSet<VersionDigest> = table.kept.values().map(KeptSequence::version_digest).collect();
    table.successions = successions;
    // A version without stored states needs no successor. The states of other servers are not known here.
    let prunes = store.shared().is_none();
    let fewer = prunes && table.successions.keep_only(|of| stored.contains(&of));
    let fewer = fewer.then(|| table.successions.clone());
    let next = table.kept.values().map(|kept| kept.until).min();
    table.kept_due = next.unwrap_or(Time::NEVER);
    model.store.set_kept(!table.kept.is_empty());
    drop(table);
    if let Some(fewer) = fewer {
        store.succeed(&model.name, fewer);
    }
    if let Some(next) = next.filter(|next| *next != Time::NEVER) {
        model.arm(next.min(store.note_running()));
    }
}

/// Takes over the stored ends, once a load serves. They would be lost with a load that fails to start.
pub(in crate::model) fn take_ended(model: &Arc<ModelScheduler>, store: &SequenceStore, load: LoadId) {
    let ended = store.take_ended(&model.name);
    model.change(|table, _| {
        table.ended_before.extend(ended);
        table.remember_ended(load);
    });
}

/// The number of stored sequences that no load of the model continues, by the version that made their states.
pub(in crate::model) fn without_load(model: &ModelScheduler) -> BTreeMap<u64, usize> {
    let mut makers = HashMap::<VersionDigest, (usize, [VersionDigest; 2])>::new();
    let table = model.table.lock();
    for maker in table.kept.values().map(KeptSequence::version_digest) {
        makers.entry(maker).or_insert_with(|| (0, table.successors(maker))).0 += 1;
    }
    drop(table);
    let loads = model.loads();
    let digest = |load: &Arc<LoadedModel>| Some(load.durable.as_ref()?.version_digest(load.version));
    let taken: HashSet<VersionDigest> = loads.iter().filter_map(digest).collect();
    let mut without = BTreeMap::new();
    for (maker, (sequences, successors)) in makers {
        if !taken.contains(&maker) && !successors.iter().any(|successor| taken.contains(successor)) {
            *without.entry(maker.version).or_default() += sequences;
        }
    }
    without
}

/// A stored sequence that was not continued yet: id, the version that continues it, the facts about its state, and the idle time left.
type Resumable = (Id, u64, Arc<StateHead>, Option<Duration>);

/// The stored sequences of a model. `portion`: the maximum number that is read under one lock.
pub(in crate::model) fn resumable(model: &ModelScheduler, portion: usize) -> Vec<Resumable> {
    let (mut all, now) = (Vec::<Resumable>::new(), model.now());
    loop {
        let from = all.last().map_or(Bound::Unbounded, |(id, ..)| Bound::Excluded(id));
        let table = model.table.lock();
        let kept = table.kept.range::<Id, _>((from, Bound::Unbounded)).take(portion);
        let kept: Vec<Resumable> = kept.map(|(id, kept)| one_resumable(&table, now, id, kept)).collect();
        drop(table);
        if kept.is_empty() {
            return all;
        }
        all.extend(kept);
    }
}

/// The stored sequence of this id.
pub(in crate::model) fn find_resumable(model: &ModelScheduler, id: &Id) -> Option<Resumable> {
    let now = model.now();
    let table = model.table.lock();
    table.kept.get(id).map(|kept| one_resumable(&table, now, id, kept))
}

fn one_resumable(table: &Table, now: Time, id: &Id, kept: &KeptSequence) -> Resumable {
    let version = table.successions.successor_of(kept.version_digest()).version;
    (id.clone(), version, Arc::clone(&kept.head), (kept.until != Time::NEVER).then(|| kept.until - now))
}

// === the server stops ===

/// Writes the live sequences of loads that store them when the server stops. Each ends here with its last committed step.
pub(in crate::model) fn keep_live(model: &Arc<ModelScheduler>) -> KeptLive {
    model.table.lock().stopping = true;
    turn_waiting_away(model);
    let (ended, unwritten) = {
        let mut table = model.table.lock();
        let ended = table.core.ended(ENDS).into_iter();
        let ended: Vec<_> = ended.map(|(id, stone)| (id, table.ended_state(stone))).collect();
        // Sequences that left memory while the disk was full.
        let unwritten = |(id, kept): (&Id, &KeptSequence)| {
            let file = Bytes::clone(&kept.unwritten.as_ref()?.file);
            Some(LeftState { id: id.clone(), head: Arc::clone(&kept.head), file, is_stored: false })
        };
        let unwritten: Vec<LeftState> = table.kept.iter().filter_map(unwritten).collect();
        let now = model.now();
        let carried =
            table.imports.take_carried().into_iter().filter_map(|(id, import)| carried_state(id, import, now));
        (ended, unwritten.into_iter().chain(carried).collect::<Vec<_>>())
    };
    let mut sum = KeptLive::default();
    let (Some(store), mut from) = (model.store.get().cloned(), Some(0)) else { return sum };
    remember(&model.name, &store, ended);
    // The store writes one portion while the states of the next one are copied.
    let mut writing = begin_write(&model.name, &store, unwritten);
    while let Some(place) = from {
        let (seen, rest) = model.seen(place, PORTION);
        let ask = |view: SequenceView| ask_to_leave(model, &view).map(|left| (view.seq, left));
        let leaving: Vec<_> = seen.into_iter().filter_map(ask).collect();
        let mut left = Vec::with_capacity(leaving.len());
        for (seq, state) in leaving {
            match state.recv().ok().flatten() {
                None => why_it_stays(model, seq).iter().for_each(|why| sum.lose(why)),
                Some(Err(error)) => sum.lose(&error),
                Some(Ok(state)) => left.push(state),
            }
        }
        let next = begin_write(&model.name, &store, left);
        std::mem::replace(&mut writing, next).wait(&mut sum);
        from = rest;
    }
    writing.wait(&mut sum);
    sum
}

/// Why a sequence has not left that was asked to. `None` if it has ended meanwhile.
fn why_it_stays(model: &ModelScheduler, seq: Seq) -> Option<SnapshotError> {
    let table = model.table.lock();
    table.core.state_of(seq)?;
    Some(if table.core.is_between_runs(seq) { SnapshotError::InPart } else { SnapshotError::Unanswered })
}

/// Ends sequences that wait for a slot. Otherwise one could get the slot of a sequence that leaves, only to be lost with it. A state that
/// came from elsewhere goes back.
fn turn_waiting_away(model: &Arc<ModelScheduler>) {
    let mut from = Some(0);
    while let Some(place) = from {
        let (seen, rest) = model.seen(place, PORTION);
        let waiting: Vec<Seq> =
            seen.iter().filter(|view| view.stage == Stage::Backlogged).map(|view| view.seq).collect();
        if !waiting.is_empty() {
            model.change(|table, now| waiting.into_iter().for_each(|seq| turn_away(table, now, seq)));
        }
        from = rest;
    }
}

fn turn_away(table: &mut Table, now: Time, seq: Seq) {
    if table.core.view_of(seq).is_none_or(|view| view.stage != Stage::Backlogged) {
        return;
    }
    let goes_back = table.live(seq).is_some_and(|live| live.origin.is_some() && live.first_state.is_some());
    let why = if goes_back { EndReason::Spilled } else { EndReason::Drained };
    table.apply(now, Event::End(seq, why));
}

/// The state of a sequence that moves between two loads, if the new load stores its sequences.
fn carried_state(id: Id, import: Import, now: Time) -> Option<LeftState> {
    let ImportOrigin { step, carried, .. } = import.origin;
    let Carried { load, until, idle } = carried?;
    let durable = load.durable.as_ref().filter(|_| until > now)?;
    let of = ((load.version, durable.digest), (durable.store.next_incarnation(), step));
    let left = idle.map(|_| until - now);
    let time = IdleTime { idle, left, running: durable.store.running() };
    let head = Arc::new(StateHead::new(of.0, of.1, time, false, &import.snapshot));
    Some(LeftState { id, head, file: import.snapshot, is_stored: false })
}

/// A portion of states that the store is writing.
struct PortionWrite {
    count: u64,
    failed: Receiver<FailedChanges>,
}

impl PortionWrite {
    fn wait(self, sum: &mut KeptLive) {
        // Without a report nothing is known to be written.
        let Ok(failed) = self.failed.recv() else { return (0..self.count).for_each(|_| sum.lose(&TierError::Closed)) };
        sum.kept += self.count - failed.len() as u64;
        failed.iter().for_each(|(_, error)| sum.lose(error));
    }
}

/// Starts writing the states of sequences that have left.
fn begin_write(model: &str, store: &SequenceStore, states: Vec<LeftState>) -> PortionWrite {
    let (sender, failed) = sync_channel(1);
    let (count, change) = (states.len() as u64, |LeftState { id, head, file, .. }: LeftState| TierChange::Put {
        key: TierKey::new(model, &id),
        head,
        file,
    });
    store.write(states.into_iter().map(change).collect(), move |failed| drop(sender.send(failed)));
    PortionWrite { count, failed }
}

/// Stores how sequences have ended.
fn remember(model: &str, store: &SequenceStore, ended: Vec<(Id, EndedState)>) {
    let change = |(id, ended): (Id, EndedState)| TierChange::Remember { key: TierKey::new(model, &id), ended };
    let of = model.to_owned();
    store.write(ended.into_iter().map(change).collect(), move |failed| {
        if let Some((_, error)) = failed.first() {
            tracing::error!(model = of, %error, "the ends of sequences are not stored; after the restart their ids are unknown");
        }
    });
}

/// Asks the instance of a sequence for its state. The sequence leaves with it.
fn ask_to_leave(model: &Arc<ModelScheduler>, view: &SequenceView) -> Option<Receiver<LeaveOutcome>> {
    let load = model.loads().iter().find(|load| load.key == view.load).cloned()?;
    let at_stop = load.durable.as_ref()?.at_stop();
    {
        let table = model.table.lock();
        let is_written = || table.live(view.seq)?.written.as_ref().map(|written| written.has_state);
        if table.is_held(view.seq) || (!at_stop && is_written() != Some(false)) {
            return None;
        }
    }
    let (sender, left) = sync_channel(1);
    let unrun = sealing::unrun_file(&model.table.lock(), &model.name, view);
    if let Some(file) = unrun {
        // Its requests were answered without a run, so its first state is in no slot.
        let gone = match file {
            Ok(file) => leave(model, view.seq, Leaving::Stop, view.step, file),
            Err(error) => Some(Err(error)),
        };
        return sender.send(gone).is_ok().then_some(left);
    }
    let reply = MailReply::new(move |left| drop(sender.send(left)));
    // If no instance takes the request, the reply is that there is no state.
    spill::post_leave(&model.name, &load, view, Leaving::Stop, reply);
    Some(left)
}

/// Ends a sequence whose state at this step was copied, and returns the state to store. `None` if the sequence has changed since. Called by
/// the thread that runs its steps.
pub(in crate::model) fn leave(
    model: &Arc<ModelScheduler>,
    seq: Seq,
    why: Leaving,
    step: u64,
    file: Vec<u8>,
) -> LeaveOutcome {
    let (why, file) = match why {
        Leaving::Carry => (Leaving::Spill, carry::leave(model, seq, step, file)?),
        other => (other, file),
    };
    let leaving = LeavingSequence::look_up(model, seq, step)?;
    let durable = leaving.load.durable.as_ref()?;
    if why == Leaving::Spill
        && let Some(left) = leaving.stored(&model.name, durable)
    {
        return leave_as(model, &leaving.view, why, left);
    }
    let file = match leaving.file(file) {
        Ok(file) => file,
        Err(error) => return Some(Err(error)),
    };
    let left = leaving.left(durable, file, model.now());
    leave_as(model, &leaving.view, why, left)
}

/// A sequence that will leave, as it was when its state was copied.
struct LeavingSequence {
    view: SequenceView,
    load: Arc<LoadedModel>,
    /// The answer to its last step, if its client numbers steps.
    answer: Option<Vec<NamedTensor>>,
    scratch: SequenceScratch,
    /// Its incarnation in the store, if its states are written while it lives.
    incarnation: Option<u64>,
    /// Whether its present state was handed to the store.
    is_written: bool,
}

impl LeavingSequence {
    /// Looks up a sequence. `None` if this is not its last step.
    fn look_up(model: &ModelScheduler, seq: Seq, step: u64) -> Option<LeavingSequence> {
        let table = model.table.lock();
        let live = table.live(seq)?;
        let view = table.core.view_of(seq).filter(|view| view.step == step)?;
        // The state may be of a step that is not answered yet. The previous answer does not belong to that step.
        let answer = table.last_answer(seq).filter(|_| table.core.is_answered(seq));
        let incarnation = live.written.as_ref().map(|of| of.incarnation);
        let (load, scratch, is_written) = (Arc::clone(&live.load), live.scratch.clone(), live.is_written(step));
        Some(LeavingSequence { view, load, answer, scratch, incarnation, is_written })
    }

    /// The sequence as the store has it, if the store has everything.
    fn stored(&self, model: &str, durable: &LoadDurability) -> Option<LeftState> {
        if !self.is_written || self.load.scratch_owners().is_some() {
            return None;
        }
        let head = durable.store.head(&TierKey::new(model, &self.view.id))?;
        let is_it = self.incarnation == Some(head.incarnation) && head.step == self.view.step && !head.behind;
        let is_whole = is_it && head.answered == self.answer.is_some();
        is_whole.then(|| LeftState { id: self.view.id.clone(), head, file: Bytes::new(), is_stored: true })
    }

    /// Its file: the states, the scratch of its processors, and the last answer.
    fn file(&self, states: Vec<u8>) -> Result<Vec<u8>, SnapshotError> {
        let with_scratch = match self.load.scratch_owners() {
            // The scratch is committed when the step is answered.
            Some(_) if matches!(self.view.stage, Stage::Running | Stage::Sealing | Stage::Posting) => {
                return Err(SnapshotError::Unanswered);
            }
            Some(names) => with_scratch(&states, &names, self.scratch.parts())?,
            None => states,
        };
        match &self.answer {
            Some(answer) => with_answer(&with_scratch, answer),
            None => Ok(with_scratch),
        }
    }

    /// This file with its head, as the store keeps them.
    fn left(&self, durable: &LoadDurability, file: Vec<u8>, now: Time) -> LeftState {
        let LeavingSequence { view, load, .. } = self;
        let quiet = now.since(view.touched);
        let idle_left = view.idle.map(|idle| idle.saturating_sub(quiet));
        let incarnation = self.incarnation.unwrap_or_else(|| durable.store.next_incarnation());
        let (of, at) = ((load.version, durable.digest), (incarnation, view.step));
        let time = IdleTime { idle: view.idle, left: idle_left, running: durable.store.running() };
        let head = Arc::new(StateHead::new(of, at, time, self.answer.is_some(), &file));
        LeftState { id: view.id.clone(), head, file: Bytes::from(file), is_stored: false }
    }
}

/// Ends a sequence whose state is kept as `left`, if it has not changed.
fn leave_as(model: &Arc<ModelScheduler>, view: &SequenceView, why: Leaving, left: LeftState) -> LeaveOutcome {
    let mut has_left = false;
    model.change(|table, now| has_left = spill::leave(model, table, now, view.seq, why, &left));
    if has_left && why == Leaving::Spill {
        model.store.set_kept(true);
        if view.due != Time::NEVER {
            model.arm(view.due);
        }
    }
    has_left.then_some(Ok(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_without_a_report_of_the_store_count_as_lost() {
        let (report, failed) = sync_channel(1);
        drop(report);
        let mut sum = KeptLive { kept: 1, ..KeptLive::default() };
        PortionWrite { count: 3, failed }.wait(&mut sum);
        assert_eq!(sum, KeptLive { kept: 1, lost: 3, why: Some(TierError::Closed.to_string()) });
    }
}
