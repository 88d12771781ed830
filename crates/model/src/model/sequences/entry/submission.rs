//! Submits a request to its model: finds its load, checks it, makes its job and puts it in the queue.

use std::sync::Arc;

use sequor_core::{Id, Refusal, Req, Submit, Time};
use tokio::sync::oneshot;

use crate::error::{Failure, Invalid, NoVersionReason, NotCopied, NotServed};
use crate::model::execute::RunTimes;
use crate::model::load::{CacheMiss, LoadedModel};
use crate::model::request::{Accepted, InferRequest, SequenceStep, intake};
use crate::model::sequences::ensembles::{ReplyTo, Reservation};
use crate::model::sequences::gate::SubmittedRequest;
use crate::model::sequences::jobs::{
    CapturedRequest, InheritedContext, Job, Looked, RequestOrigin, SequenceOwner, cached_answers, circle,
};
use crate::model::sequences::scheduler::{ActingThread, ModelScheduler, carry_out, make_whole};
use crate::model::sequences::table::{KeptStages, PluginStages, SequenceLookup, Table};
use crate::processing::outgoing::CallingRequest;
use crate::state::tier::VersionDigest;

/// A request that passed the checks, and the load that it is for.
struct AcceptedRequest {
    load: Arc<LoadedModel>,
    /// The version that the client named, or that of its stored state.
    version: Option<u64>,
    accepted: Accepted,
    /// Its inputs, if its sequence is captured.
    captured: Option<Box<CapturedRequest>>,
    /// The version that the client named.
    named: Option<u64>,
    /// The request as it arrived, if it may have to be checked again.
    original: Option<Box<InferRequest>>,
}

/// The result of putting a request in its queue.
enum Enqueued {
    Queued(Req),
    /// The core would run it on another load than the one that it was checked for. Nothing has changed.
    Moved(Box<Job>),
}

/// Maximum number of checks of one request. Each further check follows a reload, or the end of its sequence, right after the check before.
const CHECKS: u32 = 8;

/// Checks a request and puts it in its queue. The connection that the request came on may run a short step inline. If servers share the
/// sequences of the model, this one owns that of the request. There is no key if the response cache has answered it.
pub(super) fn submit_past_gate(
    model: &Arc<ModelScheduler>,
    mut request: InferRequest,
    version: Option<u64>,
    origin: RequestOrigin<'_>,
) -> Result<SubmittedRequest, Failure> {
    let (reply, receiver) = oneshot::channel();
    let (reply, accepted) = (ReplyTo::Surface(reply), accept(model, &mut request, version, origin, None)?);
    let miss = match cached_answers::look_up(&accepted.load, &request, &accepted.accepted) {
        Looked::Runs(miss) => miss,
        Looked::Answered(answer) => {
            reply.send(Ok(answer), &RunTimes::default(), None);
            return Ok((receiver, None));
        }
    };
    let req = submit_accepted(model, request, accepted, origin, reply, (None, miss))?;
    Ok((receiver, Some(req)))
}

/// Same as [`submit`], for any receiver of the answer. With a reservation, the request is a START that gets its inputs once it has its slot.
pub(super) fn submit_for(
    model: &Arc<ModelScheduler>,
    mut request: InferRequest,
    version: Option<u64>,
    origin: RequestOrigin<'_>,
    reply: ReplyTo,
    reservation: Option<Reservation>,
) -> Result<Req, Failure> {
    let accepted = accept(model, &mut request, version, origin, reservation.as_ref())?;
    submit_accepted(model, request, accepted, origin, reply, (reservation, None))
}

/// Finds the load that a request is for, and checks the request.
fn accept(
    model: &ModelScheduler,
    request: &mut InferRequest,
    version: Option<u64>,
    origin: RequestOrigin<'_>,
    reservation: Option<&Reservation>,
) -> Result<AcceptedRequest, Failure> {
    if let Some(callers) = origin.callers.filter(|callers| callers.contains(&model.name)) {
        return Err(circle(callers, &model.name, request));
    }
    let original = model.loads.may_change().then(|| Box::new(request.clone()));
    let (named, (version, load)) = (version, find_load(model, &request.sequence, version));
    let Some(load) = load else {
        let (model, why) = (model.name.clone(), NoVersionReason::Unloaded);
        return Err(Failure::NotServed(NotServed::NoVersion { model, why }));
    };
    // For a new sequence, a version that was replaced is one that is gone.
    let is_replaced = || load.is_retired() && model.loads().iter().any(|load| !load.is_retired());
    if request.sequence.start && named.is_some() && is_replaced() {
        let (model, version) = (model.name.clone(), load.version);
        return Err(Failure::NotServed(NotServed::UnknownVersion { model, version }));
    }
    make_whole(&load, request);
    let captured = model.captures.note(request, load.key);
    let accepted = match reservation {
        None => intake::accept(&load.client, request, origin.headers, &load.texts),
        Some(_) => intake::accept_reservation(&load.client, request, origin.headers, &load.texts),
    };
    let accepted = accepted.map_err(|what| {
        // An id that is too long is not kept.
        let is_bounded = !matches!(what, Invalid::IdTooLong { .. });
        let (name, id, what) = (model.name.clone(), request.id.clone(), Box::new(what));
        let failure = Failure::Invalid { model: name, id, what };
        if is_bounded {
            model.refusals.note(model.now(), &request.sequence.id, &failure);
        }
        failure
    })?;
    Ok(AcceptedRequest { load, version, accepted, captured, named, original })
}

