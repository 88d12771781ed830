//! The counters of one model version, looked up once and then plain atomics, for the hot paths. `names` has the names of the metrics.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sequor_core::{EndReason, Refusal};

use super::cached::CacheLookups;
use super::kinds::{Counter, Gauge, Histogram, Micros, Seconds, nanos};
use super::request_counters::RequestCounters;

/// The phases of a request's time. `total` is from arrival to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPhase {
    Queue,
    Pre,
    StateIn,
    Run,
    StateOut,
    Post,
    Total,
}

impl RequestPhase {
    pub const ALL: [RequestPhase; 7] = [
        RequestPhase::Queue,
        RequestPhase::Pre,
        RequestPhase::StateIn,
        RequestPhase::Run,
        RequestPhase::StateOut,
        RequestPhase::Post,
        RequestPhase::Total,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            RequestPhase::Queue => "queue",
            RequestPhase::Pre => "pre",
            RequestPhase::StateIn => "state_in",
            RequestPhase::Run => "run",
            RequestPhase::StateOut => "state_out",
            RequestPhase::Post => "post",
            RequestPhase::Total => "total",
        }
    }
}

/// The thread that runs a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPath {
    /// The thread of the connection that brought its request.
    Inline,
    /// The instance's own thread.
    HandedOver,
}

impl StepPath {
    pub const ALL: [StepPath; 2] = [StepPath::Inline, StepPath::HandedOver];

    pub const fn name(self) -> &'static str {
        match self {
            StepPath::Inline => "inline",
            StepPath::HandedOver => "handed_over",
        }
    }
}

/// Triton's reasons of failed requests. A request that is refused before it is queued does not count as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureReason {
    /// A queue's limit or timeout.
    Rejected,
    Canceled,
    /// The model's run failed.
    Backend,
    Other,
}

impl FailureReason {
    pub const ALL: [FailureReason; 4] =
        [FailureReason::Rejected, FailureReason::Canceled, FailureReason::Backend, FailureReason::Other];

    pub const fn name(self) -> &'static str {
        match self {
            FailureReason::Rejected => "REJECTED",
            FailureReason::Canceled => "CANCELED",
            FailureReason::Backend => "BACKEND",
            FailureReason::Other => "OTHER",
        }
    }
}

/// The sizes and times of one run of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct BatchTimes {
    /// Requests in it.
    pub requests: u32,
    /// Requests that start a sequence.
    pub starts: u32,
    /// Rows of those requests.
    pub rows: u32,
    /// Rows that were run, padding included.
    pub executed: u32,
    /// Staging of inputs and states.
    pub state_in: Duration,
    pub run: Duration,
    /// Validating, committing of states, and splitting of outputs.
    pub state_out: Duration,
}

/// A total time and the number of its measurements, as in a model's statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timed {
    pub count: u64,
    pub nanos: u64,
}

/// The costs of batches of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchCost {
    pub count: u64,
    pub state_in: u64,
    pub run: u64,
    pub state_out: u64,
}

/// A model version's statistics. They are read from the same counters as the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Milliseconds since 1970; 0 is never.
    pub last_inference: u64,
    pub inference_count: u64,
    pub execution_count: u64,
    pub success: Timed,
    pub fail: Timed,
    pub queue: Timed,
    pub compute_input: Timed,
    pub compute_infer: Timed,
    pub compute_output: Timed,
    /// Requests answered from the response cache, and the time of their lookups.
    pub cache_hit: Timed,
    /// Requests without a kept answer, and the time to look it up and to keep the new one.
    pub cache_miss: Timed,
    /// By executed rows, padding included.
    pub batches: BTreeMap<u32, BatchCost>,
}

/// All counters of one version of one model. All clones of the parts share the registry's values.
#[derive(Debug)]
pub struct ModelMetrics {
    /// Requests to the model, of all versions, by what their clients got.
    pub requests: RequestCounters,
    pub(super) success: Counter,
    pub(super) failure: [Counter; FailureReason::ALL.len()],
    pub(super) inferences: Counter,
    pub(super) executions: Counter,
    pub(super) request_time: Micros,
    pub(super) queue_time: Micros,
    pub(super) input_time: Micros,
    pub(super) infer_time: Micros,
    pub(super) output_time: Micros,
    pub(super) pending: Gauge,
    pub(super) load_seconds: [Seconds; 2],
    pub(super) cache: CacheLookups,
    pub(super) phases: [Histogram; RequestPhase::ALL.len()],
    pub(super) batch_size: Histogram,
    pub(super) steps: [Counter; StepPath::ALL.len()],
    pub(super) padding_rows: Counter,
    pub(super) instances_lost: Counter,
    pub(super) backlog_wait: Histogram,
    pub(super) sequences_started: Counter,
    /// Sequences that ended, and those that only left memory ([`EndReason::continues_from_store`]), in the order of [`EndReason::ALL`].
    pub(super) sequences_left: [Counter; EndReason::ALL.len()],
    pub(super) sequences_live: Gauge,
    pub(super) sequences_backlogged: Gauge,
    pub(super) slots_used: Gauge,
    pub(super) slots_free: Gauge,
    pub(super) state_bytes: Gauge,
    /// The time of failed requests. Triton has no metric for it, only a statistic.
    pub(super) fail_nanos: Counter,
    pub(super) last_inference: Gauge,
    pub(super) batches: Mutex<BTreeMap<u32, BatchCost>>,
}

