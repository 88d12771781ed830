//! What goes into the core and what comes out of it: events, effects, batches, slot operations, refusals, notes.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::ending::{EndReason, Tombstone};
use crate::ids::{BatchId, Id, Instance, LoadId, Req, Seq, Slot};
use crate::policy::{Hooks, PolicyFault};
use crate::request_meta::{QueueTerms, RequestMeta};
use crate::spec::{Dialect, LoadSpec};
use crate::time::Time;

// === in ===

/// A request, as far as scheduling is concerned. Its tensors stay with the driver, under `req`.
#[derive(Debug, Clone)]
pub struct Submit {
    pub req: Req,
    pub id: Id,
    /// The id a sequence gets whose START came without one (`NoId::Assign`); never used before, 0 if there is none.
    pub fresh_id: u64,
    pub start: bool,
    pub end: bool,
    /// The driver holds the state of this sequence, which no load knows, as of this step: the request goes on from there.
    /// Without a meaning on a START, or where the sequence lives.
    pub adopt: Option<u64>,
    /// Lend the request to the driver before its turn ([`Effect::Prepare`]), also where the load has no such stage. With `adopt`, the sequence begins once
    /// that is answered.
    pub prepare: bool,
    /// The client's number of this step, where it counts them: START is 1 unless it says otherwise.
    pub step: Option<u64>,
    /// The version the client named; `None` leaves the choice to the server.
    pub version: Option<u64>,
    pub dialect: Dialect,
    /// When the client loses interest. Policies see it; nothing is refused for it.
    pub deadline: Option<Time>,
    /// While its sequence waits in the backlog: when the whole sequence is refused.
    pub backlog_until: Option<Time>,
    /// While the request itself is queued: when it is refused. A step's refusal ends its sequence, as a cancellation does.
    pub queue_until: Option<Time>,
    /// The idle time this START asks for; the load's `idle_longest` is the maximum.
    pub idle: Option<Duration>,
    pub priority: u32,
    pub queue: QueueTerms,
    pub meta: RequestMeta,
    /// The ensemble that sent it; 0 is a client. A START of an ensemble takes its slot before it is prepared, and its sequence does not expire
    /// by itself: the ensemble ends it.
    pub origin: u32,
}

impl Submit {
    /// Whether it is to have its slot before it is prepared.
    pub(crate) fn reserves(&self) -> bool {
        self.start && self.origin != 0
    }
}

#[derive(Debug)]
pub enum Event {
    /// A load is ready. Among the loads of the highest version the newest takes STARTs that name no version.
    Loaded(LoadId, LoadSpec),
    /// The load takes no STARTs any more; what is live on it at `until` is ended.
    Retire {
        load: LoadId,
        until: Time,
    },
    /// An external policy decides for this load from now on, or none does. A round that the one before ponders is void; where there is no new
    /// one, that is a fallback.
    Attach(LoadId, Option<Hooks>),
    Submit(Submit),
    /// The client has gone or asked for cancellation.
    Cancel(Req),
    /// Answers [`Effect::Prepare`]: the tier was looked up, the state made, the inputs preprocessed. Without a meaning once the request is over.
    Prepared(Req, Preparation),
    /// The first state that was made for this START has shapes of this class, which otherwise is that of the load. Comes before
    /// [`Event::Prepared`].
    FirstShape(Req, u64),
    /// The next run of a sequence's request of several runs has these properties. Comes before [`Event::Ran`] of the run before it.
    NextRun(Req, RequestMeta),
    /// A batch has ended; the instance thread has committed or dropped its states already.
    Ran {
        batch: BatchId,
        rows: Vec<RowEnd>,
    },
    /// Answers [`Effect::Seal`]: the states of this batch are durable, except for these requests. Each of them is refused, and its sequence ends.
    Sealed(BatchId, Vec<(Req, Refusal)>),
    /// Answers [`Effect::Post`].
    Posted(Req),
    /// Ends a sequence from outside: an administrator, an ensemble, a lost lease.
    End(Seq, EndReason),
    /// [`crate::Core::due`] has come.
    Tick,
}

/// The plan for a prepared request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Preparation {
    Run(RequestMeta),
    /// It runs this many steps of its sequence, one after the other, and is answered once. In between the sequence keeps its slot, and others may
    /// run. If a step after the first fails, the sequence ends: its state is neither that of before the request nor that of after it.
    RunSteps(RequestMeta, NonZeroU32),
    /// It is answered without a run, in its turn. A START begins its sequence all the same, and the next run is given the first state.
    Reply,
    /// It is refused. `ends` says whether its sequence ends with it; the request that begins a sequence always takes it along.
    Refuse {
        refusal: Refusal,
        ends: bool,
    },
}

/// How one row of a batch ended. The order is that of the batch's real rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowEnd {
    /// Its state is committed. `shape` is the class of the state's shapes, `bytes` its size.
    Done { state_shape: u64, state_bytes: u64 },
    /// Its state is as it was before.
    Failed,
    /// There was no room for its state: it did not run, and its sequence is over.
    NoRoom,
    /// The state that it left has a NaN or an infinity, and was not taken: its sequence is over.
    NotFinite,
}

