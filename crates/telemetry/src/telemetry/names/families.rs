//! All metrics of a server, and the series of a model version.

use std::borrow::Cow;
use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sequor_core::EndReason;

use crate::telemetry::cached::{CacheLookups, CacheUsage};
use crate::telemetry::config_reloads::ReloadMetrics;
use crate::telemetry::connection_closed::ConnectionClosed;
use crate::telemetry::handles::{FailureReason, ModelMetrics, RequestPhase, StepPath, ended_reason};
use crate::telemetry::kinds::{Counter, Gauge, Histogram, Seconds};
use crate::telemetry::labels::{Family, Labels, label};
use crate::telemetry::plugin_room::PluginRoomMetrics;
use crate::telemetry::request_counters::{RequestCounters, RequestFamily};
use crate::telemetry::server_gauges::ServerGauges;
use crate::telemetry::spans::SpanCounters;
use crate::telemetry::store::{SharedMetrics, StoreGauges};
use crate::telemetry::tls_failures::TlsFailureCounters;

use super::kept_families::KeptFamilies;
use super::plugin_families::{PluginFamilies, plugin_room};
use super::series::{SeriesAction, family, gauge_alone};
use super::server_families::{
    PeerFamilies, cache_usage, connections_closed, reload_metrics, server_gauges, shared_metrics, span_counters,
    store_gauges, tls_failures,
};
use super::triton::Triton;

#[derive(Debug)]
pub(in crate::telemetry) struct Families {
    pub(in crate::telemetry) triton: Triton,
    request_seconds: Family<Histogram>,
    backlog_wait: Family<Histogram>,
    batch_size: Family<Histogram>,
    steps: Family<Counter>,
    padding_rows: Family<Counter>,
    instances_lost: Family<Counter>,
    pub(in crate::telemetry) requests: RequestFamily,
    sequences_started: Family<Counter>,
    sequences_ended: Family<Counter>,
    sequences_moved: Family<Counter>,
    sequences_rolled_back: Family<Counter>,
    sequences_live: Family<Gauge>,
    sequences_backlogged: Family<Gauge>,
    slots: Family<Gauge>,
    state_bytes: Family<Gauge>,
    pub(in crate::telemetry) gpu_state_bytes: Family<Gauge>,
    load_seconds: Family<Seconds>,
    pub(in crate::telemetry) plugins: PluginFamilies,
    pub(in crate::telemetry) kept: KeptFamilies,
    cache_lookups: Family<Counter>,
    pub(in crate::telemetry) cache: CacheUsage,
    pub(in crate::telemetry) in_flight: Gauge,
    pub(in crate::telemetry) queued: Gauge,
    pub(in crate::telemetry) answers: Gauge,
    pub(in crate::telemetry) connections: Gauge,
    pub(in crate::telemetry) connections_closed: [Counter; ConnectionClosed::ALL.len()],
    pub(in crate::telemetry) tls_failures: TlsFailureCounters,
    pub(in crate::telemetry) peers: PeerFamilies,
    pub(in crate::telemetry) store: StoreGauges,
    pub(in crate::telemetry) shared: SharedMetrics,
    pub(in crate::telemetry) plugin_room: PluginRoomMetrics,
    pub(in crate::telemetry) server: ServerGauges,
    pub(in crate::telemetry) loads: Family<Counter>,
    pub(in crate::telemetry) spans: SpanCounters,
    pub(in crate::telemetry) reloads: ReloadMetrics,
}

impl Families {
    pub(in crate::telemetry) fn register(r: &mut Registry, triton_names: bool) -> Families {
        // Triton's metrics are counted even if they are hidden, because the statistics read the same counters.
        let mut hidden = Registry::default();
        let triton = Triton::register(if triton_names { &mut *r } else { &mut hidden });
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        let seconds = Histogram::seconds;
        Families {
            triton,
            request_seconds: family(r, "sequor_request_seconds", "Where the time of requests goes, by phase", seconds),
            backlog_wait: family(r, "sequor_backlog_wait_seconds", "How long sequences waited for a slot", seconds),
            batch_size: family(r, "sequor_batch_size", "Rows of the batches that were run", Histogram::counts),
            steps: family(
                r,
                "sequor_steps_total",
                "Batches that were run, by the kind of thread that ran them",
                counter,
            ),
            padding_rows: family(
                r,
                "sequor_batch_padding_rows_total",
                "Rows that were run without a request, because `direct` ties rows to slots",
                counter,
            ),
            instances_lost: family(
                r,
                "sequor_instances_lost_total",
                "Instances that are out of service because their accelerator has failed",
                counter,
            ),
            requests: RequestFamily::new(family(
                r,
                "sequor_requests_total",
                "Inference requests by what their clients got, including refused ones",
                counter,
            )),
            sequences_started: family(
                r,
                "sequor_sequences_started_total",
                "Sequences that have begun, or have gone on from a stored or moved state",
                counter,
            ),
            sequences_ended: family(r, "sequor_sequences_ended_total", "Sequences that have ended, and why", counter),
            sequences_moved: family(
                r,
                "sequor_sequences_moved_total",
                "Sequences whose state has moved to the store or to a new version; they have not ended",
                counter,
            ),
            sequences_rolled_back: family(
                r,
                "sequor_sequences_rolled_back_total",
                "Sequences that left memory for their last stored state because the state after a step could not be stored; they have not ended",
                counter,
            ),
            sequences_live: family(
                r,
                "sequor_sequences_live",
                "Live sequences, including those that wait for a slot",
                gauge,
            ),
            sequences_backlogged: family(r, "sequor_sequences_backlogged", "Sequences waiting for a slot", gauge),
            slots: family(r, "sequor_slots", "Slots of the instances in service", gauge),
            state_bytes: family(r, "sequor_state_bytes", "Bytes of state that sequences hold", gauge),
            gpu_state_bytes: family(r, "sequor_gpu_state_bytes", "Bytes of a GPU that are set aside for states", gauge),
            load_seconds: family(r, "sequor_model_load_seconds", "How long the last load took", Seconds::default),
            plugins: PluginFamilies::register(r),
            kept: KeptFamilies::register(r),
            cache_lookups: family(
                r,
                "sequor_cache_lookups_total",
                "Requests looked up in the response cache, by result: `hit` or `miss`",
                counter,
            ),
            cache: cache_usage(r),
            in_flight: gauge_alone(r, "sequor_requests_in_flight", "Inference requests received and not answered yet"),
            queued: gauge_alone(
                r,
                "sequor_requests_queued_bytes",
                "Bytes of the inputs of requests in flight and of bodies that arrive or wait for their turn; limits.queued is the maximum of these and sequor_answers_unread_bytes together",
            ),
            answers: gauge_alone(
                r,
                "sequor_answers_unread_bytes",
                "Bytes of answers that clients have not taken; they count against limits.queued",
            ),
            connections: gauge_alone(r, "sequor_connections", "Open connections of all listeners"),
            connections_closed: connections_closed(r),
            tls_failures: tls_failures(r),
            peers: PeerFamilies::register(r),
            store: store_gauges(r),
            shared: shared_metrics(r),
            plugin_room: plugin_room(r),
            server: server_gauges(r),
            loads: family(r, "sequor_model_loads_total", "Loads and reloads of a model, by result", counter),
            spans: span_counters(r),
            reloads: reload_metrics(r),
        }
    }

