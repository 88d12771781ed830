//! A request in progress: its inputs, the receiver of its answer, and the results of its runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::{EndReason, FEATURES, Id, RealRow, Refusal, Seq, Time};

use crate::config::model::settings::Output;
use crate::error::{EndedBy, Failure, Refused};
use crate::executor::ExecutorHandle;
use crate::model::execute::{RowWork, RunSize, RunTimes};
use crate::model::load::{BroughtStates, CacheMiss, LoadDurability, LoadedModel, RequestFacts};
use crate::model::request::{Accepted, InferAnswer, InferRequest, Parameter, as_given};
use crate::model::sequences::ensembles::{FlowRequest, ReplyTo};
use crate::recording::Recorder;
use crate::spans::{ModelSpan, ModelTimes};
use crate::state::StateCopy;
use crate::telemetry::{FailureReason, refusal_reason};
use crate::tensor::{NamedTensor, Tensor};

use super::batch_of_step::BatchOfStep;
use super::cached_answers;
use super::captured_steps::CapturedRequest;
use super::job_parts::{EnsembleRole, SequenceClaims, StateSource, StateWrite};
use super::processing::{Processed, failure};
use super::recent_refusals::RecentRefusals;

/// Stays in the model's table, under the core's lock, except during its runs.
#[derive(Debug)]
pub(in crate::model) struct Job {
    pub(in crate::model) load: Arc<LoadedModel>,
    /// The client's own id of the request.
    pub(in crate::model) mark: String,
    pub(in crate::model) id: Id,
    pub(in crate::model) inputs: Vec<Option<Tensor>>,
    /// The requested outputs, by their index in the settings.
    pub(in crate::model) outputs: Vec<usize>,
    pub(in crate::model) rows: u64,
    pub(in crate::model) arrived: Time,
    /// When an instance took its batch.
    pub(in crate::model) taken: Time,
    /// Its sequence. Known once it runs.
    pub(in crate::model) seq: Option<Seq>,
    /// Whether the server made the sequence's id. The answer then contains the id.
    pub(in crate::model::sequences) made_id: bool,
    /// Whether the client numbers its steps.
    pub(in crate::model) counted: bool,
    /// The state that its sequence continues or begins with, if it is not the first state of config.pbtxt.
    pub(in crate::model) source: StateSource,
    /// The shares of limits that its new sequence takes.
    pub(in crate::model) claims: SequenceClaims,
    /// The state of its sequence that the store must write or has written.
    pub(in crate::model) write: StateWrite,
    /// Its role in a request of an ensemble.
    pub(in crate::model) in_ensemble: EnsembleRole,
    /// The failure for its client, if the store or a member of an ensemble refuses it.
    pub(in crate::model::sequences) failure: Option<Failure>,
    /// The plug-in that ended its sequence, for a refusal that reports the end.
    pub(in crate::model::sequences) ended_by: Option<Box<EndedBy>>,
    /// The times of its runs. For a request of an ensemble, those of all members.
    pub(in crate::model) compute: RunTimes,
    /// The batch in which it ran last, for operators.
    pub(in crate::model::sequences) batch: BatchOfStep,
    /// Its facts, for recordings and plug-ins.
    pub(in crate::model) facts: RequestFacts,
    /// The result of its runs, by the outputs that clients see.
    pub(in crate::model) answer: Option<Result<Vec<Option<Tensor>>, Failure>>,
    /// The data for the plug-ins that prepare and finish it.
    pub(in crate::model) processed: Option<Box<Processed>>,
    /// Set if the response cache had no answer. Its answer is then cached.
    pub(in crate::model::sequences) cache_miss: Option<CacheMiss>,
    /// Its inputs, if its sequence is captured.
    pub(in crate::model::sequences) captured: Option<Box<CapturedRequest>>,
    /// Whether the answer is that of an earlier request of the same step.
    pub(in crate::model::sequences) replayed: bool,
    /// The connection that it came on, if its answer is awaited there.
    pub(in crate::model::sequences) connection: Option<ExecutorHandle>,
    /// The span that shows its times, if its client's request is traced.
    pub(in crate::model::sequences) span: Option<Arc<ModelSpan>>,
    pub(in crate::model::sequences) reply: ReplyTo,
}

