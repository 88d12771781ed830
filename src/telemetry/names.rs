//! The names of all metrics, with their labels. Nothing is counted here.
//!
//! Names are `sequor_<what>_<unit>`, and counters end in `_total`. Triton's metrics are there too, with Triton's names and units, for
//! existing dashboards and autoscalers. Labels are bounded: never a sequence's id, never a model that is not served.

use std::borrow::Cow;
use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family as Labelled, MetricConstructor};
use prometheus_client::registry::Registry;
use sequor_core::EndReason;

use super::cached::{CacheLookups, CacheUsage};
use super::connection_closed::ConnectionClosed;
use super::handles::{FailureReason, ModelMetrics, RequestPhase, StepPath, ended_reason};
use super::kept::KeptMetrics;
use super::kinds::{Amount, Counter, FloatGauge, Gauge, Histogram, Micros, Seconds};
use super::labels::{Family, Labels, label};
use super::peer_limit::PeerLimit;
use super::plugins::{Hook, Make, OwnCounter, PluginMetrics};
use super::request_counters::{RequestCounters, RequestFamily};
use super::server_gauges::ServerGauges;
use super::spans::{SpanCounters, SpanLoss};
use super::store::{SharedMetrics, StoreGauges};

/// Labels with names of a plug-in's own.
type OwnLabels = Vec<(String, String)>;

#[derive(Debug)]
pub(super) struct Families {
    pub(super) triton: Triton,
    request_seconds: Family<Histogram>,
    backlog_wait: Family<Histogram>,
    batch_size: Family<Histogram>,
    steps: Family<Counter>,
    padding_rows: Family<Counter>,
    pub(super) requests: RequestFamily,
    sequences_started: Family<Counter>,
    sequences_ended: Family<Counter>,
    sequences_moved: Family<Counter>,
    sequences_live: Family<Gauge>,
    sequences_backlogged: Family<Gauge>,
    slots: Family<Gauge>,
    state_bytes: Family<Gauge>,
    pub(super) gpu_state_bytes: Family<Gauge>,
    load_seconds: Family<Seconds>,
    pub(super) plugins: PluginFamilies,
    kept: KeptFamilies,
    cache_lookups: Family<Counter>,
    pub(super) cache: CacheUsage,
    pub(super) in_flight: Gauge,
    pub(super) queued: Gauge,
    pub(super) connections: Gauge,
    pub(super) connections_closed: [Counter; ConnectionClosed::ALL.len()],
    pub(super) peers: PeerFamilies,
    pub(super) store: StoreGauges,
    pub(super) shared: SharedMetrics,
    pub(super) server: ServerGauges,
    pub(super) loads: Family<Counter>,
    pub(super) spans: SpanCounters,
}

#[derive(Debug, Clone)]
pub(super) struct PluginFamilies {
    calls: Family<Histogram>,
    strikes: Family<Counter>,
    fallbacks: Family<Counter>,
    stale: Family<Counter>,
    passed_over: Family<Counter>,
    reloads: Family<Counter>,
    memory: Family<Gauge>,
    parked: Family<Gauge>,
    waiting: Family<Gauge>,
    instances: Family<Gauge>,
    counters: Labelled<OwnLabels, Amount, fn() -> Amount>,
}

/// States that initializers keep by name.
#[derive(Debug)]
struct KeptFamilies {
    lookups: Family<Counter>,
    evictions: Family<Counter>,
    bytes: Family<Gauge>,
}

/// The holdings of clients, for the limits of one client.
#[derive(Debug)]
pub(super) struct PeerFamilies {
    pub(super) count: Gauge,
    /// The largest holding of a single client, by limit.
    pub(super) most: [Gauge; 3],
    pub(super) refused: [Counter; 3],
}

