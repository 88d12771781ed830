//! Why a processor refused a request, or could not handle it.

use std::time::Duration;

/// How refusals call a processor.
pub(crate) const WORLD: &str = "processor";

/// A refusal by a processor. It is about this one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorRefusal {
    /// What kind of plug-in it is, for its clients.
    pub world: &'static str,
    /// The plug-in's name.
    pub plugin: String,
    pub why: RefusedBy,
    /// Whether the sequence ends with the request.
    pub ends: bool,
}

/// Who refused the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedBy {
    /// The plug-in, with a code of the contract's table ([`crate::processing`]'s `calls.wit`) and its own sentence.
    Plugin { code: u32, text: String, retry: Option<Duration> },
    /// The server: the call trapped, reached a limit or broke a rule of the contract.
    Failure { what: String },
    /// The server: the processor is parked, or there is no memory for its answer now.
    Unavailable { what: String },
}

impl ProcessorRefusal {
    /// A processor refuses, or cannot handle a request. The sequence goes on.
    pub(crate) fn new(plugin: &str, why: RefusedBy) -> ProcessorRefusal {
        ProcessorRefusal { world: WORLD, plugin: plugin.to_owned(), why, ends: false }
    }
}
