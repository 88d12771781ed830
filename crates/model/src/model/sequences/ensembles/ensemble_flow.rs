//! One request of an ensemble in progress.
//!
//! A START first takes its slots in all members that have sequences, in the order of the members' names. All ensembles use this one order, so
//! no two sequences ever wait for each other's slots. With all its slots the request passes the gate of the whole ensemble. Then each step is
//! sent to its member as soon as its inputs are there. If a step fails, the request fails. If it is a START, or a member with sequences may
//! have run its step, the sequence ends in all members.
//!
//! The thread that runs a member's step continues the flow: an answer calls it after the member's lock was released. If that thread is a
//! connection's, it also takes the short steps that follow, so that no other thread is woken for them. `thread` is such a thread.

use std::sync::{Arc, Weak};

use sequor_core::{EndReason, Refusal, Req, Seq, Time};

use crate::ensemble::{EnsembleGate, EnsembleGates, EnsemblePlan, FlowProgress, GatedRequest, MemberStep};
use crate::error::Failure;
use crate::executor::ExecutorHandle;
use crate::model::execute::RunTimes;
use crate::model::load::{LoadEnsemble, LoadedModel};
use crate::model::request::{InferRequest, SequenceStep};
use crate::sync::Mutex;
use crate::tensor::{NamedTensor, Tensor};

use super::members::{FlowHost, Member, MemberCall, MemberSequences, Reservation, SequenceHolder, SlotGrant};
use super::reply_to::{Reply, ReplyTo, StepOfFlow, StepReply};

/// The members of one load of an ensemble.
#[derive(Debug)]
pub(in crate::model::sequences) struct EnsembleMembers {
    /// One model per step, in the order of the steps.
    pub(in crate::model::sequences) models: Vec<Arc<dyn Member>>,
    pub(in crate::model::sequences) gates: EnsembleGates<Arc<EnsembleFlow>>,
}

/// A request of an ensemble as it arrived, without its inputs.
#[derive(Debug)]
pub(in crate::model::sequences) struct FlowRequest {
    pub(in crate::model::sequences) request: InferRequest,
    pub(in crate::model::sequences) headers: Vec<(String, String)>,
    /// The deadline of the request.
    pub(in crate::model::sequences) until: Option<Time>,
    /// The models that wait for its answer, including the ensemble.
    pub(in crate::model::sequences) callers: Option<Arc<[String]>>,
    /// The connection that it came on.
    pub(in crate::model::sequences) connection: Option<ExecutorHandle>,
}

impl FlowRequest {
    pub(in crate::model::sequences) fn new(request: InferRequest) -> FlowRequest {
        FlowRequest { request, headers: Vec::new(), until: None, callers: None, connection: None }
    }
}

/// A request of an ensemble in progress.
#[derive(Debug)]
pub(in crate::model::sequences) struct EnsembleFlow {
    pub(in crate::model::sequences) ensemble: Weak<dyn FlowHost>,
    pub(in crate::model::sequences) req: Req,
    /// Its sequence, if the ensemble has sequences.
    pub(in crate::model::sequences) seq: Option<Seq>,
    pub(in crate::model::sequences) load: Arc<LoadedModel>,
    pub(in crate::model::sequences) members: Arc<EnsembleMembers>,
    /// The client's request without its inputs. The requests to members are made from it.
    pub(in crate::model::sequences) request: InferRequest,
    pub(in crate::model::sequences) headers: Vec<(String, String)>,
    pub(in crate::model::sequences) until: Option<Time>,
    pub(in crate::model::sequences) callers: Option<Arc<[String]>>,
    /// The connection that it came on. A batch's answers wake connections together.
    pub(in crate::model::sequences) connection: Option<ExecutorHandle>,
    /// The sequences in the members that belong to its sequence.
    pub(in crate::model::sequences) held: Option<Arc<MemberSequences>>,
    /// The members' sequences of an earlier sequence with the same id, if they have not been released yet.
    pub(in crate::model::sequences) previous: Option<Arc<MemberSequences>>,
    pub(in crate::model::sequences) state: Mutex<FlowState>,
}

