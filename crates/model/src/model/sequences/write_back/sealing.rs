//! States on their way to the store: hands them over, lets answers wait, and applies the results. All of it runs under the table's lock.

use std::sync::Arc;

use sequor_core::{BatchId, EndReason, Event, Refusal, Req, Seq, SequenceView, Stage, Time};

use crate::error::Failure;
use crate::model::load::{
    BatchToSeal, LoadDurability, LoadedModel, StateTier, StateToSeal, UnstoredState, first_file, header,
};
use crate::model::sequences::jobs::Job;
use crate::model::sequences::offloaded::{RowToSeal, WrittenSequence};
use crate::model::sequences::table::{JobStage, PendingSeals, SealAction, SealWaiting, SealingRow, StoreAction, Table};
use crate::state::{SnapshotError, StateCopy, StateValues};

use super::rollback;

/// Refusal code for a load whose states must be durable and that has no tier.
const NO_TIER: u32 = 2;

/// Hands pending states to the tiers. Requests that do not wait for them continue.
pub(in crate::model::sequences) fn work(table: &mut Table, now: Time) {
    while !table.pending.is_empty() {
        let PendingSeals { batches, posted, replies, failed_starts } = std::mem::take(&mut table.pending);
        for (id, rows) in batches {
            if let Some(event) = seal(table, now, id, rows) {
                table.apply(now, event);
            }
        }
        for req in posted {
            if let Some(event) = seal_posted(table, now, req) {
                table.apply(now, event);
            }
        }
        for req in replies {
            if let Some(event) = seal_reply(table, now, req) {
                table.apply(now, event);
            }
        }
        for job in failed_starts {
            if let Some(job) = forget_before(table, now, job) {
                table.actions.released.push(job);
            }
        }
    }
}

/// How a batch continues after its states were handed to the tier.
enum SealStep {
    /// Its answers leave, except those of these requests.
    GoesOn(Vec<(Req, Refusal)>),
    /// Its answers wait until the states are durable.
    Waits,
}

/// Hands the states of a batch to the tier of its load. Returns the batch's event if nothing waits for the tier.
fn seal(table: &mut Table, now: Time, id: BatchId, rows: Vec<RowToSeal>) -> Option<Event> {
    match hand_over(table, now, id, rows) {
        SealStep::GoesOn(refused) => Some(Event::Sealed(id, refused)),
        SealStep::Waits => None,
    }
}

fn hand_over(table: &mut Table, now: Time, id: BatchId, mut rows: Vec<RowToSeal>) -> SealStep {
    // A request that is over has no state to make durable, and does not affect the others.
    rows.retain(|row| table.job(row.req).is_some());
    let Some(load) = rows.first().and_then(|row| Some(Arc::clone(&table.job(row.req)?.load))) else {
        return SealStep::GoesOn(Vec::new());
    };
    let Some(tier) = load.tier.clone() else {
        let failed = |row: RowToSeal| (row.req, Refusal::Failed(NO_TIER));
        return SealStep::GoesOn(rows.into_iter().map(failed).collect());
    };
    if load.durable.is_some() {
        rows.retain(|row| !table.job(row.req).and_then(|job| job.seq).is_some_and(|seq| table.is_held(seq)));
    }
    if load.processors.is_some() {
        seal_after_processors(table, rows);
        return SealStep::GoesOn(Vec::new());
    }
    let interval = load.durable.as_ref().and_then(LoadDurability::interval);
    let waits = wait_for_tier(table, &mut rows, interval);
    if rows.is_empty() && !waits {
        return SealStep::GoesOn(Vec::new());
    }
    let waiting = if waits { SealWaiting::Batch(id) } else { SealWaiting::Nothing };
    let states = rows.into_iter().filter_map(|row| state_to_seal(table, now, row)).collect();
    write(table, &load, tier, waiting, states);
    if waits { SealStep::Waits } else { SealStep::GoesOn(Vec::new()) }
}

/// Keeps the states with their requests. Processors may change the scratch that is stored with a state, so the state is written after them.
fn seal_after_processors(table: &mut Table, rows: Vec<RowToSeal>) {
    for row in rows {
        if let Some(job) = table.jobs.get_mut(row.req).and_then(JobStage::job_mut) {
            job.write.to_seal = Some(row);
        }
    }
}

