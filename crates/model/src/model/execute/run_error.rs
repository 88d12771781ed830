//! Why a run failed. Clients read the text.

use std::sync::Arc;

use crate::backend::BackendError;
use crate::batch::BatchError;
use crate::device::{DeviceError, DeviceId};
use crate::error::ExceededLimit;
use crate::state::budget::NoRoom;
use crate::state::{NotFinite, SnapshotError, StateError};

#[derive(Debug, Clone, thiserror::Error)]
pub(in crate::model) enum RunError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no memory for the sequence's state.
    #[error(transparent)]
    NoState(Arc<RunError>),
    /// The state would grow beyond `limits.state`.
    #[error(transparent)]
    Limit(#[from] NoRoom),
    /// Clients have not taken so many answers that there is no room for more.
    #[error(transparent)]
    AnswerRoom(#[from] ExceededLimit),
    /// A state that the run produced has a NaN or an infinity.
    #[error("state {:?} is not finite", .0.state)]
    NotFinite(NotFinite),
    #[error("the state that was kept is not taken: {0}")]
    Snapshot(#[from] Arc<SnapshotError>),
    /// A model of the stateful backend reserves memory when it is loaded, and there is too little.
    #[error(
        "MEMORY ALLOCATION ERROR:: Please try to reduce the number of instances and/or the max_candidate_sequences. ({0})"
    )]
    FirstChunk(String),
}

impl RunError {
    /// The request for state memory that exceeded `limits.state`, if that was the reason.
    pub(in crate::model) fn over_limit(&self) -> Option<NoRoom> {
        match self {
            RunError::NoState(error) => error.over_limit(),
            RunError::Limit(no_room) => Some(*no_room),
            _ => None,
        }
    }

    /// Whether padding made the rows of the batch too large together. Each row may still run alone.
    pub(in crate::model) fn is_too_long_together(&self) -> bool {
        matches!(self, RunError::State(StateError::TooLong { .. }))
    }

    /// The device without enough memory and the bytes wanted, if that was the reason.
    pub(in crate::model) fn no_room(&self) -> Option<(DeviceId, usize)> {
        match self.device()? {
            DeviceError::OutOfMemory { place, bytes } => Some((*place, *bytes)),
            _ => None,
        }
    }

    /// Whether the device reported a failure.
    pub(super) fn has_failed_device(&self) -> bool {
        matches!(self.device(), Some(DeviceError::Failed { .. }))
    }

    fn device(&self) -> Option<&DeviceError> {
        match self {
            RunError::NoState(error) => error.device(),
            RunError::Device(error)
            | RunError::State(StateError::Device(error))
            | RunError::Batch(BatchError::Device(error)) => Some(error),
            RunError::Snapshot(error) => match &**error {
                SnapshotError::State(StateError::Device(error)) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<SnapshotError> for RunError {
    fn from(error: SnapshotError) -> RunError {
        RunError::Snapshot(Arc::new(error))
    }
}
