//! Settings of a model of the stateful backend besides its sequences and states.

use std::time::Duration;

/// The settings of a model with `backend: "stateful"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSettings {
    /// The growth of the memory for states; `None` with the strategy `direct`, which has one piece of memory.
    pub chunks: Option<StateChunks>,
    /// Sizes to which batches are padded, in ascending order; empty if batches are not padded.
    pub pad_to: Vec<u32>,
    /// Whether an END runs the model.
    pub runs_ends: bool,
    pub log: RunLogSettings,
}

impl StatefulSettings {
    /// The number of rows with which a batch of `rows` rows runs.
    pub fn padded(&self, rows: usize) -> usize {
        let fits = |size: &usize| *size >= rows;
        self.pad_to.iter().map(|size| *size as usize).find(fits).unwrap_or(rows)
    }
}

/// Chunks of slots: their sizes, and when a chunk is added or dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateChunks {
    /// Slots of the first chunk, which exists from the load on.
    pub first: u32,
    /// Slots of every further chunk.
    pub next: u32,
    /// Maximum number of chunks.
    pub count: u32,
    /// A chunk is added when fewer slots than this are free.
    pub grow_below: u32,
    /// The last chunk is dropped when it is free and more slots than this are free in total.
    pub shrink_above: u32,
}

impl StateChunks {
    /// The slots of all chunks.
    pub fn capacity(&self) -> u32 {
        self.first.saturating_add(self.count.saturating_sub(1).saturating_mul(self.next))
    }
}

/// The log lines about the runs of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunLogSettings {
    /// Time between two lines of totals; `None` for none.
    pub every: Option<Duration>,
    /// The line with the average and the largest batch.
    pub sizes: LineLevel,
    /// The line with the times of all parts of a run.
    pub times: LineLevel,
    /// One line for every batch.
    pub batches: LineLevel,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LineLevel {
    #[default]
    Off,
    Debug,
    Info,
}
