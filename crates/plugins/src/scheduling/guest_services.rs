//! The server's services for guests of every world.

use std::fmt;
use std::sync::Arc;

use sequor_wasm::counter::CounterName;
use sequor_wasm::journal::{Journal, Level};
use sequor_wasm::line_budget::LineBudget;
use sequor_wasm::services::Services;

use super::binding::SchedulerBinding;
use super::key_interner::KeyInterner;
use crate::telemetry::PluginMetrics;

/// The text of a sequence's id, from its handle.
type SequenceText = Box<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// The services for the guests of one plug-in at one place.
pub struct PluginServices {
    journal: Arc<Journal>,
    metrics: Arc<PluginMetrics>,
    texts: Arc<KeyInterner>,
    sequence_text: SequenceText,
}

impl PluginServices {
    pub fn new(
        journal: &Arc<Journal>,
        metrics: &Arc<PluginMetrics>,
        texts: &Arc<KeyInterner>,
        sequence_text: SequenceText,
    ) -> PluginServices {
        let (journal, metrics, texts) = (Arc::clone(journal), Arc::clone(metrics), Arc::clone(texts));
        PluginServices { journal, metrics, texts, sequence_text }
    }

    pub(super) fn of_binding(of: &SchedulerBinding) -> PluginServices {
        let host = Arc::clone(of.port.host());
        let sequence_text = Box::new(move |sequence| host.sequence_text(sequence));
        PluginServices::new(&of.journal, &of.metrics, &of.texts, sequence_text)
    }
}

impl fmt::Debug for PluginServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginServices").field("journal", &self.journal).finish_non_exhaustive()
    }
}

impl Services for PluginServices {
    fn line_budget(&self) -> Arc<LineBudget> {
        Arc::clone(self.journal.line_budget())
    }

    fn log(&self, level: u32, message: &str) {
        self.journal.write(Level::from_number(level), message);
    }

    fn metric_add(&self, counter: &CounterName, value: f64) {
        if self.journal.count(counter, value) {
            self.metrics.count(&counter.name, &counter.labels, value);
        }
    }

    fn key_text(&self, key: u64) -> Option<String> {
        self.texts.text(key)
    }

    // Imports and grants decide whether a guest may call this.
    fn sequence_text(&self, sequence: u64) -> Option<String> {
        (self.sequence_text)(sequence)
    }
}
