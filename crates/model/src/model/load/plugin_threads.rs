//! The threads that run the plug-ins of a load. If a load has no plug-ins, the calling thread does their work, which is short then.

use std::sync::Arc;

use futures_util::FutureExt;

use crate::processing::ProcessorPool;
use crate::processing::pool::Task;

use super::loaded::LoadedModel;

/// Runs a task of a load's plug-ins on this thread, which is one of theirs, until the task waits.
pub(in crate::model) fn run_with_plugins(load: &Arc<LoadedModel>, task: impl Future<Output = ()> + Send + 'static) {
    match pool(load) {
        Some(pool) => pool.run(lane(load), task),
        // Without plug-ins the task waits for nothing.
        None => _ = task.now_or_never(),
    }
}

/// Queues a task for the plug-ins of a load. Each load is a lane of its own.
pub(in crate::model) fn submit_to_plugins(load: &Arc<LoadedModel>, task: Task) {
    match pool(load) {
        Some(pool) => pool.submit(lane(load), task),
        None => task(),
    }
}

fn pool(load: &Arc<LoadedModel>) -> Option<&Arc<ProcessorPool>> {
    let of_processors = load.processors.as_ref().map(|processors| &processors.pool);
    of_processors.or(load.initializer.as_ref().map(|of| &of.pool))
}

fn lane(load: &Arc<LoadedModel>) -> u64 {
    Arc::as_ptr(load).addr() as u64
}
