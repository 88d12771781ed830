//! What Sequor does with each field of `config.pbtxt`: the table, and the fields that one configuration sets.
//!
//! The table is the one place that says whether a field is served. Refusals, notes and the page `docs/reference/config-pbtxt.md` are made
//! from it. A test compares it with the protobuf descriptor, so a field without an entry cannot exist.

mod parameters;
mod present;
mod table;

#[cfg(test)]
mod tests;

pub use parameters::{ConfigParameter, PARAMETERS};
pub(super) use parameters::{is_session_entry, parameter};
pub(super) use present::set_fields;
pub use table::CONFIG_MESSAGES;

/// What Sequor does with a field that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldStatus {
    /// The field takes effect. The text says how, or where Sequor differs; it may be empty.
    Served(&'static str),
    /// The model loads, and one line of the log says that the field has no effect and why.
    NoEffect(&'static str),
    /// The model does not load. The text is the reason and what to do instead.
    Refused(&'static str),
}

/// One message of the configuration and all its fields.
#[derive(Debug, Clone, Copy)]
pub struct ConfigMessage {
    /// Its name within the package `inference`.
    pub name: &'static str,
    pub fields: &'static [(&'static str, FieldStatus)],
}

/// The entry of a field; `None` if the table lacks it, which a test excludes.
pub(super) fn status(message: &str, field: &str) -> Option<FieldStatus> {
    let message = CONFIG_MESSAGES.iter().find(|entry| entry.name == message)?;
    message.fields.iter().find(|(name, _)| *name == field).map(|(_, status)| *status)
}