// === out: effects commute (any thread, any order) ===

#[derive(Debug, PartialEq)]
pub enum Effect {
    /// The request is over: answer it with this refusal.
    Refuse {
        req: Req,
        refusal: Refusal,
        /// Whether its sequence ends with it. Then no further step can succeed, and only a START may be sent again. If not, and the sequence had not
        /// begun here, the driver takes the state back that it has found for it.
        ended: bool,
    },
    /// The request is over: send the answer its run has left.
    Release(Req),
    /// The request repeats the last committed step of its sequence: send the kept answer.
    Replay(Req, Seq),
    /// Look up the tier, make the first state, preprocess, as the load's stages say. Answered by [`Event::Prepared`].
    Prepare(Req, Option<Seq>),
    /// Postprocess, in the order of the sequence. Answered by [`Event::Posted`].
    Post(Req, Option<Seq>),
    /// Make the states of this batch durable: those of its rows with [`RealRow::seal`] that did not fail. Answered by [`Event::Sealed`].
    Seal(BatchId),
    /// The instance sleeps and has work now.
    Wake(Instance),
    /// An admission question of this load waits; see [`crate::Core::consult`].
    Consult(LoadId),
    /// So much waits to be told to the load's policy that it should not wait for the next question; see [`crate::Core::observed`].
    Tell(LoadId),
    Note(Note),
}

// === out: what must be ordered rides in `Next`, to the one thread that owns the slots ===

#[derive(Debug)]
pub enum Next {
    Run(Batch),
    /// Slot operations with no batch to ride on.
    Tidy(Vec<SlotOp>),
    /// A question to the load's external policy; answer it with [`crate::Core::answer`].
    Ask(Box<crate::round::Round>),
    /// Nothing now. Come back at this time, or when woken.
    Sleep(Option<Time>),
    /// The load is retired and empty: the thread may end.
    Gone,
}

#[derive(Debug, Clone)]
pub struct Batch {
    pub id: BatchId,
    pub instance: Instance,
    /// To be done first, in order.
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
    /// A row of zeros, so that the rows after it stand where their slots are (`direct` with fixed rows).
    Pad,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RealRow {
    pub req: Req,
    /// The sequence and its slot; `None` for a stateless request.
    pub placement: Option<(Seq, Slot)>,
    /// The first run of a life: of a START, or of what follows a START that was answered without a run.
    pub start: bool,
    /// The last run of an END.
    pub end: bool,
    /// The state that this run leaves is to be made durable: the driver copies it in the commit, and keeps the copy for [`Effect::Seal`].
    pub seal: bool,
    /// The number of its step.
    pub step: u64,
}

/// An operation on a slot's state, done by the thread that owns the slot, in the order given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotOp {
    /// Give the slot the first state of the sequence that this request started. It runs in the same batch, unless it was answered without a run.
    Init(Slot, Req),
    /// Give the slot the state that [`Effect::Prepare`] found for this request. It runs in the same batch, unless it was answered without a run.
    Adopt(Slot, Req),
    /// Drop the slot's state and zero it.
    Free(Slot),
}

/// Why a request is not run. Surfaces turn each into their own code and sentence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Refusal {
    /// Not a START, and no such sequence lives; the tombstone says what became of it, if it is still remembered.
    Unknown(Option<Tombstone>),
    /// START on a live id, where the dialect refuses that.
    Live,
    /// START while the END of the same id is still running, where the dialect refuses that.
    Ending,
    /// As many sequences live as may.
    TooMany {
        limit: u32,
    },
    /// The state store holds as many sequences as it may.
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
    /// Waited in its queue for as long as it allowed, behind `ahead` others.
    QueueTimeout {
        waited: Duration,
        ahead: u32,
    },
    /// Its sequence waited in the backlog for as long as it allowed, behind `ahead` others.
    BacklogTimeout {
        waited: Duration,
        ahead: u32,
    },
    Cancelled,
    /// Too many requests of this sequence wait already.
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
    /// What the requests behind it in the queue are told when a sequence ends like this.
    pub(crate) fn of_end(why: EndReason) -> Refusal {
        if why == EndReason::Cancelled { Refusal::Cancelled } else { Refusal::Ended(why) }
    }
}

/// What happened, for metrics and logs. Nothing depends on a note being read. What policies are told is [`crate::Observed`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Note {
    Started(Seq, Req),
    /// It has a slot, after so long in the backlog.
    Slotted(Seq, Instance, Slot, Duration),
    Ended(Seq, EndReason),
    /// An external policy's answer was no good; the built-in policy took the round.
    Fault(LoadId, PolicyFault),
    /// The built-in policy took a round that was the external policy's.
    Fallback(LoadId),
    /// This many picks no longer stood when the answer came. No fault of the policy.
    Stale(LoadId, u32),
}
