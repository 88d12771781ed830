//! Triton's metrics, with Triton's names and units, for existing dashboards and autoscalers.

use prometheus_client::registry::Registry;

use crate::telemetry::kinds::{Counter, FloatGauge, Gauge, Micros, Seconds};
use crate::telemetry::labels::Family;

use super::series::family;

#[derive(Debug)]
pub(in crate::telemetry) struct Triton {
    pub(in crate::telemetry) gpu_total: Family<Gauge>,
    pub(in crate::telemetry) gpu_used: Family<Gauge>,
    pub(in crate::telemetry) gpu_utilization: Family<FloatGauge>,
    pub(in crate::telemetry) gpu_power: Family<FloatGauge>,
    pub(in crate::telemetry) gpu_power_limit: Family<FloatGauge>,
    pub(in crate::telemetry) gpu_energy: Family<FloatGauge>,
    pub(super) success: Family<Counter>,
    pub(super) failure: Family<Counter>,
    pub(super) count: Family<Counter>,
    pub(super) executions: Family<Counter>,
    pub(super) request: Family<Micros>,
    pub(super) queue: Family<Micros>,
    pub(super) input: Family<Micros>,
    pub(super) infer: Family<Micros>,
    pub(super) output: Family<Micros>,
    pub(super) pending: Family<Gauge>,
    pub(super) load_seconds: Family<Seconds>,
    pub(super) cache_hits: Family<Counter>,
    pub(super) cache_misses: Family<Counter>,
    pub(super) cache_hit_time: Family<Micros>,
    pub(super) cache_miss_time: Family<Micros>,
}

impl Triton {
    pub(super) fn register(r: &mut Registry) -> Triton {
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
