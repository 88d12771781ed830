//! Functions of the server. In a test, lines go to standard error, and texts of keys come from [`remember`].

use crate::model::{Key, Sequence};

pub fn error(message: &str) {
    log(0, message);
}

pub fn warn(message: &str) {
    log(1, message);
}

pub fn info(message: &str) {
    log(2, message);
}

pub fn debug(message: &str) {
    log(3, message);
}

/// Adds to a counter of the plug-in.
pub fn metric_add(name: &str, value: f64) {
    metric_add_with(name, &[], value);
}

#[cfg(target_arch = "wasm32")]
mod asked {
    use super::{Key, Sequence};
    use crate::bindings::sequor::plugin::{host, identity};

    /// Writes a line to the server's log; 0 is an error, 3 for debugging.
    pub fn log(level: u32, message: &str) {
        host::log(level, message);
    }

    /// Adds to a counter of the plug-in with these labels.
    pub fn metric_add_with(name: &str, labels: &[(&str, &str)], value: f64) {
        let label = |(name, value): &(&str, &str)| host::Label { name: (*name).into(), value: (*value).into() };
        host::metric_add(name, &labels.iter().map(label).collect::<Vec<_>>(), value);
    }

    /// The text whose hash is `key`, if the server knows it.
    #[must_use]
    pub fn key_text(key: Key) -> Option<String> {
        host::key_text(key)
    }

    /// The client's id of a live sequence. Only with the grant `sequence-text`.
    #[must_use]
    pub fn sequence_text(of: Sequence) -> Option<String> {
        identity::sequence_text(of)
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod asked {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::{Key, Sequence};

    thread_local! {
        static TEXTS: RefCell<BTreeMap<Key, String>> = const { RefCell::new(BTreeMap::new()) };
        static LINES: RefCell<Vec<(u32, String)>> = const { RefCell::new(Vec::new()) };
        static COUNTERS: RefCell<BTreeMap<String, f64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Writes a line to the server's log; 0 is an error, 3 for debugging.
    pub fn log(level: u32, message: &str) {
        eprintln!("log {level}: {message}");
        LINES.with_borrow_mut(|lines| lines.push((level, message.to_owned())));
    }

    /// Adds to a counter of the plug-in with these labels.
    pub fn metric_add_with(name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let counter = if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
        COUNTERS.with_borrow_mut(|counters| *counters.entry(counter).or_default() += value);
    }

    /// The text whose hash is `key`, if the server knows it.
    #[must_use]
    pub fn key_text(key: Key) -> Option<String> {
        TEXTS.with_borrow(|texts| texts.get(&key).cloned())
    }

    /// The client's id of a live sequence. Only with the grant `sequence-text`.
    #[must_use]
    pub fn sequence_text(of: Sequence) -> Option<String> {
        Some(of.to_string())
    }

    /// Makes a text known, as a request does in the server.
    pub fn remember(text: &str) -> Key {
        let key = crate::model::key_of(text);
        TEXTS.with_borrow_mut(|texts| texts.insert(key, text.to_owned()));
        key
    }

    /// Takes the lines that this thread has logged.
    #[must_use]
    pub fn take_lines() -> Vec<(u32, String)> {
        LINES.take()
    }

    /// The value of a counter of this thread: `shed`, or `shed{tenant="gold"}`.
    #[must_use]
    pub fn counter(name: &str) -> f64 {
        COUNTERS.with_borrow(|counters| counters.get(name).copied().unwrap_or(0.0))
    }
}

pub use asked::*;
