//! What a load is like (strategy, limits, expiry, stages) and what a surface means (dialect). Plain data, settled at load.

use std::time::Duration;

use crate::policy::Hooks;

// === dialect: of the surface, travels with each request ===

/// What START on a live id does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLive {
    /// The sequence starts again in its slot, behind what it has queued (Triton).
    Restart,
    /// Refused (OpenVINO Model Server).
    Refuse,
}

/// What START does while the END of the same id is still queued or running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnEnding {
    /// A new sequence, in another slot (Triton).
    Fresh,
    /// Refused (OpenVINO Model Server).
    Refuse,
}

/// What START does when no slot is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// It waits (Triton).
    Backlog,
    /// Refused (OpenVINO Model Server, stateful_backend).
    Refuse,
}

/// What a request without an id means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoId {
    /// Refused (Triton).
    Refuse,
    /// START gets an id from the server; anything else is refused (OpenVINO Model Server).
    Assign,
}

/// A surface's rules, where surfaces differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dialect {
    pub live: OnLive,
    pub ending: OnEnding,
    pub full: WhenFull,
    pub no_id: NoId,
    /// Whether START looks at the count of live sequences before it looks at the id.
    pub count_first: bool,
    /// Whether a sequence whose START failed lives on, with its initial state.
    pub keep_failed_start: bool,
}

impl Dialect {
    pub const TRITON: Dialect = Dialect {
        live: OnLive::Restart,
        ending: OnEnding::Fresh,
        full: WhenFull::Backlog,
        no_id: NoId::Refuse,
        count_first: false,
        keep_failed_start: true,
    };
    pub const OVMS: Dialect = Dialect {
        live: OnLive::Refuse,
        ending: OnEnding::Refuse,
        full: WhenFull::Refuse,
        no_id: NoId::Assign,
        count_first: true,
        keep_failed_start: false,
    };
}

// === load ===

/// When an idle sequence is ended. Idle time runs from the later of arrival and completion, never while something is queued or running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// After this long (Triton).
    Idle(Duration),
    /// At the second of two scans, `every` apart, between which it stayed idle (OpenVINO Model Server).
    TwoScans {
        every: Duration,
    },
    Never,
}

/// Where the rows of a `direct` batch stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLayout {
    /// Row = slot, holes padded, from slot 0 to the highest ready one (Triton's shape).
    Fixed,
    /// Only real rows.
    Compact,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Strategy {
    /// Every request for itself, first come first served; batches up to `max_batch` rows if `batching`.
    Stateless { batching: bool, preferred: Vec<u32>, delay: Duration, in_order: bool },
    /// A sequence owns a batch row.
    Direct { rows: RowLayout, delay: Duration, min_use: f32 },
    /// The ready requests that have waited longest, of up to `slots` sequences an instance.
    Oldest { slots: u32, preferred: Vec<u32>, delay: Duration, in_order: bool },
    /// As `Oldest`, but the earliest deadline first.
    Deadline { slots: u32 },
}

/// What may be held at most. 0 means no limit, where that is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadLimits {
    /// Live sequences; 0 is no limit.
    pub live: u32,
    /// Slots in use over all instances, as stateful_backend's use ratio gives; 0 is no limit.
    pub store: u32,
    /// Sequences in the backlog.
    pub backlog: u32,
    /// Bytes queued in the backlog.
    pub backlog_bytes: u64,
    /// Requests queued in one sequence.
    pub per_sequence: u32,
    /// A ready request older than this is run next, against any policy.
    pub max_wait: Duration,
    /// Tombstones kept.
    pub tombstones: u32,
    /// How long a tombstone is remembered.
    pub tomb_age: Duration,
    /// Ready requests an external policy is shown.
    pub candidates: u32,
}

impl Default for LoadLimits {
    fn default() -> Self {
        LoadLimits {
            live: 0,
            store: 0,
            backlog: 1 << 20,
            backlog_bytes: 4 << 30,
            per_sequence: 4096,
            max_wait: Duration::from_secs(1),
            tombstones: 4096,
            tomb_age: Duration::from_secs(600),
            candidates: 1024,
        }
    }
}

/// The stages a request goes through besides its run. Those a load does not name are skipped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stages {
    /// A START asks the tier whether the sequence is kept there.
    pub activate: bool,
    /// A START's first state is made by the driver.
    pub initialize: bool,
    /// Every request is preprocessed, in the order of its sequence.
    pub pre: bool,
    /// Every answer is postprocessed, in the order of its sequence.
    pub post: bool,
    /// A committed state is made durable before its answer leaves.
    pub seal: bool,
}

/// Triton's test aid that lets test suites build up queues. The load runs nothing until this many requests wait, over all its instances. Then it
/// never holds again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Requests of sequences that have a slot; requests in the queue, where the load is stateless.
    pub requests: u32,
    /// Requests of sequences that have no slot.
    pub backlog: u32,
}

/// A loaded incarnation of a model version.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadSpec {
    pub version: u64,
    pub strategy: Strategy,
    /// Rows of a batch; at least 1.
    pub max_batch: u32,
    pub instances: u16,
    /// Batches an instance may have in flight. Beside one that runs, only a full one is taken.
    pub depth: u8,
    pub limits: LoadLimits,
    pub expiry: Expiry,
    /// The longest idle time that a START may ask for, within which it replaces that of `expiry`; `None` ignores what STARTs ask for. Without a
    /// meaning beside [`Expiry::TwoScans`].
    pub idle_longest: Option<Duration>,
    /// After this a sequence's slot may be taken by a START in need.
    pub idle_soft: Option<Duration>,
    /// Whether a cancelled step ends its sequence (a gap would be a silent wrong answer).
    pub cancel_ends: bool,
    pub stages: Stages,
    /// Class of the shapes of a first state, as [`crate::RowEnd::Done`] counts them.
    pub initial_state_shape: u64,
    /// The hooks of the external policy that decides for this load, if one does.
    pub external: Option<Hooks>,
    /// A test aid: nothing runs until so much waits.
    pub hold: Option<Hold>,
}

impl LoadSpec {
    /// A load with one instance, without limits of its own, whose sequences never expire.
    pub fn new(version: u64, strategy: Strategy, max_batch: u32) -> LoadSpec {
        LoadSpec {
            version,
            strategy,
            max_batch,
            instances: 1,
            depth: 1,
            limits: LoadLimits::default(),
            expiry: Expiry::Never,
            idle_longest: None,
            idle_soft: None,
            cancel_ends: true,
            stages: Stages::default(),
            initial_state_shape: 0,
            external: None,
            hold: None,
        }
    }

    /// Slots of one instance; 0 for a stateless load.
    pub fn slots(&self) -> u32 {
        match &self.strategy {
            Strategy::Stateless { .. } => 0,
            Strategy::Direct { .. } => self.max_batch.max(1),
            Strategy::Oldest { slots, .. } | Strategy::Deadline { slots } => (*slots).max(1),
        }
    }

    /// Requests that fill a batch: of the largest preferred size, or as many as there may be.
    pub fn full_batch(&self) -> u32 {
        let most = self.max_batch.max(1);
        match &self.strategy {
            Strategy::Stateless { batching: false, .. } => 1,
            Strategy::Stateless { preferred, .. } | Strategy::Oldest { preferred, .. } => {
                preferred.iter().copied().max().unwrap_or(most)
            }
            Strategy::Direct { .. } | Strategy::Deadline { .. } => most,
        }
    }

    pub fn is_stateful(&self) -> bool {
        self.slots() > 0
    }
}
