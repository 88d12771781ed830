//! The open loop: one request a chunk, whether or not answers keep up. Latency is measured from the time when a request was due, not from
//! when it could be sent. A slow server or a slow client thus does not hide its slowness.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::line::{AnsweredRequest, Sent, Transport};
use super::live::RunProgress;
use super::script::RequestScript;
use super::tally::SenderTally;

/// Maximum unanswered requests of one stream; further steps are skipped and counted as such.
const UNANSWERED: usize = 64;

/// Drives one stream until the run is over and its sequence is ended. `begin` is when its first request is due.
pub(super) async fn drive(
    mut line: Transport,
    mut script: RequestScript,
    begin: Instant,
    chunk: Duration,
    marked: bool,
    live: Arc<RunProgress>,
) -> SenderTally {
    let mut tally = SenderTally::new();
    let mut due = Some(begin);
    loop {
        if due.is_none() && line.in_flight() == 0 {
            break;
        }
        let next = due.unwrap_or(begin);
        let busy = line.in_flight() > 0;
        tokio::select! {
            biased;
            () = live.gave_up() => {
                give_up(&mut tally, &line, chunk, &live);
                break;
            }
            () = tokio::time::sleep_until(next.into()), if due.is_some() => {
                due = step(&mut tally, &mut line, &mut script, next, marked, &live).then(|| next + chunk);
            }
            Some(back) = line.next(), if busy => count(&mut tally, &mut script, back, chunk, &live),
        }
    }
    tally.judge();
    tally
}

/// Sends the request that is due. Returns false if there is none.
fn step(
    tally: &mut SenderTally,
    line: &mut Transport,
    script: &mut RequestScript,
    due: Instant,
    marked: bool,
    live: &RunProgress,
) -> bool {
    if line.in_flight() >= UNANSWERED {
        tally.skipped += u64::from(live.measures(due));
        return !live.over();
    }
    match script.next(live.over(), marked) {
        Some((mark, message)) => {
            line.send(Sent { mark, at: due }, message);
            true
        }
        None => false,
    }
}

/// Counts an answer, if its request was due within the measured span.
fn count(
    tally: &mut SenderTally,
    script: &mut RequestScript,
    back: AnsweredRequest,
    chunk: Duration,
    live: &RunProgress,
) {
    let AnsweredRequest { sent, at, answer } = back;
    let counts = live.measures(sent.at);
    let took = at.saturating_duration_since(sent.at);
    if counts {
        live.answered();
        tally.late += u64::from(took > chunk);
    }
    match answer {
        Ok(answer) if counts => tally.answered(took, sent.mark.is_wrong(&answer)),
        Ok(_) => {}
        Err(fault) => {
            script.abandon(sent.mark.sequence);
            if counts {
                tally.failed(fault.code, &fault.text);
            }
        }
    }
}

/// Gives up on the requests that are still unanswered.
fn give_up(tally: &mut SenderTally, line: &Transport, chunk: Duration, live: &RunProgress) {
    for at in line.sent_at() {
        if live.measures(at) && at.elapsed() > chunk {
            tally.late += 1;
            tally.failed("NO ANSWER", "none came before the end of the run");
        }
    }
}
