//! Checks of single values. Checks of several keys are in `features.rs`; checks against the model are in `config/model/validate`.

use crate::config::fault::code;
use crate::config::units::{Span, SpanOrNever};

type CheckOutcome = Option<(&'static str, String)>;

fn refuse(is_wrong: bool, code: &'static str, what: impl FnOnce() -> String) -> CheckOutcome {
    is_wrong.then(|| (code, what()))
}

pub(super) fn format_version(name: &str, version: &u32) -> CheckOutcome {
    refuse(*version != 1, code::VALUE, || format!("{name} must be 1"))
}

pub(super) fn at_least_one(name: &str, number: &u32) -> CheckOutcome {
    refuse(*number == 0, code::VALUE, || format!("{name} must be at least 1"))
}

pub(super) fn above_zero(name: &str, span: &Span) -> CheckOutcome {
    refuse(span.0.is_zero(), code::VALUE, || format!("{name} must be more than nothing"))
}

pub(super) fn above_zero_or_never(name: &str, span: &SpanOrNever) -> CheckOutcome {
    let is_zero = span.0.is_some_and(|span| span.is_zero());
    refuse(is_zero, code::VALUE, || format!("{name} must be more than nothing, or \"never\""))
}

pub(super) fn scan(name: &str, span: &Span) -> CheckOutcome {
    let what = || format!("{name} must be more than nothing; idle = \"never\" keeps idle sequences");
    refuse(span.0.is_zero(), code::VALUE, what)
}

/// Refuses an empty source of a feature.
pub(super) fn not_empty(name: &str, text: &str) -> CheckOutcome {
    refuse(text.is_empty(), code::FEATURE, || format!("{name}: says nothing"))
}

pub(super) fn plugin_name(name: &str, text: &str) -> CheckOutcome {
    refuse(!is_plugin_name(text), code::PLUGIN, || {
        format!(
            "{name}: a plug-in's name is of letters, digits, '-', '_' and '.', as its file in plugins.dir without .wasm"
        )
    })
}

pub(super) fn hash(name: &str, text: &str) -> CheckOutcome {
    let is_hash = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    refuse(!is_hash, code::PLUGIN, || format!("{name}: needs 64 hexadecimal digits"))
}

/// Whether this is a valid plug-in name: a file name without folders.
pub fn is_plugin_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=128).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('.')
}
