//! Moves states to the store while the model serves.
//!
//! - `sealing`: the states of a batch, stored before or after its answers leave.
//! - `rollback`: sequences whose state could not be written.
//! - `spill`: idle sequences, if a START needs their memory.
//!
//! Storing at a stop and resuming at a start of the server are in `migration`.

mod rollback;
pub(in crate::model::sequences) mod sealing;
pub(in crate::model::sequences) mod spill;

pub(in crate::model::sequences) use spill::{SpillHost, can_leave, post_leave};
