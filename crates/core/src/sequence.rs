//! The core's record of a sequence, and its stages.

use std::time::Duration;

use crate::chain_links::ChainLinks;
use crate::ending::EndReason;
use crate::ids::{Id, LoadId, Req, Slot};
use crate::list::List;
use crate::request_meta::FEATURES;
use crate::time::Time;

/// A sequence, from its first request until it has ended and nothing of it runs.
///
/// # How it begins
///
/// The following become true in this order, and each implies those before it:
/// 1. `announced`: at once for a START and for a state that the driver holds. For a state that a tier may hold, once the driver has found
///    it.
/// 2. `placement`: it has a slot.
/// 3. `ran`: a batch with its request was handed out. From then on its slot has a state that the slot's thread must free.
/// 4. `holds_state`: the first run of its life has ended.
///
/// `begun` becomes true with `ran`, or with an answer without a run.
///
/// `first_state` is the state that the slot gets before the next run. An adopted sequence has it from its beginning, another once a START
/// has taken effect. If a START takes effect in a sequence that has `begun`, a new life starts: `first_state` is set, and `holds_state` is
/// false again. The two are never true together.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: Id,
    pub(crate) load: LoadId,
    /// Serial number of the sequence: later is larger.
    pub(crate) born: u64,
    /// Instance and slot; `None` until it has one.
    pub(crate) placement: Option<(u16, Slot)>,
    /// `None` until its first stage.
    pub(crate) stage: Option<Stage>,
    /// Waiting requests, in order.
    pub(crate) queue: List,
    /// The request that is past the queue: running, sealing or posting.
    pub(crate) current: Option<Req>,
    /// Bytes of the waiting requests.
    pub(crate) bytes: u64,
    /// The reason it ends with after its queue: its END was admitted, or a START of the same id went to a newer load. The id is free for a
    /// new sequence, and no further request can join.
    pub(crate) ending: Option<EndReason>,
    /// The reason it ends with as soon as its current request is over. Its queue was refused already.
    pub(crate) leaving: Option<EndReason>,
    /// Whether its slot was given a state, which must be freed with the slot.
    pub(crate) ran: bool,
    /// Whether its slot holds the state of this life: a run of this life has ended, with or without success.
    pub(crate) holds_state: bool,
    /// Whether a request of it has run or was answered without a run. Then the next START ends a life.
    pub(crate) begun: bool,
    /// The first state that the slot gets before the next run.
    pub(crate) first_state: Option<FirstState>,
    /// Whether it was found in a tier and not started here.
    pub(crate) adopted: bool,
    /// Whether an ensemble started it and will end it: it does not expire.
    pub(crate) held: bool,
    /// Its level in the backlog.
    pub(crate) level: u32,
    /// Whether [`crate::Note::Started`] was reported, so that [`crate::Note::Ended`] must follow.
    pub(crate) announced: bool,
    /// The step number of the next request.
    pub(crate) next_step: u64,
    /// The number of the last admitted START: the step numbers of its life count from there.
    pub(crate) first: u64,
    /// STARTs that are not over. Until they are, no step of the previous life is repeated.
    pub(crate) starts: u32,
    /// The last committed step.
    pub(crate) step: u64,
    /// The place of that step's answer in the order of answers, if the load keeps one.
    pub(crate) turn: Option<u64>,
    /// The arrival of the last admitted START, else of the first request.
    pub(crate) began: Time,
    /// The later of the last arrival and the last completion.
    pub(crate) touched: Time,
    /// The allowed idle time; `None` means no limit.
    pub(crate) idle: Option<Duration>,
    /// The number of its last entry into the idle sequences of its load.
    pub(crate) idle_entry: u64,
    pub(crate) backlogged_at: Time,
    pub(crate) backlog_until: Time,
    pub(crate) state_shape: u64,
    pub(crate) state_bytes: u64,
    /// Key features of the request that began it.
    pub(crate) keys: [u64; FEATURES],
    pub(crate) armed: Time,
    /// Its neighbours among the sequences of its id.
    pub(crate) chain: ChainLinks,
}

/// The source of a sequence's first state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstState {
    /// The START with this request.
    Init(Req),
    /// The state that the driver found for this request.
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
    /// The driver searches the tier, makes the first state or preprocesses the request at the head of the queue.
    Preparing,
    /// Waits for a slot.
    Backlogged,
    /// Has a slot and no request.
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
