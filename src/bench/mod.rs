//! The load generator behind `sequor bench` and `benches/`: drives any KServe v2 server over gRPC and reports throughput, latency and
//! errors. It knows a server only through the protocol: it must not use the server's modules, and they must not use it.
//!
//! # Layout
//!
//! - [`plan`]: the load to drive · [`recipe`]: builds requests for a model · `script`: one client's requests.
//! - `line`: carries requests and answers, unary or on a stream.
//! - `closed`: sends the next request when an answer arrives · `open`: sends at the pace of speech, whether or not answers keep up.
//! - [`drive`]: warm-up, measured span and end · `live`: the phase · `tally`: counts of one client · [`report`]: the results of all.
//! - [`process`]: CPU time and memory of a local server · `scrape`: its mean batch · [`child`]: a server started for the run.
//! - `random`: pseudo-random numbers that are the same in every run.

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

/// Why a run could not measure anything.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{address} does not answer: {why}")]
    Unreachable { address: String, why: String },
    #[error("{address} refuses: {why}")]
    Refused { address: String, why: String },
    /// The model cannot be driven as requested.
    #[error("{0}")]
    Unfit(String),
    #[error("the server did not start: {0}")]
    NotStarted(String),
}
