//! The threads that the plug-ins of a load run on.

use std::sync::Arc;

use crate::processing::ProcessorPool;
use crate::processing::pool::Task;

use super::loaded::LoadedModel;

/// Runs a task of the plug-ins of a load on this thread, which is one of theirs, until it waits.
pub(in crate::model) fn run_with_plugins(load: &Arc<LoadedModel>, task: impl Future<Output = ()> + Send + 'static) {
    if let Some(pool) = pool(load) {
        pool.run(lane(load), task);
    }
}

/// Queues a task for the plug-ins of a load. Each load is a lane of its own.
pub(in crate::model) fn submit_to_plugins(load: &Arc<LoadedModel>, task: Task) {
    if let Some(pool) = pool(load) {
        pool.submit(lane(load), task);
    }
}

fn pool(load: &Arc<LoadedModel>) -> Option<&Arc<ProcessorPool>> {
    let of_processors = load.processors.as_ref().map(|processors| &processors.pool);
    of_processors.or(load.initializer.as_ref().map(|of| &of.pool))
}

fn lane(load: &Arc<LoadedModel>) -> u64 {
    Arc::as_ptr(load).addr() as u64
}