impl Job {
    /// Makes the job of an accepted request. The first state that a START specifies is prepared like the states of an initializer.
    pub(in crate::model) fn new(
        load: Arc<LoadedModel>,
        request: &mut InferRequest,
        accepted: Accepted,
        now: Time,
        reply: ReplyTo,
    ) -> Job {
        let brought = BroughtStates::new(accepted.states, request.sequence.from.clone());
        let is_prepared =
            load.processors.is_some() || brought.is_some() || (load.initializer.is_some() && request.sequence.start);
        let processed = is_prepared.then(|| Box::new(Processed::new(accepted.meta)));
        let as_it_came = || FlowRequest::new(request.clone());
        let flow_request = load.ensemble.is_some().then(|| Box::new(as_it_came()));
        Job {
            load,
            processed,
            facts: RequestFacts::new(request, &accepted.meta),
            counted: request.sequence.step.is_some(),
            mark: std::mem::take(&mut request.id),
            id: std::mem::take(&mut request.sequence.id),
            made_id: false,
            inputs: accepted.inputs,
            outputs: accepted.outputs,
            rows: accepted.rows,
            arrived: now,
            taken: now,
            seq: None,
            source: StateSource { brought: brought.map(Box::new), ..StateSource::default() },
            claims: SequenceClaims::default(),
            write: StateWrite::default(),
            in_ensemble: EnsembleRole { flow_request, ..EnsembleRole::default() },
            failure: None,
            ended_by: None,
            compute: RunTimes::default(),
            batch: BatchOfStep::default(),
            answer: None,
            cache_miss: None,
            captured: None,
            replayed: false,
            connection: None,
            span: None,
            reply,
        }
    }

    /// Returns a job's names and inputs to its request, as they came. False if the job does not have all inputs as they came.
    pub(in crate::model::sequences) fn give_back(&mut self, request: &mut InferRequest) -> bool {
        let id = std::mem::take(&mut self.id);
        (request.id, request.sequence.id) = (std::mem::take(&mut self.mark), if self.made_id { Id::None } else { id });
        let settings = &self.load.client;
        let has_all = !self.inputs.is_empty() || settings.inputs.is_empty() || self.in_ensemble.reservation.is_some();
        let inputs = as_given(settings, std::mem::take(&mut self.inputs)).filter(|_| has_all);
        inputs.map(|inputs| request.inputs = inputs).is_some()
    }

    /// Whether nothing of it was prepared for its load but its inputs.
    pub(in crate::model::sequences) fn is_as_it_came(&self) -> bool {
        let StateSource { snapshot, brought, imported, store, kept, first, .. } = &self.source;
        let has_state = snapshot.is_some() || brought.is_some() || imported.is_some() || first.is_some();
        let is_stored = store.is_some() || kept.is_some() || self.claims.wants.is_some();
        let EnsembleRole { reservation, holder, flow_request, .. } = &self.in_ensemble;
        let is_of_ensemble = reservation.is_some() || holder.is_some() || flow_request.is_some();
        !has_state && !is_stored && !is_of_ensemble && self.processed.is_none() && self.captured.is_none()
    }

    /// Adds the inputs that came after the request.
    pub(in crate::model::sequences) fn accept(&mut self, accepted: Accepted, facts: RequestFacts) {
        let Accepted { inputs, outputs, rows, meta, .. } = accepted;
        (self.inputs, self.outputs, self.rows, self.facts) = (inputs, outputs, rows, facts);
        if let Some(processed) = &mut self.processed {
            processed.meta = meta;
        }
        if let Some(store) = &mut self.source.store {
            store.meta = meta;
        }
    }

