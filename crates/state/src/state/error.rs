//! Errors of binding and committing states.

use sequor_core::Shape;

use crate::device::DeviceError;

/// Why a batch cannot get states, or its new states are refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("slot {0} is beyond the store")]
    NoSlot(u32),
    #[error("slot {0} is read without a state of its own")]
    NotLive(u32),
    #[error("slot {0} is freed without a state of its own")]
    NotHeld(u32),
    /// A slot that holds a state has no memory for it. This is a bug.
    #[error("the memory of state '{state}' in slot {slot} is not there")]
    Lost { state: String, slot: u32 },
    /// A sequence continues from a state that did not come with its batch. This is a bug.
    #[error("the state that the sequence in slot {0} continues from is not there")]
    NotBrought(u32),
    /// The model produced a state that the configuration does not allow.
    #[error("state output '{state}' has shape {got}, but {want} is expected for a batch of {rows}")]
    Shape { state: String, got: Shape, want: String, rows: u64 },
    #[error("state output '{state}' was not produced")]
    Missing { state: String },
    #[error("state output '{state}' cannot be cut into its rows")]
    Torn { state: String },
    /// The lengths of a padded state's rows do not fit the model's output.
    #[error("state output '{state}' {what}")]
    Lengths { state: String, what: String },
    /// The padded rows of a batch would exceed the state memory. A row alone never does.
    #[error("state '{state}' is padded to {row} in each of {rows} rows, and {left} bytes may be used for it")]
    TooLong { state: String, row: Shape, rows: usize, left: u64 },
    /// Rows whose states differ in shape are in one batch. This is a fault of the scheduler.
    #[error("the rows of a batch have states of different shapes for '{state}'")]
    Mixed { state: String },
}
