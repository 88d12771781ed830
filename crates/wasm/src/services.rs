//! The server's services for a guest.

use std::fmt;
use std::sync::Arc;

use super::counter::CounterName;
use super::line_budget::LineBudget;

/// The services that a guest may use.
pub trait Services: Send + Sync + fmt::Debug {
    /// The budget of lines, shared by all guests of the plug-in. By default each call returns a new budget.
    fn line_budget(&self) -> Arc<LineBudget> {
        Arc::default()
    }

    fn log(&self, level: u32, message: &str);
    fn metric_add(&self, counter: &CounterName, value: f64);
    fn key_text(&self, key: u64) -> Option<String>;
    fn sequence_text(&self, sequence: u64) -> Option<String>;
}

/// For tests: records the requests to it.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct ServiceLog {
    pub lines: parking_lot::Mutex<Vec<(u32, String)>>,
    pub counts: parking_lot::Mutex<std::collections::BTreeMap<String, f64>>,
}

impl Services for ServiceLog {
    fn log(&self, level: u32, message: &str) {
        self.lines.lock().push((level, message.to_owned()));
    }

    fn metric_add(&self, counter: &CounterName, value: f64) {
        *self.counts.lock().entry(counter.to_string()).or_default() += value;
    }

    fn key_text(&self, key: u64) -> Option<String> {
        (key == 7).then(|| "gold".to_owned())
    }

    fn sequence_text(&self, sequence: u64) -> Option<String> {
        (sequence == 9).then(|| "call-77".to_owned())
    }
}
