//! Requests at the plug-ins of their load: makes the tasks for the plug-ins, and applies their answers. `stages` lends the requests.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use sequor_core::{EndReason, Event, Id, Preparation, Refusal, Req, Seq, StateAt, Time};

use crate::error::{EndedBy, Failure, NotCopied};
use crate::model::load::{LoadInitializer, LoadedModel};
use crate::model::sequences::jobs::{
    Beginning, FinishedJob, FirstSteps, Job, ModelRun, NOT_FOUND, NOT_NOW, PrepareTask, PreparedJob, PreparedRuns,
    Processed, failure,
};
use crate::processing::{ProcessorRefusal, RefusedBy};
use crate::state::budget::Unneeded;

use super::job_stage::JobStage;
use super::model_table::Table;

/// Refusal code of a request that the preparation refuses. The job has the failure.
const BY_PROCESSOR: u32 = 3;
/// Refusal code of a request that needs a preparation for which there is no processor.
pub(super) const NO_PROCESSOR: u32 = 1;

/// The table, for the threads of plug-ins.
pub(in crate::model::sequences) trait PluginStages {
    /// The task of preparing a request. `None` if the request is over.
    fn begin_prepare(&mut self, req: Req) -> Option<PrepareTask>;

    /// Applies the outcome of a preparation. Does nothing if the request is over.
    fn prepared(&mut self, now: Time, req: Req, prepared: PreparedJob, beginning: Beginning);

    /// Finds the sequence of this id whose state a START with these key features may copy. The error says why there is none, with its code in
    /// the contract.
    fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), (u32, &'static str)>;

    /// Finds the sequence of this id whose state a START of this load may copy, as its client asks.
    fn copy_source(&self, load: &Arc<LoadedModel>, id: &Id) -> Result<(Seq, StateAt), NotCopied>;

    /// Applies the outcome of finishing a request. If the processors failed, its sequence ends: the run is committed and not answered.
    fn posted(&mut self, now: Time, req: Req, finished: FinishedJob);

    /// Refuses a request whose task has panicked, if it still waits for that task. As with other failures, its sequence goes on only if
    /// nothing of the request has run.
    fn task_failed(&mut self, now: Time, req: Req);
}

impl PluginStages for Table {
    fn begin_prepare(&mut self, req: Req) -> Option<PrepareTask> {
        let JobStage::Preparing(job) = self.jobs.get_mut(req)? else { return None };
        let has_slot = job.seq.is_some_and(|seq| self.core.has_slot(seq));
        let (seq, start, load) = (job.seq, job.facts.start, Arc::clone(&job.load));
        let processed = job.processed.as_mut()?;
        let gone = processed.watch(start && load.initializer.is_some());
        let (facts, meta, inputs) = (processed.facts.clone(), processed.meta, std::mem::take(&mut job.inputs));
        let (kept_scratch, brought) = (job.source.kept_scratch.clone(), job.source.brought.take());
        // A START begins with an empty scratch, even if its sequence lives.
        let live = seq.filter(|_| !start).and_then(|seq| self.live_mut(seq));
        let lives = live.map(|live| live.scratch.clone());
        let scratch = lives.or_else(|| kept_scratch.clone()).unwrap_or_default();
        Some(PrepareTask { req, has_slot, load, facts, scratch, inputs, meta, brought, gone, guard: None })
    }

