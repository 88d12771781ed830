//! Inputs and outputs of the core: events, effects, batches, slot operations, refusals and notes.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::ending::{EndReason, Tombstone};
use crate::ids::{BatchId, Id, Instance, LoadId, Req, Seq, Slot};
use crate::policy::{Hooks, PolicyFault};
use crate::request_meta::{QueueTerms, RequestMeta};
use crate::spec::{Dialect, LoadSpec};
use crate::time::Time;

// === in ===

/// The scheduling data of a request. Its tensors stay with the driver, under `req`.
#[derive(Debug, Clone)]
pub struct Submit {
    pub req: Req,
    pub id: Id,
    /// The id for a sequence whose START has none (`NoId::Assign`). It was never used before; 0 means there is none.
    pub fresh_id: u64,
    pub start: bool,
    pub end: bool,
    /// The step of a state that the driver holds for this sequence, which no load knows. The request continues from that state. Ignored on
    /// a START and for a live sequence.
    pub adopt: Option<u64>,
    /// The only load that can continue from that state. It may be a retired load that stays ([`Event::Stay`]).
    pub adopt_on: Option<LoadId>,
    /// Lend the request to the driver before its turn ([`Effect::Prepare`]), even if the load has no preparation stage. With `adopt`, the
    /// sequence begins once the driver has answered.
    pub prepare: bool,
    /// The step number, if the client counts steps. Without a number, a START is step 1.
    pub step: Option<u64>,
    /// The version the client named; `None` leaves the choice to the server.
    pub version: Option<u64>,
    pub dialect: Dialect,
    /// The time after which the answer is of no use. Policies see it; the core refuses nothing because of it.
    pub deadline: Option<Time>,
    /// The time at which the whole sequence is refused if it still waits in the backlog.
    pub backlog_until: Option<Time>,
    /// The time at which the request is refused if it is still queued. With [`QueueTerms::delays`] it waits on instead. If a step is
    /// refused, its sequence ends if the load's `cancel_ends` is set, as for a cancellation.
    pub queue_until: Option<Time>,
    /// The idle time this START asks for; the load's `idle_longest` is the maximum.
    pub idle: Option<Duration>,
    pub priority: u32,
    pub queue: QueueTerms,
    pub meta: RequestMeta,
    /// The ensemble that sent the request; 0 for a client. A START of an ensemble gets its slot before it is prepared. Its sequence does
    /// not expire, because the ensemble ends it.
    pub origin: u32,
}

impl Submit {
    /// Whether the request must get its slot before it is prepared.
    pub(crate) fn reserves(&self) -> bool {
        self.start && self.origin != 0
    }
}

#[derive(Debug)]
pub enum Event {
    /// A load is ready. STARTs that name no version go to the newest load of the highest version.
    Loaded(LoadId, LoadSpec),
    /// The load takes no more STARTs. Sequences still live on it at `until` are ended.
    Retire {
        load: LoadId,
        until: Time,
    },
    /// Keep this load until its limit after it is retired, even without live sequences. The driver has states from which only this load can
    /// continue. If no load takes STARTs, it does not stay.
    Stay(LoadId),
    /// Begins a sequence that waits for its slot on this load instead, with all its requests ([`crate::Core::may_move`]). It gets another key.
    MoveStart(Seq, LoadId),
    /// Attaches an external policy to this load, or detaches it. An open round of the previous policy is void. Without a new policy, that
    /// round counts as a fallback.
    Attach(LoadId, Option<Hooks>),
    Submit(Submit),
    /// The client has gone or asked for cancellation.
    Cancel(Req),
    /// Answers [`Effect::Prepare`]: the tier was searched, the state made, the inputs preprocessed. Ignored once the request is over.
    Prepared(Req, Preparation),
    /// The shape class of the first state made for this START. Without this event, the load's class applies. Precedes [`Event::Prepared`].
    FirstShape(Req, u64),
    /// The properties of the next run of a request of several runs. Precedes [`Event::Ran`] of the current run.
    NextRun(Req, RequestMeta),
    /// A batch has ended; the instance thread has committed or dropped its states already.
    Ran {
        batch: BatchId,
        rows: Vec<RowEnd>,
    },
    /// Answers [`Effect::Seal`]: the states of this batch are durable, except for these requests. Each of them is refused, and its sequence
    /// ends: for the reason of a [`Refusal::Ended`], or as [`EndReason::Unsealed`].
    Sealed(BatchId, Vec<(Req, Refusal)>),
    /// Answers [`Effect::Post`].
    Posted(Req),
    /// Answers [`Effect::Reply`] of a load with the seal stage. With a reason, what the request has changed could not be made durable: the
    /// request is refused, and its sequence ends for this reason.
    Replied(Req, Option<EndReason>),
    /// The accelerator of an instance has failed, and its states with it. Its sequences end. The instance takes no more batches and gets no
    /// more sequences. The last instance of a load goes on, so that every request is answered with the failure.
    InstanceLost(Instance),
    /// Ends a sequence from outside: an administrator, an ensemble, a lost lease.
    End(Seq, EndReason),
    /// The time of [`crate::Core::due`] has come.
    Tick,
}

