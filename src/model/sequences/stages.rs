//! The stages before and after a run: plug-ins prepare a request and finish its answer. The table lends them the request and its scratch, and
//! applies their result.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use sequor_core::{EndReason, Event, Id, Preparation, Refusal, Req, Seq, StateAt, Time};

use super::first_states::Beginning;
use super::job::Job;
use super::job_place::JobPlace;
use super::processed::{
    FinishedJob, FirstSteps, LentRequest, ModelRun, PostTask, PrepareTask, PreparedJob, PreparedRuns, Processed,
    failure,
};
use super::table::Table;
use crate::initializing::KeepPermit;
use crate::model::load::{LoadInitializer, LoadedModel};
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
        let has_slot = job.seq.is_some_and(|seq| self.core.has_slot(seq));
        let (seq, start, load) = (job.seq, job.facts.start, Arc::clone(&job.load));
        let processed = job.processed.as_ref()?;
        let (facts, meta, inputs) = (processed.facts.clone(), processed.meta, std::mem::take(&mut job.inputs));
        // A START begins with nothing, also where its sequence lives.
        let live = seq.filter(|_| !start).and_then(|seq| self.live_mut(seq));
        let scratch = live.map(|live| live.scratch.clone()).unwrap_or_default();
        Some(PrepareTask { req, has_slot, load, facts, scratch, inputs, meta })
    }

    /// Takes what came of a preparation. Nothing, if the request is over.
    pub(super) fn prepared(&mut self, now: Time, req: Req, prepared: PreparedJob, beginning: Beginning) {
        let Some(job) = self.jobs.get_mut(req).and_then(JobPlace::job_mut) else { return };
        let (seq, load) = (job.seq.filter(|_| job.facts.start), Arc::clone(&job.load));
        let Beginning { first, steps, permit } = beginning;
        let preparation = take_prepared(job, prepared, steps, permit);
        self.set_place(req, JobPlace::Queued);
        if let Some(values) = first.as_ref().map(|first| &first.values).filter(|_| load.grows()) {
            self.apply(now, Event::FirstShape(req, values.shape_class(&load.states)));
        }
        if let Some(live) = seq.and_then(|seq| self.live_mut(seq)) {
            live.first = first;
        }
        self.apply(now, Event::Prepared(req, preparation));
    }

    /// The sequence of this id whose state a START with these key features may begin with. The error says why there is none.
    pub(super) fn parent(
        &self,
        of: &LoadInitializer,
        load: &Arc<LoadedModel>,
        keys: &[u64],
        id: &str,
    ) -> Result<(Seq, StateAt), &'static str> {
        let find = |id: Id| self.core.find(&id, Some(load.version));
        let number = || id.parse().ok().map(Id::Int);
        let seq = find(Id::Str(id.into())).or_else(|| find(number()?));
        // Whether a sequence exists that may not be copied is not for the client to know.
        let seq = seq.filter(|seq| self.live(*seq).is_some_and(|live| live.may_be_copied(of, load, keys)));
        let seq = seq.ok_or("no live sequence that may be copied has this id")?;
        match self.core.state_of(seq).filter(|_| !self.core.is_between_runs(seq)) {
            Some(at) => Ok((seq, at)),
            None => Err("no request of that sequence has been committed yet"),
        }
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

fn take_prepared(
    job: &mut Job,
    prepared: PreparedJob,
    steps: Vec<ModelRun>,
    permit: Option<KeepPermit>,
) -> Preparation {
    let Some(processed) = &mut job.processed else {
        return Preparation::Refuse { refusal: Refusal::Failed(NO_PROCESSOR), ends: true };
    };
    processed.first_steps = FirstSteps { all: steps.len(), left: steps.len(), permit };
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
    }
}

fn runs_of(processed: &mut Processed, runs: VecDeque<ModelRun>) -> Preparation {
    let meta = runs.front().map_or(processed.meta, |run| run.meta);
    let count = u32::try_from(runs.len()).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    processed.runs = runs;
    if count == NonZeroU32::MIN { Preparation::Run(meta) } else { Preparation::RunSteps(meta, count) }
}