    fn prepared(&mut self, now: Time, req: Req, prepared: PreparedJob, beginning: Beginning) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else {
            // Dropping the permit lets another START go on.
            return self.actions.unneeded.push(Unneeded::new((prepared, beginning)));
        };
        let (seq, load) = (job.seq.filter(|_| job.facts.start), Arc::clone(&job.load));
        let Beginning { first, steps, held, permit } = beginning;
        let first_steps = FirstSteps { all: steps.len(), left: steps.len(), permit, held };
        let preparation = take_prepared(job, prepared, steps, first_steps);
        self.set_stage(req, JobStage::Queued);
        if let Some(values) = first.as_ref().map(|first| &first.values).filter(|_| load.grows()) {
            self.apply(now, Event::FirstShape(req, values.shape_class(&load.states)));
        }
        if let Some(live) = seq.and_then(|seq| self.live_mut(seq)) {
            live.first = first;
        }
        self.apply(now, Event::Prepared(req, preparation));
    }

    fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), (u32, &'static str)> {
        let find = |id: Id| self.core.find(&id, Some(load.version));
        let number = || id.parse().ok().map(Id::Int);
        let seq = find(Id::Str(id.into())).or_else(|| find(number()?));
        // A client must not learn whether a sequence exists that it may not copy.
        let seq = seq.filter(|seq| self.live(*seq).is_some_and(|live| live.may_be_copied(of, load, keys)));
        let seq = seq.ok_or((NOT_FOUND, "no live sequence that may be copied has this id"))?;
        match self.core.state_of(seq).filter(|_| !self.core.is_between_runs(seq)) {
            Some(at) => Ok((seq, at)),
            None => Err((NOT_NOW, "no request of that sequence has been committed yet")),
        }
    }

    fn copy_source(&self, load: &Arc<LoadedModel>, id: &Id) -> Result<(Seq, StateAt), NotCopied> {
        // No client may copy the sequences that an ensemble holds.
        let find = |version| self.core.find(id, version).filter(|seq| !self.is_held(*seq));
        let Some(seq) = find(Some(load.version)).or_else(|| find(None)) else {
            return Err(if self.kept.contains_key(id) { NotCopied::Stored } else { NotCopied::Unknown });
        };
        if !self.live(seq).is_some_and(|live| Arc::ptr_eq(&live.load, load)) {
            return Err(NotCopied::OtherLoad);
        }
        match self.core.state_of(seq) {
            Some(_) if self.core.is_between_runs(seq) => Err(NotCopied::Gone),
            Some(at) => Ok((seq, at)),
            None => Err(NotCopied::NotYet),
        }
    }

    fn posted(&mut self, now: Time, req: Req, (finished, scratch): FinishedJob) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobStage::job_mut) else {
            return self.actions.unneeded.push(Unneeded::new((finished, scratch)));
        };
        let (seq, start, id) = (job.seq, job.facts.start, job.id.clone());
        let mut by = None;
        let ends = match finished {
            Ok(answer) => {
                job.answer = Some(Ok(answer));
                None
            }
            Err(refusal) => {
                let why = end_of(&refusal, start).filter(|_| seq.is_some());
                by = Some(EndedBy { plugin: refusal.plugin.clone(), world: refusal.world });
                let failed = failure(refusal, &job.load.settings.name, &job.id, why.is_some(), seq.is_none());
                job.answer = Some(Err(failed));
                job.set_refused(why.is_none());
                why
            }
        };
        if let Some(live) = seq.and_then(|seq| self.live_mut(seq)) {
            live.scratch = scratch;
        }
        if let (Some(seq), Some(why)) = (seq, ends) {
            self.apply(now, Event::End(seq, why));
            self.apply(now, Event::Posted(req));
            return by.into_iter().for_each(|by| self.enders.note(&self.core, now, &id, by));
        }
        if let Some(event) = self.done_posting(req) {
            self.apply(now, event);
        }
    }

    fn task_failed(&mut self, now: Time, req: Req) {
        let is_preparing = self.core.is_preparing(req);
        let Some(stage) = self.jobs.get_mut(req) else { return };
        let is_posting = matches!(stage, JobStage::Posting(_));
        let Some(job) = stage.job_mut() else { return };
        let name = &job.load.settings.name;
        let failure = Failure::Internal(format!("a task of the plug-ins of model '{name}' has panicked"));
        if is_preparing {
            if let Some(processed) = &mut job.processed {
                processed.refusal = Some(failure);
            }
            self.set_stage(req, JobStage::Queued);
            let refusal = Refusal::Failed(BY_PROCESSOR);
            self.apply(now, Event::Prepared(req, Preparation::Refuse { refusal, ends: false }));
        } else if is_posting {
            job.answer = Some(Err(failure));
            let (seq, why) = (job.seq, if job.facts.start { EndReason::Failed } else { EndReason::Broken });
            job.set_refused(seq.is_none());
            if let Some(seq) = seq {
                self.apply(now, Event::End(seq, why));
            }
            self.apply(now, Event::Posted(req));
        }
    }
}