/// The plan for a prepared request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preparation {
    Run(RequestMeta),
    /// Run this many steps of the sequence, one after the other, and answer once. Between steps the sequence keeps its slot, and others may
    /// run. If a step after the first fails, the sequence ends: its state is neither that of before the request nor that of after it.
    RunSteps(RequestMeta, NonZeroU32),
    /// Answer without a run, in the request's turn. A START still begins its sequence, and the next run gets the first state.
    Reply,
    /// Refuse the request. `ends`: whether its sequence ends too. If the request begins its sequence, the sequence always ends.
    Refuse {
        refusal: Refusal,
        ends: bool,
    },
}

/// The outcome of one row of a batch. Outcomes are in the order of the batch's real rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowEnd {
    /// Its state is committed. `shape` is the class of the state's shapes, `bytes` its size.
    Done { state_shape: u64, state_bytes: u64 },
    /// Its state is unchanged.
    Failed,
    /// There was no memory for its state. The row did not run, and its sequence ends.
    NoRoom,
    /// The state after its run has a NaN or an infinity and was not committed. Its sequence ends.
    NotFinite,
}

// === out: effects commute (any thread, any order) ===

#[derive(Debug, PartialEq)]
pub enum Effect {
    /// The request is over: answer it with this refusal.
    Refuse {
        req: Req,
        refusal: Refusal,
        /// Whether its sequence ends too. Then only a START may be sent again. If false and the sequence had not begun here, the driver
        /// takes back the state that it found.
        ended: bool,
    },
    /// The request is over: send the answer of its run.
    Release(Req),
    /// The request repeats the last committed step of its sequence: send the kept answer.
    Replay(Req, Seq),
    /// Search the tier, make the first state and preprocess, as the load's stages require. Answered by [`Event::Prepared`].
    Prepare(Req, Option<Seq>),
    /// The step of this request is done without a run. Commit what its preparation has left for the sequence, before any later request of it
    /// is prepared. [`Effect::Release`] may follow later: the answer waits for its turn. If the load has the seal stage (`seal`), make the
    /// change durable and answer with [`Event::Replied`]. The answer waits for that, and the sequence goes on meanwhile.
    Reply {
        req: Req,
        seal: bool,
    },
    /// Postprocess, in the order of the sequence. Answered by [`Event::Posted`].
    Post(Req, Option<Seq>),
    /// Make the states of this batch durable: those of its rows with [`RealRow::seal`] that did not fail. Answered by [`Event::Sealed`].
    Seal(BatchId),
    /// Wake the instance: it sleeps and now has work.
    Wake(Instance),
    /// An admission question of this load waits; see [`crate::Core::consult`].
    Consult(LoadId),
    /// The load's policy should get its waiting events before the next question, because they are many; see [`crate::Core::observed`].
    Tell(LoadId),
    Note(Note),
}

// === out: `Next` carries everything that must stay in order, to the one thread that owns the slots ===

#[derive(Debug)]
pub enum Next {
    Run(Batch),
    /// Slot operations without a batch.
    Tidy(Vec<SlotOp>),
    /// A question to the load's external policy; answer it with [`crate::Core::answer`].
    Ask(Box<crate::round::Round>),
    /// Nothing to do. Call again at this time, or when woken.
    Sleep(Option<Time>),
    /// The load is retired and empty: the thread may end.
    Gone,
}

