//! What a plug-in may ask of the server. On other machines than the server's the answers are a test's: lines go to standard error, and the
//! texts behind keys are those of [`remember`].

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

#[cfg(target_arch = "wasm32")]
mod asked {
    use super::{Key, Sequence};
    use crate::bindings::sequor::plugin::{host, identity};

    /// Writes a line to the server's log; 0 is an error, 3 for debugging.
    pub fn log(level: u32, message: &str) {
        host::log(level, message);
    }

    /// Adds to a counter of the plug-in's own.
    pub fn metric_add(name: &str, value: f64) {
        host::metric_add(name, value);
    }

    /// The text behind a key, if the server still remembers it.
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

    /// Adds to a counter of the plug-in's own.
    pub fn metric_add(name: &str, value: f64) {
        COUNTERS.with_borrow_mut(|counters| *counters.entry(name.to_owned()).or_default() += value);
    }

    /// The text behind a key, if the server still remembers it.
    #[must_use]
    pub fn key_text(key: Key) -> Option<String> {
        TEXTS.with_borrow(|texts| texts.get(&key).cloned())
    }

    /// The client's id of a live sequence. Only with the grant `sequence-text`.
    #[must_use]
    pub fn sequence_text(of: Sequence) -> Option<String> {
        Some(of.to_string())
    }

    /// A test's stand-in for a text the server has met.
    pub fn remember(text: &str) -> Key {
        let key = crate::model::key_of(text);
        TEXTS.with_borrow_mut(|texts| texts.insert(key, text.to_owned()));
        key
    }

    /// The lines written on this thread since this was last asked.
    #[must_use]
    pub fn take_lines() -> Vec<(u32, String)> {
        LINES.take()
    }

    /// What this thread's counters have come to.
    #[must_use]
    pub fn counter(name: &str) -> f64 {
        COUNTERS.with_borrow(|counters| counters.get(name).copied().unwrap_or(0.0))
    }
}

pub use asked::*;
