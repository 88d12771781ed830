//! The resources of an instance: a graph, a device, memory for answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::backend::Graph;
use crate::config::model::place::Auto;
use crate::config::model::settings::Processor;
use crate::device::{Device, Pool};
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::telemetry::GpuMetrics;

/// The resources that one instance runs with.
#[derive(Debug)]
pub(in crate::model) struct Placement {
    pub(in crate::model) graph: Arc<dyn Graph>,
    pub(in crate::model) device: Arc<dyn Device>,
    /// Host memory for answers.
    pub(in crate::model) pool: Pool,
    /// State memory that ended sequences no longer need.
    pub(in crate::model) chunk_cache: ChunkCache,
    /// The budget of state bytes over all models.
    pub(in crate::model) budget: Budget,
    /// The metrics of its GPU, if it runs on one.
    pub(in crate::model) gpu: Option<GpuMetrics>,
}

/// The GPUs that instances run on, by ordinal, for monitoring.
pub(in crate::model) type InUse = BTreeMap<u16, (GpuMetrics, Vec<Weak<dyn Device>>)>;

/// The devices of the instances, for operators. `None` if only the CPU was possible.
pub(in crate::model) fn describe(processors: &[Processor], auto: &Auto) -> Option<String> {
    let mut gpus: Vec<String> = Vec::new();
    for processor in processors {
        if let Processor::Gpu(ordinal) = processor
            && !gpus.contains(&ordinal.to_string())
        {
            gpus.push(ordinal.to_string());
        }
    }
    let cpu = processors.contains(&Processor::Cpu);
    match (gpus.is_empty(), auto) {
        (false, _) => Some(format!("GPU {}{}", gpus.join(" "), if cpu { " and CPU" } else { "" })),
        (true, Auto::Cpu(why)) => Some(format!("CPU: {why}")),
        (true, _) => None,
    }
}