#[derive(Debug)]
pub(super) struct Triton {
    pub(super) gpu_total: Family<Gauge>,
    pub(super) gpu_used: Family<Gauge>,
    pub(super) gpu_utilization: Family<FloatGauge>,
    pub(super) gpu_power: Family<FloatGauge>,
    pub(super) gpu_power_limit: Family<FloatGauge>,
    pub(super) gpu_energy: Family<FloatGauge>,
    success: Family<Counter>,
    failure: Family<Counter>,
    count: Family<Counter>,
    executions: Family<Counter>,
    request: Family<Micros>,
    queue: Family<Micros>,
    input: Family<Micros>,
    infer: Family<Micros>,
    output: Family<Micros>,
    pending: Family<Gauge>,
    load_seconds: Family<Seconds>,
    cache_hits: Family<Counter>,
    cache_misses: Family<Counter>,
    cache_hit_time: Family<Micros>,
    cache_miss_time: Family<Micros>,
}

fn family<M>(registry: &mut Registry, name: &str, help: &str, make: fn() -> M) -> Family<M>
where
    M: EncodeMetric + TypedMetric + std::fmt::Debug + Send + Sync + 'static,
    fn() -> M: MetricConstructor<M>,
{
    let family = Family::new_with_constructor(make);
    registry.register(name, help, family.clone());
    family
}

