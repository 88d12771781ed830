//! The interfaces between an ensemble and its members, and the record of the members' sequences that belong to one sequence of an ensemble.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use sequor_core::{EndReason, Id, LoadId, Req, Seq, Time};

use crate::error::Failure;
use crate::executor::ExecutorHandle;
use crate::model::execute::RunTimes;
use crate::model::request::InferRequest;
use crate::sync::Mutex;
use crate::tensor::Tensor;

use super::reply_to::ReplyTo;

/// Work for a member that must wait until no lock is held.
pub(in crate::model) type Followup = Box<dyn FnOnce()>;

/// The context of a request to a member, beside its message.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct MemberCall<'a> {
    /// `None` means the latest version.
    pub(in crate::model::sequences) version: Option<u64>,
    /// The headers of the client's request that features are read from.
    pub(in crate::model::sequences) headers: &'a [(String, String)],
    /// The time after which the client has no use for an answer.
    pub(in crate::model::sequences) until: Option<Time>,
    /// The models that wait for this request.
    pub(in crate::model::sequences) callers: Option<&'a Arc<[String]>>,
    /// The connection of the client's request.
    pub(in crate::model::sequences) connection: Option<&'a ExecutorHandle>,
    /// The thread that sends the request, if a step of the member may be left to it.
    pub(in crate::model::sequences) thread: Option<&'a ExecutorHandle>,
}

/// A model as an ensemble uses it. No method is called under a lock, except [`Member::end_quietly`].
pub(in crate::model) trait Member: Debug + Send + Sync {
    /// Takes a slot for a START whose inputs arrive later, or waits for one. Calls the reservation once it has the slot.
    fn reserve(
        self: Arc<Self>,
        request: InferRequest,
        call: MemberCall<'_>,
        reservation: Reservation,
        to: ReplyTo,
    ) -> Result<Req, Failure>;