#[derive(Debug)]
pub(in crate::model::sequences) struct FlowState {
    walk: FlowProgress,
    /// How long the runs of its members took.
    compute: RunTimes,
    /// Whether it was answered or given up. Later events are then ignored.
    is_over: bool,
    /// Steps that members with sequences may have run.
    advanced: Vec<usize>,
    /// The requests to members: STARTs that hold slots or wait for them, and steps in progress.
    sent: Vec<(usize, Req)>,
    /// The gates that it has passed and not left.
    inside: Vec<EnsembleGate>,
}

impl FlowState {
    pub(in crate::model::sequences) fn new(plan: &Arc<EnsemblePlan>, inputs: Vec<Option<Tensor>>) -> FlowState {
        FlowState {
            walk: FlowProgress::new(plan, inputs),
            compute: RunTimes::default(),
            is_over: false,
            advanced: Vec::new(),
            sent: Vec::new(),
            inside: Vec::new(),
        }
    }
}

/// The work that a flow had in progress when it ended.
#[derive(Debug)]
struct StoppedFlow {
    sent: Vec<(usize, Req)>,
    inside: Vec<EnsembleGate>,
    has_advanced: bool,
}

/// Stops a flow when its request is dropped.
#[derive(Debug)]
pub(in crate::model::sequences) struct FlowGuard(pub(in crate::model::sequences) Arc<EnsembleFlow>);

impl Drop for FlowGuard {
    fn drop(&mut self) {
        // A flow that was answered is over already.
        if let Some(stopped) = self.0.stop() {
            self.0.cancel(stopped, None);
        }
    }
}

impl EnsembleFlow {
    // === progress ===

    /// Starts the flow: takes slots, or passes the gate of the whole ensemble. Called once.
    pub(in crate::model::sequences) fn begin(self: &Arc<Self>, thread: Option<&ExecutorHandle>) {
        if let Some(previous) = &self.previous {
            previous.end(EndReason::Restarted);
        }
        let takes_slots = self.request.sequence.start && self.held.is_some();
        if takes_slots && !self.state.lock().is_over {
            self.reserve(0, thread);
        } else {
            self.pass(EnsembleGate::Whole, thread);
        }
    }

    /// Reserves a slot in the member at this place of the order. With all slots, it passes the gate of the whole ensemble.
    fn reserve(self: &Arc<Self>, place: usize, thread: Option<&ExecutorHandle>) {
        let Some((step, member)) = self.stateful(place) else { return self.pass(EnsembleGate::Whole, thread) };
        let Some(seq) = self.seq else { return };
        let holder = SequenceHolder { ensemble: self.ensemble.clone(), seq };
        let flow: Arc<EnsembleFlow> = Arc::clone(self);
        let reservation = Reservation { flow, place, holder };
        let (request, to) = (self.step_request(step, Vec::new()), self.reply_to(step));
        match Arc::clone(member).reserve(request, self.call(step, thread), reservation, to) {
            Ok(req) => {
                self.note(step, member, req);
                if let Some(held) = &self.held {
                    held.add_start(member, req);
                }
            }
            Err(failure) => self.fail(step, failure, thread),
        }
    }

    /// Enters a gate, or waits in front of it.
    fn pass(self: &Arc<Self>, gate: EnsembleGate, thread: Option<&ExecutorHandle>) {
        if self.members.gates.enter(gate, Arc::clone(self)) {
            self.go_through(gate, thread);
        }
    }

    /// Continues behind a gate. If the flow has ended meanwhile, it leaves the gate.
    fn go_through(self: &Arc<Self>, gate: EnsembleGate, thread: Option<&ExecutorHandle>) {
        let is_over = {
            let mut state = self.state.lock();
            state.inside.push(gate);
            state.is_over
        };
        match gate {
            _ if is_over => self.leave(gate, thread),
            EnsembleGate::Whole => self.go_on(thread),
            EnsembleGate::Step(step) => self.send(step, thread),
        }
    }

    /// Sends every step whose inputs are there. Finishes the flow if all steps are done.
    fn go_on(self: &Arc<Self>, thread: Option<&ExecutorHandle>) {
        let (ready, is_done) = {
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            (state.walk.start_ready(), state.walk.is_done())
        };
        if is_done {
            return self.finish(thread);
        }
        ready.into_iter().for_each(|step| self.pass(EnsembleGate::Step(step), thread));
    }