fn gauge_alone(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// Creates a counter for each reason, so that a scrape shows them before they count.
fn connections_closed(registry: &mut Registry) -> [Counter; ConnectionClosed::ALL.len()] {
    let help = "Connections that the server closed, by the setting under [connections] whose limit they reached";
    let all = family(registry, "sequor_connections_closed_total", help, Counter::default as fn() -> Counter);
    ConnectionClosed::ALL.map(|reason| all.get_or_create_owned(&vec![label("reason", reason.name())]))
}

fn cache_usage(r: &mut Registry) -> CacheUsage {
    let evictions = Counter::default();
    r.register("sequor_cache_evicted_total", "Answers evicted to make room for others", evictions.clone());
    let bytes =
        gauge_alone(r, "sequor_cache_bytes", "Bytes of answers in the response cache; cache.size is the maximum");
    CacheUsage { bytes, evictions }
}

fn server_gauges(r: &mut Registry) -> ServerGauges {
    ServerGauges {
        ready: gauge_alone(r, "sequor_ready", "1 if the server is ready, as `/v2/health/ready` says, else 0"),
        state_limit: gauge_alone(
            r,
            "sequor_state_limit_bytes",
            "limits.state, the maximum of states in memory; 0 is none",
        ),
        queued_limit: gauge_alone(
            r,
            "sequor_requests_queued_limit_bytes",
            "limits.queued, the maximum of sequor_requests_queued_bytes",
        ),
    }
}

fn span_counters(r: &mut Registry) -> SpanCounters {
    let exported = Counter::default();
    r.register("sequor_spans_exported_total", "Spans of exports that the collector has taken", exported.clone());
    let help = "Spans that were not exported, by reason: the queue was full, or the collector failed";
    let dropped = family(r, "sequor_spans_dropped_total", help, Counter::default as fn() -> Counter);
    let dropped = SpanLoss::ALL.map(|why| dropped.get_or_create_owned(&vec![label("reason", why.name())]));
    SpanCounters { exported, dropped }
}

fn store_gauges(r: &mut Registry) -> StoreGauges {
    StoreGauges {
        sequences: gauge_alone(
            r,
            "sequor_store_sequences",
            "Sequences whose states are stored in state.dir; with state.url, those of this server",
        ),
        bytes: gauge_alone(r, "sequor_store_bytes", "Bytes of the states that sequor_store_sequences counts"),
        limit: gauge_alone(r, "sequor_store_limit_bytes", "state.disk_limit, the maximum of sequor_store_bytes"),
    }
}

fn shared_metrics(r: &mut Registry) -> SharedMetrics {
    let mut counter = |name: &str, help: &str| {
        let counter = Counter::default();
        r.register(name, help, counter.clone());
        counter
    };
    let claimed = "Sequences that this server has begun or taken over in state.url";
    let taken_over = "Sequences that this server has taken over from another live server";
    let given_up = "Sequences that this server has released in state.url, for another server or after their end";
    let fenced = "Writes that state.url refused because another server has the sequence";
    let lapsed = "Times the lease of this server ended, because state.url did not hear of it within state.lease";
    SharedMetrics {
        claimed: counter("sequor_shared_claimed_total", claimed),
        taken_over: counter("sequor_shared_taken_over_total", taken_over),
        given_up: counter("sequor_shared_given_up_total", given_up),
        fenced: counter("sequor_shared_fenced_total", fenced),
        lapsed: counter("sequor_shared_lapsed_total", lapsed),
        sequences: gauge_alone(r, "sequor_shared_sequences", "Sequences that this server owns in state.url"),
        lease: gauge_alone(
            r,
            "sequor_shared_lease",
            "1 if this server may answer for its sequences in state.url, else 0",
        ),
    }
}

impl PeerFamilies {
    fn register(r: &mut Registry) -> PeerFamilies {
        let refused = family(
            r,
            "sequor_peer_refused_total",
            "Requests refused because their client was at its maximum",
            Counter::default as fn() -> Counter,
        );
        PeerFamilies {
            count: gauge_alone(
                r,
                "sequor_peers",
                "Clients that are connected or hold sequences or requests; counted only if a client has a maximum",
            ),
            most: PeerLimit::ALL.map(|limit| match limit {
                PeerLimit::Sequences => {
                    gauge_alone(r, "sequor_peer_most_sequences", "Live sequences of the client that has the most")
                }
                PeerLimit::InFlight => {
                    gauge_alone(r, "sequor_peer_most_in_flight", "Requests in flight of the client that has the most")
                }
                PeerLimit::Queued => gauge_alone(
                    r,
                    "sequor_peer_most_queued_bytes",
                    "Queued request bytes of the client that has the most",
                ),
            }),
            refused: PeerLimit::ALL.map(|limit| refused.get_or_create_owned(&vec![label("limit", limit.name())])),
        }
    }
}

impl Triton {
    fn register(r: &mut Registry) -> Triton {
        let counter = Counter::default;
        let (gauge, level) = (Gauge::default as fn() -> Gauge, FloatGauge::default as fn() -> FloatGauge);
        Triton {
            gpu_total: family(r, "nv_gpu_memory_total_bytes", "Memory of a GPU that models run on", gauge),
            gpu_used: family(r, "nv_gpu_memory_used_bytes", "Used memory of a GPU, by all processes", gauge),
            gpu_utilization: family(r, "nv_gpu_utilization", "How busy a GPU is, from 0 to 1", level),
            gpu_power: family(r, "nv_gpu_power_usage", "Power that a GPU draws, in watts", level),
            gpu_power_limit: family(r, "nv_gpu_power_limit", "Power that a GPU may draw, in watts", level),
            gpu_energy: family(
                r,
                "nv_energy_consumption",
                "Energy a GPU has used since its driver started, in joules",
                level,
            ),
            success: family(r, "nv_inference_request_success", "Requests answered with outputs", counter),
            failure: family(r, "nv_inference_request_failure", "Queued requests answered with an error", counter),
            count: family(r, "nv_inference_count", "Inferences: rows of requests that were run", counter),
            executions: family(r, "nv_inference_exec_count", "Batches that were run", counter),
            request: family(r, "nv_inference_request_duration_us", "Time of requests, in total", Micros::default),
            queue: family(r, "nv_inference_queue_duration_us", "Time requests spent in queues", Micros::default),
            input: family(r, "nv_inference_compute_input_duration_us", "Time of staging inputs", Micros::default),
            infer: family(r, "nv_inference_compute_infer_duration_us", "Time of running the model", Micros::default),
            output: family(r, "nv_inference_compute_output_duration_us", "Time of taking outputs", Micros::default),
            pending: family(r, "nv_inference_pending_request_count", "Requests waiting to be run", Gauge::default),
            load_seconds: family(r, "nv_model_load_duration_secs", "Time the last load took", Seconds::default),
            cache_hits: family(r, "nv_cache_num_hits_per_model", "Requests answered from the response cache", counter),
            cache_misses: family(
                r,
                "nv_cache_num_misses_per_model",
                "Requests that the response cache did not have",
                counter,
            ),
            cache_hit_time: family(
                r,
                "nv_cache_hit_duration_per_model",
                "Time of lookups that found an answer, in microseconds",
                Micros::default,
            ),
            cache_miss_time: family(
                r,
                "nv_cache_miss_duration_per_model",
                "Time of lookups without an answer, and of storing the answers, in microseconds",
                Micros::default,
            ),
        }
    }
}

impl Families {
    pub(super) fn register(r: &mut Registry, triton_names: bool) -> Families {
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
            sequences_live: family(
                r,
                "sequor_sequences_live",
                "Live sequences, including those that wait for a slot",
                gauge,
            ),
            sequences_backlogged: family(r, "sequor_sequences_backlogged", "Sequences waiting for a slot", gauge),
            slots: family(r, "sequor_slots", "Slots of all instances", gauge),
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
                "Bytes of the inputs of requests in flight and of bodies that arrive or wait for their turn; limits.queued is the maximum",
            ),
            connections: gauge_alone(r, "sequor_connections", "Open connections of all listeners"),
            connections_closed: connections_closed(r),
            peers: PeerFamilies::register(r),
            store: store_gauges(r),
            shared: shared_metrics(r),
            server: server_gauges(r),
            loads: family(r, "sequor_model_loads_total", "Loads and reloads of a model, by result", counter),
            spans: span_counters(r),
        }
    }

    /// The series of a model version. `tags` are labels that the model's configuration adds.
    pub(super) fn model(&self, name: &str, version: u64, tags: &BTreeMap<String, String>) -> ModelMetrics {
        self.model_series(Series::Shown, (name, version), tags)
    }

    /// Removes the series of one model version under these tags.
    pub(super) fn forget_model(&self, name: &str, version: u64, tags: &BTreeMap<String, String>) {
        drop(self.model_series(Series::Removed, (name, version), tags));
    }

    fn model_series(&self, to: Series, (name, version): (&str, u64), tags: &BTreeMap<String, String>) -> ModelMetrics {
        let own = [label("model", name), label("version", &version.to_string())];
        let tags = tags.iter().map(|(key, value)| (Cow::Owned(key.clone()), value.clone()));
        let labels: Labels = own.into_iter().chain(tags).collect();
        let with = |key: &'static str, value: &str| [labels.clone(), vec![label(key, value)]].concat();
        let t = &self.triton;
        ModelMetrics {
            requests: RequestCounters::new(&self.requests, name),
            success: to.series(&t.success, &labels),
            failure: FailureReason::ALL.map(|r| to.series(&t.failure, &with("reason", r.name()))),
            inferences: to.series(&t.count, &labels),
            executions: to.series(&t.executions, &labels),
            request_time: to.series(&t.request, &labels),
            queue_time: to.series(&t.queue, &labels),
            input_time: to.series(&t.input, &labels),
            infer_time: to.series(&t.infer, &labels),
            output_time: to.series(&t.output, &labels),
            pending: to.series(&t.pending, &labels),
            load_seconds: [&t.load_seconds, &self.load_seconds].map(|f| to.series(f, &labels)),
            phases: RequestPhase::ALL.map(|p| to.series(&self.request_seconds, &with("phase", p.name()))),
            batch_size: to.series(&self.batch_size, &labels),
            steps: StepPath::ALL.map(|p| to.series(&self.steps, &with("path", p.name()))),
            padding_rows: to.series(&self.padding_rows, &labels),
            backlog_wait: to.series(&self.backlog_wait, &labels),
            sequences_started: to.series(&self.sequences_started, &labels),
            sequences_left: EndReason::ALL.map(|why| match why {
                EndReason::Spilled => to.series(&self.sequences_moved, &labels),
                _ => to.series(&self.sequences_ended, &with("reason", ended_reason(why))),
            }),
            sequences_live: to.series(&self.sequences_live, &labels),
            sequences_backlogged: to.series(&self.sequences_backlogged, &labels),
            slots_used: to.series(&self.slots, &with("state", "used")),
            slots_free: to.series(&self.slots, &with("state", "free")),
            state_bytes: to.series(&self.state_bytes, &with("tier", "memory")),
            fail_nanos: Counter::default(),
            last_inference: Gauge::default(),
            batches: Mutex::default(),
            cache: CacheLookups {
                hits: to.series(&t.cache_hits, &labels),
                misses: to.series(&t.cache_misses, &labels),
                hit_time: to.series(&t.cache_hit_time, &labels),
                miss_time: to.series(&t.cache_miss_time, &labels),
                results: ["hit", "miss"].map(|r| to.series(&self.cache_lookups, &with("result", r))),
            },
        }
    }
}

