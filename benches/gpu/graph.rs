//! Runs the bare loop as CUDA graphs: a turn of either side is recorded once and then launched as a whole. Shows what graphs could gain for
//! batches of a fixed size.

use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys::{CUgraphExec, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode};

use crate::bare::BareLoop;

/// Measures steps a second, or returns why a turn cannot be recorded.
pub(crate) fn rate(mut bare: BareLoop) -> Result<f64, String> {
    let stream = bare.device.stream().ok_or("needs a GPU")? as CUstream;
    // Directly after the warm-up turns, none of these two runs is one of the few that wait for the GPU. Such a run cannot be recorded.
    let turns = [record(&mut bare, stream, 0)?, record(&mut bare, stream, 1)?];
    let rate = bare.rate_of(|_, side| {
        // SAFETY: the graph, the stream, and the memory that the turn uses are alive.
        unsafe { graph::launch(turns[side], stream) }.unwrap();
    });
    for turn in turns {
        // SAFETY: its last launch is done.
        unsafe { graph::exec_destroy(turn) }.unwrap();
    }
    Ok(rate)
}

fn record(bare: &mut BareLoop, stream: CUstream, side: usize) -> Result<CUgraphExec, String> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: cudarc::driver::DriverError| format!("{what}: {:?}", error.0)
    };
    // SAFETY: the stream is alive and idle, and its context is current.
    unsafe { stream::begin_capture(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) }
        .map_err(failed("a recording does not begin"))?;
    let asked = bare.enqueue(side);
    // SAFETY: ends the capture, even if the turn failed.
    let ended = unsafe { stream::end_capture(stream) };
    asked.map_err(|error| error.to_string())?;
    let recorded = ended.map_err(failed("a turn is not recorded"))?;
    // SAFETY: the graph was just recorded.
    let turn = unsafe { graph::instantiate(recorded, CUgraphInstantiate_flags(0)) };
    // SAFETY: the instantiated graph does not need the recorded one.
    let _ = unsafe { graph::destroy(recorded) };
    turn.map_err(failed("a recorded turn is not made ready"))
}
