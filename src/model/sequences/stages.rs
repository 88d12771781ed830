//! The stages before and after a run: processors prepare a request and finish its answer. The table lends them the request and its scratch, and
//! applies their result.

use std::num::NonZeroU32;
use std::sync::Arc;

use sequor_core::{EndReason, Event, Preparation, Refusal, Req, Seq, Time};

use super::job::Job;
use super::job_place::JobPlace;
use super::processed::{FinishedJob, LentRequest, PostTask, PrepareTask, PreparedJob, failure};
use super::table::Table;
use crate::model::load::LoadedModel;
use crate::processing::{CallFacts, ProcessorRefusal, RefusedBy};

/// What a request is refused with that processors refuse. The job says why.
const BY_PROCESSOR: u32 = 3;
/// What a request is refused with whose load names a preparation, while no processor is there to do it.
const NO_PROCESSOR: u32 = 1;

impl Table {
    /// Lends a request to the processors of its load. An event is the answer if it has none.
    pub(super) fn lend_to_prepare(&mut self, req: Req, seq: Option<Seq>) -> Option<Event> {
        self.set_place(req, JobPlace::Preparing);
        if let Some(load) = self.note_lent(req, seq) {
            self.actions.prepare.push(LentRequest { req, load });
            return None;
        }
        let refusal = Refusal::Failed(NO_PROCESSOR);
        Some(Event::Prepared(req, Preparation::Refuse { refusal, ends: false }))
    }

    /// Notes in a request what its processors are to see of it besides its tensors.
    fn note_lent(&mut self, req: Req, seq: Option<Seq>) -> Option<Arc<LoadedModel>> {
        let step = self.core.step_of_request(req);
        let job = self.jobs.get_mut(req)?.job_mut()?;
        job.load.processors.as_ref()?;
        job.seq = seq;
        let (start, end) = (job.facts.start, job.facts.end);
        let outputs = job.outputs.iter().filter_map(|at| u32::try_from(*at).ok()).collect();
        let (numbers, keys) = job.load.feature_counts;
        let processed = job.processed.as_mut()?;
        let meta = processed.meta;
        processed.facts = CallFacts {
            sequence: seq.map_or(0, Seq::handle),
            step,
            start,
            end,
            numbers: meta.numbers.iter().take(numbers).copied().collect(),
            keys: meta.keys.iter().take(keys).copied().collect(),
            outputs,
        };
        Some(Arc::clone(&job.load))
    }

    /// What the processors of a request begin with. Nothing, if the request is over.
    pub(super) fn begin_prepare(&mut self, req: Req) -> Option<PrepareTask> {
        let JobPlace::Preparing(job) = self.jobs.get_mut(req)? else { return None };
        let (seq, start, load) = (job.seq, job.facts.start, Arc::clone(&job.load));
        let processed = job.processed.as_ref()?;
        let (facts, meta, inputs) = (processed.facts.clone(), processed.meta, std::mem::take(&mut job.inputs));
        // A START begins with nothing, also where its sequence lives.
        let live = seq.filter(|_| !start).and_then(|seq| self.live_mut(seq));
        let scratch = live.map(|live| live.scratch.clone()).unwrap_or_default();
        Some(PrepareTask { req, load, facts, scratch, inputs, meta })
    }

    /// Takes what came of a preparation. Nothing, if the request is over.
    pub(super) fn prepared(&mut self, now: Time, req: Req, prepared: PreparedJob) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobPlace::job_mut) else { return };
        let preparation = take_prepared(job, prepared);
        self.set_place(req, JobPlace::Queued);
        self.apply(now, Event::Prepared(req, preparation));
    }

    /// Lends a request whose runs are over to the processors of its load. An event is the answer if they have nothing to do.
    pub(super) fn lend_to_post(&mut self, req: Req) -> Option<Event> {
        self.set_place(req, JobPlace::Posting);
        match self.post_task(req) {
            Some(task) => {
                self.actions.post.push(task);
                None
            }
            None => Some(Event::Posted(req)),
        }
    }

    fn post_task(&mut self, req: Req) -> Option<PostTask> {
        let job = self.jobs.get_mut(req)?.job_mut()?;
        let load = Arc::clone(&job.load);
        let processed = job.processed.as_mut()?;
        let (facts, pending) = (processed.facts.clone(), processed.pending.take()?);
        Some(PostTask { req, load, facts, pending, outputs: std::mem::take(&mut processed.outputs) })
    }

    /// Takes what came of finishing a request. If the processors failed, its sequence ends: the run is committed and not answered.
    pub(super) fn posted(&mut self, now: Time, req: Req, (finished, scratch): FinishedJob) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobPlace::job_mut) else { return };
        let seq = job.seq;
        let ends = match finished {
            Ok(answer) => {
                job.answer = Some(Ok(answer));
                None
            }
            Err(refusal) => {
                let why = end_of(&refusal).filter(|_| seq.is_some());
                let failed = failure(refusal, &job.load.settings.name, &job.id, why.is_some(), seq.is_none());
                job.answer = Some(Err(failed));
                why
            }
        };
        if let Some(live) = seq.and_then(|seq| self.live_mut(seq)) {
            live.scratch = scratch;
        }
        if let (Some(seq), Some(why)) = (seq, ends) {
            self.apply(now, Event::End(seq, why));
        }
        self.apply(now, Event::Posted(req));
    }

    /// Gives a sequence the scratch that a request has left, if that is done.
    pub(super) fn commit_scratch(&mut self, job: &mut Job) {
        let Some(processed) = &mut job.processed else { return };
        let scratch = processed.scratch.take();
        if let (Some(live), Some(scratch)) = (job.seq.and_then(|seq| self.live_mut(seq)), scratch) {
            live.scratch = scratch;
        }
    }
}

/// Why a refusal after the run ends the sequence; `None` if it does not.
fn end_of(refusal: &ProcessorRefusal) -> Option<EndReason> {
    match &refusal.why {
        RefusedBy::Failure { .. } | RefusedBy::Unavailable { .. } => Some(EndReason::Failed),
        RefusedBy::Plugin { .. } => refusal.ends.then_some(EndReason::Rejected),
    }
}

fn take_prepared(job: &mut Job, prepared: PreparedJob) -> Preparation {
    let Some(processed) = &mut job.processed else {
        return Preparation::Refuse { refusal: Refusal::Failed(NO_PROCESSOR), ends: true };
    };
    match prepared {
        PreparedJob::Run(prepared) => {
            let meta = prepared.meta;
            job.rows = prepared.rows;
            let runs = processed.take_runs(*prepared);
            let count = u32::try_from(runs).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
            if count == NonZeroU32::MIN { Preparation::Run(meta) } else { Preparation::RunSteps(meta, count) }
        }
        PreparedJob::Reply { answer, scratch } => {
            (processed.scratch, job.answer) = (Some(scratch), Some(Ok(answer)));
            Preparation::Reply
        }
        PreparedJob::Refused(refusal) => {
            let (stateful, start) = (job.seq.is_some(), job.facts.start);
            let ends = refusal.ends;
            let ended = stateful && (ends || start);
            processed.refusal = Some(failure(refusal, &job.load.settings.name, &job.id, ended, start || !ended));
            Preparation::Refuse { refusal: Refusal::Failed(BY_PROCESSOR), ends }
        }
    }
}
