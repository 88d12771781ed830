//! The threads that the plug-ins of a load run on.

use std::sync::Arc;

use crate::processing::pool::Task;

use super::loaded::LoadedModel;

/// Queues a task for the plug-ins of a load. Each load is a lane of its own.
pub(in crate::model) fn submit_to_plugins(load: &Arc<LoadedModel>, task: Task) {
    let of_processors = load.processors.as_ref().map(|processors| &processors.pool);
    if let Some(pool) = of_processors.or(load.initializer.as_ref().map(|of| &of.pool)) {
        pool.submit(Arc::as_ptr(load).addr() as u64, task);
    }
}
