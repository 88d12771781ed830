//! The metrics of a server. A [`Metrics`] belongs to one server; there are none of the process. The names are in `names`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use sequor_core::Time;

use super::cached::CacheUsage;
use super::config_reloads::ReloadMetrics;
use super::connection_closed::ConnectionClosed;
use super::gpu::GpuMetrics;
use super::handles::ModelMetrics;
use super::kept::KeptMetrics;
use super::kinds::Gauge;
use super::labels::{Labels, label};
use super::names::Families;
use super::peer_limit::PeerLimit;
use super::plugin_room::RoomFigures;
use super::plugins::{Hook, PluginMetrics};
use super::request_counters::{RefusedByModel, RequestCounters};
use super::spans::SpanCounters;
use super::store::SharedFigures;
use super::tls_failures::{TlsFailure, TlsListener};

/// How long unused series are still shown. A scrape then sees their last values, and a version that is loaded again continues its counts.
const SHOWN_UNUSED: Duration = Duration::from_secs(300);

/// The content type of a scrape's answer.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of one server. Cheap to clone; all clones are the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<MetricsState>);

#[derive(Debug)]
struct MetricsState {
    registry: Registry,
    families: Arc<Families>,
    models: Mutex<HashMap<(String, u64), Vec<Tagged>>>,
    plugins: Mutex<HashMap<(String, &'static str), ShownSeries<PluginMetrics>>>,
    unserved: RequestCounters,
}

/// The counters of one model version under the tags of one configuration, and those tags.
type Tagged = (BTreeMap<String, String>, ShownSeries<ModelMetrics>);

/// Counters whose series are shown.
#[derive(Debug)]
struct ShownSeries<M> {
    metrics: Arc<M>,
    /// The time since which no load or plug-in has used the counters.
    unused: Option<Time>,
}

impl<M> ShownSeries<M> {
    fn new(metrics: M) -> ShownSeries<M> {
        ShownSeries { metrics: Arc::new(metrics), unused: None }
    }

    /// Whether the series are still shown. Call it under the lock under which the counters are handed out.
    fn stays(&mut self, now: Time) -> bool {
        if Arc::strong_count(&self.metrics) > 1 {
            self.unused = None;
            return true;
        }
        now < *self.unused.get_or_insert(now) + SHOWN_UNUSED
    }
}

impl Metrics {
    /// `triton_names`: whether Triton's metrics are shown beside ours.
    pub fn new(triton_names: bool) -> Metrics {
        let mut registry = Registry::default();
        let families = Arc::new(Families::register(&mut registry, triton_names));
        let (models, plugins) = (Mutex::default(), Mutex::default());
        let unserved = RequestCounters::new(&families.requests, "");
        Metrics(Arc::new(MetricsState { registry, families, models, plugins, unserved }))
    }

    /// The counters of one model version. The same version gets the same counters again, so that no counter decreases at a reload.
    pub fn model(&self, name: &str, version: u64) -> Arc<ModelMetrics> {
        let mut models = self.0.models.lock();
        let known = models.entry((name.to_owned(), version)).or_default();
        if let Some((_, shown)) = known.last() {
            return Arc::clone(&shown.metrics);
        }
        let shown = ShownSeries::new(self.0.families.model(name, version, &BTreeMap::new()));
        let metrics = Arc::clone(&shown.metrics);
        known.push((BTreeMap::new(), shown));
        metrics
    }

    /// The same, with the model's own labels. Other labels make other series, which begin at 0.
    pub fn tagged_model(&self, name: &str, version: u64, tags: &BTreeMap<String, String>) -> Arc<ModelMetrics> {
        let mut models = self.0.models.lock();
        let known = models.entry((name.to_owned(), version)).or_default();
        let there = known.iter().position(|(of, _)| of == tags).map(|at| known.remove(at));
        let made = || (tags.clone(), ShownSeries::new(self.0.families.model(name, version, tags)));
        let (of, shown) = there.unwrap_or_else(made);
        let metrics = Arc::clone(&shown.metrics);
        // The last entry is the one in use.
        known.push((of, shown));
        metrics
    }

    /// The counters of one scheduler. The same name gets the same counters again.
    pub fn plugin(&self, name: &str) -> Arc<PluginMetrics> {
        self.plugin_with(name, "scheduler", &Hook::SCHEDULER)
    }

    /// The same for a processor.
    pub fn processor(&self, name: &str) -> Arc<PluginMetrics> {
        self.plugin_with(name, "processor", &Hook::PROCESSOR)
    }

