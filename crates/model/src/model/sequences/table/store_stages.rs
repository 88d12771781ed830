//! Requests of stored sequences: looks the sequences up, lends the requests to the store, and takes them back.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{EndReason, Event, Id, LoadId, Preparation, Refusal, Req, Seq, Submit, Time, Tombstone};

use crate::error::Failure;
use crate::model::load::{LoadDurability, LoadedModel};
use crate::model::sequences::jobs::Job;
use crate::model::sequences::offloaded::{
    KeptSequence, LOOK, LookTask, ResumedState, StoreTask, StoreWork, WriteDoubt,
};
use crate::state::tier::{AfterTake, EndedState, FoundHead, TierKey};

use super::deferred_actions::StoreAction;
use super::job_stage::JobStage;
use super::model_table::Table;
use super::sequence_lookup::SequenceLookup;

/// Refusal code of a request for which the store failed. The job has the failure.
pub(in crate::model::sequences) const BY_STORE: u32 = 4;

/// The table of a model, for sequences in the server's store.
pub(in crate::model::sequences) trait KeptStages {
    /// Looks up whether this request is of a stored sequence. If it is, a step goes to the store before its turn, and a START ends that
    /// sequence once it takes effect. An error changes nothing.
    fn look_up_kept(&mut self, now: Time, job: &mut Job, submit: &mut Submit) -> Result<(), Failure>;

    /// Lends a request to the store, if the store has work for it. Returns whether it did.
    fn lend_to_store(&mut self, req: Req, seq: Option<Seq>) -> bool;

    /// Applies the store's result for a request. If the request is over, no step continues from the state: it goes back, or is forgotten.
    fn stored(&mut self, now: Time, task: StoreTask, outcome: Result<ResumedState, Failure>);

    /// Applies what the store has of a sequence whose last write failed. Only then its next step continues.
    fn looked(&mut self, now: Time, task: &LookTask, found: FoundHead);

    /// Forgets stored sequences that have expired. Returns when to look again. The more sequences there are, the rarer are the looks.
    fn expire_kept(&mut self, now: Time, load: &Arc<LoadedModel>) -> Time;

    /// Remembers the sequences that ended before this server started.
    fn remember_ended(&mut self, load: LoadId);
}

impl KeptStages for Table {
    fn look_up_kept(&mut self, now: Time, job: &mut Job, submit: &mut Submit) -> Result<(), Failure> {
        if !self.resumes(&submit.id, submit.version) {
            let is_late = !submit.start && self.returning.contains(&submit.id);
            if is_late && self.core.find(&submit.id, submit.version).is_none() {
                let (model, id) = (job.load.settings.name.clone(), submit.id.clone());
                let why = "a request that was cancelled has not put it back yet".to_owned();
                return Err(Failure::Store { model, id, why });
            }
            return Ok(());
        }
        let Some(kept) = self.kept.get(&submit.id) else { return Ok(()) };
        if kept.until <= now {
            self.expire_kept(now, &job.load);
            expire_one(self, job.load.key, &submit.id);
            return Ok(());
        }
        if submit.start {
            job.source.replaces = Some(kept.incarnation);
            return Ok(());
        }
        let id = submit.id.clone();
        if matches!(kept.doubt, Some(WriteDoubt::Unread(_))) {
            look(self, &id, &job.load);
            let why = "the write of its last step failed, and the stored state has not been read since".to_owned();
            return Err(Failure::Store { model: job.load.settings.name.clone(), id, why });
        }
        if let Some(why) = kept.misfit(&job.load, job.counted, self.successors(kept.version_digest())) {
            return Err(Failure::NotResumed { model: job.load.settings.name.clone(), id, why });
        }
        if self.wakes_on(now, &id, &job.load) {
            submit.adopt_on = Some(job.load.key);
        } else if job.load.is_retired() {
            let why = "the server or the model is going out of service".to_owned();
            return Err(Failure::Store { model: job.load.settings.name.clone(), id, why });
        }
        submit.adopt = Some(kept.head.step);
        submit.idle = kept.head.idle;
        submit.version = Some(job.load.version);
        // A repeated step gets its kept answer, or is refused.
        submit.prepare = submit.step != Some(kept.head.step) || kept.head.answered;
        let Some(kept) = self.kept.remove(&id) else { return Ok(()) };
        job.source.store = Some(Box::new(StoreWork { kept, meta: submit.meta }));
        Ok(())
    }