/// Whether the answers of a batch wait until its states are durable. If a load writes every `interval` steps, removes the rows that are not
/// due.
fn wait_for_tier(table: &mut Table, rows: &mut Vec<RowToSeal>, interval: Option<u64>) -> bool {
    if interval.is_none() {
        return !rows.is_empty();
    }
    let is_late = rows.iter().any(|row| is_late(table, row, interval));
    rows.retain(|row| row.copy.is_some());
    // Counts all of them, because the call also clears each mark.
    let replacing = rows.iter().filter(|row| replaces_stale(table, row.req)).count();
    is_late || replacing > 0
}

/// Hands the state of a request whose processors are done to the tier. Returns its event if it does not wait for that.
fn seal_posted(table: &mut Table, now: Time, req: Req) -> Option<Event> {
    let posted = Some(Event::Posted(req));
    let Some(job) = table.jobs.get_mut(req).and_then(JobStage::job_mut) else { return posted };
    let (Some(row), load) = (job.write.to_seal.take(), Arc::clone(&job.load)) else { return posted };
    let Some(tier) = load.tier.clone() else { return posted };
    let interval = load.durable.as_ref().and_then(LoadDurability::interval);
    let late = is_late(table, &row, interval);
    let is_due = interval.is_none() || row.copy.is_some();
    let waits = interval.is_none() || late || (is_due && replaces_stale(table, req));
    if !is_due && !waits {
        return posted;
    }
    let state = is_due.then(|| state_to_seal(table, now, row)).flatten();
    table.set_stage(req, JobStage::Posting);
    let waiting = if waits { SealWaiting::Posted(req) } else { SealWaiting::Nothing };
    write(table, &load, tier, waiting, state.into_iter().collect());
    posted.filter(|_| !waits)
}

/// Lets the tier remove the state from before a failed START. The failure is answered only after that, so that no restart continues from that
/// state.
fn forget_before(table: &mut Table, now: Time, job: Box<Job>) -> Option<Box<Job>> {
    let (load, seq) = (Arc::clone(&job.load), job.seq);
    let Some(tier) = load.tier.clone() else { return Some(job) };
    let Some((row, state)) = state_of_job(table, now, &job, None, None) else { return Some(job) };
    if let Some(written) = seq.and_then(|seq| table.live_mut(seq)).and_then(|live| live.written.as_mut()) {
        (written.has_state, written.is_stale) = (false, false);
    }
    write(table, &load, tier, SealWaiting::FailedStart(job), vec![(row, StateToSeal { forgets: true, ..state })]);
    None
}

/// Hands the scratch that a request left without a run to the tier. Returns its event if it does not wait for that.
fn seal_reply(table: &mut Table, now: Time, req: Req) -> Option<Event> {
    let replied = Some(Event::Replied(req, None));
    let Some(job) = table.job(req) else { return replied };
    let (Some(seq), load, start) = (job.seq, Arc::clone(&job.load), job.facts.start) else { return replied };
    let Some((tier, durable)) = load.tier.clone().zip(load.durable.as_ref()) else { return replied };
    let Some(written) = table.live_mut(seq).and_then(|live| live.written.as_mut()) else { return replied };
    // Between two writes, only a state that replaces one from before a START is written.
    if durable.interval().is_some() && !(start && std::mem::take(&mut written.is_stale)) {
        return replied;
    }
    let has_kept = table.live(seq).is_some_and(|live| live.first_state.is_some());
    let begins = start || (table.core.state_of(seq).is_none() && !has_kept);
    let first = begins.then(|| first_values(table, seq)).flatten();
    let of_job = |table: &mut Table, job: &Job| state_of_job(table, now, job, None, first);
    let Some((row, state)) = with_sealing(table, req, of_job).flatten() else { return replied };
    if let Some(written) = written_as(table, &row) {
        written.replies += 1;
    }
    write(table, &load, tier, SealWaiting::Reply(req), vec![(SealingRow { req, ..row }, state)]);
    None
}

/// The first state of a sequence that has not run a step.
fn first_values(table: &Table, seq: Seq) -> Option<StateValues> {
    let live = table.live(seq)?;
    let made = live.first.as_ref().map(|first| first.values.clone());
    Some(made.unwrap_or_else(|| StateValues::initial(&live.load.states)))
}

/// The file of an idle live sequence that has not run a step.
pub(in crate::model::sequences) fn unrun_file(
    table: &Table,
    model: &str,
    view: &SequenceView,
) -> Option<Result<Vec<u8>, SnapshotError>> {
    let waits = view.stage == Stage::Idle && view.step > 0 && table.core.state_of(view.seq).is_none();
    let live = table.live(view.seq).filter(|_| waits)?;
    if let Some((_, file)) = &live.first_state {
        return Some(Ok(file.to_vec()));
    }
    let first = first_values(table, view.seq)?;
    Some(first_file(&first, &live.load.states, header(model, live.load.version, view.step)))
}

