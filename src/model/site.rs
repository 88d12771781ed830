//! Where an instance runs and with what: a graph, a device, memory for answers. A model that asks for a GPU gets one or is refused, with
//! everything that is missing said at once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

use crate::backend::Graph;
use crate::config::model::Draft;
use crate::config::model::place::{Auto, Gpus};
use crate::config::model::settings::Processor;
use crate::device::{Device, Host, Pool};
use crate::error::LoadError;
use crate::telemetry::{GpuMetrics, GpuReading};

use super::repository::Repository;

/// An instance's place and means.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) graph: Arc<dyn Graph>,
    pub(super) device: Arc<dyn Device>,
    /// Memory for answers, of the host.
    pub(super) pool: Pool,
    /// Of the GPU, if it is one.
    pub(super) gpu: Option<GpuMetrics>,
}

/// The GPUs that instances run on, by ordinal, to be looked at.
pub(super) type InUse = BTreeMap<u16, (GpuMetrics, Vec<Weak<dyn Device>>)>;

impl Repository {
    /// Brings the gauges of the GPUs in use up to date.
    pub(super) fn observe_gpus(&self) {
        for (gpu, devices) in self.0.gpus.lock().values_mut() {
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

    /// Notes that an instance runs on this GPU.
    fn note(&self, ordinal: u16, device: &Arc<dyn Device>) -> Result<GpuMetrics, String> {
        let there = self.0.options.accelerators.usable().map_err(|e| e.0)?;
        let uuid = there.into_iter().find(|gpu| gpu.ordinal == ordinal).map(|gpu| gpu.uuid).unwrap_or_default();
        let mut in_use = self.0.gpus.lock();
        let (gpu, devices) = in_use.entry(ordinal).or_insert_with(|| (self.0.metrics.gpu(&uuid), Vec::new()));
        devices.push(Arc::downgrade(device));
        Ok(gpu.clone())
    }

    /// Puts the model's instances on GPUs, as far as it wants any.
    pub(super) fn place(&self, draft: &mut Draft) -> Result<Auto, Vec<LoadError>> {
        let gpus = match draft.may_use_gpus() {
            true => self.gpus(draft.needs_gpus()),
            false => Err(String::new()),
        };
        let auto = draft.place(&gpus).map_err(|faults| faults.into_iter().map(LoadError::from).collect::<Vec<_>>())?;
        // Where nothing was installed for GPUs, nobody expects one.
        let expected = self.0.backend.is_for_accelerators().is_ok();
        Ok(if expected { auto } else { Auto::NotAsked })
    }

    /// The GPUs that can be used. Unless one is `needed`, no driver is asked before the backend has what it needs for one.
    fn gpus(&self, needed: bool) -> Gpus {
        let backend = &self.0.backend;
        let installed = backend.is_for_accelerators().map_err(|e| e.0);
        if !needed {
            installed.clone()?;
        }
        let there = match (self.0.options.accelerators.usable().map_err(|e| e.0), installed) {
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

    /// A site for each instance. On the CPU all share one graph; on GPUs each has its own, in an order of work of its own.
    pub(super) fn sites(&self, file: &Path, processors: &[Processor]) -> Result<Vec<Site>, Vec<LoadError>> {
        let mut on_cpu: Option<Arc<dyn Graph>> = None;
        let mut sites = Vec::with_capacity(processors.len());
        for processor in processors {
            let site = match processor {
                Processor::Gpu(ordinal) => self.gpu_site(file, *ordinal),
                Processor::Cpu => self.cpu_site(file, &mut on_cpu),
            };
            sites.push(site.map_err(|what| vec![LoadError::File { path: file.to_owned(), what }])?);
        }
        Ok(sites)
    }

    fn cpu_site(&self, file: &Path, shared: &mut Option<Arc<dyn Graph>>) -> Result<Site, String> {
        let graph = match shared {
            Some(graph) => Arc::clone(graph),
            None => {
                let graph = self.0.backend.load(file, &self.0.options.load).map_err(|e| e.0)?;
                Arc::clone(shared.insert(graph))
            }
        };
        Ok(Site { graph, device: Arc::new(Host), pool: self.0.pool.clone(), gpu: None })
    }

    fn gpu_site(&self, file: &Path, ordinal: u16) -> Result<Site, String> {
        let device = self.0.options.accelerators.open(ordinal).map_err(|e| e.to_string())?;
        let graph = self.0.backend.load_on(file, &self.0.options.load, &device).map_err(|e| e.0)?;
        let pool = match device.staging() {
            Some(staging) => Pool::over(staging, self.0.options.reply_pool),
            None => self.0.pool.clone(),
        };
        let gpu = Some(self.note(ordinal, &device)?);
        Ok(Site { graph, device, pool, gpu })
    }
}

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
