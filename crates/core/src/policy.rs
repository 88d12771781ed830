//! The contract between the core and policies: columns in, indices out. Built-in and external policies implement the same trait. A policy
//! holds no request, slot or state. It cannot break an invariant, because the core checks its answers.

use std::time::Duration;

use crate::observed::Observed;
use crate::time::Time;

/// Bits for the columns that a policy reads. The other columns stay empty.
pub mod columns {
    pub const SEQ: u32 = 1;
    pub const STEP: u32 = 1 << 1;
    pub const SLOT: u32 = 1 << 2;
    pub const ARRIVAL: u32 = 1 << 3;
    pub const DEADLINE: u32 = 1 << 4;
    pub const PRIORITY: u32 = 1 << 5;
    pub const KEYS: u32 = 1 << 6;
    pub const SHAPE: u32 = 1 << 7;
    pub const FLAGS: u32 = 1 << 8;
    pub const BYTES: u32 = 1 << 9;
    pub const STATE_BYTES: u32 = 1 << 10;
    pub const NUMBERS: u32 = 1 << 11;
    pub const ROWS: u32 = 1 << 12;
    pub const READY: u32 = 1 << 13;
    pub const ALL: u32 = (1 << 14) - 1;
}

/// Bits of [`Columns::flags`].
pub mod flags {
    pub const START: u8 = 1;
    pub const END: u8 = 2;
}

/// The input of a policy: in each column that it asked for, one entry a candidate, in the order in which they became ready. Times are
/// nanoseconds of the core's clock. `u64::MAX` means no deadline.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    pub now: u64,
    /// Maximum rows of a batch.
    pub max_batch: u32,
    /// Instances of the load with nothing in flight.
    pub free_instances: u32,
    /// Live sequences of the load.
    pub live: u32,
    /// Sequences in its backlog.
    pub backlog: u32,
    /// Ready candidates beyond those shown.
    pub not_shown: u32,
    /// Nanoseconds that a full batch takes ([`crate::RunTime`]); 0 until a batch has run.
    pub run_time: u64,
    /// Candidates shown. Every column that was asked for has this length.
    pub len: u32,
    /// A handle of the sequence, never the client's id; 0 for stateless requests.
    pub seq: Vec<u64>,
    pub step: Vec<u64>,
    pub slot: Vec<u32>,
    pub arrival: Vec<u64>,
    /// The time at which the request became ready: it was next in its sequence, and the sequence had a slot.
    pub ready: Vec<u64>,
    pub deadline: Vec<u64>,
    pub priority: Vec<u32>,
    pub shape: Vec<u64>,
    pub flags: Vec<u8>,
    pub rows: Vec<u32>,
    pub bytes: Vec<u64>,
    pub state_bytes: Vec<u64>,
    /// Row by row, [`Hooks::numbers`] values a candidate.
    pub numbers: Vec<f64>,
    /// Row by row, [`Hooks::keys`] values a candidate.
    pub keys: Vec<u64>,
}

impl Columns {
    /// Empties every column and keeps its memory.
    pub fn clear(&mut self) {
        let Columns {
            now: _,
            max_batch: _,
            free_instances: _,
            live: _,
            backlog: _,
            not_shown,
            run_time: _,
            len,
            seq,
            step,
            slot,
            arrival,
            ready,
            deadline,
            priority,
            shape,
            flags,
            rows,
            bytes,
            state_bytes,
            numbers,
            keys,
        } = self;
        (*not_shown, *len) = (0, 0);
        for column in [seq, step, arrival, ready, deadline, keys, shape, bytes, state_bytes] {
            column.clear();
        }
        for column in [slot, priority, rows] {
            column.clear();
        }
        flags.clear();
        numbers.clear();
    }
}

/// The hooks of a policy that the core calls, and the data it fills in for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hooks {
    pub plan: bool,
    pub admit: bool,
    pub observe: bool,
    /// Bits of [`columns`].
    pub columns: u32,
    /// Maximum number of candidates it wants; 0 means the load's limit.
    pub window: u32,
    /// Number of numeric features of the model.
    pub numbers: u8,
    /// Number of key features of the model.
    pub keys: u8,
    /// How long the policy may pass over a ready request; `None` means the load's limit.
    pub max_wait: Option<Duration>,
}

impl Hooks {
    /// Maximum number of candidates of any kind that the policy gets, under a load's limit.
    #[must_use]
    pub fn shown(&self, limit: u32) -> u32 {
        if self.window == 0 { limit } else { self.window.min(limit) }
    }
}

/// The picks of a policy, as indices into its columns. Empty when the policy gets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picks {
    /// Candidates to run now, as one batch, in this order.
    pub fire: Vec<u32>,
    /// Candidates to refuse now.
    pub reject: Vec<Rejection>,
}

/// A candidate that a policy refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// Its index among the shown candidates.
    pub candidate: u32,
    /// The policy's own code for the reason.
    pub code: u32,
    /// Whether its sequence ends too. If a START is refused, its sequence always ends.
    pub ends: bool,
}

impl Picks {
    pub fn clear(&mut self) {
        self.fire.clear();
        self.reject.clear();
    }

    /// Every picked index, to run or to refuse.
    pub fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.fire.iter().copied().chain(self.reject.iter().map(|rejection| rejection.candidate))
    }
}

/// What to do with the candidates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Do what the built-in policy would do.
    Default,
    /// Run nothing before this time, unless a request arrives or completes.
    Wait(Time),
    /// Run the picks.
    Fire,
}

/// What to do with one sequence of the backlog.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Give it a free slot of this instance.
    Take {
        instance: u16,
    },
    /// Give it the slot of this victim, named by its index among the shown victims.
    Evict {
        victim: u32,
    },
    Defer,
    /// Refuse it, with the policy's own code.
    Reject(u32),
}

/// The fault of a policy's answer. A stale pick is not a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PolicyFault {
    Trap,
    Time,
    Memory,
    /// No guest was available, or it was busy for too long. Not a strike.
    Busy,
    /// An index beyond the shown candidates.
    Index,
    /// A repeated index.
    Repeat,
    /// More rows than a batch may have.
    TooMany,
    /// Shapes that cannot share a batch.
    Shapes,
}

/// A policy. A built-in one runs inside [`crate::Core::next`], an external one between `next` and [`crate::Core::answer`].
pub trait Policy: Send + std::fmt::Debug {
    fn hooks(&self) -> Hooks;

    /// Chooses the candidates to run now and those to refuse.
    fn plan(&mut self, see: &Columns, picks: &mut Picks) -> Result<Decision, PolicyFault>;

    /// Returns one answer for each candidate of `see` (the heads of backlogged sequences). `room` is the number of free slots of each
    /// instance.
    fn admit(&mut self, see: &Columns, room: &[u32], victims: &Columns) -> Result<Vec<Admission>, PolicyFault> {
        let _ = (see, room, victims);
        Ok(Vec::new())
    }

    fn observe(&mut self, what: &[Observed]) {
        let _ = what;
    }

    fn save(&mut self) -> Result<Vec<u8>, PolicyFault> {
        Ok(Vec::new())
    }

    fn restore(&mut self, old: &[u8]) -> Result<(), PolicyFault> {
        let _ = old;
        Ok(())
    }
}
