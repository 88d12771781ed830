//! Why a tier cannot keep or find a state. Each error is a sentence for an operator.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    #[error("{path} is in use by another process")]
    InUse { path: String },
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
