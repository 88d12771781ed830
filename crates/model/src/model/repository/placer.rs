//! Assigns devices to the instances of a model. If an instance needs a GPU that is not usable, the load is refused with a list of
//! everything that is missing.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::no_graph::NoGraph;
use crate::backend::{Graph, LoadOptions};
use crate::config::fault::code;
use crate::config::model::Draft;
use crate::config::model::cpu_only::CPU_ONLY;
use crate::config::model::place::{Auto, Gpus};
use crate::config::model::settings::Processor;
use crate::config::place::Place;
use crate::device::{Device, Host, Pool};
use crate::error::LoadError;
use crate::model::execute::{Placement, placement};
use crate::telemetry::{GpuMetrics, GpuReading};

use super::resources::Resources;

/// Why an instance of this file has no graph. A file that can be read is wrong in itself, or its GPU is.
fn unplaced(file: &Path, processor: Processor, what: String) -> LoadError {
    if fs_err::File::open(file).is_err() {
        return LoadError::File { path: file.to_owned(), what };
    }
    let code = match processor {
        Processor::Cpu => code::GRAPH,
        Processor::Gpu(_) => code::RUNTIME,
    };
    LoadError::Config { at: Place::UNKNOWN.at(file), code, what }
}

/// Finds a device and a graph for every instance.
#[derive(Debug)]
pub(super) struct Placer {
    resources: Arc<Resources>,
    /// The GPUs that instances run on.
    in_use: Mutex<placement::InUse>,
}

impl Placer {
    pub(super) fn new(resources: &Arc<Resources>) -> Placer {
        Placer { resources: Arc::clone(resources), in_use: Mutex::default() }
    }

    /// Updates the gauges of the GPUs in use.
    pub(super) fn observe(&self) {
        for (gpu, devices) in self.in_use.lock().values_mut() {
            devices.retain(|device| device.strong_count() > 0);
            let reading = devices.iter().find_map(|device| device.upgrade()?.reading()).unwrap_or_default();
            gpu.set(&GpuReading {
                total_bytes: reading.total_bytes,
                used_bytes: reading.total_bytes.saturating_sub(reading.free_bytes),
                utilization: reading.utilization,
                watts: reading.watts,
                watts_at_most: reading.watts_at_most,
                joules: reading.joules,
            });
        }
    }

    /// Records that an instance runs on this GPU.
    fn note(&self, ordinal: u16, device: &Arc<dyn Device>) -> Result<GpuMetrics, String> {
        let there = self.resources.options.accelerators.usable().map_err(|e| e.0)?;
        let uuid = there.into_iter().find(|gpu| gpu.ordinal == ordinal).map(|gpu| gpu.uuid).unwrap_or_default();
        let mut in_use = self.in_use.lock();
        let (gpu, devices) = in_use.entry(ordinal).or_insert_with(|| (self.resources.metrics.gpu(&uuid), Vec::new()));
        devices.push(Arc::downgrade(device));
        Ok(gpu.clone())
    }

    /// Assigns GPUs to the model's instances, as far as it asks for any.
    pub(in crate::model) fn place(&self, draft: &mut Draft) -> Result<Auto, Vec<LoadError>> {
        let gpus = match draft.may_use_gpus() {
            true if self.resources.options.config.cpu_only => Err(CPU_ONLY.to_owned()),
            true => self.gpus(draft.needs_gpus()),
            false => Err(String::new()),
        };
        let auto = draft.place(&gpus).map_err(|faults| faults.into_iter().map(LoadError::from).collect::<Vec<_>>())?;
        // If the runtime's GPU files are not installed, no GPU is expected.
        let expected = self.resources.backend.is_for_accelerators().is_ok();
        Ok(if expected { auto } else { Auto::NotAsked })
    }

    /// The usable GPUs. Unless one is `needed`, the driver is queried only if the backend's files for GPUs are installed.
    fn gpus(&self, needed: bool) -> Gpus {
        let backend = &self.resources.backend;
        let installed = backend.is_for_accelerators().map_err(|e| e.0);
        if !needed {
            installed.clone()?;
        }
        let there = match (self.resources.options.accelerators.usable().map_err(|e| e.0), installed) {
            (Ok(there), Ok(())) => there,
            (Err(one), Err(other)) => return Err(format!("{one}; {other}")),
            (Err(why), Ok(())) | (Ok(_), Err(why)) => return Err(why),
        };
        let there: Vec<u16> = there.iter().map(|gpu| gpu.ordinal).collect();
        if let Some(first) = there.first() {
            backend.try_accelerator(*first).map_err(|e| e.0)?;
        }
        Ok(there)
    }

    /// A placement for each instance. On the CPU all instances share one graph. On GPUs each has its own graph and its own order of work.
    pub(super) fn placements(
        &self,
        file: &Path,
        processors: &[Processor],
        options: &LoadOptions,
    ) -> Result<Vec<Placement>, Vec<LoadError>> {
        let mut on_cpu: Option<Arc<dyn Graph>> = None;
        let mut placements = Vec::with_capacity(processors.len());
        for processor in processors {
            let placement = match processor {
                Processor::Gpu(ordinal) => self.gpu_placement(file, *ordinal, options),
                Processor::Cpu => self.cpu_placement(file, options, &mut on_cpu),
            };
            placements.push(placement.map_err(|what| vec![unplaced(file, *processor, what)])?);
        }
        Ok(placements)
    }

    /// The only placement of a model without a graph.
    pub(super) fn without_graph(&self) -> Placement {
        self.on_host(Arc::new(NoGraph::default()))
    }

    fn cpu_placement(
        &self,
        file: &Path,
        options: &LoadOptions,
        shared: &mut Option<Arc<dyn Graph>>,
    ) -> Result<Placement, String> {
        let graph = match shared {
            Some(graph) => Arc::clone(graph),
            None => {
                let graph = self.resources.backend.load(file, options).map_err(|e| e.0)?;
                Arc::clone(shared.insert(graph))
            }
        };
        Ok(self.on_host(graph))
    }

    fn on_host(&self, graph: Arc<dyn Graph>) -> Placement {
        let (pool, budget, chunk_cache) =
            (self.resources.pool.clone(), self.resources.budget.clone(), self.resources.chunk_cache.clone());
        Placement { graph, device: Arc::new(Host), pool, budget, chunk_cache, gpu: None }
    }

    fn gpu_placement(&self, file: &Path, ordinal: u16, options: &LoadOptions) -> Result<Placement, String> {
        let device = self.resources.options.accelerators.open(ordinal).map_err(|e| e.to_string())?;
        let graph = self.resources.backend.load_on(file, options, &device).map_err(|e| e.0)?;
        let pool = match device.staging() {
            Some(staging) => Pool::over(staging, self.resources.options.reply_pool),
            None => self.resources.pool.clone(),
        };
        let gpu = Some(self.note(ordinal, &device)?);
        let (budget, chunk_cache) = (self.resources.budget.clone(), self.resources.chunk_cache.clone());
        Ok(Placement { graph, device, pool, budget, chunk_cache, gpu })
    }
}