    /// The same for an initializer.
    pub fn initializer(&self, name: &str) -> Arc<PluginMetrics> {
        self.plugin_with(name, "state-initializer", &Hook::INITIALIZER)
    }

    /// The counters of the kept states of one model version. The same version gets the same counters again.
    pub fn kept(&self, name: &str, version: u64) -> KeptMetrics {
        self.0.families.kept.model(name, version)
    }

    /// The gauge of the response cache's size.
    pub fn cache(&self) -> CacheUsage {
        self.0.families.cache.clone()
    }

    fn plugin_with(&self, name: &str, world: &'static str, hooks: &[Hook]) -> Arc<PluginMetrics> {
        let mut plugins = self.0.plugins.lock();
        let made = || ShownSeries::new(self.0.families.plugins.plugin(name, world, hooks));
        Arc::clone(&plugins.entry((name.to_owned(), world)).or_insert_with(made).metrics)
    }

    /// Removes the series of model versions and plug-ins that were not in use for some minutes: all loads of the version are gone, or the
    /// plug-in is unloaded. Series in use are never removed, so that no counter decreases.
    pub fn forget_unused(&self, now: Time) {
        let families = &self.0.families;
        self.0.models.lock().retain(|(name, version), known| {
            known.retain_mut(|(tags, shown)| {
                let stays = shown.stays(now);
                if !stays {
                    families.forget_model(name, *version, tags);
                }
                stays
            });
            if known.is_empty() {
                families.kept.forget(name, *version);
            }
            !known.is_empty()
        });
        self.0.plugins.lock().retain(|(name, world), shown| {
            let stays = shown.stays(now);
            if !stays {
                families.plugins.forget(name, world, &shown.metrics);
            }
            stays
        });
    }

    /// The gauges of a GPU in use. `uuid` is the identifier that the vendor's tools print.
    pub fn gpu(&self, uuid: &str) -> GpuMetrics {
        let labels: Labels = vec![label("gpu_uuid", uuid)];
        let state_bytes = self.0.families.gpu_state_bytes.get_or_create_owned(&labels);
        GpuMetrics { state_bytes, labels, families: Arc::clone(&self.0.families) }
    }

    /// The counts of requests to models that are not served. Those of a served model are in its [`ModelMetrics`].
    pub fn unserved(&self) -> &RequestCounters {
        &self.0.unserved
    }

    /// Requests that were answered with an error since the server started.
    pub fn refused(&self) -> RefusedByModel {
        self.0.families.requests.refused()
    }

    /// Inference requests received and not answered yet.
    pub fn in_flight(&self) -> &Gauge {
        &self.0.families.in_flight
    }

    /// The total size of their inputs in bytes.
    pub fn queued(&self) -> &Gauge {
        &self.0.families.queued
    }

    /// Open connections.
    pub fn connections(&self) -> &Gauge {
        &self.0.families.connections
    }

    /// Counts a connection that the server closed.
    pub fn connection_closed(&self, reason: ConnectionClosed) {
        if let Some(counter) = self.0.families.connections_closed.get(reason as usize) {
            counter.add(1);
        }
    }

    /// Counts a TLS handshake that failed.
    pub fn tls_failed(&self, listener: TlsListener, reason: TlsFailure) {
        let of_listener = self.0.families.tls_failures.get(listener as usize);
        if let Some(counter) = of_listener.and_then(|reasons| reasons.get(reason as usize)) {
            counter.add(1);
        }
    }

    /// The counters of exported and lost spans.
    pub fn spans(&self) -> SpanCounters {
        self.0.families.spans.clone()
    }

    /// The counters of reloads of the configuration.
    pub fn config(&self) -> ReloadMetrics {
        self.0.families.reloads.clone()
    }

    /// Counts a load or reload of a model that has ended.
    pub fn model_loaded(&self, model: &str, is_ok: bool) {
        // The first load creates both series, so that a later failure increases an existing counter.
        for (result, counts) in [("ok", is_ok), ("failed", !is_ok)] {
            let labels = vec![label("model", model), label("result", result)];
            self.0.families.loads.get_or_create_owned(&labels).add(u64::from(counts));
        }
    }

    /// Sets the gauges of the server's readiness and limits. Without a limit of states, `state_limit` is `None`.
    pub fn set_server(&self, ready: bool, state_limit: Option<u64>, queued_limit: u64) {
        self.0.families.server.set(ready, state_limit, queued_limit);
    }

