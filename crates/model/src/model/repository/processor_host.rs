//! The server's host of processors: their registry, and the threads that all of them share.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::executor::ThreadSteps;
use crate::model::catalog::Catalog;
use crate::model::runtime::Clock;
use crate::processing::outgoing::ModelCaller;
use crate::processing::{ProcessorPool, ProcessorRegistry};

use super::call_rights::check_circle;
use super::model_calls::ModelCalls;

/// Maximum number of threads.
const THREADS: usize = 16;

/// The server's host of processors.
#[derive(Debug)]
pub(in crate::model) struct ProcessorHost {
    pub(in crate::model) registry: ProcessorRegistry,
    /// The interface through which processors call models.
    pub(super) caller: Arc<dyn ModelCaller>,
    catalog: Weak<Catalog>,
    /// Number of threads that all processors share.
    threads: usize,
    /// Steps of the models that processors have called.
    steps: ThreadSteps,
    pool: Mutex<Option<Arc<ProcessorPool>>>,
}

impl ProcessorHost {
    pub(super) fn new(registry: ProcessorRegistry, catalog: &Arc<Catalog>, clock: &Clock) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // With a single thread, one slow processor would block those of all models.
        let steps = ThreadSteps::new();
        let caller = Arc::new(ModelCalls::new(catalog, clock, steps.handle()));
        let (catalog, threads) = (Arc::downgrade(catalog), cores.clamp(2, THREADS));
        ProcessorHost { registry, caller, catalog, threads, steps, pool: Mutex::default() }
    }

    /// The threads. The first model with processors starts them.
    pub(super) fn pool(&self) -> Result<Arc<ProcessorPool>, String> {
        let mut pool = self.pool.lock();
        if let Some(pool) = &*pool {
            return Ok(Arc::clone(pool));
        }
        let started = ProcessorPool::new(self.threads, self.steps.clone())
            .map_err(|e| format!("no threads for processors: {e}"))?;
        Ok(Arc::clone(pool.insert(Arc::new(started))))
    }

    /// Refuses a model whose plug-ins may make calls that lead back to it.
    pub(super) fn check_circle(&self, model: &str, granted: &[String]) -> Result<(), String> {
        self.catalog.upgrade().map_or(Ok(()), |catalog| check_circle(&catalog, model, granted))
    }
}