/// The reason with which a refusal after the run ends the sequence. `None` if it does not end the sequence.
fn end_of(refusal: &ProcessorRefusal, start: bool) -> Option<EndReason> {
    match &refusal.why {
        RefusedBy::Failure { .. } | RefusedBy::Unavailable { .. } if start => Some(EndReason::Failed),
        RefusedBy::Failure { .. } | RefusedBy::Unavailable { .. } => Some(EndReason::Broken),
        RefusedBy::Plugin { .. } => refusal.ends.then_some(EndReason::Rejected),
    }
}

fn take_prepared(job: &mut Job, prepared: PreparedJob, steps: Vec<ModelRun>, first_steps: FirstSteps) -> Preparation {
    let Some(processed) = &mut job.processed else {
        return Preparation::Refuse { refusal: Refusal::Failed(NO_PROCESSOR), ends: true };
    };
    processed.first_steps = first_steps;
    let first = steps.into_iter();
    match prepared {
        PreparedJob::Run(prepared) => {
            let PreparedRuns { runs, rows, pending, held } = *prepared;
            job.rows = rows;
            processed.take_pending(pending, held);
            runs_of(processed, first.chain(runs).collect())
        }
        PreparedJob::Reply { answer, scratch } => {
            processed.scratch = Some(scratch);
            if first.len() > 0 {
                (processed.reply, job.rows) = (Some(answer), 1);
                return runs_of(processed, first.collect());
            }
            job.answer = Some(Ok(answer));
            Preparation::Reply
        }
        PreparedJob::Refused(refusal) => {
            let (stateful, start) = (job.seq.is_some(), job.facts.start);
            let ends = refusal.ends;
            let ended = stateful && (ends || start);
            processed.refusal = Some(failure(refusal, &job.load.settings.name, &job.id, ended, start || !ended));
            Preparation::Refuse { refusal: Refusal::Failed(BY_PROCESSOR), ends }
        }
        PreparedJob::NotCopied(from, why) => {
            let (model, id) = (job.load.settings.name.clone(), job.id.clone());
            processed.refusal = Some(Failure::NotCopied { model, id, from, why });
            Preparation::Refuse { refusal: Refusal::Failed(BY_PROCESSOR), ends: true }
        }
    }
}

fn runs_of(processed: &mut Processed, runs: VecDeque<ModelRun>) -> Preparation {
    let meta = runs.front().map_or(processed.meta, |run| run.meta);
    let count = u32::try_from(runs.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    processed.runs = runs;
    if count == NonZeroU32::MIN { Preparation::Run(meta) } else { Preparation::RunSteps(meta, count) }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::initializing::{KeptLookup, KeptStates, Waiting};
    use crate::processing::SequenceScratch;
    use crate::state::budget::Budget;
    use crate::telemetry::KeptMetrics;

    /// Records that it goes on.
    struct NextStart(Arc<AtomicBool>);

    impl Waiting for NextStart {
        fn resume(self: Box<Self>, _: KeptLookup, _: bool) {
            self.0.store(true, Ordering::Release);
        }

        fn is_over(&mut self) -> bool {
            false
        }
    }

    /// It goes on in the thread that drops the first START's permit, which must not hold the model's lock.
    #[test]
    fn the_next_start_does_not_go_on_under_the_lock_if_the_first_is_over_once_it_is_prepared() {
        let kept = KeptStates::new(u64::MAX, Budget::new(u64::MAX), KeptMetrics::default());
        let KeptLookup::Missing(permit) = kept.find_now("a") else { panic!("nothing is kept") };
        let goes_on = Arc::new(AtomicBool::new(false));
        kept.find("a", Box::new(NextStart(Arc::clone(&goes_on))));
        let (mut table, gone) = (Table::new(Duration::ZERO), Req::new(0, NonZeroU32::MIN));
        let prepared = PreparedJob::Reply { answer: Vec::new(), scratch: SequenceScratch::default() };
        table.prepared(Time::ZERO, gone, prepared, Beginning { permit: Some(permit), ..Beginning::default() });
        assert!(!goes_on.load(Ordering::Acquire));
        drop(table.take_actions());
        assert!(goes_on.load(Ordering::Acquire));
    }
}
