//! Converts the counters of models to the protocol's messages.

use sequor_proto::{
    InferBatchStatistics, InferStatistics, MemoryUsage, ModelStatistics, ModelStatisticsResponse, StatisticDuration,
};
use serde_json::{Value, json};

use crate::model::VersionStatistics;
use crate::telemetry::Timed;

/// The memory that holds the states.
const HOST: &str = "CPU";

pub(crate) fn response(counted: Vec<VersionStatistics>) -> ModelStatisticsResponse {
    ModelStatisticsResponse { model_stats: counted.into_iter().map(version).collect() }
}

fn version(of: VersionStatistics) -> ModelStatistics {
    let VersionStatistics { model, version, counted, state_bytes } = of;
    let times = InferStatistics {
        success: timed(counted.success),
        fail: timed(counted.fail),
        queue: timed(counted.queue),
        compute_input: timed(counted.compute_input),
        compute_infer: timed(counted.compute_infer),
        compute_output: timed(counted.compute_output),
        cache_hit: timed(counted.cache_hit),
        cache_miss: timed(counted.cache_miss),
    };
    let batch = |(rows, cost): (&u32, &crate::telemetry::BatchCost)| InferBatchStatistics {
        batch_size: u64::from(*rows),
        compute_input: timed(Timed { count: cost.count, nanos: cost.state_in }),
        compute_infer: timed(Timed { count: cost.count, nanos: cost.run }),
        compute_output: timed(Timed { count: cost.count, nanos: cost.state_out }),
    };
    ModelStatistics {
        name: model,
        version: version.to_string(),
        last_inference: counted.last_inference,
        inference_count: counted.inference_count,
        execution_count: counted.execution_count,
        inference_stats: Some(times),
        batch_stats: counted.batches.iter().map(batch).collect(),
        memory_usage: vec![MemoryUsage { r#type: HOST.to_owned(), id: 0, byte_size: state_bytes }],
        response_stats: Default::default(),
    }
}

fn timed(timed: Timed) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: timed.count, ns: timed.nanos })
}

pub(crate) fn json(response: &ModelStatisticsResponse) -> Value {
    json!({ "model_stats": response.model_stats.iter().map(json_of).collect::<Vec<_>>() })
}

fn json_of(of: &ModelStatistics) -> Value {
    let times = of.inference_stats.unwrap_or_default();
    let batch = |b: &InferBatchStatistics| {
        json!({
            "batch_size": b.batch_size,
            "compute_input": span(b.compute_input),
            "compute_infer": span(b.compute_infer),
            "compute_output": span(b.compute_output),
        })
    };
    let memory = |m: &MemoryUsage| json!({ "type": m.r#type, "id": m.id, "byte_size": m.byte_size });
    json!({
        "name": of.name,
        "version": of.version,
        "last_inference": of.last_inference,
        "inference_count": of.inference_count,
        "execution_count": of.execution_count,
        "inference_stats": {
            "success": span(times.success),
            "fail": span(times.fail),
            "queue": span(times.queue),
            "compute_input": span(times.compute_input),
            "compute_infer": span(times.compute_infer),
            "compute_output": span(times.compute_output),
            "cache_hit": span(times.cache_hit),
            "cache_miss": span(times.cache_miss),
        },
        "response_stats": {},
        "batch_stats": of.batch_stats.iter().map(batch).collect::<Vec<_>>(),
        "memory_usage": of.memory_usage.iter().map(memory).collect::<Vec<_>>(),
    })
}

fn span(of: Option<StatisticDuration>) -> Value {
    let StatisticDuration { count, ns } = of.unwrap_or_default();
    json!({ "count": count, "ns": ns })
}
