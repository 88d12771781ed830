//! A model as ensembles use it, and as an ensemble uses its members.

use std::sync::{Arc, Weak};

use sequor_core::{EndReason, Event, LoadId, Req, Seq, Time};

use crate::ensemble::EnsembleGates;
use crate::error::Failure;
use crate::executor::ExecutorHandle;
use crate::model::execute::RunTimes;
use crate::model::load::RequestFacts;
use crate::model::request::{InferRequest, intake};
use crate::model::sequences::ensembles::{
    EnsembleMembers, EnsembleParts, FlowHost, Followup, Member, MemberCall, ReplyTo, Reservation, contains_itself,
};
use crate::model::sequences::jobs::RequestOrigin;
use crate::model::sequences::scheduler::{ActingThread, ModelScheduler};
use crate::model::sequences::table::{FlowTable, Table};
use crate::tensor::Tensor;

use super::submission::submit_for;

impl EnsembleParts for ModelScheduler {
    fn bind_members(&self, load: LoadId, models: Vec<Arc<dyn Member>>, max_in_flight: Option<u32>) {
        models.iter().for_each(|model| model.join_ensemble());
        let gates = EnsembleGates::new(models.len(), max_in_flight);
        self.members.lock().push((load, Arc::new(EnsembleMembers { models, gates })));
    }

    fn release_members(&self, load: LoadId) {
        let released = {
            let mut all = self.members.lock();
            let at = all.iter().position(|(of, _)| *of == load);
            at.map(|at| all.swap_remove(at).1)
        };
        for model in released.iter().flat_map(|members| &members.models) {
            Arc::clone(model).leave_ensemble();
        }
    }

    fn retire_after_ensembles(self: &Arc<Self>, load: LoadId, until: Time) {
        let is_deferred = !contains_itself(&**self) && self.uses.lock().defer(load, until);
        if !is_deferred {
            self.retire(load, until);
        }
    }

    fn begin_flow(self: &Arc<Self>, req: Req, load: LoadId, thread: Option<&ExecutorHandle>) {
        let host: Weak<dyn FlowHost> = Arc::downgrade(self) as Weak<dyn FlowHost>;
        let members = self.members.lock().iter().find(|(of, _)| *of == load).map(|(_, members)| Arc::clone(members));
        let flow = members.and_then(|members| self.table.lock().make_flow(host, members, req));
        if let Some(flow) = flow {
            flow.begin(thread);
        }
    }
}

impl Member for ModelScheduler {
    fn reserve(
        self: Arc<Self>,
        request: InferRequest,
        call: MemberCall<'_>,
        reservation: Reservation,
        to: ReplyTo,
    ) -> Result<Req, Failure> {
        submit_for(&self, request, call.version, origin(call, self.now()), to, Some(reservation))
    }

    fn provide(self: Arc<Self>, req: Req, mut request: InferRequest, call: MemberCall<'_>) -> Result<(), Failure> {
        let Some(load) = self.table.lock().load_of(req) else { return Ok(()) };
        let accepted = intake::accept(&load.client, &mut request, call.headers, &load.texts).map_err(|what| {
            Failure::Invalid { model: self.name.clone(), id: request.id.clone(), what: Box::new(what) }
        })?;
        let facts = RequestFacts::new(&request, &accepted.meta);
        let now = self.now();
        let provide = |table: &mut Table| {
            table.provide(now, req, accepted.meta, |job| {
                // From now on it waits as a request of this model.
                job.arrived = now;
                job.accept(accepted, facts);
            });
        };
        self.locked_on(ActingThread { wakes: call.thread, answers: call.thread }, now, provide);
        Ok(())
    }

    fn submit_step(self: Arc<Self>, request: InferRequest, call: MemberCall<'_>, to: ReplyTo) -> Result<Req, Failure> {
        submit_for(&self, request, call.version, origin(call, self.now()), to, None)
    }

    fn cancel_step(self: Arc<Self>, req: Req) {
        self.cancel(req);
    }

    fn end_sequence(self: Arc<Self>, seq: Seq, why: EndReason) {
        self.apply(Event::End(seq, why));
    }

    fn end_quietly(self: Arc<Self>, seq: Seq, why: EndReason) -> Followup {
        let now = self.now();
        let actions = {
            let mut table = self.table.lock();
            table.apply(now, Event::End(seq, why));
            self.take_actions(&mut table, now)
        };
        Box::new(move || self.act(actions, now))
    }

    fn join_ensemble(&self) {
        self.uses.lock().add();
    }

    fn members(&self) -> Vec<Arc<dyn Member>> {
        self.members.lock().iter().flat_map(|(_, members)| &members.models).cloned().collect()
    }

    fn leave_ensemble(self: Arc<Self>) {
        let retired = self.uses.lock().remove();
        for (load, until) in retired {
            self.retire(load, until);
        }
    }
}

impl FlowHost for ModelScheduler {
    fn end_for_member(self: Arc<Self>, seq: Seq, why: EndReason, member: &str) {
        self.change(|table, now| table.end_for_member(now, seq, why, member));
    }

    fn flow_done(
        self: Arc<Self>,
        req: Req,
        outputs: Vec<Option<Tensor>>,
        compute: RunTimes,
        thread: Option<&ExecutorHandle>,
    ) {
        let now = self.now();
        let thread = ActingThread { answers: thread, ..ActingThread::default() };
        self.locked_on(thread, now, |table| table.flow_done(now, req, outputs, compute));
    }

    fn flow_failed(self: Arc<Self>, req: Req, ends: Option<Seq>, failure: Failure) {
        self.change(|table, now| table.flow_failed(now, req, ends, failure));
    }
}

/// The origin of a member's request, taken from the client's call. The ensemble already counts the sequence for the client.
fn origin(call: MemberCall<'_>, now: Time) -> RequestOrigin<'_> {
    let patience = call.until.map(|until| until - now);
    let MemberCall { headers, callers, connection: awaiting, thread: connection, .. } = call;
    RequestOrigin { patience, headers, callers, connection, awaiting, owner: None, fresh_id: 0, span: None }
}