#[derive(Debug, Clone)]
pub struct Batch {
    pub id: BatchId,
    pub instance: Instance,
    /// Operations to do before the run, in order.
    pub ops: Vec<SlotOp>,
    pub rows: Vec<Row>,
}

impl Batch {
    /// The rows that hold requests, in order.
    pub fn real(&self) -> impl Iterator<Item = RealRow> + '_ {
        self.rows.iter().filter_map(|row| match row {
            Row::Real(real) => Some(*real),
            Row::Pad => None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Row {
    Real(RealRow),
    /// A row of zeros, so that later rows match their slots (`direct` with fixed rows).
    Pad,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealRow {
    pub req: Req,
    /// The sequence and its slot; `None` for a stateless request.
    pub placement: Option<(Seq, Slot)>,
    /// The first run after a START. If the START was answered without a run, this is the first run that follows it.
    pub start: bool,
    /// The last run of an END.
    pub end: bool,
    /// Whether the state that this run leaves must become durable. The driver copies it at the commit and keeps the copy for
    /// [`Effect::Seal`].
    pub seal: bool,
    /// The number of its step.
    pub step: u64,
}

/// An operation on a slot's state, done by the thread that owns the slot, in the order given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotOp {
    /// Give the slot the first state of the sequence that this request started. The request runs in the same batch, unless it was answered
    /// without a run.
    Init(Slot, Req),
    /// Give the slot the state that [`Effect::Prepare`] found for this request. The request runs in the same batch, unless it was answered
    /// without a run.
    Adopt(Slot, Req),
    /// Drop the slot's state and zero it.
    Free(Slot),
}

/// Why a request is not run. Each API has its own code and sentence for it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Refusal {
    /// Not a START, and no such sequence is live. The tombstone gives the reason of its end, if it is still remembered.
    Unknown(Option<Tombstone>),
    /// START on a live id, and the dialect refuses that.
    Live,
    /// START while the END of the same id still runs, and the dialect refuses that.
    Ending,
    /// The maximum number of live sequences is reached.
    TooMany {
        limit: u32,
    },
    /// The state store is at its maximum number of sequences.
    StoreFull {
        limit: u32,
    },
    /// No free slot, and the backlog is full.
    BacklogFull {
        sequences: u32,
        bytes: u64,
    },
    NoId,
    /// No load takes new sequences.
    Stopping,
    /// No such version is loaded.
    NoVersion,
    /// Waited in its queue for its maximum time, behind `ahead` others.
    QueueTimeout {
        waited: Duration,
        ahead: u32,
    },
    /// Its sequence waited in the backlog for its maximum time, behind `ahead` others.
    BacklogTimeout {
        waited: Duration,
        ahead: u32,
    },
    Cancelled,
    /// The maximum number of requests of this sequence wait already.
    QueueFull {
        limit: u32,
    },
    /// A step is missing before this one.
    StepGap {
        want: u64,
    },
    /// The step was answered, and the answer is no longer kept.
    StepGone {
        want: u64,
    },
    /// The step is queued or running already.
    StepBusy {
        step: u64,
    },
    /// The sequence ended while this request waited.
    Ended(EndReason),
    /// Another node holds the sequence.
    Elsewhere,
    /// The policy rejected it, with its own code.
    Policy(u32),
    /// A preparation failed, with the driver's code.
    Failed(u32),
}

impl Refusal {
    /// The refusal for the queued requests of a sequence that ends for this reason.
    pub(crate) fn of_end(why: EndReason) -> Refusal {
        if why == EndReason::Cancelled { Refusal::Cancelled } else { Refusal::Ended(why) }
    }
}

/// Something that happened, for metrics and logs. Nothing depends on a note being read. Policies get [`crate::Observed`] instead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Note {
    Started(Seq, Req),
    /// A sequence got a slot, after this long in the backlog.
    Slotted(Seq, Instance, Slot, Duration),
    Ended(Seq, EndReason),
    /// The answer of an external policy was invalid; the built-in policy took the round.
    Fault(LoadId, PolicyFault),
    /// The built-in policy took a round of the external policy.
    Fallback(LoadId),
    /// This many picks were no longer valid when the answer arrived. Not a fault of the policy.
    Stale(LoadId, u32),
}
