//! What a guest may ask the server for, implemented for one binding.

use std::sync::Arc;

use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::line_budget::LineBudget;
use sequor_wasm::services::Services;

use super::binding::{Decider, SchedulerBinding};
use super::key_interner::KeyInterner;
use super::scheduler_host::SchedulerHost;
use crate::telemetry::PluginMetrics;

#[derive(Debug)]
pub(super) struct GuestServices {
    journal: Arc<Journal>,
    metrics: Arc<PluginMetrics>,
    host: Arc<dyn SchedulerHost<Decider>>,
    texts: Arc<KeyInterner>,
}

impl GuestServices {
    pub(super) fn new(of: &SchedulerBinding) -> GuestServices {
        GuestServices {
            journal: Arc::clone(&of.journal),
            metrics: Arc::clone(&of.metrics),
            host: Arc::clone(of.port.host()),
            texts: Arc::clone(&of.texts),
        }
    }
}

impl Services for GuestServices {
    fn line_budget(&self) -> Arc<LineBudget> {
        Arc::clone(self.journal.line_budget())
    }

    fn log(&self, level: u32, message: &str) {
        self.journal.write(Level::of(level), message);
    }

    fn metric_add(&self, name: &str, value: f64) {
        if self.journal.count(name, value) {
            self.metrics.count(name, value);
        }
    }

    fn key_text(&self, key: u64) -> Option<String> {
        self.texts.text(key)
    }

    // Whether a guest may ask this is settled by its imports and grants.
    fn sequence_text(&self, sequence: u64) -> Option<String> {
        self.host.sequence_text(sequence)
    }
}
