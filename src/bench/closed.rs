//! The closed loop: keeps a fixed number of requests in flight, and sends the next one when an answer arrives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::line::{AnsweredRequest, Sent, Transport};
use super::live::RunProgress;
use super::script::RequestScript;
use super::tally::SenderTally;

/// Pause of a sender after a lost connection.
const REST: Duration = Duration::from_millis(50);

/// Drives one client until the run is over and its sequences are ended.
pub(super) async fn drive(
    mut line: Transport,
    mut script: RequestScript,
    pipeline: usize,
    marked: bool,
    live: Arc<RunProgress>,
) -> SenderTally {
    let mut tally = SenderTally::new();
    loop {
        while line.in_flight() < pipeline.max(1) {
            let Some((mark, message)) = script.next(live.over(), marked) else { break };
            line.send(Sent { mark, at: Instant::now() }, message);
        }
        let back = tokio::select! {
            back = line.next() => back,
            () = live.gave_up() => return tally,
        };
        let Some(back) = back else { return tally };
        let broken = count(&mut tally, &mut script, back, &live);
        if broken && !live.over() {
            tokio::time::sleep(REST).await;
        }
    }
}

/// Counts an answer within the measured span. Returns whether the connection is lost.
fn count(tally: &mut SenderTally, script: &mut RequestScript, back: AnsweredRequest, live: &RunProgress) -> bool {
    let counts = live.measuring();
    if counts {
        live.answered();
    }
    match back.answer {
        Ok(answer) => {
            if counts {
                tally.answered(back.at - back.sent.at, back.sent.mark.is_wrong(&answer));
            }
            false
        }
        Err(fault) => {
            script.abandon(back.sent.mark.sequence);
            if counts {
                tally.failed(fault.code, &fault.text);
            }
            fault.broken
        }
    }
}
