//! Recordings of a server's requests, which the simulator replays.
//!
//! # Layout
//!
//! - [`trace`]: the lines of a recording · `recorder`: writes them into a file.

mod recorder;
pub mod trace;

pub use recorder::{FinishedRequest, Recorder};
