//! The contract's columns: the one list of their names, their bits in the core, and their values, in the order of the contract.

use sequor_core::Columns;
use sequor_core::policy::columns as bits;

/// A column of the contract.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Its name in the contract.
    pub(super) name: &'static str,
    /// Its bit in [`sequor_core::Hooks::columns`].
    pub(super) bit: u32,
    pub(super) values: for<'a> fn(&'a Columns) -> Values<'a>,
}

/// The values of a column, as the core filled it.
pub(super) enum Values<'a> {
    /// Nanoseconds; the contract has microseconds.
    Times(&'a [u64]),
    U64(&'a [u64]),
    U32(&'a [u32]),
    U8(&'a [u8]),
    F64(&'a [f64]),
}

use Values::{F64, Times, U8, U32, U64};

pub(super) const COLUMNS: [Column; 14] = [
    Column { name: "sequence", bit: bits::SEQ, values: |see| U64(&see.seq) },
    Column { name: "step", bit: bits::STEP, values: |see| U64(&see.step) },
    Column { name: "slot", bit: bits::SLOT, values: |see| U32(&see.slot) },
    Column { name: "arrival-us", bit: bits::ARRIVAL, values: |see| Times(&see.arrival) },
    Column { name: "ready-us", bit: bits::READY, values: |see| Times(&see.ready) },
    Column { name: "deadline-us", bit: bits::DEADLINE, values: |see| Times(&see.deadline) },
    Column { name: "priority", bit: bits::PRIORITY, values: |see| U32(&see.priority) },
    Column { name: "shape-key", bit: bits::SHAPE, values: |see| U64(&see.shape) },
    Column { name: "start-end", bit: bits::FLAGS, values: |see| U8(&see.flags) },
    Column { name: "rows", bit: bits::ROWS, values: |see| U32(&see.rows) },
    Column { name: "input-bytes", bit: bits::BYTES, values: |see| U64(&see.bytes) },
    Column { name: "state-bytes", bit: bits::STATE_BYTES, values: |see| U64(&see.state_bytes) },
    Column { name: "numbers", bit: bits::NUMBERS, values: |see| F64(&see.numbers) },
    Column { name: "keys", bit: bits::KEYS, values: |see| U64(&see.keys) },
];
