//! Refusals of requests.

use std::fmt;

/// Codes of refusals, as in the contract. Other codes count as [`code::WRONG_REQUEST`].
pub mod code {
    /// The request is wrong: `INVALID_ARGUMENT`, 400.
    pub const WRONG_REQUEST: u32 = 1;
    /// Not now; the same request may succeed later: `UNAVAILABLE`, 503.
    pub const NOT_NOW: u32 = 2;
    /// The client may not do this: `PERMISSION_DENIED`, 403.
    pub const FORBIDDEN: u32 = 3;
    /// The request names something that does not exist: `NOT_FOUND`, 404.
    pub const NOT_FOUND: u32 = 4;
    /// The client has used up a quota: `RESOURCE_EXHAUSTED`, 429.
    pub const QUOTA: u32 = 5;
    /// The sequence is not in the state that the request needs: `FAILED_PRECONDITION`, 412.
    pub const WRONG_STATE: u32 = 6;
}

/// A refusal of one request. Clients get the code and the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// One of [`code`].
    pub code: u32,
    /// A sentence for the client; the server cuts it at 4,096 bytes.
    pub text: String,
    /// Microseconds after which the client should try again, if the plug-in knows.
    pub retry_us: Option<u64>,
    /// Whether the sequence ends. A refused START always ends its sequence.
    pub ends: bool,
}

/// A refusal with this code of [`code`] and this sentence. The sequence continues.
#[must_use]
pub fn refuse(code: u32, text: impl Into<String>) -> Refusal {
    Refusal { code, text: text.into(), retry_us: None, ends: false }
}

impl Refusal {
    /// Asks the client to try again after this many microseconds.
    #[must_use]
    pub fn retry_us(mut self, after: u64) -> Refusal {
        self.retry_us = Some(after);
        self
    }

    /// Ends the sequence.
    #[must_use]
    pub fn ends(mut self) -> Refusal {
        self.ends = true;
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text, self.code)
    }
}

impl std::error::Error for Refusal {}
