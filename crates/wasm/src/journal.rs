//! The last lines of a plug-in: its own, and the server's lines about it. They go to the server's log as well.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::counter::{COUNTERS, CounterName};
use super::line_budget::LineBudget;

const MOST: usize = 1000;

/// The contract's levels, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl Level {
    pub fn from_number(number: u32) -> Level {
        match number {
            0 => Level::Error,
            1 => Level::Warn,
            2 => Level::Info,
            _ => Level::Debug,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// A line a guest or the host wrote about a plug-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Serial number of the line within this plug-in. [`Journal::after`] takes it.
    pub serial: u64,
    #[serde(with = "crate::rfc3339")]
    pub at: SystemTime,
    /// error, warn, info, debug.
    pub level: String,
    pub message: String,
}

#[derive(Debug)]
pub struct Journal {
    plugin: String,
    lines: Mutex<Lines>,
    /// The lines that its guests may write.
    line_budget: Arc<LineBudget>,
    /// The plug-in's own counters.
    counters: Mutex<BTreeMap<CounterName, f64>>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<LogLine>,
    written: u64,
}

impl Journal {
    pub fn new(plugin: &str) -> Journal {
        let (lines, line_budget, counters) = Default::default();
        Journal { plugin: plugin.to_owned(), lines, line_budget, counters }
    }

    pub fn line_budget(&self) -> &Arc<LineBudget> {
        &self.line_budget
    }

    pub fn plugin(&self) -> &str {
        &self.plugin
    }

    pub fn write(&self, level: Level, message: &str) {
        let (plugin, line) = (self.plugin.as_str(), one_line(message));
        match level {
            Level::Error => tracing::error!(target: "sequor::plugin", plugin, "{line}"),
            Level::Warn => tracing::warn!(target: "sequor::plugin", plugin, "{line}"),
            Level::Info => tracing::info!(target: "sequor::plugin", plugin, "{line}"),
            Level::Debug => tracing::debug!(target: "sequor::plugin", plugin, "{line}"),
        }
        let mut lines = self.lines.lock();
        lines.written += 1;
        if lines.kept.len() >= MOST {
            lines.kept.pop_front();
        }
        let (serial, level) = (lines.written, level.name().to_owned());
        lines.kept.push_back(LogLine { serial, at: SystemTime::now(), level, message: message.to_owned() });
    }

    /// Adds to one of the plug-in's own counters. False if a rule of the contract forbids it; then nothing is counted.
    pub fn count(&self, counter: &CounterName, value: f64) -> bool {
        let mut counters = self.counters.lock();
        let room = counters.len() < COUNTERS || counters.contains_key(counter);
        let counts = room && value.is_finite() && value >= 0.0;
        if counts {
            *counters.entry(counter.clone()).or_default() += value;
        }
        counts
    }

    pub fn counters(&self) -> BTreeMap<CounterName, f64> {
        self.counters.lock().clone()
    }

    /// The lines after this one, oldest first.
    pub fn after(&self, serial: u64) -> Vec<LogLine> {
        self.lines.lock().kept.iter().filter(|line| line.serial > serial).cloned().collect()
    }
}

/// A message without line ends. Otherwise the text after one could pass for a line of the server's own.
fn one_line(message: &str) -> Cow<'_, str> {
    if message.contains(char::is_control) {
        return Cow::Owned(message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect());
    }
    Cow::Borrowed(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_and_a_limit() {
        let journal = Journal::new("p");
        let named = |name: &str| CounterName::new(name, Vec::new()).unwrap();
        for (name, value) in [("a_1", 2.0), ("a_1", 0.5), ("b", -1.0), ("c", f64::NAN)] {
            journal.count(&named(name), value);
        }
        assert_eq!(journal.counters(), [(named("a_1"), 2.5)].into());
        let counted = (0..40).filter(|n| journal.count(&named(&format!("n{n}")), 1.0)).count();
        assert_eq!(counted, COUNTERS - 1);
        assert_eq!(journal.counters().len(), COUNTERS);
    }

    #[test]
    fn the_last_thousand_lines_are_kept_and_numbered() {
        let journal = Journal::new("p");
        (0..MOST + 5).for_each(|n| journal.write(Level::from_number(2), &n.to_string()));
        let lines = journal.after(0);
        assert_eq!((lines.len(), lines[0].serial, lines[0].message.as_str()), (MOST, 6, "5"));
        assert_eq!(journal.after(MOST as u64 + 4)[0].level, "info");
    }

    #[test]
    fn a_message_is_one_line_of_the_log() {
        assert_eq!(one_line("a\n2026 INFO sequor::audit: done\r\u{1b}[0m"), "a 2026 INFO sequor::audit: done  [0m");
        assert!(matches!(one_line("plain"), Cow::Borrowed("plain")));
    }
}