/// Puts a checked request in its queue. If it goes to another load by then, it is checked again for that load.
fn submit_accepted(
    model: &Arc<ModelScheduler>,
    mut request: InferRequest,
    mut accepted: AcceptedRequest,
    origin: RequestOrigin<'_>,
    mut reply: ReplyTo,
    (mut reservation, mut miss): (Option<Reservation>, Option<CacheMiss>),
) -> Result<Req, Failure> {
    let mut checks = 1;
    loop {
        let (original, version, now) = (accepted.original.take(), accepted.named, model.now());
        let (job, submit) = job(model, &mut request, accepted, (origin, now), reply, (reservation, miss));
        let mut job = match enqueue(model, job, submit, origin, now)? {
            Enqueued::Queued(req) => return Ok(req),
            Enqueued::Moved(job) => job,
        };
        let id = job.id.clone();
        // A reload may have begun and ended since the check. Then there is no copy of the request, and the job gives back its parts.
        let is_whole = match original {
            Some(original) => {
                request = *original;
                true
            }
            None => job.give_back(&mut request),
        };
        if !is_whole || checks >= CHECKS {
            return Err(job.load.refused(Refusal::Stopping, id, job.facts.start, now).into());
        }
        (reservation, miss) = (job.in_ensemble.reservation.take(), None);
        reply = job.reply;
        accepted = accept(model, &mut request, version, origin, reservation.as_ref())?;
        checks += 1;
    }
}

