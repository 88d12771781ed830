//! What the repository remembers of a model's files and of who chose its scheduler.

mod fingerprint;
mod scheduler_choice;

pub(in crate::model) use fingerprint::Fingerprint;
pub(in crate::model) use scheduler_choice::SchedulerChoice;
