//! Takes over the sequences that the store keeps of a model, and writes the live ones when the server stops.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use sequor_core::{Id, SequenceView, Time};

use crate::config::model::settings::DurabilityWhen;
use crate::executor::ModelStep;
use crate::model::load::{LoadedModel, SnapshotReply, SnapshotRequest, header};
use crate::state::tier::{StateHead, TierChange, TierKey};
use crate::state::with_answer;
use crate::tensor::NamedTensor;

use super::driver::ModelScheduler;
use super::kept::KeptSequence;

/// Places of the table whose states are copied at one time.
const PORTION: u32 = 64;

/// What came of the live sequences of a server that stops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::model) struct KeptLive {
    pub(in crate::model) kept: u64,
    /// They had a state, which could not be written.
    pub(in crate::model) lost: u64,
    /// Why the first of them could not be.
    pub(in crate::model) why: Option<String>,
}

/// A live sequence that was asked to leave.
struct LeavingSequence {
    view: SequenceView,
    load: Arc<LoadedModel>,
    state: Receiver<SnapshotReply>,
    /// What its last step was answered with, if its client counts steps.
    answer: Option<Vec<NamedTensor>>,
}

/// Takes over the sequences that the store keeps of this model. Their idle time goes on from now.
pub(in crate::model) fn keep(model: &Arc<ModelScheduler>, kept: Vec<(Id, StateHead)>) {
    let now = model.now();
    let until = |head: &StateHead| head.idle_left.map_or(Time::NEVER, |left| now + left);
    let kept = kept.into_iter().map(|(id, head)| (id, KeptSequence { until: until(&head), head }));
    let mut table = model.table.lock();
    table.kept.extend(kept);
    let next = table.kept.values().map(|kept| kept.until).min();
    table.kept_due = next.unwrap_or(Time::NEVER);
    model.store.set_kept(!table.kept.is_empty());
    drop(table);
    if let Some(next) = next.filter(|next| *next != Time::NEVER) {
        model.arm(next);
    }
}

/// Sequences that are kept and were not gone on from: id, version, steps, bytes, and the idle time that is left.
pub(in crate::model) fn resumable(model: &ModelScheduler) -> Vec<(Id, StateHead, Option<Duration>)> {
    let now = model.now();
    let left = |kept: &KeptSequence| (kept.until != Time::NEVER).then(|| kept.until - now);
    let table = model.table.lock();
    table.kept.iter().map(|(id, kept)| (id.clone(), kept.head.clone(), left(kept))).collect()
}

// === the server stops ===

/// Writes the live sequences of loads that keep them when the server stops. Each ends here with its last committed step.
pub(in crate::model) fn keep_live(model: &Arc<ModelScheduler>) -> KeptLive {
    model.table.lock().stopping = true;
    let mut sum = KeptLive::default();
    let (Some(store), mut from) = (model.store.get().cloned(), Some(0)) else { return sum };
    while let Some(place) = from {
        let (seen, rest) = model.seen(place, PORTION);
        let copies: Vec<_> = seen.into_iter().filter_map(|view| ask_to_leave(model, view)).collect();
        let (tell, told) = sync_channel(PORTION as usize);
        let mut written = 0;
        for leaving in &copies {
            if let Some(change) = change_of(model, leaving, &mut sum) {
                let tell = tell.clone();
                written += 1;
                // The receiver waits for all of them.
                store.write(vec![change], move |done| drop(tell.send(done)));
            }
        }
        for done in told.iter().take(written) {
            match done {
                Ok(()) => sum.kept += 1,
                Err(error) => {
                    sum.lost += 1;
                    sum.why.get_or_insert_with(|| error.to_string());
                }
            }
        }
        from = rest;
    }
    sum
}

/// Asks the instance of a sequence for its state. With that the sequence leaves.
fn ask_to_leave(model: &ModelScheduler, view: SequenceView) -> Option<LeavingSequence> {
    let load = model.loads().iter().find(|load| load.key == view.load).cloned()?;
    load.durable.as_ref().filter(|durable| durable.when == DurabilityWhen::Drain)?;
    let (instance, _) = view.placement?;
    let answer = model.table.lock().last_answer(view.seq);
    let (reply, state) = sync_channel(1);
    let header = header(&model.name, load.version, view.step);
    let request = SnapshotRequest { seq: view.seq, header, leaves: true, reply };
    let posted = load.mail.get(usize::from(instance))?.post(request);
    load.wake(instance);
    posted.then_some(LeavingSequence { view, load, state, answer })
}

/// The change that keeps this sequence; `None` if it has ended meanwhile.
fn change_of(model: &ModelScheduler, leaving: &LeavingSequence, sum: &mut KeptLive) -> Option<TierChange> {
    let LeavingSequence { view, load, state, answer } = leaving;
    let durable = load.durable.as_ref()?;
    let snapshot = state.recv().ok()??;
    let kept = snapshot.and_then(|(step, file)| {
        // It is the answer of the step that was the last one when the sequence was asked to leave.
        let answer = answer.as_ref().filter(|_| step == view.step);
        let file = answer.map_or(Ok(None), |answer| with_answer(&file, answer).map(Some))?.unwrap_or(file);
        let quiet = model.now().since(view.touched);
        let left = view.idle.map(|idle| idle.saturating_sub(quiet));
        let (of, number) = ((load.version, durable.digest), (durable.store.next_incarnation(), step));
        let head = StateHead::new(of, number, (view.idle, left), answer.is_some(), &file);
        Ok(TierChange::Put { key: TierKey::new(&model.name, &view.id), head, file })
    });
    match kept {
        Ok(change) => Some(change),
        Err(error) => {
            sum.lost += 1;
            sum.why.get_or_insert_with(|| error.to_string());
            None
        }
    }
}
