//! Why a tier cannot keep or find a state. Each error is a sentence for an operator.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    #[error("{path} is in use by another process")]
    InUse { path: String },
    #[error("{path} is damaged or no store of sequences: {what}")]
    Damaged { path: String, what: String },
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
    #[error("{address} cannot be reached: {what} (state.url)")]
    Unreachable { address: String, what: String },
    #[error("{address} does not do what it is asked: {what} (state.url)")]
    Refused { address: String, what: String },
}
