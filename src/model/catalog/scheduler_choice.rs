//! Who says which plug-in decides for a model.

use crate::scheduling::report::Attach;

#[derive(Debug, Clone, Default)]
pub(in crate::model) enum SchedulerChoice {
    /// Its `sequor.toml`.
    #[default]
    File,
    /// An operator, until the server ends: this one, or none.
    Runtime(Option<Attach>),
}
