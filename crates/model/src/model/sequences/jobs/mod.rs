//! A request between its submission and its answer, with its data.
//!
//! - `job`: the request. `job_parts`: the parts that only some requests have. `batch_of_step`: the batch in which it ran.
//! - `owner`: its origin, and the count of its client's live sequences.
//! - `processing`: its data while plug-ins prepare and finish it. `first_states`: the first states of the sequence that it starts.
//!   `task_guard`: refuses it if its task panics.
//! - `inherited_context`: the context that its calls to other models inherit.
//! - `recent_refusals`: the last refused requests.
//! - `cached_answers`: answers from the response cache. `captured_steps`: its inputs and outputs, if its sequence is captured.
//!
//! This module knows neither the core nor the table.

mod batch_of_step;
pub(in crate::model::sequences) mod cached_answers;
mod captured_steps;
mod first_states;
mod inherited_context;
mod job;
mod job_parts;
mod owner;
mod processing;
mod recent_refusals;
mod task_guard;

pub use batch_of_step::ChosenBy;
pub use owner::{RequestOrigin, SequenceOwner};

pub(in crate::model) use inherited_context::InheritedContext;
pub(in crate::model) use job::Job;

pub(in crate::model::sequences) use batch_of_step::BatchOfStep;
pub(in crate::model::sequences) use cached_answers::Looked;
pub(in crate::model::sequences) use captured_steps::{ActiveCapture, CaptureNews, CapturedRequest, Captures};
pub(in crate::model::sequences) use first_states::{Beginning, NOT_FOUND, NOT_NOW, PrepareHost, Preparer};
pub(in crate::model::sequences) use inherited_context::circle;
pub(in crate::model::sequences) use job::named;
pub(in crate::model::sequences) use owner::SequencePermit;
pub(in crate::model::sequences) use processing::{
    FinishedJob, FirstSteps, LentRequest, ModelRun, PostTask, PrepareTask, PreparedJob, PreparedRuns, Processed,
    failure,
};
pub(in crate::model::sequences) use recent_refusals::RecentRefusals;
pub(in crate::model::sequences) use task_guard::{TaskGuard, TaskHost};