impl KeptFamilies {
    fn register(r: &mut Registry) -> KeptFamilies {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        let lookups = "STARTs that asked for a kept state, by result: `hit` began with a copy, `miss` ran the steps";
        KeptFamilies {
            lookups: family(r, "sequor_kept_states_total", lookups, counter),
            evictions: family(
                r,
                "sequor_kept_states_evicted_total",
                "Kept states evicted to make room for others",
                counter,
            ),
            bytes: family(r, "sequor_kept_states_bytes", "Bytes of states that initializers keep", gauge),
        }
    }
}

impl Families {
    /// The series of the kept states of one model version.
    pub(super) fn kept(&self, name: &str, version: u64) -> KeptMetrics {
        self.kept_series(Series::Shown, name, version)
    }

    /// Removes those series.
    pub(super) fn forget_kept(&self, name: &str, version: u64) {
        drop(self.kept_series(Series::Removed, name, version));
    }

    fn kept_series(&self, to: Series, name: &str, version: u64) -> KeptMetrics {
        let labels: Labels = vec![label("model", name), label("version", &version.to_string())];
        let with = |value: &str| [labels.clone(), vec![label("result", value)]].concat();
        KeptMetrics {
            hits: to.series(&self.kept.lookups, &with("hit")),
            misses: to.series(&self.kept.lookups, &with("miss")),
            evictions: to.series(&self.kept.evictions, &labels),
            bytes: to.series(&self.kept.bytes, &labels),
        }
    }
}

