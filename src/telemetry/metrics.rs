//! The metrics of a server: the one file that names them. A [`Metrics`] belongs to one server; there is none of the process.
//!
//! Names are `sequor_<what>_<unit>`, counters end in `_total`; beside them stand Triton's, under Triton's names and in its units, for the
//! dashboards and autoscalers that read them. Labels are bounded: never an id of a sequence, never a model that is not served.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::{EncodeMetric, text};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family as Labelled, MetricConstructor};
use prometheus_client::registry::Registry;
use sequor_core::Why;

use super::handles::{FailureReason, ModelMetrics, Phase, ended_reason};
use super::kinds::{Amount, Counter, Gauge, Histogram, Level, Micros, Seconds};
use super::plugins::{Hook, Make, PluginMetrics};

/// What a scrape's answer is called.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Family<M> = Labelled<Labels, M, fn() -> M>;

/// Which surface a request came through, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    KserveGrpc,
    KserveHttp,
}

impl Surface {
    pub const fn name(self) -> &'static str {
        match self {
            Surface::KserveGrpc => "kserve_grpc",
            Surface::KserveHttp => "kserve_http",
        }
    }
}

/// All metrics of one server. Cheap to clone; all clones are the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    registry: Registry,
    families: Families,
    in_flight: Gauge,
    queued: Gauge,
    models: Mutex<HashMap<(String, u64), Arc<ModelMetrics>>>,
    plugins: Mutex<HashMap<String, Arc<PluginMetrics>>>,
    /// Requests answered with success; a look-up by `&str`, for it is made for every request.
    succeeded: [RwLock<HashMap<String, Counter>>; 2],
}

#[derive(Debug)]
struct Families {
    triton: Triton,
    request_seconds: Family<Histogram>,
    backlog_wait: Family<Histogram>,
    batch_size: Family<Histogram>,
    requests: Family<Counter>,
    sequences_started: Family<Counter>,
    sequences_ended: Family<Counter>,
    sequences_live: Family<Gauge>,
    sequences_backlogged: Family<Gauge>,
    slots: Family<Gauge>,
    state_bytes: Family<Gauge>,
    gpu_state_bytes: Family<Gauge>,
    load_seconds: Family<Seconds>,
    plugins: Plugins,
}

#[derive(Debug, Clone)]
struct Plugins {
    calls: Family<Histogram>,
    strikes: Family<Counter>,
    fallbacks: Family<Counter>,
    stale: Family<Counter>,
    reloads: Family<Counter>,
    memory: Family<Gauge>,
    counters: Family<Amount>,
}

/// What is set of one GPU that is in use.
#[derive(Debug, Clone)]
pub struct GpuMetrics {
    /// Allocated for states, whether a sequence holds them or not.
    pub state_bytes: Gauge,
    labels: Labels,
    metrics: Metrics,
}

/// What a GPU's gauges say.
#[derive(Debug, Clone, Copy, Default)]
pub struct GpuReading {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// From 0 to 1.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub watts_at_most: Option<f64>,
    pub joules: Option<f64>,
}

