//! What a guest may ask for, as an attachment gives it.

use std::sync::Arc;

use super::attachment::Attachment;
use super::driver::Driver;
use super::guest::Services;
use super::journal::{Journal, Level};
use super::line_budget::LineBudget;
use super::texts::Texts;
use crate::telemetry::PluginMetrics;

#[derive(Debug)]
pub(super) struct GuestServices {
    journal: Arc<Journal>,
    metrics: Arc<PluginMetrics>,
    driver: Arc<dyn Driver>,
    texts: Arc<Texts>,
}

impl GuestServices {
    pub(super) fn new(of: &Attachment) -> GuestServices {
        GuestServices {
            journal: Arc::clone(&of.journal),
            metrics: Arc::clone(&of.metrics),
            driver: Arc::clone(of.link.driver()),
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
        self.driver.sequence_text(sequence)
    }
}