    /// Sets the gauge of answers that clients have not taken.
    pub fn set_answers(&self, bytes: u64) {
        self.0.families.answers.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the gauges of the store of sequences.
    pub fn set_store(&self, sequences: usize, bytes: u64, limit: u64, free: Option<u64>) {
        self.0.families.store.set(sequences, bytes, limit, free);
    }

    /// Sets the metrics of a store that several servers share.
    pub fn set_shared(&self, figures: SharedFigures) {
        self.0.families.shared.set(figures);
    }

    /// Sets the metrics of the room for plug-in instances.
    pub fn set_plugin_room(&self, figures: RoomFigures) {
        self.0.families.plugin_room.set(figures);
    }

    /// Sets the number of known clients and the largest holding of a single client, in the order of [`PeerLimit::ALL`].
    pub fn set_peers(&self, count: usize, most: [u64; 3]) {
        let peers = &self.0.families.peers;
        peers.count.set(i64::try_from(count).unwrap_or(i64::MAX));
        for (gauge, most) in peers.most.iter().zip(most) {
            gauge.set(i64::try_from(most).unwrap_or(i64::MAX));
        }
    }

    /// Counts a request that was refused because its client is at a limit of one client.
    pub fn peer_refused(&self, limit: PeerLimit) {
        if let Some(counter) = self.0.families.peers.refused.get(limit as usize) {
            counter.add(1);
        }
    }

    /// Live sequences of all models.
    pub fn live_sequences(&self) -> i64 {
        self.0.models.lock().values().flatten().map(|(_, shown)| shown.metrics.live_sequences()).sum()
    }

    /// All metrics, in the format of a scrape.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a `String` cannot fail.
        let _ = text::encode_registry(&mut out, &self.0.registry);
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sequor_core::EndReason;

    use super::*;
    use crate::telemetry::{BatchTimes, FailureReason, GpuReading, Surface};

    /// All series, without their values.
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
    fn the_metric_names_match_their_snapshot() {
        let metrics = Metrics::new(true);
        metrics.model("vad", 1);
        let plugin = metrics.plugin("edf");
        plugin.add_strike("trap");
        plugin.count("served", &[], 0.5);
        plugin.count("shed", &[("tenant".to_owned(), "gold".to_owned())], 1.0);
        plugin.memory_at("vad").set(7);
        plugin.parked_at("vad").set(0);
        let processor = metrics.processor("pcm-window");
        processor.add_strike("trap");
        processor.count("windows", &[], 1.0);
        processor.parked_at("vad").set(1);
        let initializer = metrics.initializer("tenant-state");
        initializer.add_strike("time");
        initializer.count("unknown", &[], 1.0);
        metrics.model("vad", 1).requests.succeeded(Surface::KserveGrpc);
        metrics.unserved().failed(Surface::KserveHttp, "NOT_FOUND", "not_served");
        metrics.model_loaded("vad", true);
        metrics.model_loaded("vad", false);
        let some = Some(0.5);
        let reading =
            GpuReading { utilization: some, watts: some, watts_at_most: some, joules: some, ..GpuReading::default() };
        metrics.gpu("GPU-1").set(&reading);
        insta::assert_snapshot!(series(&metrics.encode()));
    }

    #[test]
    fn triton_metric_names_are_absent_if_disabled() {
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
            ..BatchTimes::default()
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
        assert_eq!(value(&metrics, "sequor_batch_padding_rows_total{model=\"vad\",version=\"1\"}"), "1");
        let statistics = model.statistics();
        assert_eq!((statistics.fail.count, statistics.fail.nanos), (1, 9000));
        assert_eq!(statistics.batches.get(&4).map(|cost| cost.run), Some(20_000));
    }

    #[test]
    fn a_version_loaded_again_counts_on() {
        let metrics = Metrics::new(true);
        metrics.model("vad", 1).sequence_started();
        metrics.model("vad", 1).sequence_left(EndReason::Idle);
        assert_eq!(value(&metrics, "sequor_sequences_live{model=\"vad\",version=\"1\"}"), "0");
        let ended = "sequor_sequences_ended_total{model=\"vad\",version=\"1\",reason=\"expired\"}";
        assert_eq!(value(&metrics, ended), "1");
    }

    #[test]
    fn a_sequence_that_moves_to_the_store_does_not_count_as_ended() {
        let metrics = Metrics::new(false);
        let model = metrics.model("vad", 1);
        model.sequence_started();
        model.sequence_left(EndReason::Spilled);
        let labels = "{model=\"vad\",version=\"1\"}";
        assert_eq!(value(&metrics, &format!("sequor_sequences_moved_total{labels}")), "1");
        assert_eq!(value(&metrics, &format!("sequor_sequences_live{labels}")), "0");
        assert_eq!(model.sequences_ended().map(|(_, n)| n).sum::<u64>(), 0);
        model.sequence_started();
        model.sequence_left(EndReason::RolledBack);
        assert_eq!(value(&metrics, &format!("sequor_sequences_rolled_back_total{labels}")), "1");
        assert_eq!(model.sequences_ended().map(|(_, n)| n).sum::<u64>(), 0);
        let text = metrics.encode();
        assert!(!text.contains("spilled") && !text.contains("reason=\"rolled_back\""), "{text}");
    }

    #[test]
    fn metric_series_are_removed_five_minutes_after_their_last_use() {
        let metrics = Metrics::new(true);
        let at = |seconds: u64| Time::ZERO + Duration::from_secs(seconds);
        let before = metrics.encode();
        let (first, second) = (metrics.model("vad", 1), metrics.model("vad", 2));
        let team = BTreeMap::from([("team".to_owned(), "speech".to_owned())]);
        let tagged = metrics.tagged_model("vad", 2, &team);
        metrics.kept("vad", 1).missed();
        let plugin = metrics.plugin("edf");
        plugin.add_strike("trap");
        plugin.memory_at("vad").set(7);
        plugin.instances_at("vad").set(1);
        plugin.count("shed", &[("tenant".to_owned(), "gold".to_owned())], 1.0);
        first.sequence_started();
        second.sequence_started();
        metrics.forget_unused(at(1000));
        drop((first, tagged, plugin));
        metrics.forget_unused(at(1001));
        let started = |version| {
            value(&metrics, &format!("sequor_sequences_started_total{{model=\"vad\",version=\"{version}\"}}"))
        };
        let shown = || metrics.encode();
        assert_eq!(started(1), "1", "a last scrape sees it");
        metrics.forget_unused(at(1300));
        assert_eq!(started(1), "1");
        // The version is loaded again. Its counts continue, and after its next unload the time starts again.
        metrics.model("vad", 1).sequence_started();
        let again = metrics.model("vad", 1);
        metrics.forget_unused(at(1400));
        assert_eq!((started(1), started(2)), ("2".to_owned(), "1".to_owned()));
        assert!(!shown().contains("team=\"speech\"") && !shown().contains("edf"), "{}", shown());
        drop(again);
        metrics.forget_unused(at(1500));
        assert_eq!(started(1), "2");
        metrics.forget_unused(at(1800));
        assert_eq!((started(1), started(2)), ("absent".to_owned(), "1".to_owned()));
        drop(second);
        metrics.forget_unused(at(1900));
        metrics.forget_unused(at(2200));
        assert_eq!(shown(), before, "nothing is left");
        assert_eq!(metrics.model("vad", 1).statistics().success.count, 0);
        assert_eq!(started(1), "0");
    }

    #[test]
    fn tags_of_a_model_are_labels_of_its_metrics() {
        let metrics = Metrics::new(true);
        let tags = BTreeMap::from([("team".to_owned(), "speech".to_owned())]);
        metrics.tagged_model("vad", 1, &tags).sequence_started();
        let live = "sequor_sequences_live{model=\"vad\",version=\"1\",team=\"speech\"}";
        assert_eq!((value(&metrics, live), metrics.live_sequences()), ("1".to_owned(), 1));
        metrics.model("vad", 1).sequence_started();
        assert_eq!(value(&metrics, live), "2", "by its name alone it is the same");
        metrics.tagged_model("vad", 1, &BTreeMap::new()).sequence_started();
        metrics.tagged_model("vad", 1, &tags).sequence_started();
        assert_eq!((value(&metrics, live), metrics.live_sequences()), ("3".to_owned(), 4));
    }

    #[test]
    fn requests_are_counted_by_surface_and_code() {
        let metrics = Metrics::new(true);
        let (first, second) = (metrics.model("vad", 1), metrics.model("vad", 2));
        first.requests.succeeded(Surface::KserveGrpc);
        second.requests.succeeded(Surface::KserveGrpc);
        first.requests.failed(Surface::KserveGrpc, "INVALID_ARGUMENT", "expired");
        let of = |code, reason| {
            format!("sequor_requests_total{{model=\"vad\",api=\"kserve_grpc\",code=\"{code}\",reason=\"{reason}\"}}")
        };
        assert_eq!(value(&metrics, &of("OK", "")), "2");
        assert_eq!(value(&metrics, &of("INVALID_ARGUMENT", "expired")), "1");
    }
}
