//! The columns of a recorded question, in the form of its JSON file.

use sequor_core::Columns;
use serde::{Deserialize, Serialize};

/// The columns, as the core filled them: times in nanoseconds, [`u64::MAX`] for never.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnsJson {
    now: u64,
    max_batch: u32,
    free_instances: u32,
    live: u32,
    backlog: u32,
    not_shown: u32,
    run_time: u64,
    len: u32,
    sequence: Vec<u64>,
    step: Vec<u64>,
    slot: Vec<u32>,
    arrival: Vec<u64>,
    ready: Vec<u64>,
    deadline: Vec<u64>,
    priority: Vec<u32>,
    shape_key: Vec<u64>,
    start_end: Vec<u8>,
    rows: Vec<u32>,
    input_bytes: Vec<u64>,
    state_bytes: Vec<u64>,
    /// `None` for a number that is not finite, because JSON has none.
    numbers: Vec<Option<f64>>,
    keys: Vec<u64>,
}

impl ColumnsJson {
    pub fn candidates(&self) -> u32 {
        self.len
    }

    pub(super) fn new(see: &Columns) -> ColumnsJson {
        let Columns { now, max_batch, free_instances, live, backlog, not_shown, run_time, len, .. } = *see;
        let number = |n: &f64| n.is_finite().then_some(*n);
        ColumnsJson {
            now,
            max_batch,
            free_instances,
            live,
            backlog,
            not_shown,
            run_time,
            len,
            sequence: see.seq.clone(),
            step: see.step.clone(),
            slot: see.slot.clone(),
            arrival: see.arrival.clone(),
            ready: see.ready.clone(),
            deadline: see.deadline.clone(),
            priority: see.priority.clone(),
            shape_key: see.shape.clone(),
            start_end: see.flags.clone(),
            rows: see.rows.clone(),
            input_bytes: see.bytes.clone(),
            state_bytes: see.state_bytes.clone(),
            numbers: see.numbers.iter().map(number).collect(),
            keys: see.keys.clone(),
        }
    }

    pub(super) fn columns(&self) -> Columns {
        let of = self.clone();
        Columns {
            now: of.now,
            max_batch: of.max_batch,
            free_instances: of.free_instances,
            live: of.live,
            backlog: of.backlog,
            not_shown: of.not_shown,
            run_time: of.run_time,
            len: of.len,
            seq: of.sequence,
            step: of.step,
            slot: of.slot,
            arrival: of.arrival,
            ready: of.ready,
            deadline: of.deadline,
            priority: of.priority,
            shape: of.shape_key,
            flags: of.start_end,
            rows: of.rows,
            bytes: of.input_bytes,
            state_bytes: of.state_bytes,
            numbers: of.numbers.into_iter().map(|n| n.unwrap_or(f64::NAN)).collect(),
            keys: of.keys,
        }
    }
}