impl PluginFamilies {
    fn register(r: &mut Registry) -> PluginFamilies {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        PluginFamilies {
            calls: family(r, "sequor_plugin_call_seconds", "Time of calls to plug-ins, by hook", Histogram::calls),
            strikes: family(
                r,
                "sequor_plugin_traps_total",
                "Strikes: traps, limits, answers that break a rule",
                counter,
            ),
            fallbacks: family(
                r,
                "sequor_plugin_fallback_total",
                "Rounds that the built-in policy decided instead, and requests that bypassed a processor",
                counter,
            ),
            stale: family(
                r,
                "sequor_plugin_stale_total",
                "Choices dropped because they no longer applied when the plug-in answered",
                counter,
            ),
            passed_over: family(
                r,
                "sequor_plugin_passed_over_total",
                "Rounds without the plug-in, because it took more than `plugins.cpu_share`",
                counter,
            ),
            reloads: family(r, "sequor_plugin_reload_total", "Replacements, accepted or refused", counter),
            memory: family(r, "sequor_plugin_memory_bytes", "Memory of the instance at a model", gauge),
            parked: family(r, "sequor_plugin_parked", "Loads of a model at which a plug-in is parked", gauge),
            waiting: family(
                r,
                "sequor_plugin_model_calls",
                "Calls to other models that a plug-in waits for, at a model",
                gauge,
            ),
            instances: family(
                r,
                "sequor_plugin_instances",
                "Instances of a processor or an initializer at a model, those that are warm included",
                gauge,
            ),
            counters: {
                let counters = Labelled::new_with_constructor(Amount::default as fn() -> Amount);
                let help = "Counters that plug-ins keep themselves";
                r.register("sequor_plugin_counter_total", help, counters.clone());
                counters
            },
        }
    }

