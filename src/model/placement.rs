//! Where an instance runs and with what: a graph, a device, memory for answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::backend::Graph;
use crate::config::model::place::Auto;
use crate::config::model::settings::Processor;
use crate::device::{Device, Pool};
use crate::state::ChunkCache;
use crate::state::budget::Budget;
use crate::telemetry::GpuMetrics;

/// An instance's place and means.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) graph: Arc<dyn Graph>,
    pub(super) device: Arc<dyn Device>,
    /// Memory for answers, of the host.
    pub(super) pool: Pool,
    /// Memory for states that ended sequences no longer need.
    pub(super) chunk_cache: ChunkCache,
    /// Bytes of state over all models.
    pub(super) budget: Budget,
    /// Of the GPU, if it is one.
    pub(super) gpu: Option<GpuMetrics>,
}

/// The GPUs that instances run on, by ordinal, to be looked at.
pub(super) type InUse = BTreeMap<u16, (GpuMetrics, Vec<Weak<dyn Device>>)>;

/// Where instances run, as operators read it; `None` where nothing else could be.
pub(super) fn told(processors: &[Processor], auto: &Auto) -> Option<String> {
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
