//! The names in a path.

pub(super) use crate::api::path::Path;

/// The model and version in a path.
#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct ModelPath {
    pub(super) model: String,
    #[serde(default)]
    pub(super) version: String,
}