fn write(
    table: &mut Table,
    load: &LoadedModel,
    tier: Arc<dyn StateTier>,
    waiting: SealWaiting,
    states: Vec<(SealingRow, StateToSeal)>,
) {
    let (rows, states) = states.into_iter().unzip();
    let (model, specs) = (load.settings.name.clone(), load.states.clone());
    let digest = load.durable.as_ref().map(|durable| durable.digest).unwrap_or_default();
    let behind = load.durable.as_ref().is_some_and(|durable| durable.interval().is_some());
    let batch = BatchToSeal { model, version: load.version, digest, specs, behind, states };
    table.actions.rare().to_store.push(StoreAction::Seal(SealAction { tier, waiting, rows, batch }));
}

/// Whether this step must wait for the store, because too many steps were answered since the durable one.
fn is_late(table: &Table, row: &RowToSeal, interval: Option<u64>) -> bool {
    let seq = table.job(row.req).and_then(|job| job.seq);
    let step = seq.and_then(|seq| table.core.state_of(seq)).map(|at| at.step);
    let last = table.durable_step(seq).and_then(|durable| durable.checked_add(interval?));
    !row.end && step.zip(last).is_some_and(|(step, last)| step > last)
}

/// Whether the state after this request replaces one from before a START. Clears that mark.
fn replaces_stale(table: &mut Table, req: Req) -> bool {
    let seq = table.job(req).and_then(|job| job.seq);
    let live = seq.and_then(|seq| table.live_mut(seq));
    live.and_then(|live| live.written.as_mut()).is_some_and(|written| std::mem::take(&mut written.is_stale))
}

fn state_to_seal(table: &mut Table, now: Time, row: RowToSeal) -> Option<(SealingRow, StateToSeal)> {
    let RowToSeal { req, end, copy } = row;
    let of_job = |table: &mut Table, job: &Job| state_of_job(table, now, job, copy, None);
    let (row, state) = with_sealing(table, req, of_job)??;
    let live = table.live_mut(row.seq)?;
    live.is_forgotten = end;
    Some((SealingRow { req, ..row }, StateToSeal { end, ..state }))
}

/// Calls `with` with the table and a request that is being made durable.
fn with_sealing<T>(table: &mut Table, req: Req, with: impl FnOnce(&mut Table, &Job) -> T) -> Option<T> {
    table.set_stage(req, JobStage::Sealing);
    let JobStage::Sealing(job) = std::mem::replace(table.jobs.get_mut(req)?, JobStage::Running(None)) else {
        return None;
    };
    let result = with(table, &job);
    if let Some(place) = table.jobs.get_mut(req) {
        *place = JobStage::Sealing(job);
    }
    Some(result)
}

/// The state of a request's sequence, for the tier.
fn state_of_job(
    table: &mut Table,
    now: Time,
    job: &Job,
    copy: Option<StateCopy>,
    first: Option<StateValues>,
) -> Option<(SealingRow, StateToSeal)> {
    let (id, seq) = (job.id.clone(), job.seq?);
    let answer = job.counted.then(|| job.kept_answer()).flatten();
    let step = table.core.view_of(seq).map_or(0, |view| view.step);
    let idle = table.core.idle_of_sequence(seq);
    let at = table.zero + (now - Time::ZERO);
    let owners = job.load.scratch_owners();
    let live = table.live_mut(seq)?;
    let scratch = owners.map(|names| (names, live.scratch.clone()));
    let (incarnation, write) = live.written.as_mut().map_or((0, 0), |written| {
        written.has_state = true;
        written.writes += 1;
        (written.incarnation, written.writes)
    });
    // The key of the request is not known here, and has no meaning once it is answered.
    let row = SealingRow { req: Req::new(0, std::num::NonZeroU32::MIN), seq, incarnation, step, write };
    let (end, forgets) = (false, false);
    let state = StateToSeal { id, incarnation, step, end, forgets, at, idle, copy, first, scratch, answer };
    Some((row, state))
}

/// The stored state of this row's sequence, if the sequence still lives.
fn written_as<'a>(table: &'a mut Table, row: &SealingRow) -> Option<&'a mut WrittenSequence> {
    let written = table.live_mut(row.seq).and_then(|live| live.written.as_mut());
    written.filter(|written| written.incarnation == row.incarnation)
}

