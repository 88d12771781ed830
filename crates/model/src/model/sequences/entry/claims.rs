//! Takes sequences over from the store that servers share, when the first request of a sequence arrives here.

use std::sync::Arc;
use std::time::Duration;

use sequor_core::{Id, Time, Tombstone};
use tokio::sync::oneshot;

use crate::error::Failure;
use crate::model::request::InferRequest;
use crate::model::sequences::gate::{
    AfterClaim, AtGate, DeferredRequest, GatePlace, HeldPeriod, SequenceGate, SubmittedRequest,
};
use crate::model::sequences::jobs::RequestOrigin;
use crate::model::sequences::offloaded::KeptSequence;
use crate::model::sequences::scheduler::ModelScheduler;
use crate::model::sequences::table::SequenceLookup as _;
use crate::state::tier::{ClaimFailure, ClaimOutcome, ClaimTask, EndedState, TierKey};

use super::submission;

/// Interval at which the outcome of an operator's claim is checked.
const LOOK: Duration = Duration::from_millis(5);

/// Whether a request of a model with shared sequences is submitted now.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum AfterGate {
    /// It goes to the table now. If it has an id, [`SequenceGate::entered`] must follow.
    Enters(InferRequest, Option<(Id, HeldPeriod)>),
    /// It is submitted later.
    Waits(GatePlace, oneshot::Receiver<Result<SubmittedRequest, Failure>>),
}

/// The refusal of a request at the gate, which operators find with those of the model.
fn refused(model: &ModelScheduler, id: &Id, why: String) -> Failure {
    let failure = Failure::Store { model: model.name.clone(), id: id.clone(), why };
    model.refusals.note(model.now(), id, &failure);
    failure
}

/// Lets a request through if this server owns its sequence, or if it has none. Otherwise it waits until this server owns it.
pub(super) fn pass(
    model: &Arc<ModelScheduler>,
    gate: &Arc<SequenceGate>,
    request: InferRequest,
    version: Option<u64>,
    mut origin: RequestOrigin<'_>,
) -> Result<AfterGate, Failure> {
    if request.sequence.id == Id::None {
        origin.fresh_id = fresh_id(model, &request, version);
    }
    let id = match (&request.sequence.id, origin.fresh_id) {
        (Id::None, 0) => return Ok(AfterGate::Enters(request, None)),
        (Id::None, fresh) => Id::Int(fresh),
        (id, _) => id.clone(),
    };
    // A server that stops takes over no sequence. Its own sequences continue.
    if !gate.owns(&id) && model.loads().iter().all(|load| load.is_retired()) {
        let why = "the server or the model is going out of service".to_owned();
        return Err(refused(model, &id, why));
    }
    let begins = request.sequence.start || origin.fresh_id != 0;
    let (sender, submitted) = oneshot::channel();
    let defer = |request| DeferredRequest::new(request, version, origin, sender, model.now());
    match gate.enter(&id, request, defer) {
        AtGate::Open(_, period) if gate.store().has_lapsed() => {
            gate.entered(&id, period);
            let address = gate.store().shared().map(|shared| shared.address().to_owned()).unwrap_or_default();
            let why = ClaimFailure::NoLease { address }.to_string();
            Err(refused(model, &id, why))
        }
        AtGate::Open(request, period) => Ok(AfterGate::Enters(request, Some((id, period)))),
        AtGate::Waits(number) => Ok(AfterGate::Waits(GatePlace::new(gate, id, number), submitted)),
        AtGate::Claims(number) => {
            let place = GatePlace::new(gate, id.clone(), number);
            claim(model, gate, id, begins);
            Ok(AfterGate::Waits(place, submitted))
        }
    }
}

/// The id that the server assigns to the sequence of this request; 0 if it assigns none.
fn fresh_id(model: &ModelScheduler, request: &InferRequest, version: Option<u64>) -> u64 {
    model.load_for(version).and_then(|load| model.admission.assigned_id(&load, request)).unwrap_or(0)
}

