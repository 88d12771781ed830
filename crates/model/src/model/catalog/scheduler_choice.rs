//! The source of the choice of a model's scheduler plug-in.

use crate::scheduling::report::Attach;

#[derive(Debug, Clone, Default)]
pub(in crate::model) enum SchedulerChoice {
    /// Its `sequor.toml`.
    #[default]
    File,
    /// An operator's choice: this plug-in, or none. It is valid until the server ends.
    Runtime(Option<Attach>),
}