    pub(super) fn plugin(&self, name: &str, world: &str, hooks: &[Hook]) -> PluginMetrics {
        self.plugin_series(Series::Shown, (name, world), hooks)
    }

    /// Removes the series of a plug-in.
    pub(super) fn forget(&self, name: &str, world: &str, metrics: &PluginMetrics) {
        let hooks: Vec<Hook> = metrics.calls.iter().map(|(hook, _)| *hook).collect();
        drop(self.plugin_series(Series::Removed, (name, world), &hooks));
        let labels: Labels = vec![label("plugin", name), label("world", world)];
        let made = metrics.made.lock();
        for reason in made.strikes.keys() {
            self.strikes.remove(&with(&labels, "reason", reason));
        }
        for model in &made.models {
            for gauge in [&self.memory, &self.parked, &self.waiting, &self.instances] {
                gauge.remove(&with(&labels, "model", model));
            }
        }
        for counter in made.counters.keys() {
            self.counters.remove(&own_labels(&labels, counter));
        }
    }

    fn plugin_series(&self, to: Series, (name, world): (&str, &str), hooks: &[Hook]) -> PluginMetrics {
        let labels: Labels = vec![label("plugin", name), label("world", world)];
        let (strikes, memory, counters) = (self.strikes.clone(), self.memory.clone(), self.counters.clone());
        let (parked, waiting, instances) = (self.parked.clone(), self.waiting.clone(), self.instances.clone());
        let [a, b, c, d, e, f] = std::array::from_fn(|_| labels.clone());
        PluginMetrics {
            calls: hooks
                .iter()
                .map(|hook| (*hook, to.series(&self.calls, &with(&labels, "hook", hook.name()))))
                .collect(),
            fallbacks: to.series(&self.fallbacks, &labels),
            stale: to.series(&self.stale, &labels),
            passed_over: to.series(&self.passed_over, &labels),
            replaced: to.series(&self.reloads, &with(&labels, "result", "ok")),
            refused: to.series(&self.reloads, &with(&labels, "result", "refused")),
            make: Make {
                strikes: Box::new(move |reason| strikes.get_or_create_owned(&with(&a, "reason", reason))),
                memory: Box::new(move |model| memory.get_or_create_owned(&with(&b, "model", model))),
                parked: Box::new(move |model| parked.get_or_create_owned(&with(&d, "model", model))),
                waiting: Box::new(move |model| waiting.get_or_create_owned(&with(&e, "model", model))),
                instances: Box::new(move |model| instances.get_or_create_owned(&with(&f, "model", model))),
                counter: Box::new(move |counter| counters.get_or_create_owned(&own_labels(&c, counter))),
            },
            made: Mutex::default(),
        }
    }
}

/// These labels and one more.
fn with(labels: &Labels, key: &'static str, value: &str) -> Labels {
    [labels.clone(), vec![label(key, value)]].concat()
}

/// The labels of a plug-in's own counter.
fn own_labels(labels: &Labels, (name, own): &OwnCounter) -> OwnLabels {
    let ours = with(labels, "name", name).into_iter().map(|(key, value)| (key.into_owned(), value));
    ours.chain(own.iter().cloned()).collect()
}

/// Whether to look up a series, or to remove it.
#[derive(Debug, Clone, Copy)]
enum Series {
    Shown,
    Removed,
}

impl Series {
    fn series<M: Clone>(self, family: &Family<M>, labels: &Labels) -> M
    where
        fn() -> M: MetricConstructor<M>,
    {
        let metric = family.get_or_create_owned(labels);
        if matches!(self, Series::Removed) {
            family.remove(labels);
        }
        metric
    }
}
