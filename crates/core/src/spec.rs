//! The settings of a load (strategy, limits, expiry, stages) and of an API (dialect). Plain data, fixed at load.

use std::time::Duration;

use crate::policy::Hooks;

// === dialect: belongs to the API, travels with each request ===

/// The effect of START on a live id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLive {
    /// The sequence starts again in its slot, after its queued requests (Triton).
    Restart,
    /// The START is refused (OpenVINO Model Server).
    Refuse,
}

/// The effect of START while the END of the same id is queued or running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnEnding {
    /// The START opens a new sequence in another slot (Triton).
    Fresh,
    /// The START is refused (OpenVINO Model Server).
    Refuse,
}

/// The effect of START when no slot is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenFull {
    /// The sequence waits (Triton).
    Backlog,
    /// The START is refused (OpenVINO Model Server, stateful_backend).
    Refuse,
}

/// The effect of a request without an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoId {
    /// The request is refused (Triton).
    Refuse,
    /// A START gets an id from the server. Other requests are refused (OpenVINO Model Server).
    Assign,
}

/// The rules of an API, where APIs differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dialect {
    pub live: OnLive,
    pub ending: OnEnding,
    pub full: WhenFull,
    pub no_id: NoId,
    /// Whether START checks the number of live sequences before the id.
    pub count_first: bool,
    /// Whether a sequence whose START failed stays live, with its initial state.
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

/// When an idle sequence expires. Idle time counts from the later of the last arrival and the last completion. It stops while a request is
/// queued or running.
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

/// The places of the rows in a `direct` batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowLayout {
    /// Row = slot, with padding for holes, from slot 0 to the highest ready slot (Triton).
    Fixed,
    /// Only real rows.
    Compact,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Strategy {
    /// Every request is independent, first come first served; batches of up to `max_batch` rows if `batching`.
    Stateless { batching: bool, preferred: Vec<u32>, delay: Duration, in_order: bool },
    /// A sequence owns a batch row.
    Direct { rows: RowLayout, delay: Duration, min_use: f32 },
    /// The ready requests that have waited longest. Each instance has `slots` slots.
    Oldest { slots: u32, preferred: Vec<u32>, delay: Duration, in_order: bool },
    /// As `Oldest`, but the earliest deadline first.
    Deadline { slots: u32 },
}

/// Limits of a load. 0 means no limit only where the description of a field states it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadLimits {
    /// Maximum live sequences; 0 means no limit.
    pub live: u32,
    /// Maximum slots in use over all instances, from stateful_backend's use ratio; 0 means no limit.
    pub store: u32,
    /// Maximum sequences in the backlog. For a stateless load, maximum waiting requests.
    pub backlog: u32,
    /// Maximum bytes queued in the backlog.
    pub backlog_bytes: u64,
    /// Maximum requests queued in one sequence.
    pub per_sequence: u32,
    /// Maximum wait of a ready request. After it the request runs next, against any policy.
    pub max_wait: Duration,
    /// Maximum tombstones kept.
    pub tombstones: u32,
    /// How long a tombstone is remembered.
    pub tomb_age: Duration,
    /// Maximum candidates of a kind (requests, backlogged sequences, victims) shown to a policy.
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

/// The stages of a request besides its run. A load skips the stages that are false.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stages {
    /// Whether the first request of a sequence asks the tier for a kept state. Then a step of an unknown id may begin a sequence.
    pub activate: bool,
    /// Whether the driver makes a START's first state.
    pub initialize: bool,
    /// Whether every request is preprocessed, in the order of its sequence.
    pub pre: bool,
    /// Whether every answer is postprocessed, in the order of its sequence.
    pub post: bool,
    /// Whether a committed state is made durable before its answer leaves.
    pub seal: bool,
}

/// A test aid of Triton for building up queues. The load runs nothing until this many requests wait, over all its instances. After that it
/// never holds again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold {
    /// Queued requests of sequences with a slot. For a stateless load, queued requests.
    pub requests: u32,
    /// Queued requests of sequences without a slot.
    pub backlog: u32,
}

/// A loaded version of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadSpec {
    pub version: u64,
    pub strategy: Strategy,
    /// Maximum rows of a batch; at least 1.
    pub max_batch: u32,
    pub instances: u16,
    /// Maximum batches in flight on an instance. Beside a running batch, an instance takes only a full one.
    pub depth: u8,
    pub limits: LoadLimits,
    pub expiry: Expiry,
    /// Maximum idle time that a START may ask for. What it asks for replaces that of `expiry`. `None` ignores what STARTs ask for. Ignored
    /// with [`Expiry::TwoScans`].
    pub idle_longest: Option<Duration>,
    /// After this idle time a waiting START may take a sequence's slot.
    pub idle_soft: Option<Duration>,
    /// Whether a cancelled step ends its sequence. Without the step, later answers would be wrong without notice.
    pub cancel_ends: bool,
    pub stages: Stages,
    /// Class of the shapes of a first state, in the terms of [`crate::RowEnd::Done`].
    pub initial_state_shape: u64,
    /// The hooks of the load's external policy, if it has one.
    pub external: Option<Hooks>,
    /// A test aid: the load runs nothing until this many requests wait.
    pub hold: Option<Hold>,
}

impl LoadSpec {
    /// A load with one instance, with default limits, whose sequences never expire.
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

    /// Slots of all instances. More than a `u32` counts are as many as it counts.
    pub fn all_slots(&self) -> u32 {
        self.slots().saturating_mul(u32::from(self.instances))
    }

    /// Number of requests that fill a batch: the largest preferred size, or else the maximum batch size.
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