impl ModelMetrics {
    /// Counts a request that was put in its queue.
    pub fn queued(&self) {
        self.pending.add(1);
    }

    /// Counts requests that left their queue, to be run or refused.
    pub fn dequeued(&self, requests: u32) {
        self.pending.add(-i64::from(requests));
    }

    /// Counts a batch that ran, with its requests' compute times. [`Self::succeeded`] and [`Self::failed`] count each request's own times.
    pub fn executed(&self, times: &BatchTimes) {
        let requests = u64::from(times.requests);
        let [state_in, run, state_out] = [times.state_in, times.run, times.state_out].map(nanos);
        self.executions.add(1);
        self.inferences.add(u64::from(times.rows));
        self.batch_size.observe(u64::from(times.rows), 1);
        self.padding_rows.add(u64::from(times.executed.saturating_sub(times.rows)));
        self.input_time.add(state_in.saturating_mul(requests));
        self.infer_time.add(run.saturating_mul(requests));
        self.output_time.add(state_out.saturating_mul(requests));
        self.phase_nanos(RequestPhase::StateIn, state_in, requests);
        self.phase_nanos(RequestPhase::Run, run, requests);
        self.phase_nanos(RequestPhase::StateOut, state_out, requests);
        let mut batches = self.batches.lock();
        let cost = batches.entry(times.executed).or_default();
        cost.count += 1;
        cost.state_in += state_in;
        cost.run += run;
        cost.state_out += state_out;
    }

    /// Counts a batch by the thread that ran it.
    pub fn stepped(&self, path: StepPath) {
        if let Some(counter) = self.steps.get(path as usize) {
            counter.add(1);
        }
    }

    /// Counts an instance whose accelerator has failed.
    pub fn instance_lost(&self) {
        self.instances_lost.add(1);
    }

    /// Number of batches that this kind of thread has run.
    pub fn steps(&self, path: StepPath) -> u64 {
        self.steps.get(path as usize).map_or(0, Counter::get)
    }

    /// Counts a request that was answered with outputs. `queue`: its wait; `total`: the time since its arrival.
    pub fn succeeded(&self, queue: Duration, total: Duration) {
        let [queue, total] = [queue, total].map(nanos);
        self.success.add(1);
        self.queue_time.add(queue);
        self.request_time.add(total);
        self.phase_nanos(RequestPhase::Queue, queue, 1);
        self.phase_nanos(RequestPhase::Total, total, 1);
    }

    /// Counts a request that was answered from the response cache after this time. It also counts as succeeded, but not as a run.
    pub fn cache_hit(&self, took: Duration) {
        self.cache.hit(took);
        self.succeeded(Duration::ZERO, took);
    }

    /// Counts a request without a kept answer, with the time of the look-up.
    pub fn cache_missed(&self, took: Duration) {
        self.cache.missed(took);
    }

    /// Adds the time to keep the answer to such a request.
    pub fn cache_kept(&self, took: Duration) {
        self.cache.miss_time.add(nanos(took));
    }

    /// Counts a queued request that was answered with an error.
    pub fn failed(&self, reason: FailureReason, total: Duration) {
        if let Some(counter) = self.failure.get(reason as usize) {
            counter.add(1);
        }
        self.fail_nanos.add(nanos(total));
    }

    /// Counts a phase that only some models have.
    pub fn phase(&self, phase: RequestPhase, span: Duration) {
        self.phase_nanos(phase, nanos(span), 1);
    }

    fn phase_nanos(&self, phase: RequestPhase, nanos: u64, times: u64) {
        if let Some(histogram) = self.phases.get(phase as usize) {
            histogram.observe(nanos, times);
        }
    }

    pub fn sequence_started(&self) {
        self.sequences_started.add(1);
        self.sequences_live.add(1);
    }

    /// Counts a sequence that has ended, or that has moved to the store.
    pub fn sequence_left(&self, why: EndReason) {
        if let Some(counter) = self.sequences_left.get(why as usize) {
            counter.add(1);
        }
        self.sequences_live.add(-1);
    }

    /// Counts a sequence that left the backlog for a slot.
    pub fn slotted(&self, waited: Duration) {
        self.backlog_wait.observe(nanos(waited), 1);
    }

    pub fn set_backlogged(&self, sequences: usize) {
        self.sequences_backlogged.set(i64::try_from(sequences).unwrap_or(i64::MAX));
    }

    /// Sets the number of used and free slots, over all instances.
    pub fn set_slots(&self, used: u64, free: u64) {
        self.slots_used.set(i64::try_from(used).unwrap_or(i64::MAX));
        self.slots_free.set(i64::try_from(free).unwrap_or(i64::MAX));
    }

