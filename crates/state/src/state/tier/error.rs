//! Why a tier cannot keep or find a state. Each error is a sentence for an operator.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// `by` is the process, if it can be found.
    #[error("{path} is in use by {by}: stop it, or give this server a --state-dir of its own")]
    InUse { path: String, by: String },
    #[error("{path} is damaged or no store of sequences: {what}")]
    Damaged { path: String, what: String },
    #[error(
        "{path} was written by another version of Sequor ({what}): start that version, or move the file away; its sequences do not go on then"
    )]
    OtherVersion { path: String, what: String },
    #[error("{path}: {what}")]
    Io { path: String, what: String },
    #[error("{needed} bytes more do not fit: {used} of {limit} bytes are kept (state.disk_limit)")]
    Full { needed: u64, used: u64, limit: u64 },
    #[error("the stored state of step {step} differs from what was written")]
    Checksum { step: u64 },
    #[error("the store is closed")]
    Closed,
    /// Another server has taken the sequence over. Nothing of it changes here.
    #[error("another server has taken the sequence over")]
    Fenced,
    /// Nothing was sent, so nothing has changed there.
    #[error("{address} cannot be reached: {what} (state.url)")]
    Unreachable { address: String, what: String },
    /// It was sent. Whether it was done, or will be, is unknown.
    #[error("{address} did not answer, and may or may not have done what it was asked: {what} (state.url)")]
    Unanswered { address: String, what: String },
    #[error("{address} does not do what it is asked: {what} (state.url)")]
    Refused { address: String, what: String },
}

impl TierError {
    /// A failure of the file system, without the number of the system's error.
    pub(super) fn io(path: String, error: &dyn std::fmt::Display) -> TierError {
        let what = error.to_string();
        let what = what.strip_prefix("I/O error: ").unwrap_or(&what);
        let what = what.split_once(" (os error ").map_or(what, |(before, _)| before).to_owned();
        TierError::Io { path, what }
    }

    /// The same failure after the commands were sent.
    pub(super) fn sent(self) -> TierError {
        match self {
            TierError::Unreachable { address, what } => TierError::Unanswered { address, what },
            other => other,
        }
    }

    /// The same failure for changes that were to follow, and were not sent.
    pub(super) fn unsent(self) -> TierError {
        match self {
            TierError::Unanswered { address, what } => TierError::Unreachable { address, what },
            other => other,
        }
    }
}
