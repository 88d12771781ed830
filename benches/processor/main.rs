//! Measures the cost of a processor:
//! - a request through `pre` and `post`, next to wasmtime's empty call;
//! - 1 MiB in both directions, next to wasmtime's bare echo;
//! - a server with a pass-through processor, next to the same server without one, measured twice;
//! - packets of PCM through `pcm-window`, next to native code;
//! - the voice activity model behind it, next to clients that cut windows;
//! - a model next to a hostile processor or initializer;
//! - swaps under load;
//! - a plug-in that calls another model;
//! - a transducer, next to the same loop in Python.
//!
//! ```text
//! cargo bench --bench processor                       everything
//! cargo bench --bench processor -- --only calls       calls, served, pcm, vad, hostile, swap, models or transducer
//! cargo bench --bench processor -- --only swap --seconds 60
//! ```

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark may panic"
)]

mod calls;
mod hostile;
#[path = "../../tests/it/initializer_orders.rs"]
mod initializer_orders;
mod models;
mod pcm;
#[path = "../../tests/it/puppet.rs"]
#[allow(dead_code, reason = "the tests need more of it")]
mod puppet;
mod served;
mod swap;
mod transducer;
mod vad;

type BenchResult<T> = Result<T, Box<dyn std::error::Error>>;

// The server's allocator.
#[global_allocator]
static ALLOCATOR: sequor::device::ProgramAllocator = sequor::device::ProgramAllocator;

fn main() -> BenchResult<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo nextest --benches` and similar tools list tests.
    if arguments.iter().any(|a| a == "--list") {
        return Ok(());
    }
    let behind = |flag: &str| arguments.iter().position(|a| a == flag).and_then(|at| arguments.get(at + 1));
    let wants = |figure: &str| behind("--only").is_none_or(|only| only == figure);
    let seconds = behind("--seconds").map_or(Ok(60), |text| text.parse())?;
    if wants("calls") {
        calls::figures()?;
    }
    if wants("served") {
        served::figures()?;
    }
    if wants("pcm") {
        pcm::figures()?;
    }
    if wants("vad") {
        vad::figures()?;
    }
    if wants("hostile") {
        hostile::figures()?;
    }
    if wants("models") {
        models::figures()?;
    }
    if wants("transducer") {
        transducer::figures()?;
    }
    if wants("swap") {
        swap::figures(seconds)?;
    }
    Ok(())
}
