//! The first state of a sequence.

use crate::processor::Tensors;

/// The first state of a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum FirstState {
    /// Every state begins as in config.pbtxt: with its `initial_state`, or with zeros.
    #[default]
    Default,
    /// Values of states, by name. The other states begin as in config.pbtxt.
    States(Tensors),
    /// The states of another live sequence of the same load, named by the client's id of that sequence. `copy_if_same` of sequor.toml sets
    /// which sequences may be copied.
    CopyOf(String),
    /// The states that the steps of this name produce. If the server keeps none under the name, it calls [`super::Initializer::steps`] and
    /// keeps the result. The steps of an empty name run for this START alone.
    Kept(String),
}

impl FirstState {
    /// These values of states. The other states begin as in config.pbtxt.
    #[must_use]
    pub fn states(states: impl Into<Tensors>) -> FirstState {
        FirstState::States(states.into())
    }

    /// The states of the live sequence with this id.
    #[must_use]
    pub fn copy_of(id: impl Into<String>) -> FirstState {
        FirstState::CopyOf(id.into())
    }

    /// The states that the steps of this name produce.
    #[must_use]
    pub fn kept(name: impl Into<String>) -> FirstState {
        FirstState::Kept(name.into())
    }
}
