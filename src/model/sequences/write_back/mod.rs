//! Moves states to the store while the model serves.
//!
//! - `sealing`: the states that a batch has left, before its answers leave or behind them.
//! - `spill`: idle sequences, if a START needs their memory.
//!
//! What happens at a stop and at a start of the server is in `migration`.

pub(in crate::model::sequences) mod sealing;
pub(in crate::model::sequences) mod spill;

pub(in crate::model::sequences) use spill::{SpillHost, can_leave, post_leave};