/// Applies the tier's result: the states are durable, except those at the failed places. A sequence whose answer waits for a failed one ends,
/// or goes back to the state that the store has ([`rollback`]).
pub(in crate::model::sequences) fn sealed(
    table: &mut Table,
    now: Time,
    waiting: SealWaiting,
    rows: &[SealingRow],
    failed: &[UnstoredState],
) {
    let durable = rows.iter().enumerate().filter(|(place, _)| failed.iter().all(|of| of.place != *place));
    for (_, row) in durable {
        if let Some(written) = written_as(table, row) {
            written.confirm(row.write, row.step);
        }
    }
    if let (SealWaiting::Reply(_), Some(written)) = (&waiting, rows.first().and_then(|row| written_as(table, row))) {
        written.replies = written.replies.saturating_sub(1);
    }
    let decide = |(row, of): (&SealingRow, &UnstoredState)| match waiting {
        // A failed START leaves nothing to go on from, and its request is not in the table.
        SealWaiting::Nothing | SealWaiting::FailedStart(_) => of.why,
        SealWaiting::Reply(_) => rollback::decide(table, now, row, (of, true)),
        SealWaiting::Batch(_) | SealWaiting::Posted(_) => rollback::decide(table, now, row, (of, false)),
    };
    let refused = refusals(rows, failed, decide);
    let first = refused.first().copied();
    match waiting {
        SealWaiting::Nothing => {}
        SealWaiting::Batch(id) => {
            refused.iter().for_each(|(row, of, why)| note_unstored(table, row.req, of, *why));
            let refused = refused.iter().map(|(row, _, why)| (row.req, Refusal::Ended(*why))).collect();
            table.apply(now, Event::Sealed(id, refused));
        }
        SealWaiting::Posted(req) => {
            if let (Some((row, of, why)), Some(job)) = (first, table.jobs.get_mut(req).and_then(JobStage::job_mut)) {
                let start = job.facts.start;
                let refused = || job.load.refused(Refusal::Ended(why), job.id.clone(), start, now).into();
                job.answer = Some(Err(unstored(job, of, why).unwrap_or_else(refused)));
                job.set_refused(false);
                if why == EndReason::RolledBack {
                    // Whether the state that the store has contains this step may not be known yet. A capture takes what follows.
                    job.captured = None;
                }
                table.apply(now, Event::End(row.seq, why));
            }
            table.apply(now, Event::Posted(req));
        }
        SealWaiting::Reply(req) => {
            first.iter().for_each(|(_, of, why)| note_unstored(table, req, of, *why));
            table.apply(now, Event::Replied(req, first.map(|(.., why)| why)));
        }
        SealWaiting::FailedStart(mut job) => match first {
            None => {
                job.write.durable_step = table.durable_step(job.seq);
                table.actions.released.push(job);
            }
            Some((row, of, why)) => {
                table.apply(now, Event::End(row.seq, why));
                job.failure = unstored(&job, of, why);
                table.actions.refused.push((job, Refusal::Ended(why), true));
            }
        },
    }
}

/// A state that was not stored: its row, why, and why its sequence leaves.
type UnstoredRow<'a> = (&'a SealingRow, &'a UnstoredState, EndReason);

/// The states that were not stored.
fn refusals<'a>(
    rows: &'a [SealingRow],
    failed: &'a [UnstoredState],
    mut decide: impl FnMut((&SealingRow, &UnstoredState)) -> EndReason,
) -> Vec<UnstoredRow<'a>> {
    let failed = failed.iter().filter_map(|of| Some((rows.get(of.place)?, of)));
    failed.map(|(row, of)| (row, of, decide((row, of)))).collect()
}

/// Notes the failure for the client of the request whose own state was not stored. Requests behind it find that their sequence has left.
fn note_unstored(table: &mut Table, req: Req, of: &UnstoredState, why: EndReason) {
    if let Some(job) = table.jobs.get_mut(req).and_then(JobStage::job_mut) {
        job.failure = unstored(job, of, why);
    }
}

/// The failure of a request whose own state was not stored, and whose sequence leaves for this reason. `None` if another server has the
/// sequence now.
fn unstored(job: &Job, UnstoredState { fault, error, .. }: &UnstoredState, why: EndReason) -> Option<Failure> {
    let (model, id, start) = (job.load.settings.name.clone(), job.id.clone(), job.facts.start);
    let goes_on = why == EndReason::RolledBack;
    let failure = Failure::NotStored { model, id, start, goes_on, fault: *fault, why: error.clone() };
    (why != EndReason::Fenced).then_some(failure)
}
