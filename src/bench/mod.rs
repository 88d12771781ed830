//! The load generator behind `sequor bench` and `benches/`: drives any KServe v2 server over gRPC and says how fast, how late and how right
//! its answers were. Knows a server only by its wire; nothing here may look into one, and nothing of a server may use this.
//!
//! # Layout
//!
//! - [`plan`]: the load to drive · [`recipe`]: what a request to a model looks like · `script`: one client's requests.
//! - `line`: carries requests and answers, unary or on a stream.
//! - `closed`: the next request when an answer is here · `open`: at the pace of speech, whether or not answers keep up.
//! - [`drive`]: warm-up, the measured span, the end · `live`: how it stands · `tally`: what a client has counted · [`report`]: all of it together.
//! - [`process`]: CPU time and memory of a local server · `scrape`: its mean batch · [`child`]: a server of our own, for the time of a run.
//! - `random`: numbers that are the same at every run.

pub mod child;
mod closed;
pub mod drive;
mod line;
mod live;
mod open;
pub mod plan;
pub mod process;
mod random;
pub mod recipe;
pub mod report;
mod scrape;
mod script;
mod tally;

pub use child::Child;
pub use drive::run;
pub use plan::{BenchPlan, ClientKey, Pace};
pub use recipe::{Data, Recipe, Wanted};
pub use report::BenchReport;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{address} does not answer: {why}")]
    Unreachable { address: String, why: String },
    #[error("{address} refuses: {why}")]
    Refused { address: String, why: String },
    /// The model cannot be driven as asked.
    #[error("{0}")]
    Unfit(String),
    #[error("the server did not start: {0}")]
    NotStarted(String),
}
