//! Errors of binding and committing states.

use sequor_core::Shape;

use crate::device::DeviceError;

/// Why a batch has no states, or its new ones are not taken. Nothing was changed.
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
    /// The model gave a state that the configuration does not allow.
    #[error("state output '{state}' has shape {got}, but {want} is expected for a batch of {rows}")]
    Shape { state: String, got: Shape, want: String, rows: u64 },
    #[error("state output '{state}' was not produced")]
    Missing { state: String },
    #[error("state output '{state}' cannot be cut into its rows")]
    Torn { state: String },
    /// The lengths of a padded state's rows do not go with what the model gave.
    #[error("state output '{state}' {what}")]
    Lengths { state: String, what: String },
    /// The padded rows of a batch would take more memory than states may.
    #[error("state '{state}' is padded to {row} in each of {rows} rows, and limits.state has {left} bytes left")]
    TooLong { state: String, row: Shape, rows: usize, left: u64 },
    /// Rows whose states differ in shape were put into one batch: the scheduler's fault.
    #[error("the rows of a batch have states of different shapes for '{state}'")]
    Mixed { state: String },
}