    /// The work of its row in the next run.
    pub(in crate::model) fn work(&mut self, row: &RealRow) -> RowWork {
        let keeps = self.processed.as_ref().is_some_and(|processed| processed.keeps_next());
        if let Some(span) = self.span.as_ref().filter(|_| self.seq.is_some()) {
            span.runs(row.step);
        }
        let inputs = match &mut self.processed {
            Some(processed) => processed.runs.pop_front().map(|run| run.inputs).unwrap_or_default(),
            None => std::mem::take(&mut self.inputs),
        };
        RowWork {
            inputs,
            rows: self.rows,
            start: (row.start || std::mem::take(&mut self.source.unrun))
                && !self.source.first.as_ref().is_some_and(|first| first.is_copy),
            end: row.end,
            id: self.id.clone(),
            slot: row.placement.map(|(_, slot)| slot.ix),
            seal: self.write.due || keeps,
            may_be_refused: matches!(self.reply, ReplyTo::Surface(_)) && self.processed.is_none(),
        }
    }

    /// Whether the state after its run must be written.
    pub(in crate::model) fn is_due(&self) -> bool {
        self.write.due
    }

    /// Whether it was answered without a run, and its processors left scratch that must be written.
    pub(in crate::model::sequences) fn leaves_scratch(&self) -> bool {
        let replied = self.processed.as_ref().is_some_and(|processed| !processed.has_run) && !self.replayed;
        replied && !self.facts.end && self.load.durable.as_ref().is_some_and(LoadDurability::is_continual)
    }

    /// Marks that it has run. Returns whether this run is its first.
    pub(in crate::model) fn begins(&mut self) -> bool {
        self.processed.as_mut().is_none_or(|processed| !std::mem::replace(&mut processed.has_run, true))
    }

    /// Takes the result of a run. With processors, the answer is complete only after the last run. Returns whether the sequence has to end.
    pub(in crate::model) fn ran(&mut self, result: Result<Vec<Tensor>, Failure>) -> bool {
        let result = result.map(|outputs| outputs.into_iter().map(Some).collect());
        let answer = match (result, &mut self.processed) {
            (Ok(outputs), Some(processed)) => processed.ran(self.load.processors.as_ref(), outputs),
            (Err(failed), Some(processed)) => {
                // A sequence does not begin if a step of its initializer fails.
                let has_to_end = processed.first_steps.left > 0;
                let refusal = processed.failed_step(&self.load, &failed);
                let (model, id) = (&self.load.settings.name, &self.id);
                let failed = refusal.map_or(failed, |refusal| failure(refusal, model, id, true, true));
                self.answer = Some(Err(failed));
                return has_to_end;
            }
            (result, None) => {
                self.answer = Some(result);
                return false;
            }
        };
        let fails = matches!(answer, Some(Err(_)));
        let (model, id, ends) = (&self.load.settings.name, &self.id, self.seq.is_some());
        self.answer = answer.map(|answer| answer.map_err(|refusal| failure(refusal, model, id, ends, !ends)));
        fails
    }

    /// Keeps a copy of the states for later STARTs, if this run is the last step of an initializer. Returns the copy if it may have to be
    /// written.
    pub(in crate::model) fn keep(&mut self, copy: Option<StateCopy>) -> Option<StateCopy> {
        let Some(processed) = self.processed.as_mut().filter(|processed| processed.keeps_next()) else { return copy };
        let (permit, copy) = (processed.first_steps.permit.take()?, copy?);
        let values = copy.values();
        // Both count against the limit of states. So the copy is dropped first, unless it must be written.
        let copy = Some(copy).filter(|_| self.write.due);
        match values {
            Ok(values) => permit.keep(&values),
            Err(error) => {
                let (model, name) = (&self.load.settings.name, permit.name());
                tracing::error!(model, name, %error, "the states of an initializer's steps are not kept");
            }
        }
        copy
    }

    /// Records for a capture whether a processor refused its answer while the sequence continues from its run.
    pub(in crate::model::sequences) fn set_refused(&mut self, is_refused: bool) {
        if let Some(captured) = &mut self.captured {
            captured.is_refused = is_refused;
        }
    }

    /// The key features of a START that plug-ins prepare.
    pub(in crate::model::sequences) fn start_keys(&self) -> [u64; FEATURES] {
        self.processed.as_ref().filter(|_| self.facts.start).map(|processed| processed.meta.keys).unwrap_or_default()
    }