    fn lend_to_store(&mut self, req: Req, seq: Option<Seq>) -> bool {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else { return false };
        let Some(work) = job.source.store.take() else { return false };
        let load = Arc::clone(&job.load);
        let key = TierKey::new(&load.settings.name, &job.id);
        let durable = load.durable.as_ref().filter(|durable| durable.is_continual());
        let running = durable.map(|durable| durable.store.running()).unwrap_or_default();
        job.source.kept = Some(Box::new(work.kept.clone()));
        job.source.resumed = Some((work.kept.incarnation, work.kept.head.step));
        let then = match durable.map(LoadDurability::interval) {
            None => AfterTake::Forget { incarnation: work.kept.incarnation },
            Some(None) => AfterTake::Keep,
            Some(Some(_)) => AfterTake::Outdate { running },
        };
        self.actions.rare().to_store.push(StoreAction::Take(StoreTask { req, seq, load, key, work, then }));
        true
    }

    fn stored(&mut self, now: Time, task: StoreTask, outcome: Result<ResumedState, Failure>) {
        let StoreTask { req, seq, load, key, work, .. } = task;
        let StoreWork { kept, meta } = *work;
        let repeats = self.core.step_of_request(req) == kept.head.step;
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else {
            let has_ended = self.given_up.remove(&req);
            self.returning.remove(&key.id);
            if !self.stopping {
                stored_in_vain(self, now, &load, key.id.clone(), (kept, outcome), has_ended);
            }
            if has_ended {
                self.pending_ends.finish(&key.id, None);
            }
            return;
        };
        match outcome {
            Ok(ResumedState { snapshot, answer, scratch, unrun }) => {
                let mut preparation = Preparation::Run(meta);
                (job.source.snapshot, job.source.kept_scratch, job.source.unrun) = (Some(snapshot), scratch, unrun);
                if repeats {
                    (job.answer, job.replayed, job.seq) = (Some(Ok(answer)), true, seq);
                    preparation = Preparation::Reply;
                }
                if preparation != Preparation::Reply && job.processed.is_some() {
                    if let Some(event) = self.lend_to_prepare(req, seq) {
                        self.apply(now, event);
                    }
                    return;
                }
                self.set_stage(req, JobStage::Queued);
                self.apply(now, Event::Prepared(req, preparation));
            }
            Err(failure) => {
                (job.failure, job.source.kept) = (Some(failure), None);
                // The request has written nothing. The stored state belongs to the sequence that stays in the store.
                if let Some(live) = seq.and_then(|seq| self.live_mut(seq)) {
                    live.written = None;
                }
                self.set_stage(req, JobStage::Queued);
                let refusal = Refusal::Failed(BY_STORE);
                self.apply(now, Event::Prepared(req, Preparation::Refuse { refusal, ends: true }));
                if self.core.find(&key.id, None).is_none() {
                    keep_after_failure(self, key.id, kept);
                } else {
                    // A START behind this request has begun another sequence. After a crash nothing may continue from the older state.
                    self.forget(key.id, kept.incarnation);
                }
            }
        }
    }

    fn looked(&mut self, now: Time, LookTask { key, incarnation, load }: &LookTask, found: FoundHead) {
        let kept = self.kept.get_mut(&key.id).filter(|kept| kept.incarnation == *incarnation);
        let Some(KeptSequence { head, doubt: doubt @ Some(WriteDoubt::Unread(_)), .. }) = kept else { return };
        let Some(WriteDoubt::Unread(failed)) = doubt else { return };
        failed.is_asked = false;
        // The next step asks again. If another server has the sequence, it is dropped here anyway.
        let Ok(found) = found else { return };
        let failed = *failed;
        match found.and_then(|found| Some((failed.doubt_about(&found)?, found))) {
            Some((left, found)) => (*head, *doubt) = (found, left),
            // A START has taken the id, and its own end is the one to remember.
            None if self.core.find(&key.id, None).is_some() => {
                self.kept.remove(&key.id);
                self.forget(key.id.clone(), *incarnation);
            }
            None => {
                // The write that was refused has removed the state.
                let why = if failed.end { EndReason::End } else { EndReason::Unsealed };
                drop_kept(self, now, Some(*load), &key.id, why);
            }
        }
    }

    fn expire_kept(&mut self, now: Time, load: &Arc<LoadedModel>) -> Time {
        if now < self.kept_due {
            return self.kept_due;
        }
        let mut next = Time::NEVER;
        let mut expired = Vec::new();
        for (id, kept) in &self.kept {
            if kept.until > now {
                next = next.min(kept.until);
            } else {
                expired.push(id.clone());
            }
        }
        expired.iter().for_each(|id| expire_one(self, load.key, id));
        let looks = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        self.kept_due = next.max(now + LOOK * looks);
        self.kept_due
    }

    fn remember_ended(&mut self, load: LoadId) {
        for (id, ended) in std::mem::take(&mut self.ended_before) {
            let EndedState { why, step, idle, at } = ended;
            let stone = Tombstone { why, at: Time::ZERO + at.saturating_sub(self.zero), step, idle };
            // A later sequence of the id may have expired since.
            if self.core.end_of(&id).is_none_or(|known| known.at <= stone.at) {
                self.core.remember(load, id, stone);
            }
        }
    }
}

