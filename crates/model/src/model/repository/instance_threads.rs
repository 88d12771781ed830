//! The threads of all instances, until the server ends.

use std::sync::Arc;

use parking_lot::Mutex;
use sequor_core::Instance;

use crate::error::LoadError;
use crate::model::instance::{Identity, Runner};
use crate::model::load::{Handle, LoadedModel};
use crate::model::runtime::StartGate;
use crate::model::sequences::ModelScheduler;
use crate::sync::{self, JoinHandle};

/// The threads of all instances.
#[derive(Debug, Default)]
pub(super) struct InstanceThreads(Mutex<Vec<JoinHandle<()>>>);

impl InstanceThreads {
    /// Adds the threads of a load that has started. Removes threads that have ended.
    pub(super) fn add(&self, threads: Vec<JoinHandle<()>>) {
        let mut all = self.0.lock();
        all.retain(|thread| !sync::is_over(thread));
        all.extend(threads);
    }

    /// Waits for every thread.
    pub(super) fn join(&self) {
        for thread in std::mem::take(&mut *self.0.lock()) {
            if thread.join().is_err() {
                tracing::error!("an instance's thread has panicked");
            }
        }
    }
}

/// Starts the threads of every instance. They wait at the gate.
pub(super) fn start_all(
    model: &Arc<ModelScheduler>,
    load: &Arc<LoadedModel>,
    runners: Vec<Runner>,
    gate: &StartGate,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<Vec<Handle>, LoadError> {
    let start = |(n, runner): (u16, Runner)| {
        let instance = Instance { load: load.key, n };
        let identity = Identity { model: Arc::clone(model), load: Arc::clone(load), instance };
        let error = |error| LoadError::Runtime(format!("a thread of {} cannot start: {error}", load.settings.name));
        runner.start(identity, gate, threads).map_err(error)
    };
    (0u16..).zip(runners).map(start).collect()
}
