//! The functions of the contract's `host` and `identity`, each within its limits.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Result;

use super::budget::{CpuTimer, Memory};
use super::clock_random::ClockAndRandom;
use super::contract::sequor::plugin::{host, identity, types};
use super::counter::{COUNTERS, CounterName};
use super::limits::Limits;
use super::line_budget::{LINES, LineBudget, LineVerdict};
use super::services::Services;

/// Maximum bytes of a line.
const LINE: usize = 4096;
/// The level of an error.
const ERROR: u32 = 0;

/// The host's data of one guest.
#[derive(Debug)]
pub struct HostState {
    services: Arc<dyn Services>,
    pub(crate) timer: CpuTimer,
    pub(crate) memory: Memory,
    /// The last error line of this call. It explains the failure if the call then fails.
    pub(crate) last_error: Option<String>,
    pub(crate) clock_random: ClockAndRandom,
    lines: Arc<LineBudget>,
    counters: BTreeSet<CounterName>,
    /// The data that the world keeps for this guest.
    data: Box<dyn Any + Send>,
}

impl HostState {
    pub(crate) fn new(
        services: Arc<dyn Services>,
        limits: Limits,
        clock_random: ClockAndRandom,
        data: Box<dyn Any + Send>,
    ) -> HostState {
        let memory = Memory::new(limits.memory);
        let (lines, counters) = (services.line_budget(), BTreeSet::new());
        HostState {
            services,
            timer: CpuTimer::default(),
            memory,
            last_error: None,
            clock_random,
            lines,
            counters,
            data,
        }
    }

    /// The data that the guest's world keeps for it ([`super::world::World::data`]). An error if it has another type.
    pub fn world_data<T: 'static>(&mut self) -> Result<&mut T> {
        self.data.downcast_mut().ok_or_else(|| wasmtime::Error::msg("the world keeps other data"))
    }

    /// Checks the time limit, for host functions of worlds. An error ends a call that has exceeded it.
    pub fn check_time(&mut self) -> Result<()> {
        self.timer.look()
    }

    /// Gives the call more CPU time, for work of the server on its behalf. For host functions of worlds that wait. An error ends a call
    /// that has exceeded its limit.
    pub fn extend_time(&mut self, by: Duration) -> Result<()> {
        self.timer.extend(by)
    }

    /// Whether the line may be written in the second of `now`.
    fn may_write(&self, now: Duration) -> bool {
        match self.lines.take(now) {
            LineVerdict::Dropped => return false,
            LineVerdict::Written(0) => {}
            LineVerdict::Written(n) => {
                self.services.log(1, &format!("{n} lines were dropped: more than {LINES} in a second"));
            }
        }
        true
    }

    fn counts(&mut self, counter: &CounterName) -> bool {
        if self.counters.contains(counter) {
            return true;
        }
        let good = self.counters.len() < COUNTERS;
        if good {
            self.counters.insert(counter.clone());
        }
        good
    }
}

impl host::Host for HostState {
    fn log(&mut self, level: u32, message: String) -> Result<()> {
        self.timer.look()?;
        let message = cut(message);
        if self.may_write(self.clock_random.wall()) {
            self.services.log(level, &message);
        }
        if level == ERROR {
            self.last_error = Some(message);
        }
        Ok(())
    }

    fn metric_add(&mut self, name: String, labels: Vec<host::Label>, value: f64) -> Result<()> {
        self.timer.look()?;
        let labels = labels.into_iter().map(|label| (label.name, label.value)).collect();
        let counter = CounterName::new(&name, labels).filter(|_| value.is_finite() && value >= 0.0);
        if let Some(counter) = counter.filter(|counter| self.counts(counter)) {
            self.services.metric_add(&counter, value);
        }
        Ok(())
    }

    fn key_text(&mut self, key: u64) -> Result<Option<String>> {
        self.timer.look()?;
        Ok(self.services.key_text(key))
    }
}