/// Lets the store say which state it has of a sequence whose last write failed, unless it is being asked already.
fn look(table: &mut Table, id: &Id, load: &LoadedModel) {
    let Some(kept) = table.kept.get_mut(id) else { return };
    let Some(WriteDoubt::Unread(failed)) = &mut kept.doubt else { return };
    if !std::mem::replace(&mut failed.is_asked, true) {
        let key = TierKey::new(&load.settings.name, id);
        let task = LookTask { key, incarnation: kept.incarnation, load: load.key };
        table.actions.rare().to_store.push(StoreAction::Look(task));
    }
}

/// Handles a state that the store has read for a request that was refused meanwhile. No step of the sequence has run.
fn stored_in_vain(
    table: &mut Table,
    now: Time,
    load: &LoadedModel,
    id: Id,
    (kept, outcome): (KeptSequence, Result<ResumedState, Failure>),
    has_ended: bool,
) {
    match outcome {
        Ok(found) if !has_ended => table.return_to_store(now, load, id, kept, found.snapshot),
        Err(_) if !has_ended && table.core.find(&id, None).is_none() => keep_after_failure(table, id, kept),
        _ => table.forget(id, kept.incarnation),
    }
}

/// Keeps a sequence as it was before the store failed. If the store does not have its file, the file is written again.
fn keep_after_failure(table: &mut Table, id: Id, kept: KeptSequence) {
    if kept.unwritten.is_some() {
        table.spilling.failed.retain(|(_, head)| !Arc::ptr_eq(head, &kept.head));
        table.spilling.failed.push((id.clone(), Arc::clone(&kept.head)));
        table.actions.rare().wants_memory = true;
    }
    table.keep_again(id, kept);
}

/// Forgets a stored sequence that has expired.
fn expire_one(table: &mut Table, load: LoadId, id: &Id) {
    let Some(KeptSequence { head, incarnation, until, .. }) = table.kept.remove(id) else { return };
    // A START that waits has taken the id, and its own end is the one to remember.
    if table.core.find(id, None).is_none() {
        let stone = Tombstone { why: EndReason::Idle, at: until, step: head.step, idle: head.idle };
        table.core.remember(load, id.clone(), stone);
    }
    table.forget(id.clone(), incarnation);
}

/// Ends a sequence that does not live and whose state waits or is stored. Returns false if there is none of this id. If there is no load, the
/// next one remembers the end.
pub(in crate::model::sequences) fn drop_kept(
    table: &mut Table,
    now: Time,
    load: Option<LoadId>,
    id: &Id,
    why: EndReason,
) -> bool {
    let remember = |table: &mut Table, step: u64, idle: Option<Duration>| {
        let stone = Tombstone { why, at: now, step, idle };
        let ended = table.ended_state(stone);
        match load {
            Some(load) => table.core.remember(load, id.clone(), stone),
            None => table.ended_before.push((id.clone(), ended.clone())),
        }
        ended
    };
    if let Some(import) = table.imports.remove(id) {
        let ended = remember(table, import.origin.step, None);
        if load.is_none() {
            // There is no state to remove. The store remembers the end now, because no load would do so when the server stops.
            table.forget_as(id.clone(), 0, Some(ended));
        }
        return true;
    }
    let Some(kept) = table.kept.remove(id) else { return false };
    let ended = remember(table, kept.head.step, kept.head.idle);
    table.forget_as(id.clone(), kept.incarnation, Some(ended));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sequences::offloaded::FailedWrite;
    use crate::state::tier::{IdleTime, StateHead};

    /// Another server wanted the sequence. The store has looked meanwhile, and no entry was here.
    #[test]
    fn the_next_step_of_a_sequence_that_was_not_handed_over_lets_the_store_look_again() {
        let (mut table, id) = (Table::new(Duration::ZERO), Id::from(7));
        let failed = FailedWrite { step: 3, durable: 2, end: false, is_asked: true };
        let time = IdleTime { idle: None, left: None, running: Duration::ZERO };
        let head = Arc::new(StateHead::new((1, [0; 32]), (1, 2), time, false, b"state"));
        let doubt = Some(WriteDoubt::Unread(failed));
        let kept = KeptSequence { head, incarnation: 1, until: Time::NEVER, unwritten: None, doubt };
        table.keep_again(id.clone(), kept);
        let asks = Some(WriteDoubt::Unread(FailedWrite { is_asked: false, ..failed }));
        assert_eq!(table.kept.get(&id).map(|kept| kept.doubt), Some(asks));
    }
}
