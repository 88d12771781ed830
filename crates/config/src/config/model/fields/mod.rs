//! How Sequor handles each field of `config.pbtxt`: the table, and the fields that a configuration sets.
//!
//! Only this table decides whether a field is served. Refusals, notes and the page `docs/reference/config-pbtxt.md` are generated from it.
//! A test compares it with the protobuf descriptor, so no field can lack an entry.

mod parameters;
mod present;
mod table;

#[cfg(test)]
mod tests;

pub use parameters::{ConfigParameter, PARAMETERS};
pub(super) use parameters::{is_session_entry, parameter};
pub(super) use present::set_fields;
pub use table::CONFIG_MESSAGES;

/// How Sequor handles a field that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldStatus {
    /// The field takes effect. The text describes the effect, or how Sequor differs; it may be empty.
    Served(&'static str),
    /// The model loads. The log has a line that the field has no effect, with this reason.
    NoEffect(&'static str),
    /// The model does not load. The text has the reason and the remedy.
    Refused(&'static str),
}

/// One message of the configuration and all its fields.
#[derive(Debug, Clone, Copy)]
pub struct ConfigMessage {
    /// Its name within the package `inference`.
    pub name: &'static str,
    pub fields: &'static [(&'static str, FieldStatus)],
}

/// The entry of a field; `None` if the table lacks it, which a test rules out.
pub(super) fn status(message: &str, field: &str) -> Option<FieldStatus> {
    let message = CONFIG_MESSAGES.iter().find(|entry| entry.name == message)?;
    message.fields.iter().find(|(name, _)| *name == field).map(|(_, status)| *status)
}