impl GpuMetrics {
    /// What is not told is not shown.
    pub fn set(&self, reading: &GpuReading) {
        let triton = &self.metrics.0.families.triton;
        let bytes = |family: &Family<Gauge>, bytes: u64| {
            family.get_or_create_owned(&self.labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
        };
        bytes(&triton.gpu_total, reading.total_bytes);
        bytes(&triton.gpu_used, reading.used_bytes);
        let level = |family: &Family<Level>, level: Option<f64>| {
            if let Some(level) = level {
                family.get_or_create_owned(&self.labels).set(level);
            }
        };
        level(&triton.gpu_utilization, reading.utilization);
        level(&triton.gpu_power, reading.watts);
        level(&triton.gpu_power_limit, reading.watts_at_most);
        level(&triton.gpu_energy, reading.joules);
    }
}

#[derive(Debug)]
struct Triton {
    gpu_total: Family<Gauge>,
    gpu_used: Family<Gauge>,
    gpu_utilization: Family<Level>,
    gpu_power: Family<Level>,
    gpu_power_limit: Family<Level>,
    gpu_energy: Family<Level>,
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
}

impl Metrics {
    /// `triton_names`: whether Triton's metrics are shown beside ours.
    pub fn new(triton_names: bool) -> Metrics {
        let mut registry = Registry::default();
        // Counted in any case, for the statistics are read from the same counters.
        let mut hidden = Registry::default();
        let triton = Triton::register(if triton_names { &mut registry } else { &mut hidden });
        let families = Families::register(&mut registry, triton);
        let in_flight = Gauge::default();
        let help = "Inference requests received and not answered yet";
        registry.register("sequor_requests_in_flight", help, in_flight.clone());
        let queued = Gauge::default();
        let help = "Bytes of the inputs of those requests, of which limits.queued may be held";
        registry.register("sequor_requests_queued_bytes", help, queued.clone());
        let (models, plugins) = (Mutex::default(), Mutex::default());
        let succeeded = [RwLock::default(), RwLock::default()];
        Metrics(Arc::new(Shared { registry, families, in_flight, queued, models, plugins, succeeded }))
    }

    /// What to count one model version with. The same version gives the same counters again, so that they never go back on a reload.
    pub fn model(&self, name: &str, version: u64) -> Arc<ModelMetrics> {
        let mut models = self.0.models.lock();
        let made = || Arc::new(self.0.families.model(name, version));
        Arc::clone(models.entry((name.to_owned(), version)).or_insert_with(made))
    }

    /// What to count one plug-in with. The same name gives the same counters again.
    pub fn plugin(&self, name: &str) -> Arc<PluginMetrics> {
        let mut plugins = self.0.plugins.lock();
        let made = || Arc::new(self.0.families.plugins.plugin(name));
        Arc::clone(plugins.entry(name.to_owned()).or_insert_with(made))
    }

    /// What to set of a GPU that is in use; `uuid` as its maker's tools have it.
    pub fn gpu(&self, uuid: &str) -> GpuMetrics {
        let labels: Labels = vec![("gpu_uuid", uuid.to_owned())];
        let state_bytes = self.0.families.gpu_state_bytes.get_or_create_owned(&labels);
        GpuMetrics { state_bytes, labels, metrics: self.clone() }
    }

    /// A request of a served model was answered with outputs.
    pub fn request_succeeded(&self, model: &str, surface: Surface) {
        let Some(known) = self.0.succeeded.get(surface as usize) else { return };
        if let Some(counter) = known.read().get(model) {
            return counter.add(1);
        }
        let counter = self.0.families.requests.get_or_create_owned(&request_labels(model, surface, "OK", ""));
        counter.add(1);
        known.write().insert(model.to_owned(), counter);
    }

    /// A request was answered with an error. `model` is empty for what is not served, lest clients make up labels.
    pub fn request_failed(&self, model: &str, surface: Surface, code: &str, reason: &str) {
        self.0.families.requests.get_or_create_owned(&request_labels(model, surface, code, reason)).add(1);
    }

    /// Inference requests received and not answered yet.
    pub fn in_flight(&self) -> &Gauge {
        &self.0.in_flight
    }

    /// Bytes of their inputs.
    pub fn queued(&self) -> &Gauge {
        &self.0.queued
    }

    /// Live sequences of all models.
    pub fn live_sequences(&self) -> i64 {
        self.0.models.lock().values().map(|m| m.live_sequences()).sum()
    }

    /// Everything, as a scrape reads it.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // A `String` takes everything that is written to it.
        let _ = text::encode_registry(&mut out, &self.0.registry);
        out
    }
}

