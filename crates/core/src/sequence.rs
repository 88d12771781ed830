//! A sequence as the core keeps it, and the stages it goes through.

use std::time::Duration;

use crate::ending::EndReason;
use crate::ids::{Id, LoadId, Req, Seq, Slot};
use crate::list::List;
use crate::request_meta::FEATURES;
use crate::time::Time;

/// A sequence, from its first request until it has ended and nothing of it runs.
///
/// # How it begins
///
/// These become true in this order, and each implies those before it:
/// 1. `announced`: at once for a START and for a state that the driver has at hand; for a state that a tier may have, once the driver has found it.
/// 2. `placement`: it has a slot.
/// 3. `ran`: a batch with its request was handed out. From then on its slot has a state that the slot's thread has to free.
/// 4. `holds_state`: the first run of its life has ended.
///
/// `begun` follows from `ran`, and from an answer without a run.
///
/// `first_state` is what the slot is given before the next run: of an adopted sequence from its beginning, of another once a START has taken effect.
/// A START that takes effect in a sequence that has `begun` starts a new life: `first_state` is set, and `holds_state` is false again. The two never
/// hold together.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: Id,
    pub(crate) load: LoadId,
    /// Counts sequences: later is larger.
    pub(crate) born: u64,
    /// Instance and slot; `None` until it has one.
    pub(crate) placement: Option<(u16, Slot)>,
    /// `None` until its first stage.
    pub(crate) stage: Option<Stage>,
    /// Requests that wait, in order.
    pub(crate) queue: List,
    /// The request that is past the queue: running, sealing or posting.
    pub(crate) current: Option<Req>,
    /// Bytes of the requests that wait.
    pub(crate) bytes: u64,
    /// What it ends with once its queue is through: its END was admitted, or a START of the same id went to a newer load.
    /// The id is free for a new sequence, and no further request can join.
    pub(crate) ending: Option<EndReason>,
    /// It ends as soon as its current request is through; its queue was refused already.
    pub(crate) leaving: Option<EndReason>,
    /// Its slot was given a state, which is to be freed with the slot.
    pub(crate) ran: bool,
    /// Its slot holds the state of this life: a run of it has ended, for good or not.
    pub(crate) holds_state: bool,
    /// A request of it has run or was answered without a run: the next START ends a life.
    pub(crate) begun: bool,
    /// The first state that the slot is given before the next run.
    pub(crate) first_state: Option<FirstState>,
    /// It was found in a tier and not started here.
    pub(crate) adopted: bool,
    /// An ensemble started it and ends it: it does not expire by itself.
    pub(crate) held: bool,
    /// Its level in the backlog.
    pub(crate) level: u32,
    /// Whether [`crate::Note::Started`] was given, so that [`crate::Note::Ended`] is owed.
    pub(crate) announced: bool,
    /// The number the next request has.
    pub(crate) next_step: u64,
    /// The number of the last START that was admitted: its life's numbers count from there.
    pub(crate) first: u64,
    /// STARTs that wait or are not through: until they are, no number of the last life is answered.
    pub(crate) starts: u32,
    /// The last committed step.
    pub(crate) step: u64,
    /// The place of its answer in the order of answers, where the load keeps one.
    pub(crate) turn: Option<u64>,
    pub(crate) began: Time,
    /// The later of the last arrival and the last completion.
    pub(crate) touched: Time,
    /// How long it may be idle; `None` is for ever.
    pub(crate) idle: Option<Duration>,
    pub(crate) backlogged_at: Time,
    pub(crate) backlog_until: Time,
    pub(crate) state_shape: u64,
    pub(crate) state_bytes: u64,
    /// Key features of the request that began it.
    pub(crate) keys: [u64; FEATURES],
    pub(crate) armed: Time,
    /// The next older sequence of the same id: ending, or of another version.
    pub(crate) older: Option<Seq>,
}

/// Where the first state of a sequence comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstState {
    /// The START that this request was.
    Init(Req),
    /// What the driver found for this request.
    Adopt(Req),
}

// ## (START)    => Preparing | Backlogged | Ready
// ## Preparing  => Preparing | Backlogged | Ready | Idle | (ended)
// ## Backlogged => Preparing | Ready | Idle | (ended)
// ## Idle       => Preparing | Ready | (ended)
// ## Ready      => Running | Preparing | Ready | Idle | (ended)
// ## Running    => Sealing | Posting | Preparing | Ready | Idle | (ended)
// ## Sealing    => Posting | Preparing | Ready | Idle | (ended)
// ## Posting    => Preparing | Ready | Idle | (ended)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// The driver looks up the tier, makes the first state or preprocesses the request at the head of the queue.
    Preparing,
    /// Waits for a slot.
    Backlogged,
    /// Has a slot and nothing to do.
    Idle,
    /// The request at the head of the queue can run.
    Ready,
    Running,
    /// Its state is being made durable.
    Sealing,
    /// Its answer is being postprocessed.
    Posting,
}

impl Stage {
    pub const ALL: [Stage; 7] = [
        Stage::Preparing,
        Stage::Backlogged,
        Stage::Idle,
        Stage::Ready,
        Stage::Running,
        Stage::Sealing,
        Stage::Posting,
    ];
}
