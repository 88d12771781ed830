//! Why an operation on a plug-in failed.

/// Each text states what happened, why, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// There is no plug-in, owner or earlier version of this name.
    #[error("{0}")]
    Absent(String),
    /// The component or the request itself is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The operation contradicts the present state.
    #[error("{0}")]
    Conflict(String),
    /// Not allowed here.
    #[error("{0}")]
    Denied(String),
    /// Not possible now, for a passing reason. A later try may succeed.
    #[error("{0}")]
    Unavailable(String),
    #[error("{0}")]
    Internal(String),
}

impl PluginError {
    /// The same error with another text.
    #[must_use]
    pub fn map(self, text: impl FnOnce(String) -> String) -> PluginError {
        match self {
            PluginError::Absent(what) => PluginError::Absent(text(what)),
            PluginError::Invalid(what) => PluginError::Invalid(text(what)),
            PluginError::Conflict(what) => PluginError::Conflict(text(what)),
            PluginError::Denied(what) => PluginError::Denied(text(what)),
            PluginError::Unavailable(what) => PluginError::Unavailable(text(what)),
            PluginError::Internal(what) => PluginError::Internal(text(what)),
        }
    }
}