    /// The series of a model version. `tags` are labels that the model's configuration adds.
    pub(in crate::telemetry) fn model(
        &self,
        name: &str,
        version: u64,
        tags: &BTreeMap<String, String>,
    ) -> ModelMetrics {
        self.model_series(SeriesAction::Get, (name, version), tags)
    }

    /// Removes the series of one model version under these tags.
    pub(in crate::telemetry) fn forget_model(&self, name: &str, version: u64, tags: &BTreeMap<String, String>) {
        drop(self.model_series(SeriesAction::Remove, (name, version), tags));
    }

    fn model_series(
        &self,
        action: SeriesAction,
        (name, version): (&str, u64),
        tags: &BTreeMap<String, String>,
    ) -> ModelMetrics {
        let own = [label("model", name), label("version", &version.to_string())];
        let tags = tags.iter().map(|(key, value)| (Cow::Owned(key.clone()), value.clone()));
        let labels: Labels = own.into_iter().chain(tags).collect();
        let with = |key: &'static str, value: &str| [labels.clone(), vec![label(key, value)]].concat();
        let t = &self.triton;
        ModelMetrics {
            requests: RequestCounters::new(&self.requests, name),
            success: action.series(&t.success, &labels),
            failure: FailureReason::ALL.map(|r| action.series(&t.failure, &with("reason", r.name()))),
            inferences: action.series(&t.count, &labels),
            executions: action.series(&t.executions, &labels),
            request_time: action.series(&t.request, &labels),
            queue_time: action.series(&t.queue, &labels),
            input_time: action.series(&t.input, &labels),
            infer_time: action.series(&t.infer, &labels),
            output_time: action.series(&t.output, &labels),
            pending: action.series(&t.pending, &labels),
            load_seconds: [&t.load_seconds, &self.load_seconds].map(|f| action.series(f, &labels)),
            phases: RequestPhase::ALL.map(|p| action.series(&self.request_seconds, &with("phase", p.name()))),
            batch_size: action.series(&self.batch_size, &labels),
            steps: StepPath::ALL.map(|p| action.series(&self.steps, &with("path", p.name()))),
            padding_rows: action.series(&self.padding_rows, &labels),
            instances_lost: action.series(&self.instances_lost, &labels),
            backlog_wait: action.series(&self.backlog_wait, &labels),
            sequences_started: action.series(&self.sequences_started, &labels),
            sequences_left: EndReason::ALL.map(|why| match why {
                EndReason::Spilled => action.series(&self.sequences_moved, &labels),
                EndReason::RolledBack => action.series(&self.sequences_rolled_back, &labels),
                _ => action.series(&self.sequences_ended, &with("reason", ended_reason(why))),
            }),
            sequences_live: action.series(&self.sequences_live, &labels),
            sequences_backlogged: action.series(&self.sequences_backlogged, &labels),
            slots_used: action.series(&self.slots, &with("state", "used")),
            slots_free: action.series(&self.slots, &with("state", "free")),
            state_bytes: action.series(&self.state_bytes, &with("tier", "memory")),
            fail_nanos: Counter::default(),
            last_inference: Gauge::default(),
            batches: Mutex::default(),
            cache: CacheLookups {
                hits: action.series(&t.cache_hits, &labels),
                misses: action.series(&t.cache_misses, &labels),
                hit_time: action.series(&t.cache_hit_time, &labels),
                miss_time: action.series(&t.cache_miss_time, &labels),
                results: ["hit", "miss"].map(|r| action.series(&self.cache_lookups, &with("result", r))),
            },
        }
    }
}