    /// Sends a step to its member, once it has passed the step's gate.
    fn send(self: &Arc<Self>, step: usize, thread: Option<&ExecutorHandle>) {
        let Some(member) = self.members.models.get(step) else { return };
        let (inputs, reserved) = {
            let mut state = self.state.lock();
            if state.is_over {
                return;
            }
            // Recorded before sending, because the answer may come at once.
            state.advanced.extend(self.is_stateful(step).then_some(step));
            let reserved = state.sent.iter().find(|(of, _)| *of == step).map(|(_, req)| *req);
            (state.walk.take_inputs(step), reserved)
        };
        let request = self.step_request(step, inputs);
        let sent = match reserved {
            Some(req) => Arc::clone(member).provide(req, request, self.call(step, thread)),
            None => {
                let (call, to) = (self.call(step, thread), self.reply_to(step));
                Arc::clone(member).submit_step(request, call, to).map(|req| self.note(step, member, req))
            }
        };
        if let Err(failure) = sent {
            // The member has not accepted the step.
            self.state.lock().advanced.retain(|of| *of != step);
            self.fail(step, failure, thread);
        }
    }

    /// Records a request to a member. If the flow has ended meanwhile, cancels the request.
    fn note(&self, step: usize, member: &Arc<dyn Member>, req: Req) {
        let is_over = {
            let mut state = self.state.lock();
            if !state.sent.contains(&(step, req)) {
                state.sent.push((step, req));
            }
            state.is_over
        };
        if is_over {
            Arc::clone(member).cancel_step(req);
        }
    }

    // === end ===