    /// Counts, records and sends the result of its runs.
    pub(in crate::model::sequences) fn release(
        mut self: Box<Self>,
        now: Time,
        (recorder, refusals): (Option<&Recorder>, &RecentRefusals),
        thread: Option<&ExecutorHandle>,
    ) {
        let total = now - self.arrived;
        let never_ran = self.processed.as_ref().is_some_and(|processed| !processed.has_run);
        if self.replayed || never_ran || self.load.ensemble.is_some() {
            self.load.metrics.dequeued(1);
        }
        match &self.answer {
            Some(Ok(_)) => {
                self.count_members();
                self.load.metrics.succeeded(self.taken - self.arrived, total);
            }
            Some(Err(failure)) => {
                refusals.note(now, &self.id, failure);
                self.load.metrics.failed(FailureReason::Backend, total);
            }
            None => self.load.metrics.failed(FailureReason::Backend, total),
        }
        if let Some(miss) = &self.cache_miss {
            cached_answers::keep(&self.load, miss, self.answer.as_ref());
        }
        if let Some(span) = &self.span {
            span.answered(self.traced(self.taken - self.arrived, now - self.taken));
        }
        if let Some(recorder) = recorder {
            let outcome = if matches!(self.answer, Some(Ok(_))) { "ok" } else { "failed" };
            self.record(recorder, self.taken - self.arrived, now - self.taken, outcome);
        }
        if let (Some(captured), Some(answer), false) = (self.captured.take(), &self.answer, self.replayed) {
            // If a plug-in failed the START, the sequence has ended. The capture continues with the next START.
            let has_ended = matches!(answer, Err(Failure::Processor(failure)) if failure.ended);
            if !(has_ended && self.facts.start && !captured.is_refused) {
                captured.answered(answer.as_ref().ok().map(|tensors| named(&self.load, tensors)));
            }
        }
        self.send(thread);
    }

    /// Counts a request of an ensemble as one run, which took as long as those of its members together.
    fn count_members(&self) {
        if self.load.ensemble.is_some() && !self.replayed {
            self.load.ran(&RunSize::alone(self.facts.start, self.rows).times(&self.compute));
        }
    }

    /// Its outputs, for a client that repeats the step.
    pub(in crate::model::sequences) fn kept_answer(&self) -> Option<Vec<NamedTensor>> {
        let Some(Ok(tensors)) = &self.answer else { return None };
        Some(named(&self.load, tensors))
    }

    fn send(mut self: Box<Self>, thread: Option<&ExecutorHandle>) {
        let lost = || Err(Failure::Internal(format!("a request to model '{}' was lost", self.load.settings.name)));
        let answer = self.answer.take().unwrap_or_else(lost);
        let replayed = self.replayed.then(|| ("sequor_replayed".to_owned(), Parameter::Bool(true)));
        let made_id = match &self.id {
            Id::Int(id) if self.made_id => Some(("sequence_id".to_owned(), integer(*id))),
            _ => None,
        };
        let durable = self.write.durable_step.map(|step| ("sequor_durable_step".to_owned(), integer(step)));
        let parameters = replayed.into_iter().chain(made_id).chain(durable).collect();
        let answer = answer.map(|mut tensors| {
            let outputs = cached_answers::wanted(&self.load, &self.outputs, &mut tensors);
            let held = self.load.answers.hold(outputs.iter().map(|output| output.tensor.data.len()).sum());
            let (model, version) = (self.load.settings.name.clone(), self.load.version);
            InferAnswer { model, version, id: std::mem::take(&mut self.mark), outputs, parameters, held }
        });
        let Job { reply, compute, .. } = *self;
        reply.send(answer, &compute, thread);
    }

    fn record(&self, recorder: &Recorder, queue: Duration, run: Duration, outcome: &'static str) {
        recorder.request(&self.id, self.facts.through(&self.load, self.arrived, (queue, run), outcome));
    }