impl identity::Host for HostState {
    fn sequence_text(&mut self, of: u64) -> Result<Option<String>> {
        self.timer.look()?;
        Ok(self.services.sequence_text(of))
    }
}

impl types::Host for HostState {}

/// Cuts a message at `LINE` bytes, between characters.
pub fn cut(mut message: String) -> String {
    if message.len() > LINE {
        let end = (0..=LINE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use host::Host;

    use super::*;
    use crate::services::ServiceLog;

    fn held() -> (HostState, Arc<ServiceLog>) {
        let heard = Arc::new(ServiceLog::default());
        (HostState::new(heard.clone(), Limits::default(), ClockAndRandom::default(), Box::new(())), heard)
    }

    #[test]
    fn lines_are_cut_between_characters() {
        let (mut held, heard) = held();
        held.log(2, "ä".repeat(3000)).unwrap();
        held.log(2, format!("a{}", "ä".repeat(3000))).unwrap();
        let lines = heard.lines.lock();
        assert_eq!((lines[0].1.len(), lines[1].1.len()), (4096, 4095));
    }

    #[test]
    fn log_lines_above_the_rate_limit_are_dropped_and_counted() {
        let (held, heard) = held();
        let begin = Duration::from_secs(5);
        assert_eq!((0..250).filter(|_| held.may_write(begin)).count(), 100);
        assert!(held.may_write(begin + Duration::from_secs(1)));
        assert_eq!(
            heard.lines.lock().as_slice(),
            [(1, "150 lines were dropped: more than 100 in a second".to_owned())]
        );
    }

    #[test]
    fn instances_of_a_plug_in_share_its_lines() {
        #[derive(Debug, Default)]
        struct Shared(Arc<LineBudget>);
        impl Services for Shared {
            fn line_budget(&self) -> Arc<LineBudget> {
                Arc::clone(&self.0)
            }
            fn log(&self, _: u32, _: &str) {}
            fn metric_add(&self, _: &CounterName, _: f64) {}
            fn key_text(&self, _: u64) -> Option<String> {
                None
            }
            fn sequence_text(&self, _: u64) -> Option<String> {
                None
            }
        }
        let services = Arc::new(Shared::default());
        let instance = || HostState::new(services.clone(), Limits::default(), ClockAndRandom::default(), Box::new(()));
        let now = Duration::from_secs(5);
        let counts = [instance(), instance()].map(|held| (0..80).filter(|_| held.may_write(now)).count());
        assert_eq!(counts, [80, 20]);
    }

    #[test]
    fn only_errors_are_kept_as_explanations() {
        let (mut held, _) = held();
        held.log(1, "careful".to_owned()).unwrap();
        assert_eq!(held.last_error, None);
        held.log(0, "oh".to_owned()).unwrap();
        assert_eq!(held.last_error.as_deref(), Some("oh"));
    }

    #[test]
    fn counters_with_invalid_names_or_values_are_dropped() {
        let (mut held, heard) = held();
        for (name, value) in
            [("a", 1.0), ("a", 2.5), ("a", -1.0), ("a", f64::NAN), ("A", 1.0), ("1a", 1.0), ("", 1.0), ("a-b", 1.0)]
        {
            held.metric_add(name.to_owned(), Vec::new(), value).unwrap();
        }
        held.metric_add("x".repeat(64), Vec::new(), 1.0).unwrap();
        held.metric_add("x".repeat(63), Vec::new(), 1.0).unwrap();
        let label = |value: &str| vec![host::Label { name: "tenant".to_owned(), value: value.to_owned() }];
        held.metric_add("a".to_owned(), label("gold"), 7.0).unwrap();
        for n in 0..40 {
            held.metric_add(format!("n{n}"), Vec::new(), 1.0).unwrap();
        }
        let counts = heard.counts.lock();
        assert_eq!(
            (counts.len(), counts["a"], counts.contains_key("n28"), counts.contains_key("n29")),
            (32, 3.5, true, false)
        );
        assert_eq!(counts["a{tenant=\"gold\"}"], 7.0, "label values make a counter of their own");
    }
}