/// Claims the sequence of an id for the requests that wait at the gate. `begins`: the first of them may begin the sequence, so the store need not have it.
pub(in crate::model::sequences) fn claim(model: &Arc<ModelScheduler>, gate: &SequenceGate, id: Id, begins: bool) {
    let Some(shared) = gate.store().shared() else { return };
    // A state that was given to this server begins a sequence, too.
    let begins = begins || model.table.lock().has_elsewhere(&id);
    let (key, weak) = (TierKey::new(&model.name, &id), Arc::downgrade(model));
    let done = move |outcome| {
        if let Some(model) = weak.upgrade() {
            claimed(&model, &id, outcome);
        }
    };
    shared.claim(ClaimTask { key, begins, done: Box::new(done) });
}

/// Takes a sequence over for an operator, if it is stored or another server has it. Waits for that, so a thread that serves connections must
/// not call it. If the sequence cannot be taken over, it is as before.
pub(in crate::model::sequences) fn take_over(model: &Arc<ModelScheduler>, id: &Id) {
    let Some(gate) = model.gate.as_ref().filter(|gate| gate.is_active()) else { return };
    if gate.enter_without_request(id) {
        claim(model, gate, id.clone(), false);
    }
    while gate.is_claimed(id) {
        std::thread::sleep(LOOK);
    }
}

/// Applies the outcome of a claim, and lets the requests go on that waited for it.
fn claimed(model: &Arc<ModelScheduler>, id: &Id, outcome: Result<ClaimOutcome, ClaimFailure>) {
    let Some(gate) = model.gate.clone() else { return };
    match outcome {
        Ok(ClaimOutcome::Held { head, incarnation, left, ended }) => {
            if let Some(ended) = ended {
                remember(model, id, &ended);
            }
            if let Some(head) = head {
                let until = left.or(head.idle).map_or(Time::NEVER, |left| model.now() + left);
                let kept = KeptSequence { head, incarnation, until, unwritten: None, doubt: None };
                let mut table = model.table.lock();
                // As on one server, a stored sequence comes before a state that was given for its id.
                let _unused = table.imports.remove(id);
                table.keep_again(id.clone(), kept);
                drop(table);
                model.store.set_kept(true);
                if until != Time::NEVER {
                    model.arm(until);
                }
            }
            go_on(model, &gate, id, true);
        }
        Ok(ClaimOutcome::Unknown { ended }) => {
            if let Some(ended) = ended {
                remember(model, id, &ended);
            }
            go_on(model, &gate, id, false);
        }
        Err(failure) => {
            let why = failure.to_string();
            gate.claim_failed(id).into_iter().for_each(|waiting| waiting.refuse(refused(model, id, why.clone())));
        }
    }
}

/// Remembers how a sequence has ended on another server.
fn remember(model: &ModelScheduler, id: &Id, &EndedState { why, step, idle, at }: &EndedState) {
    let Some(load) = model.load_for(None) else { return };
    let mut table = model.table.lock();
    let at = Time::ZERO + at.saturating_sub(table.zero);
    if table.core.end_of(id).is_none_or(|known| known.at <= at) {
        table.core.remember(load.key, id.clone(), Tombstone { why, at, step, idle });
    }
}

/// Submits the requests of an id that waited, in their order.
pub(in crate::model::sequences) fn go_on(model: &Arc<ModelScheduler>, gate: &SequenceGate, id: &Id, is_held: bool) {
    loop {
        match gate.after_claim(id, is_held) {
            AfterClaim::Next(next) => next.submit(
                model.now(),
                |request, version, origin| submission::submit_past_gate(model, request, version, origin),
                |req| model.cancel(req),
            ),
            AfterClaim::Begins => return claim(model, gate, id.clone(), true),
            AfterClaim::Done => break,
        }
    }
    if is_held {
        // It may be that none of them began a sequence.
        gate.note_unused(vec![id.clone()]);
    }
}