    /// Sets the bytes of states in the server's memory.
    pub fn set_state_bytes(&self, bytes: u64) {
        self.state_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn loaded(&self, took: Duration) {
        for seconds in &self.load_seconds {
            seconds.set(took);
        }
    }

    /// Records the time of the last run.
    pub fn ran_at(&self, now: SystemTime) {
        let millis = now.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
        self.last_inference.set(millis);
    }

    /// Rows that were run without a request.
    pub fn padding_rows(&self) -> u64 {
        self.padding_rows.get()
    }

    pub fn live_sequences(&self) -> i64 {
        self.sequences_live.get()
    }

    /// The upper bound, in seconds, of the given share of requests for a phase.
    pub fn quantile(&self, phase: RequestPhase, part: f64) -> Option<f64> {
        self.phases.get(phase as usize)?.quantile(part)
    }

    /// The total time of each phase, in seconds. Phases that the model does not have are left out.
    pub fn phase_seconds(&self) -> impl Iterator<Item = (RequestPhase, f64)> {
        let sums = RequestPhase::ALL.into_iter().zip(self.phases.iter().map(Histogram::sum));
        sums.filter(|(_, seconds)| *seconds > 0.0)
    }

    /// Requests that wait in the queue.
    pub fn pending(&self) -> i64 {
        self.pending.get()
    }

    /// The number of ended sequences, by reason. Sequences that only left memory do not count.
    pub fn sequences_ended(&self) -> impl Iterator<Item = (EndReason, u64)> {
        let left = EndReason::ALL.into_iter().zip(self.sequences_left.iter().map(Counter::get));
        left.filter(|(why, _)| !why.continues_from_store())
    }

    pub fn statistics(&self) -> Statistics {
        let success = self.success.get();
        let failed = self.failure.iter().map(Counter::get).sum();
        let run = self.phases.get(RequestPhase::Run as usize).map_or(0, Histogram::count);
        let CacheLookups { hits, misses, hit_time, miss_time, .. } = &self.cache;
        Statistics {
            last_inference: u64::try_from(self.last_inference.get()).unwrap_or(0),
            inference_count: self.inferences.get(),
            execution_count: self.executions.get(),
            success: Timed { count: success, nanos: self.request_time.nanos() },
            fail: Timed { count: failed, nanos: self.fail_nanos.get() },
            queue: Timed { count: success, nanos: self.queue_time.nanos() },
            compute_input: Timed { count: run, nanos: self.input_time.nanos() },
            compute_infer: Timed { count: run, nanos: self.infer_time.nanos() },
            compute_output: Timed { count: run, nanos: self.output_time.nanos() },
            cache_hit: Timed { count: hits.get(), nanos: hit_time.nanos() },
            cache_miss: Timed { count: misses.get(), nanos: miss_time.nanos() },
            batches: self.batches.lock().clone(),
        }
    }
}

/// The word for a sequence's end, the same in metrics and for clients.
pub const fn ended_reason(why: EndReason) -> &'static str {
    match why {
        EndReason::End => "ended",
        EndReason::Idle => "expired",
        EndReason::Restarted => "restarted",
        EndReason::Cancelled => "cancelled",
        EndReason::Evicted => "evicted",
        EndReason::Drained => "retired",
        EndReason::Fenced => "fenced",
        EndReason::Unsealed => "unsealed",
        EndReason::Spilled => "spilled",
        EndReason::Admin => "dropped",
        EndReason::Rejected => "plugin_rejected",
        EndReason::Failed => "never_started",
        EndReason::Member => "member_failed",
        EndReason::Broken => "step_failed",
        EndReason::NotFinite => "state_not_finite",
        EndReason::DeviceLost => "device_lost",
        EndReason::NoSlot => "backlog_timeout",
        EndReason::RolledBack => "rolled_back",
    }
}

/// The word for a refusal, the same in metrics, in traces and for clients.
pub const fn refusal_reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Unknown(None) => "never_started",
        Refusal::Unknown(Some(tombstone)) => ended_reason(tombstone.why),
        Refusal::Ended(why) => ended_reason(*why),
        Refusal::NoId => "bad_input",
        Refusal::Live | Refusal::Ending => "already_live",
        Refusal::NoVersion => "not_served",
        Refusal::Cancelled => "cancelled",
        Refusal::StepGap { .. } => "step_gap",
        Refusal::StepGone { .. } | Refusal::StepBusy { .. } => "step_repeat",
        Refusal::Failed(_) => "plugin_failed",
        Refusal::TooMany { .. } => "live_limit",
        Refusal::StoreFull { .. } => "state_memory",
        Refusal::BacklogFull { .. } => "backlog_full",
        Refusal::Stopping => "draining",
        Refusal::QueueTimeout { .. } => "queue_expired",
        Refusal::BacklogTimeout { .. } => "backlog_timeout",
        Refusal::QueueFull { .. } => "queue_full",
        Refusal::Elsewhere => "fenced",
        Refusal::Policy(_) => "plugin_rejected",
    }
}