/// Makes the job of a checked request, and its event for the core.
fn job(
    model: &Arc<ModelScheduler>,
    request: &mut InferRequest,
    AcceptedRequest { load, version, accepted, captured, .. }: AcceptedRequest,
    (origin, now): (RequestOrigin<'_>, Time),
    reply: ReplyTo,
    (reservation, miss): (Option<Reservation>, Option<CacheMiss>),
) -> (Box<Job>, Submit) {
    let mut submit = model.admission.event((&load, version), request, (accepted.meta, origin.patience), now);
    if reservation.is_some() {
        // The ensemble has already decided how to treat a START on a live id.
        (submit.origin, submit.dialect) = (1, request.dialect);
    }
    if submit.fresh_id != 0 && origin.fresh_id != 0 {
        submit.fresh_id = origin.fresh_id;
    }
    let calling = load.calls_models().then(|| calling(model, request, origin, now));
    let mut job = Box::new(Job::new(load, request, accepted, now, reply));
    (job.connection, job.captured) = (origin.awaiting.or(origin.connection).cloned(), captured);
    (job.cache_miss, job.span) = (miss, origin.span.cloned());
    submit.prepare = job.source.brought.is_some();
    if let Some(processed) = &mut job.processed {
        processed.calling = calling;
    }
    if let Some(of) = &mut job.in_ensemble.flow_request {
        (of.headers, of.until) = (origin.headers.to_vec(), origin.patience.map(|t| now + t));
        (of.callers, of.connection) = (Some(path(model, origin)), origin.connection.cloned());
    }
    if submit.fresh_id != 0 {
        (job.id, job.made_id) = (Id::Int(submit.fresh_id), true);
    }
    job.in_ensemble.holder = reservation.as_ref().map(|reservation| reservation.holder.clone());
    job.in_ensemble.reservation = reservation;
    (job, submit)
}

/// The models that wait for requests that this model sends on behalf of this one.
fn path(model: &ModelScheduler, origin: RequestOrigin<'_>) -> Arc<[String]> {
    match origin.callers {
        None => Arc::clone(&model.own_path),
        Some(callers) => callers.iter().chain(model.own_path.iter()).cloned().collect(),
    }
}

/// The context that the plug-ins of a request pass on when they call other models.
fn calling(model: &ModelScheduler, request: &InferRequest, origin: RequestOrigin<'_>, now: Time) -> CallingRequest {
    let path = path(model, origin);
    CallingRequest { path, origin: InheritedContext::new(request, origin, now, &model.clock, &model.timer) }
}

/// Admits a request under the model's lock, and puts it in its queue.
fn enqueue(
    model: &Arc<ModelScheduler>,
    mut job: Box<Job>,
    mut submit: Submit,
    RequestOrigin { owner, connection, .. }: RequestOrigin<'_>,
    now: Time,
) -> Result<Enqueued, Failure> {
    let mut table = model.table.lock();
    if table.is_of_another(&job, &submit) {
        return Err(job.load.refused(Refusal::Live, submit.id, true, now).into());
    }
    // The sequence has moved to another load since the check. Inputs and outputs are the same there.
    if let Some(load) = table.imports.load_of(&submit).filter(|_| job.load.is_retired()) {
        job.load = load;
    }
    let wakes = || !submit.start && table.wakes_on(now, &submit.id, &job.load);
    if !model.loads.is_sole(job.load.key) && table.goes_elsewhere(&job, &submit) && !wakes() {
        return Ok(Enqueued::Moved(job));
    }
    if let Err(failure) = admit(model, &mut table, (&mut job, &mut submit), owner, now) {
        // The store may have to be asked about the sequence.
        let actions = model.take_actions(&mut table, now);
        drop(table);
        model.act(actions, now);
        model.refusals.note(now, &job.id, &failure);
        return Err(failure);
    }
    job.load.metrics.queued();
    let req = table.submit(now, job, submit);
    let actions = model.take_actions(&mut table, now);
    drop(table);
    // A new sequence may leave less room for freed memory.
    model.chunk_cache.trim();
    carry_out(model, ActingThread { wakes: connection, answers: connection }, actions, now);
    Ok(Enqueued::Queued(req))
}

/// Checks a request against the limits and the sequences of its model, and gives it its share of them. If this fails, nothing has changed.
fn admit(
    model: &ModelScheduler,
    table: &mut Table,
    (job, submit): (&mut Job, &mut Submit),
    owner: Option<&Arc<dyn SequenceOwner>>,
    now: Time,
) -> Result<(), Failure> {
    check_source(table, job)?;
    model.admission.admit(table, (job, submit), owner, now)?;
    table.imports.check(&job.load, submit)?;
    table.look_up_kept(now, job, submit)
}

/// Refuses a START that copies a sequence which is not there. A source that is not ready yet may be ready when the START is prepared.
fn check_source(table: &Table, job: &Job) -> Result<(), Failure> {
    let Some(from) = job.source.brought.as_ref().and_then(|brought| brought.from.as_ref()) else { return Ok(()) };
    match table.copy_source(&job.load, from) {
        Err(why @ (NotCopied::Unknown | NotCopied::Stored | NotCopied::OtherLoad)) => {
            let (model, id) = (job.load.settings.name.clone(), job.id.clone());
            Err(Failure::NotCopied { model, id, from: from.clone(), why })
        }
        Ok(_) | Err(NotCopied::NotYet | NotCopied::Gone) => Ok(()),
    }
}

/// The load that runs a step of this sequence.
pub(in crate::model) fn load_of(
    model: &ModelScheduler,
    step: &SequenceStep,
    version: Option<u64>,
) -> Option<Arc<LoadedModel>> {
    find_load(model, step, version).1
}

/// The version that a step is for, and the load that runs it.
fn find_load(
    model: &ModelScheduler,
    step: &SequenceStep,
    version: Option<u64>,
) -> (Option<u64>, Option<Arc<LoadedModel>>) {
    if let Some(load) = waking_load(model, step, version) {
        return (Some(load.version), Some(load));
    }
    let version = version_of(model, step, version);
    (version, routed(model, step, version))
}

/// The only load that can continue from the stored state of this step's sequence, if the model has several loads.
fn waking_load(model: &ModelScheduler, step: &SequenceStep, version: Option<u64>) -> Option<Arc<LoadedModel>> {
    let loads = model.loads();
    if step.start || loads.len() <= 1 || !model.store.has_kept() {
        return None;
    }
    let (table, now) = (model.table.lock(), model.now());
    let wakes = |load: &&Arc<LoadedModel>| {
        version.is_none_or(|version| version == load.version) && table.wakes_on(now, &step.id, load)
    };
    loads.iter().find(wakes).cloned()
}

/// The load that runs a step of this version: the one on which its sequence lives, or the one that takes new sequences.
fn routed(model: &ModelScheduler, step: &SequenceStep, version: Option<u64>) -> Option<Arc<LoadedModel>> {
    let load = model.load_for(version)?;
    if model.loads().len() <= 1 {
        return Some(load);
    }
    let route = model.table.lock().core.route(&step.id, version, step.start);
    Some(route.and_then(|key| model.loads.find(key)).unwrap_or(load))
}

/// The version that a step is for. If it names none, it is the version that continues from the state of its sequence.
fn version_of(model: &ModelScheduler, step: &SequenceStep, version: Option<u64>) -> Option<u64> {
    let loads = model.loads();
    if version.is_some() || step.start || !(model.store.has_kept() || loads.len() > 1) {
        return version;
    }
    let table = model.table.lock();
    if let Some(load) = table.imports.goes_to(&step.id).filter(|load| !load.is_retired()) {
        return Some(load.version);
    }
    let kept = table.kept.get(&step.id)?;
    if table.core.find(&step.id, None).is_some() {
        // A START has taken the id and has not run yet.
        return None;
    }
    let maker = kept.version_digest();
    let [coming, next] = table.successors(maker);
    drop(table);
    // If all loads are retired, the model goes out of service. The client must read that, and not `not_resumed`.
    let is_draining = loads.iter().all(|load| load.is_retired());
    let takes =
        |of: &VersionDigest| loads.iter().any(|load| (is_draining || !load.is_retired()) && load.version == of.version);
    [coming, next, maker].into_iter().find(takes).map(|of| of.version)
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
#[path = "tests/submission.rs"]
mod tests;