fn request_labels(model: &str, surface: Surface, code: &str, reason: &str) -> Labels {
    vec![
        ("model", model.to_owned()),
        ("api", surface.name().to_owned()),
        ("code", code.to_owned()),
        ("reason", reason.to_owned()),
    ]
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

impl Triton {
    fn register(r: &mut Registry) -> Triton {
        let counter = Counter::default;
        let (gauge, level) = (Gauge::default as fn() -> Gauge, Level::default as fn() -> Level);
        Triton {
            gpu_total: family(r, "nv_gpu_memory_total_bytes", "Memory of a GPU in use", gauge),
            gpu_used: family(r, "nv_gpu_memory_used_bytes", "Memory of a GPU that is taken, whoever took it", gauge),
            gpu_utilization: family(r, "nv_gpu_utilization", "How busy a GPU is, from 0 to 1", level),
            gpu_power: family(r, "nv_gpu_power_usage", "Power that a GPU takes, in watts", level),
            gpu_power_limit: family(r, "nv_gpu_power_limit", "Power that a GPU may take, in watts", level),
            gpu_energy: family(
                r,
                "nv_energy_consumption",
                "Energy a GPU took since its driver began, in joules",
                level,
            ),
            success: family(r, "nv_inference_request_success", "Requests answered with outputs", counter),
            failure: family(r, "nv_inference_request_failure", "Queued requests answered with an error", counter),
            count: family(r, "nv_inference_count", "Inferences: rows of requests that were run", counter),
            executions: family(r, "nv_inference_exec_count", "Batches that were run", counter),
            request: family(r, "nv_inference_request_duration_us", "Time of requests, all in all", Micros::default),
            queue: family(r, "nv_inference_queue_duration_us", "Time of requests in queues", Micros::default),
            input: family(r, "nv_inference_compute_input_duration_us", "Time of staging inputs", Micros::default),
            infer: family(r, "nv_inference_compute_infer_duration_us", "Time of running the model", Micros::default),
            output: family(r, "nv_inference_compute_output_duration_us", "Time of taking outputs", Micros::default),
            pending: family(r, "nv_inference_pending_request_count", "Requests waiting to be run", Gauge::default),
            load_seconds: family(r, "nv_model_load_duration_secs", "Time the last load took", Seconds::default),
        }
    }
}

impl Families {
    fn register(r: &mut Registry, triton: Triton) -> Families {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        let seconds = Histogram::seconds;
        Families {
            triton,
            request_seconds: family(r, "sequor_request_seconds", "Where the time of requests goes, by phase", seconds),
            backlog_wait: family(r, "sequor_backlog_wait_seconds", "How long sequences waited for a slot", seconds),
            batch_size: family(r, "sequor_batch_size", "Rows of the batches that were run", Histogram::counts),
            requests: family(r, "sequor_requests_total", "Requests answered, refused ones included", counter),
            sequences_started: family(r, "sequor_sequences_started_total", "Sequences that have begun", counter),
            sequences_ended: family(r, "sequor_sequences_ended_total", "Sequences that are over, and why", counter),
            sequences_live: family(r, "sequor_sequences_live", "Sequences that live, backlogged ones too", gauge),
            sequences_backlogged: family(r, "sequor_sequences_backlogged", "Sequences waiting for a slot", gauge),
            slots: family(r, "sequor_slots", "Slots of all instances", gauge),
            state_bytes: family(r, "sequor_state_bytes", "Bytes of state that sequences hold", gauge),
            gpu_state_bytes: family(r, "sequor_gpu_state_bytes", "Bytes of a GPU that are set aside for states", gauge),
            load_seconds: family(r, "sequor_model_load_seconds", "How long the last load took", Seconds::default),
            plugins: Plugins::register(r),
        }
    }

    fn model(&self, name: &str, version: u64) -> ModelMetrics {
        let labels: Labels = vec![("model", name.to_owned()), ("version", version.to_string())];
        let with = |key: &'static str, value: &str| [labels.clone(), vec![(key, value.to_owned())]].concat();
        let t = &self.triton;
        ModelMetrics {
            success: t.success.get_or_create_owned(&labels),
            failure: FailureReason::ALL.map(|r| t.failure.get_or_create_owned(&with("reason", r.name()))),
            inferences: t.count.get_or_create_owned(&labels),
            executions: t.executions.get_or_create_owned(&labels),
            request_time: t.request.get_or_create_owned(&labels),
            queue_time: t.queue.get_or_create_owned(&labels),
            input_time: t.input.get_or_create_owned(&labels),
            infer_time: t.infer.get_or_create_owned(&labels),
            output_time: t.output.get_or_create_owned(&labels),
            pending: t.pending.get_or_create_owned(&labels),
            load_seconds: [&t.load_seconds, &self.load_seconds].map(|f| f.get_or_create_owned(&labels)),
            phases: Phase::ALL.map(|p| self.request_seconds.get_or_create_owned(&with("phase", p.name()))),
            batch_size: self.batch_size.get_or_create_owned(&labels),
            backlog_wait: self.backlog_wait.get_or_create_owned(&labels),
            sequences_started: self.sequences_started.get_or_create_owned(&labels),
            sequences_ended: Why::ALL
                .map(|w| self.sequences_ended.get_or_create_owned(&with("reason", ended_reason(w)))),
            sequences_live: self.sequences_live.get_or_create_owned(&labels),
            sequences_backlogged: self.sequences_backlogged.get_or_create_owned(&labels),
            slots_used: self.slots.get_or_create_owned(&with("state", "used")),
            slots_free: self.slots.get_or_create_owned(&with("state", "free")),
            state_bytes: self.state_bytes.get_or_create_owned(&with("tier", "memory")),
            fail_nanos: Counter::default(),
            last_inference: Gauge::default(),
            batches: Mutex::default(),
        }
    }
}

impl Plugins {
    fn register(r: &mut Registry) -> Plugins {
        let (counter, gauge) = (Counter::default as fn() -> Counter, Gauge::default as fn() -> Gauge);
        Plugins {
            calls: family(r, "sequor_plugin_call_seconds", "Time of calls to plug-ins, by hook", Histogram::calls),
            strikes: family(
                r,
                "sequor_plugin_traps_total",
                "Strikes: traps, limits, answers that break a rule",
                counter,
            ),
            fallbacks: family(r, "sequor_plugin_fallback_total", "Rounds the built-in policy took instead", counter),
            stale: family(r, "sequor_plugin_stale_total", "Picks that no longer stood when they came", counter),
            reloads: family(r, "sequor_plugin_reload_total", "Versions that took, or were refused, a place", counter),
            memory: family(r, "sequor_plugin_memory_bytes", "Memory of the instance at a model", gauge),
            counters: family(r, "sequor_plugin_counter_total", "Counters of plug-ins' own", Amount::default),
        }
    }

    fn plugin(&self, name: &str) -> PluginMetrics {
        let labels: Labels = vec![("plugin", name.to_owned())];
        let with = move |labels: &Labels, key: &'static str, value: &str| {
            [labels.clone(), vec![(key, value.to_owned())]].concat()
        };
        let (strikes, memory, counters) = (self.strikes.clone(), self.memory.clone(), self.counters.clone());
        let (a, b, c) = (labels.clone(), labels.clone(), labels.clone());
        PluginMetrics {
            calls: Hook::ALL.map(|hook| self.calls.get_or_create_owned(&with(&labels, "hook", hook.name()))),
            fallbacks: self.fallbacks.get_or_create_owned(&labels),
            stale: self.stale.get_or_create_owned(&labels),
            replaced: self.reloads.get_or_create_owned(&with(&labels, "result", "ok")),
            refused: self.reloads.get_or_create_owned(&with(&labels, "result", "refused")),
            make: Make {
                strikes: Box::new(move |reason| strikes.get_or_create_owned(&with(&a, "reason", reason))),
                memory: Box::new(move |model| memory.get_or_create_owned(&with(&b, "model", model))),
                counter: Box::new(move |name| counters.get_or_create_owned(&with(&c, "name", name))),
            },
            made: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::BatchTimes;

    /// Every series, less its value.
    fn series(text: &str) -> String {
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|l| !l.starts_with("# HELP") && (!l.contains("_bucket{") || l.contains("le=\"+Inf\"")))
            .map(|l| if l.starts_with('#') { l } else { l.rsplit_once(' ').map_or(l, |(name, _)| name) })
            .collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    fn value(metrics: &Metrics, series: &str) -> String {
        let text = metrics.encode();
        let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or("absent").to_owned()
    }

    #[test]
    fn the_names_are_these() {
        let metrics = Metrics::new(true);
        metrics.model("vad", 1);
        let plugin = metrics.plugin("edf");
        plugin.struck("trap");
        plugin.count("served", 0.5);
        plugin.memory_at("vad").set(7);
        metrics.request_succeeded("vad", Surface::KserveGrpc);
        metrics.request_failed("", Surface::KserveHttp, "NOT_FOUND", "not_served");
        let some = Some(0.5);
        let reading =
            GpuReading { utilization: some, watts: some, watts_at_most: some, joules: some, ..GpuReading::default() };
        metrics.gpu("GPU-1").set(&reading);
        insta::assert_snapshot!(series(&metrics.encode()));
    }

    #[test]
    fn without_tritons_names_there_are_only_ours() {
        let metrics = Metrics::new(false);
        metrics.model("vad", 1).succeeded(Duration::ZERO, Duration::from_millis(1));
        assert!(!metrics.encode().contains("nv_"));
        assert_eq!(metrics.model("vad", 1).statistics().success.count, 1);
    }

    #[test]
    fn a_batch_counts_for_each_of_its_requests() {
        let metrics = Metrics::new(true);
        let model = metrics.model("vad", 1);
        let us = Duration::from_micros;
        model.executed(&BatchTimes {
            requests: 3,
            rows: 3,
            executed: 4,
            state_in: us(1),
            run: us(20),
            state_out: us(2),
        });
        model.succeeded(us(5), us(40));
        model.failed(FailureReason::Backend, us(9));
        let labels = "{model=\"vad\",version=\"1\"}";
        assert_eq!(value(&metrics, &format!("nv_inference_count{labels}")), "3");
        assert_eq!(value(&metrics, &format!("nv_inference_exec_count{labels}")), "1");
        assert_eq!(value(&metrics, &format!("nv_inference_compute_infer_duration_us{labels}")), "60");
        assert_eq!(value(&metrics, &format!("nv_inference_request_duration_us{labels}")), "40");
        let failure = "nv_inference_request_failure{model=\"vad\",version=\"1\",reason=\"BACKEND\"}";
        assert_eq!(value(&metrics, failure), "1");
        assert_eq!(value(&metrics, "sequor_batch_size_sum{model=\"vad\",version=\"1\"}"), "3.0");
        let statistics = model.statistics();
        assert_eq!((statistics.fail.count, statistics.fail.nanos), (1, 9000));
        assert_eq!(statistics.batches.get(&4).map(|cost| cost.run), Some(20_000));
    }

    #[test]
    fn a_version_loaded_again_counts_on() {
        let metrics = Metrics::new(true);
        metrics.model("vad", 1).sequence_started();
        metrics.model("vad", 1).sequence_ended(Why::Idle);
        assert_eq!(value(&metrics, "sequor_sequences_live{model=\"vad\",version=\"1\"}"), "0");
        let ended = "sequor_sequences_ended_total{model=\"vad\",version=\"1\",reason=\"expired\"}";
        assert_eq!(value(&metrics, ended), "1");
    }

    #[test]
    fn requests_are_counted_by_surface_and_code() {
        let metrics = Metrics::new(true);
        metrics.request_succeeded("vad", Surface::KserveGrpc);
        metrics.request_succeeded("vad", Surface::KserveGrpc);
        metrics.request_failed("vad", Surface::KserveGrpc, "INVALID_ARGUMENT", "expired");
        let of = |code, reason| {
            format!("sequor_requests_total{{model=\"vad\",api=\"kserve_grpc\",code=\"{code}\",reason=\"{reason}\"}}")
        };
        assert_eq!(value(&metrics, &of("OK", "")), "2");
        assert_eq!(value(&metrics, &of("INVALID_ARGUMENT", "expired")), "1");
    }
}
