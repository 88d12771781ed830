//! The refusal of a request by a processor, or because of its failure.

use std::time::Duration;

/// The word for a processor in refusals.
pub(crate) const WORLD: &str = "processor";

/// The refusal of one request by a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorRefusal {
    /// The kind of plug-in, for its clients.
    pub world: &'static str,
    /// The plug-in's name.
    pub plugin: String,
    pub why: RefusedBy,
    /// Whether the sequence ends with the request.
    pub ends: bool,
}

/// Who refused the request, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedBy {
    /// The plug-in, with a code of the contract's table ([`crate::processing`]'s `calls.wit`) and its own sentence.
    Plugin { code: u32, text: String, retry: Option<Duration> },
    /// The server: the call trapped, exceeded a limit or broke a rule of the interface.
    Failure { what: String },
    /// The server: the processor is parked, or there is no memory for its answer now.
    Unavailable { what: String },
}

impl ProcessorRefusal {
    /// A refusal that does not end the sequence.
    pub fn new(plugin: &str, why: RefusedBy) -> ProcessorRefusal {
        ProcessorRefusal { world: WORLD, plugin: plugin.to_owned(), why, ends: false }
    }
}
