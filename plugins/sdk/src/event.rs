//! Events, one at a time.

use crate::model::{Key, Model, Sequence};

/// Events in columns, in the contract's form: entry `i` of each column belongs to event `i`; `keys` row by row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Events<'a> {
    pub kind: &'a [u32],
    pub sequence: &'a [Sequence],
    pub amount: &'a [u64],
    pub keys: &'a [Key],
}

/// One event. `sequence` is 0 for requests without one.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A sequence began. A new plug-in also gets this for each live sequence.
    Began { sequence: Sequence, steps: u64, keys: KeysOf<'a> },
    /// A sequence got a slot.
    Slotted { sequence: Sequence, waited_us: u64 },
    /// A request ran, and its state is committed.
    Done { sequence: Sequence, rows: u64, keys: KeysOf<'a> },
    /// A request failed.
    Failed { sequence: Sequence, rows: u64, keys: KeysOf<'a> },
    /// A sequence ended.
    Ended { sequence: Sequence, why: Ending, keys: KeysOf<'a> },
    /// A batch ran. `Done` and `Failed` of its requests follow.
    BatchRan { took_us: u64 },
    /// An event kind of a later server.
    Other { kind: u32, sequence: Sequence, amount: u64 },
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    End,
    Idle,
    Restarted,
    Cancelled,
    Evicted,
    Drained,
    Fenced,
    Unsealed,
    Dropped,
    Rejected,
    Failed,
    /// A reason of a later server.
    Other(u64),
}

/// The key features of the request of an event. For a sequence, those of its START.
#[derive(Debug, Clone, Copy)]
pub struct KeysOf<'a> {
    names: &'a [String],
    row: &'a [Key],
}

impl Ending {
    /// The contract's code.
    #[must_use]
    pub fn code(self) -> u64 {
        match self {
            Ending::End => 1,
            Ending::Idle => 2,
            Ending::Restarted => 3,
            Ending::Cancelled => 4,
            Ending::Evicted => 5,
            Ending::Drained => 6,
            Ending::Fenced => 7,
            Ending::Unsealed => 8,
            Ending::Dropped => 9,
            Ending::Rejected => 10,
            Ending::Failed => 11,
            Ending::Other(code) => code,
        }
    }
}

impl KeysOf<'_> {
    /// The key of this feature; 0 if the model has no such feature.
    #[must_use]
    pub fn get(&self, feature: &str) -> Key {
        let at = self.names.iter().position(|name| name == feature);
        at.and_then(|at| self.row.get(at)).copied().unwrap_or(0)
    }
}

impl<'a> Events<'a> {
    /// The events, one after the other.
    pub fn each(self, model: &'a Model) -> impl Iterator<Item = Event<'a>> {
        let keys = model.keys.len();
        self.kind.iter().enumerate().map(move |(i, kind)| {
            let row = self.keys.get(i * keys..(i + 1) * keys).unwrap_or_default();
            let of = |column: &[u64]| column.get(i).copied().unwrap_or(0);
            event(*kind, of(self.sequence), of(self.amount), KeysOf { names: &model.keys, row })
        })
    }
}

fn event(kind: u32, sequence: Sequence, amount: u64, keys: KeysOf<'_>) -> Event<'_> {
    match kind {
        1 => Event::Began { sequence, steps: amount, keys },
        2 => Event::Slotted { sequence, waited_us: amount },
        3 => Event::Done { sequence, rows: amount, keys },
        4 => Event::Failed { sequence, rows: amount, keys },
        5 => Event::Ended { sequence, why: ending(amount), keys },
        6 => Event::BatchRan { took_us: amount },
        _ => Event::Other { kind, sequence, amount },
    }
}

fn ending(code: u64) -> Ending {
    match code {
        1 => Ending::End,
        2 => Ending::Idle,
        3 => Ending::Restarted,
        4 => Ending::Cancelled,
        5 => Ending::Evicted,
        6 => Ending::Drained,
        7 => Ending::Fenced,
        8 => Ending::Unsealed,
        9 => Ending::Dropped,
        10 => Ending::Rejected,
        11 => Ending::Failed,
        _ => Ending::Other(code),
    }
}
