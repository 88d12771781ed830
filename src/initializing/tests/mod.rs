//! Tests of this room.

mod answers;
mod kept;
