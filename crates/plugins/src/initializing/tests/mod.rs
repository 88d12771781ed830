//! Tests of state initializers and kept states.

mod answers;
mod kept;