    fn finish(&self, thread: Option<&ExecutorHandle>) {
        let (outputs, compute) = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.is_over, true) {
                return;
            }
            (state.walk.outputs(), state.compute)
        };
        if let Some(ensemble) = self.ensemble.upgrade() {
            ensemble.flow_done(self.req, outputs, compute, thread);
        }
        self.leave(EnsembleGate::Whole, thread);
    }

    fn fail(&self, step: usize, failure: Failure, thread: Option<&ExecutorHandle>) {
        let Some(stopped) = self.stop() else { return };
        let has_advanced = stopped.has_advanced;
        let (start, id) = (self.request.sequence.start, &self.request.sequence.id);
        let ends = self.seq.filter(|_| self.held.is_some() && (start || has_advanced));
        let member = self.planned(step).map(|planned| planned.model.clone()).unwrap_or_default();
        if let (Some(_), Some(of)) = (ends, self.of_load()) {
            of.blame(id, &member);
        }
        let failure = Failure::Member {
            ensemble: self.load.settings.name.clone(),
            member,
            id: id.clone(),
            ended: ends.is_some(),
            may_retry: start || ends.is_none(),
            why: Box::new(failure),
        };
        if let Some(ensemble) = self.ensemble.upgrade() {
            ensemble.flow_failed(self.req, ends, failure);
        }
        // A member ends its sequence when its START is cancelled. The ensemble's sequence has ended before, with the reason above.
        self.cancel(stopped, thread);
    }

    /// Ends the flow. `None` if it had ended already.
    fn stop(&self) -> Option<StoppedFlow> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return None;
        }
        // It may stand in front of a gate for long.
        state.walk.abandon();
        let (sent, inside) = (std::mem::take(&mut state.sent), state.inside.clone());
        Some(StoppedFlow { sent, inside, has_advanced: !state.advanced.is_empty() })
    }

    /// Cancels the work in progress.
    fn cancel(&self, StoppedFlow { sent, inside, .. }: StoppedFlow, thread: Option<&ExecutorHandle>) {
        for (step, req) in sent {
            if let Some(member) = self.members.models.get(step) {
                Arc::clone(member).cancel_step(req);
            }
        }
        inside.into_iter().for_each(|gate| self.leave(gate, thread));
    }

    /// Leaves a gate, and lets the next request through.
    fn leave(&self, gate: EnsembleGate, thread: Option<&ExecutorHandle>) {
        let was_inside = {
            let mut state = self.state.lock();
            let at = state.inside.iter().position(|of| *of == gate);
            at.map(|at| state.inside.swap_remove(at)).is_some()
        };
        if was_inside {
            self.members.gates.leave(gate, |next: Arc<EnsembleFlow>| next.go_through(gate, thread));
        }
    }

    // === parts ===

    fn of_load(&self) -> Option<&LoadEnsemble> {
        self.load.ensemble.as_ref()
    }

    fn planned(&self, step: usize) -> Option<&MemberStep> {
        self.of_load()?.plan.steps.get(step)
    }

    fn is_stateful(&self, step: usize) -> bool {
        self.planned(step).is_some_and(|planned| planned.is_stateful)
    }

    fn call<'a>(&'a self, step: usize, thread: Option<&'a ExecutorHandle>) -> MemberCall<'a> {
        MemberCall {
            version: self.planned(step).and_then(|planned| planned.version),
            headers: &self.headers,
            until: self.until,
            callers: self.callers.as_ref(),
            connection: self.connection.as_ref(),
            thread,
        }
    }

    /// The step and the member at this place of the order of slots.
    fn stateful(&self, place: usize) -> Option<(usize, &Arc<dyn Member>)> {
        let step = *self.of_load()?.plan.stateful.get(place)?;
        Some((step, self.members.models.get(step)?))
    }

    fn reply_to(self: &Arc<Self>, step: usize) -> ReplyTo {
        let flow: Arc<EnsembleFlow> = Arc::clone(self);
        ReplyTo::Step(StepOfFlow { flow, step })
    }

    /// The request to a member: id, sequence, priority, timeout and parameters of the client's request, with the inputs of the step.
    fn step_request(&self, step: usize, inputs: Vec<NamedTensor>) -> InferRequest {
        let of = &self.request;
        let Some(planned) = self.planned(step) else { return of.clone() };
        let sequence = match planned.is_stateful {
            true => SequenceStep { step: None, idle: None, from: None, ..of.sequence.clone() },
            false => SequenceStep::default(),
        };
        InferRequest {
            model: planned.model.clone(),
            version: of.version.clone(),
            id: of.id.clone(),
            sequence,
            priority: of.priority,
            timeout: of.timeout,
            inputs,
            outputs: planned.outputs.iter().map(|(port, _)| port.clone()).collect(),
            parameters: of.parameters.clone(),
            dialect: of.dialect,
        }
    }
}

impl GatedRequest for Arc<EnsembleFlow> {
    fn is_over(&self) -> bool {
        self.state.lock().is_over
    }
}

impl SlotGrant for EnsembleFlow {
    fn granted(self: Arc<Self>, place: usize, req: Req, seq: Seq, thread: Option<&ExecutorHandle>) {
        let Some((step, member)) = self.stateful(place) else { return };
        if let Some(held) = &self.held {
            held.add(member, seq);
        }
        self.note(step, member, req);
        if !self.state.lock().is_over {
            self.reserve(place + 1, thread);
        }
    }
}

impl StepReply for EnsembleFlow {
    fn answered(self: Arc<Self>, step: usize, reply: Reply, compute: &RunTimes, thread: Option<&ExecutorHandle>) {
        match reply {
            Ok(answer) => {
                {
                    let mut state = self.state.lock();
                    state.walk.finish(step, answer.outputs);
                    state.compute.add(compute);
                }
                self.leave(EnsembleGate::Step(step), thread);
                self.go_on(thread);
            }
            Err(failure) => {
                if never_ran(&failure) {
                    self.state.lock().advanced.retain(|of| *of != step);
                }
                self.fail(step, failure, thread);
            }
        }
    }
}

/// Whether a member refused a step before it ran, and the member's sequence is as it was.
fn never_ran(failure: &Failure) -> bool {
    match failure {
        // A member whose sequence ends with the step says that it may not be retried.
        Failure::Refused(refused) => {
            refused.may_retry && matches!(refused.refusal, Refusal::QueueTimeout { .. } | Refusal::Policy(_))
        }
        Failure::Member { ended, .. } => !ended,
        _ => false,
    }
}