    /// Its times for its span. The request ends now.
    fn traced(&self, queue: Duration, run: Duration) -> ModelTimes {
        let (version, batch, parts) = (self.load.version, self.facts.batch, self.compute.parts());
        ModelTimes { version, batch, queue, run, parts, answered: Instant::now() }
    }

    /// Counts, records and answers a request that did not run. `ended`: whether its sequence ended with it.
    pub(in crate::model::sequences) fn refuse(
        mut self: Box<Self>,
        refusal: Refusal,
        ended: bool,
        now: Time,
        (recorder, refusals): (Option<&Recorder>, &RecentRefusals),
        thread: Option<&ExecutorHandle>,
    ) {
        if self.begins() {
            self.load.metrics.dequeued(1);
        }
        if let Some(reason) = failure_reason(&refusal) {
            self.load.metrics.failed(reason, now - self.arrived);
        }
        if let Some(span) = &self.span {
            span.answered(self.traced(now - self.arrived, Duration::ZERO));
        }
        if let Some(recorder) = recorder {
            self.record(recorder, now - self.arrived, Duration::ZERO, refusal_reason(&refusal));
        }
        if let Some(failure) = self.own_failure(&refusal) {
            refusals.note(now, &self.id, &failure);
            return self.reply.send(Err(failure), &self.compute, thread);
        }
        let may_retry = self.facts.start || !ended;
        let refused = Refused {
            ended_by: self.ended_by.map(|by| *by),
            ..self.load.refused(refusal, self.id.clone(), may_retry, now)
        };
        let failure = Failure::from(refused);
        refusals.note(now, &self.id, &failure);
        self.reply.send(Err(failure), &self.compute, thread);
    }

    /// The failure that the request itself has, if it is what this refusal reports.
    fn own_failure(&mut self, refusal: &Refusal) -> Option<Failure> {
        match refusal {
            // Only the request whose own state was not stored has one.
            Refusal::Ended(EndReason::Unsealed) => self.failure.take(),
            Refusal::Ended(EndReason::RolledBack) => self.failure.take().or_else(|| self.went_back(refusal)),
            Refusal::Failed(_) | Refusal::Ended(EndReason::Member | EndReason::Spilled) => {
                let by_processor = self.processed.as_mut().and_then(|processed| processed.refusal.take());
                self.failure.take().or(by_processor).or_else(|| self.went_back(refusal))
            }
            _ => None,
        }
    }

    /// The failure of a request whose sequence went back to the store while it waited. It may be sent again.
    fn went_back(&self, refusal: &Refusal) -> Option<Failure> {
        let why = match refusal {
            Refusal::Ended(EndReason::Spilled) => "it went back to the store while this request waited",
            Refusal::Ended(EndReason::RolledBack) => "the step before this request could not be stored",
            _ => return None,
        };
        let (model, id) = (self.load.settings.name.clone(), self.id.clone());
        Some(Failure::Store { model, id, why: why.to_owned() })
    }
}

/// The outputs of an answer with their names.
pub(in crate::model::sequences) fn named(load: &LoadedModel, answer: &[Option<Tensor>]) -> Vec<NamedTensor> {
    let named = |(output, tensor): (&Output, &Option<Tensor>)| {
        let tensor = tensor.clone()?;
        Some(NamedTensor { name: output.name.clone(), tensor })
    };
    load.client.outputs.iter().zip(answer).filter_map(named).collect()
}

/// An id as clients send it: a signed integer if it fits.
fn integer(id: u64) -> Parameter {
    i64::try_from(id).map_or(Parameter::Uint(id), Parameter::Int)
}

/// Triton's failure count for a refusal. `None` if the request was refused before it was queued.
fn failure_reason(refusal: &Refusal) -> Option<FailureReason> {
    match refusal {
        Refusal::Cancelled => Some(FailureReason::Canceled),
        Refusal::QueueTimeout { .. }
        | Refusal::BacklogTimeout { .. }
        | Refusal::QueueFull { .. }
        | Refusal::BacklogFull { .. }
        | Refusal::Policy(_) => Some(FailureReason::Rejected),
        Refusal::Ended(_) | Refusal::Failed(_) => Some(FailureReason::Other),
        _ => None,
    }
}
