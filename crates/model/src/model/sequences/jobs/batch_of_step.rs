//! The batch in which a request ran last, and who chose the requests of that batch.

use sequor_core::{BatchId, Decision, PolicyAnswer};

/// Who chose the requests of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChosenBy {
    /// The built-in policy, because no plug-in was asked or because the plug-in left it to the policy.
    #[default]
    Policy,
    /// The scheduler plug-in.
    Plugin,
    /// The built-in policy, because the plug-in gave no valid answer.
    Fallback,
}

impl ChosenBy {
    /// Who chooses the batch that follows an answer of the plug-in that decides.
    pub(in crate::model::sequences) fn after(answer: &PolicyAnswer) -> ChosenBy {
        match answer {
            PolicyAnswer::Plan(Ok(Decision::Fire)) => ChosenBy::Plugin,
            PolicyAnswer::Plan(Err(_)) => ChosenBy::Fallback,
            PolicyAnswer::Plan(Ok(_)) | PolicyAnswer::Admit(_) => ChosenBy::Policy,
        }
    }
}

/// The batch of a request, as its step is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::model::sequences) struct BatchOfStep {
    /// `None` until the request is taken. A request that is answered without a run is never taken.
    pub(in crate::model::sequences) id: Option<BatchId>,
    pub(in crate::model::sequences) chosen_by: ChosenBy,
    /// The number of the step.
    pub(in crate::model::sequences) step: u64,
    /// Requests in the batch; 0 until the request is taken.
    pub(in crate::model::sequences) size: u32,
    /// Whether the request was answered with an error.
    pub(in crate::model::sequences) failed: bool,
}
