//! What the host does for a guest that asks: the functions of the contract's `host` and `identity`, each within its bounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::Result;

use super::budget::{Memory, Timer};
use super::clock_random::ClockAndRandom;
use super::contract::sequor::plugin::{host, identity, types};
use super::guest::{Limits, Services};

/// Bytes of a line, at most.
const LINE: usize = 4096;
/// Lines of a second, at most.
const LINES: u32 = 100;
/// Names of counters, at most, and bytes of one.
const COUNTERS: usize = 32;
const COUNTER: usize = 63;
/// The level of an error.
const ERROR: u32 = 0;

/// What the host keeps for one instance.
#[derive(Debug)]
pub(super) struct Held {
    services: Arc<dyn Services>,
    pub(super) timer: Timer,
    pub(super) memory: Memory,
    /// The last error it logged during this call: what it says of itself if it then falls.
    pub(super) cried: Option<String>,
    pub(super) clock_random: ClockAndRandom,
    /// When the second began in which lines are counted.
    second: Option<Duration>,
    lines: u32,
    dropped: u64,
    counters: BTreeSet<String>,
}

impl Held {
    pub(super) fn new(services: Arc<dyn Services>, limits: Limits, clock_random: ClockAndRandom) -> Held {
        let memory = Memory::new(limits.memory);
        let (second, counters) = (None, BTreeSet::new());
        Held {
            services,
            timer: Timer::default(),
            memory,
            cried: None,
            clock_random,
            second,
            lines: 0,
            dropped: 0,
            counters,
        }
    }

    /// Whether a line may still be written in this second, which `now` lies in.
    fn may_write(&mut self, now: Duration) -> bool {
        if self.second.is_none_or(|since| now.saturating_sub(since) >= Duration::from_secs(1)) {
            (self.second, self.lines) = (Some(now), 0);
            match std::mem::take(&mut self.dropped) {
                0 => {}
                n => self.services.log(1, &format!("{n} lines were dropped: more than {LINES} in a second")),
            }
        }
        self.lines += 1;
        self.dropped += u64::from(self.lines > LINES);
        self.lines <= LINES
    }

    fn counts(&mut self, name: &str) -> bool {
        if self.counters.contains(name) {
            return true;
        }
        let good = is_counter(name) && self.counters.len() < COUNTERS;
        if good {
            self.counters.insert(name.to_owned());
        }
        good
    }
}

impl host::Host for Held {
    fn log(&mut self, level: u32, message: String) -> Result<()> {
        self.timer.look()?;
        let message = cut(message);
        if self.may_write(self.clock_random.monotonic()) {
            self.services.log(level, &message);
        }
        if level == ERROR {
            self.cried = Some(message);
        }
        Ok(())
    }

    fn metric_add(&mut self, name: String, value: f64) -> Result<()> {
        self.timer.look()?;
        if value.is_finite() && value >= 0.0 && self.counts(&name) {
            self.services.metric_add(&name, value);
        }
        Ok(())
    }

    fn key_text(&mut self, key: u64) -> Result<Option<String>> {
        self.timer.look()?;
        Ok(self.services.key_text(key))
    }
}

impl identity::Host for Held {
    fn sequence_text(&mut self, of: u64) -> Result<Option<String>> {
        self.timer.look()?;
        Ok(self.services.sequence_text(of))
    }
}

impl types::Host for Held {}

/// At most [`LINE`] bytes, and whole characters.
pub(super) fn cut(mut message: String) -> String {
    if message.len() > LINE {
        let end = (0..=LINE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

/// `[a-z][a-z0-9_]{0,62}`
fn is_counter(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.len() <= COUNTER && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use host::Host;

    use super::*;
    use crate::plugin::in_text::Heard;

    fn held() -> (Held, Arc<Heard>) {
        let heard = Arc::new(Heard::default());
        (Held::new(heard.clone(), Limits::default(), ClockAndRandom::default()), heard)
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
    fn a_flood_is_dropped_and_counted() {
        let (mut held, heard) = held();
        let begin = Duration::from_secs(5);
        assert_eq!((0..250).filter(|_| held.may_write(begin)).count(), 100);
        assert!(held.may_write(begin + Duration::from_secs(1)));
        assert_eq!(
            heard.lines.lock().as_slice(),
            [(1, "150 lines were dropped: more than 100 in a second".to_owned())]
        );
    }

    #[test]
    fn only_errors_are_cries() {
        let (mut held, _) = held();
        held.log(1, "careful".to_owned()).unwrap();
        assert_eq!(held.cried, None);
        held.log(0, "oh".to_owned()).unwrap();
        assert_eq!(held.cried.as_deref(), Some("oh"));
    }

    #[test]
    fn counters_keep_to_the_rules() {
        let (mut held, heard) = held();
        for (name, value) in
            [("a", 1.0), ("a", 2.5), ("a", -1.0), ("a", f64::NAN), ("A", 1.0), ("1a", 1.0), ("", 1.0), ("a-b", 1.0)]
        {
            held.metric_add(name.to_owned(), value).unwrap();
        }
        held.metric_add("x".repeat(64), 1.0).unwrap();
        held.metric_add("x".repeat(63), 1.0).unwrap();
        for n in 0..40 {
            held.metric_add(format!("n{n}"), 1.0).unwrap();
        }
        let counts = heard.counts.lock();
        assert_eq!(
            (counts.len(), counts["a"], counts.contains_key("n29"), counts.contains_key("n30")),
            (32, 3.5, true, false)
        );
    }
}
