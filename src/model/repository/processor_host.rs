//! How the server runs processors: the registry of them, and the threads that all of them share.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::fault::did_you_mean;
use crate::config::model::settings::ProcessorPlugin;
use crate::processing::{ProcessorComponent, ProcessorPool, ProcessorRegistry};

/// Maximum number of threads.
const THREADS: usize = 16;

/// How the server runs processors.
#[derive(Debug)]
pub(in crate::model) struct ProcessorHost {
    pub(in crate::model) registry: ProcessorRegistry,
    /// Threads that all processors share.
    threads: usize,
    pool: Mutex<Option<Arc<ProcessorPool>>>,
}

impl ProcessorHost {
    pub(in crate::model) fn new(registry: ProcessorRegistry) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // With a single thread, one slow processor would stop those of all models.
        ProcessorHost { registry, threads: cores.clamp(2, THREADS), pool: Mutex::default() }
    }

    /// The threads. The first model with processors starts them.
    pub(super) fn pool(&self) -> Result<Arc<ProcessorPool>, String> {
        let mut pool = self.pool.lock();
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let started = ProcessorPool::new(self.threads).map_err(|e| format!("no threads for processors: {e}"))?;
        Ok(Arc::clone(pool.insert(Arc::new(started))))
    }

    /// The nearest name in the plug-in folder.
    fn near(&self, name: &str) -> String {
        let folder = self.registry.rules().dir.as_ref().map(std::fs::read_dir);
        let files = folder.into_iter().flatten().flatten().flatten();
        let names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
        did_you_mean(name, names.iter().filter_map(|name| name.strip_suffix(".wasm")))
    }

    /// The current version of a processor, if it is the one that the model names.
    pub(super) fn component(&self, says: &ProcessorPlugin) -> Result<Arc<ProcessorComponent>, String> {
        let name = &says.name;
        let component = self.registry.find(name).map_err(|error| format!("{error}{}", self.near(name)))?;
        let is = component.sha256();
        match &says.sha256 {
            Some(sha256) if sha256 != is => {
                Err(format!("{name} has the hash {is}, and sha256 = \"{sha256}\" is wanted"))
            }
            None if self.registry.rules().require_sha256 => {
                Err(format!("plugins.require_sha256 is set: add  sha256 = \"{is}\""))
            }
            _ => Ok(component),
        }
    }
}