    /// Passes its inputs to a START. If the START is already over, its refusal has been sent.
    fn provide(self: Arc<Self>, req: Req, request: InferRequest, call: MemberCall<'_>) -> Result<(), Failure>;

    fn submit_step(self: Arc<Self>, request: InferRequest, call: MemberCall<'_>, to: ReplyTo) -> Result<Req, Failure>;

    fn cancel_step(self: Arc<Self>, req: Req);

    fn end_sequence(self: Arc<Self>, seq: Seq, why: EndReason);

    /// Ends a sequence, and returns the follow-up work to the caller.
    fn end_quietly(self: Arc<Self>, seq: Seq, why: EndReason) -> Followup;

    /// Records that one more ensemble has this model as a member.
    fn join_ensemble(&self);

    /// The members of all its loads that are ensembles.
    fn members(&self) -> Vec<Arc<dyn Member>>;

    /// Records that a load of an ensemble is gone. With the last one, a deferred unload of this member takes effect.
    fn leave_ensemble(self: Arc<Self>);
}

/// An ensemble as its members and its flows use it. No method is called under a lock.
pub(in crate::model) trait FlowHost: Debug + Send + Sync {
    /// Ends the ensemble's sequence, and those of all its members, because the sequence of `member` has ended by itself.
    fn end_for_member(self: Arc<Self>, seq: Seq, why: EndReason, member: &str);

    /// Reports that every step of a request is done, and that the runs of its members took `compute`. If another ensemble waits for the
    /// request, its next steps may be left to `thread`.
    fn flow_done(
        self: Arc<Self>,
        req: Req,
        outputs: Vec<Option<Tensor>>,
        compute: RunTimes,
        thread: Option<&ExecutorHandle>,
    );

    /// Reports that a step failed. `ends` is the sequence that ends with it.
    fn flow_failed(self: Arc<Self>, req: Req, ends: Option<Seq>, failure: Failure);
}

/// The operations on a model that combine models into ensembles.
pub(in crate::model) trait EnsembleParts {
    /// Sets the members of an ensemble's load that is about to be added, in the order of its steps.
    fn bind_members(&self, load: LoadId, models: Vec<Arc<dyn Member>>, max_in_flight: Option<u32>);

    /// Releases the members of a load that is gone.
    fn release_members(&self, load: LoadId);

    /// Retires a load that has no successor, once no ensemble needs it. Members of themselves would wait for each other, so they do not wait.
    fn retire_after_ensembles(self: &Arc<Self>, load: LoadId, until: Time);

    /// Starts the flow of a request whose turn has arrived. Its first steps may be left to `thread`.
    fn begin_flow(self: &Arc<Self>, req: Req, load: LoadId, thread: Option<&ExecutorHandle>);
}

/// Gets the report that a START has its slot. Steps that follow may be left to `thread`.
pub(in crate::model) trait SlotGrant: Debug + Send + Sync {
    fn granted(self: Arc<Self>, place: usize, req: Req, seq: Seq, thread: Option<&ExecutorHandle>);
}

/// A START of an ensemble that takes a slot before its inputs exist.
#[derive(Debug, Clone)]
pub(in crate::model) struct Reservation {
    pub(in crate::model::sequences) flow: Arc<dyn SlotGrant>,
    /// Its place among the members that have sequences.
    pub(in crate::model::sequences) place: usize,
    pub(in crate::model::sequences) holder: SequenceHolder,
}

impl Reservation {
    pub(in crate::model::sequences) fn grant(self, req: Req, seq: Seq, thread: Option<&ExecutorHandle>) {
        self.flow.granted(self.place, req, seq, thread);
    }
}

/// The sequence of an ensemble that a member's sequence belongs to.
#[derive(Debug, Clone)]
pub(in crate::model) struct SequenceHolder {
    pub(in crate::model::sequences) ensemble: Weak<dyn FlowHost>,
    pub(in crate::model::sequences) seq: Seq,
}

impl SequenceHolder {
    /// Whether both are the same sequence of the same ensemble.
    pub(in crate::model::sequences) fn is(&self, other: &SequenceHolder) -> bool {
        self.seq == other.seq && std::ptr::addr_eq(self.ensemble.as_ptr(), other.ensemble.as_ptr())
    }

    pub(in crate::model::sequences) fn end(&self, why: EndReason, member: &str) {
        if let Some(ensemble) = self.ensemble.upgrade() {
            ensemble.end_for_member(self.seq, why, member);
        }
    }
}

/// The members' sequences that belong to one sequence of an ensemble.
#[derive(Debug)]
pub(in crate::model::sequences) struct MemberSequences {
    pub(in crate::model::sequences) id: Id,
    held: Mutex<HeldSequences>,
}

#[derive(Debug, Default)]
struct HeldSequences {
    /// Why the ensemble's sequence has ended, if it has ended.
    ended: Option<EndReason>,
    members: Vec<(Arc<dyn Member>, Seq)>,
    /// The last START in each member, which may wait for its slot.
    starts: Vec<(Arc<dyn Member>, Req)>,
}

impl MemberSequences {
    pub(in crate::model::sequences) fn new(id: Id) -> MemberSequences {
        MemberSequences { id, held: Mutex::default() }
    }

    /// Adds the sequence of a member. If the ensemble's sequence has ended meanwhile, ends this one too.
    pub(in crate::model::sequences) fn add(&self, member: &Arc<dyn Member>, seq: Seq) {
        let mut held = self.held.lock();
        let Some(why) = held.ended else {
            let is_there = |(of, has): &(Arc<dyn Member>, Seq)| *has == seq && is_same(of, member);
            if !held.members.iter().any(is_there) {
                held.members.push((Arc::clone(member), seq));
            }
            return;
        };
        drop(held);
        Arc::clone(member).end_sequence(seq, why);
    }

    /// Adds a START that a member has taken. If the ensemble's sequence has ended meanwhile, cancels the START.
    pub(super) fn add_start(&self, member: &Arc<dyn Member>, req: Req) {
        let mut held = self.held.lock();
        if held.ended.is_none() {
            held.starts.retain(|(of, _)| !is_same(of, member));
            held.starts.push((Arc::clone(member), req));
            return;
        }
        drop(held);
        Arc::clone(member).cancel_step(req);
    }

    /// Ends the sequences of all members, including those that wait for their slots. After it returns, all have ended, even if another
    /// thread ended them.
    pub(in crate::model::sequences) fn end(&self, why: EndReason) {
        let (followups, starts): (Vec<Followup>, _) = {
            // A member's table is the only lock taken under this one.
            let mut held = self.held.lock();
            held.ended.get_or_insert(why);
            let followups = held.members.drain(..).map(|(member, seq)| member.end_quietly(seq, why)).collect();
            (followups, std::mem::take(&mut held.starts))
        };
        followups.into_iter().for_each(|followup| followup());
        starts.into_iter().for_each(|(member, req)| member.cancel_step(req));
    }
}

/// Whether a model is a member of itself, at any depth.
pub(in crate::model::sequences) fn contains_itself(model: &dyn Member) -> bool {
    let (mut waiting, mut seen) = (model.members(), Vec::new());
    while let Some(next) = waiting.pop() {
        if std::ptr::addr_eq(Arc::as_ptr(&next), std::ptr::from_ref(model)) {
            return true;
        }
        if !seen.iter().any(|of| is_same(of, &next)) {
            waiting.extend(next.members());
            seen.push(next);
        }
    }
    false
}

fn is_same(one: &Arc<dyn Member>, other: &Arc<dyn Member>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// The ensembles that have this model as a member. The model stays loaded while one of them may have requests.
#[derive(Debug, Default)]
pub(in crate::model::sequences) struct MemberUses {
    ensembles: u32,
    /// Loads to retire once no ensemble is left.
    deferred: Vec<(LoadId, Time)>,
}

impl MemberUses {
    pub(in crate::model::sequences) fn add(&mut self) {
        self.ensembles += 1;
    }

    /// Removes one ensemble. Returns the loads to retire now.
    pub(in crate::model::sequences) fn remove(&mut self) -> Vec<(LoadId, Time)> {
        self.ensembles = self.ensembles.saturating_sub(1);
        if self.ensembles == 0 { std::mem::take(&mut self.deferred) } else { Vec::new() }
    }

    /// Defers the retirement of a load until no ensemble is left. Returns false if none is left.
    pub(in crate::model::sequences) fn defer(&mut self, load: LoadId, until: Time) -> bool {
        if self.ensembles > 0 {
            self.deferred.push((load, until));
        }
        self.ensembles > 0
    }
}
