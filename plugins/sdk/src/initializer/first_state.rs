//! What a sequence begins with.

use crate::processor::Tensors;

/// The first state of a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum FirstState {
    /// Every state begins as config.pbtxt says: with its `initial_state`, or with zeros.
    #[default]
    Default,
    /// These are values of states, by name. A state that is not among them begins as config.pbtxt says.
    States(Tensors),
    /// The states of another live sequence of the same load, by the client's id of that sequence. `copy_if_same` of sequor.toml says which sequences
    /// may be copied.
    CopyOf(String),
    /// The states that the steps of this name lead to. The server calls [`super::Initializer::steps`] if it keeps none, and keeps the result under the
    /// name. The steps of an empty name run for this START alone.
    Kept(String),
}

impl FirstState {
    /// These values of states. A state that is not among them begins as config.pbtxt says.
    #[must_use]
    pub fn states(states: impl Into<Tensors>) -> FirstState {
        FirstState::States(states.into())
    }

    /// The states of the live sequence with this id.
    #[must_use]
    pub fn copy_of(id: impl Into<String>) -> FirstState {
        FirstState::CopyOf(id.into())
    }

    /// The states that the steps of this name lead to.
    #[must_use]
    pub fn kept(name: impl Into<String>) -> FirstState {
        FirstState::Kept(name.into())
    }
}
