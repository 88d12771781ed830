//! The drain of a server: it announces that it is not ready, lets live sequences end, closes connections, and exits. Also the signals that
//! start it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::shutdown::Shutdown;
use super::systemd;
use crate::api::{Api, ServerPhase};
use crate::config::server::Drain;
use crate::config::units::Span;

/// The target of the log lines, as operators filter them: it does not depend on the package.
const TARGET: &str = "sequor::server::drain";

/// How often the drain checks whether the sequences have ended.
const LOOK: Duration = Duration::from_millis(50);
/// Time for requests to end when the server must stop at once.
const NOW: Duration = Duration::from_secs(1);

/// A request to stop the server. A second one stops it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Stop once live sequences have ended, or after a maximum time.
    Drain,
    Now,
}

/// The outcome of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All requests were answered.
    Clean,
    /// Some connections were cut.
    Cut,
}

/// Converts signals: SIGTERM drains; SIGINT and a second SIGTERM stop at once. After `sequor drain`, the first SIGTERM changes nothing.
/// Call it in a runtime, before models load.
pub fn signals() -> io::Result<mpsc::Receiver<Stop>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = mpsc::channel(8);
    tokio::spawn(async move {
        loop {
            let stop = tokio::select! {
                got = terminate.recv() => got.map(|()| Stop::Drain),
                got = interrupt.recv() => got.map(|()| Stop::Now),
            };
            match stop {
                Some(stop) if sender.send(stop).await.is_ok() => {}
                _ => return,
            }
        }
    });
    Ok(receiver)
}

/// Waits for a request to stop, then drains the server with the options that hold then.
pub(super) async fn run(
    api: Api,
    options: Arc<ArcSwap<Drain>>,
    shutdown: Shutdown,
    stop: mpsc::Receiver<Stop>,
    asked: Arc<Notify>,
) -> Drained {
    let mut stop = StopSignals { receiver: stop, begun_by_operator: false };
    // A second request by an operator changes nothing. Only signals speed up the stop.
    let wish = tokio::select! {
        wish = stop.next() => wish,
        () = asked.notified() => {
            stop.begun_by_operator = true;
            Stop::Drain
        }
    };
    let (begun, options) = (Instant::now(), **options.load());
    let limit = begun + options.exit_timeout.0;
    tracing::info!(target: TARGET, ?wish, "stopping");
    // A server that still loads its first models was never ready, so it announces nothing.
    let announce = if api.repository().is_loading() { Span::default() } else { options.announce };
    let options = Drain { announce, ..options };
    api.repository().refuse_loads();
    systemd::stopping();
    let hurried = wish == Stop::Now || wind_down(&api, options, limit, &mut stop).await;
    api.set_phase(ServerPhase::Closing);
    shutdown.closing.cancel();
    shutdown.connections.close();
    let limit = if hurried { limit.min(Instant::now() + NOW) } else { limit };
    let drained = tokio::select! {
        () = shutdown.connections.wait() => Drained::Clean,
        () = sleep_until(limit) => Drained::Cut,
        () = stop.hurries() => Drained::Cut,
    };
    if drained == Drained::Cut {
        tracing::warn!(target: TARGET, in_flight = api.metrics().in_flight().get(), "connections are cut");
        shutdown.cut.cancel();
        // A cut connection ends at its next step. A task that never reaches one does not delay the exit.
        let _ = timeout(NOW, shutdown.connections.wait()).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    tracing::info!(target: TARGET, ?drained, seconds, "connections closed; states are being stored");
    drained
}

/// The last line of the log, once states are stored. `lost_sequences` lived when the connections were closed, and their models do not keep
/// them.
pub fn log_end(drained: Drained, lost_sequences: u64) {
    match lost_sequences {
        0 => tracing::info!(target: TARGET, ?drained, "stopped"),
        lost_sequences => tracing::warn!(target: TARGET, ?drained, lost_sequences, "stopped, live sequences are lost"),
    }
}

/// The signals to a stopping server.
struct StopSignals {
    receiver: mpsc::Receiver<Stop>,
    /// Whether an operator began the stop and no SIGTERM has arrived since.
    begun_by_operator: bool,
}

impl StopSignals {
    /// Waits for the next signal. If the channel is closed, it waits for ever.
    async fn next(&mut self) -> Stop {
        match self.receiver.recv().await {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// Waits for a signal that speeds up the stop. After `sequor drain`, the service manager sends a SIGTERM, which does not count.
    async fn hurries(&mut self) {
        while self.next().await == Stop::Drain && std::mem::take(&mut self.begun_by_operator) {
            tracing::info!(target: TARGET, "SIGTERM: the server is draining already; a second one stops it at once");
        }
    }
}

/// Announces the stop, then lets live sequences end. Returns whether a signal sped it up.
async fn wind_down(api: &Api, options: Drain, limit: Instant, stop: &mut StopSignals) -> bool {
    api.set_phase(ServerPhase::Announcing);
    let announced = limit.min(Instant::now() + options.announce.0);
    tokio::select! {
        () = sleep_until(announced) => {}
        () = stop.hurries() => return true,
    }
    api.set_phase(ServerPhase::Finishing);
    let finished = limit.min(Instant::now() + options.finish.0);
    tokio::select! {
        () = sleep_until(finished) => false,
        () = ended(api) => false,
        () = stop.hurries() => true,
    }
}

/// Waits until no request is in flight and no live sequence would be lost by the stop. Durable live sequences do not delay the exit,
/// because their clients continue them after the restart. With such sequences, requests in flight do not delay it either.
async fn ended(api: &Api) {
    let keeps = || api.metrics().live_sequences() > 0;
    while api.repository().live_unkept() > 0 || (api.metrics().in_flight().get() > 0 && !keeps()) {
        sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::config::server::ServerLimits;
    use crate::config::units::Span;
    use crate::model::Repository;
    use crate::telemetry::Metrics;

    /// A server that an operator drains, with an hour for each phase: the sender of its signals, its phases and its outcome.
    async fn drained_by_operator() -> (mpsc::Sender<Stop>, watch::Receiver<ServerPhase>, JoinHandle<Drained>) {
        let hour = Span(Duration::from_secs(3600));
        let options = Drain { announce: hour, finish: hour, exit_timeout: hour };
        let api = Api::new(Repository::empty(), Metrics::new(false), ServerLimits::default());
        let (signals, receiver) = mpsc::channel(2);
        let asked = Arc::new(Notify::new());
        asked.notify_one();
        let mut phases = api.phases();
        let drained =
            tokio::spawn(run(api, Arc::new(ArcSwap::from_pointee(options)), Shutdown::default(), receiver, asked));
        phases.wait_for(|phase| *phase == ServerPhase::Announcing).await.unwrap();
        (signals, phases, drained)
    }

    #[tokio::test]
    async fn the_first_sigterm_after_an_operators_drain_hurries_nothing() {
        let (signals, phases, drained) = drained_by_operator().await;
        signals.send(Stop::Drain).await.unwrap();
        // The drain handles a signal in the same poll in which it receives it.
        while signals.capacity() < signals.max_capacity() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*phases.borrow(), ServerPhase::Announcing);
        signals.send(Stop::Drain).await.unwrap();
        assert_eq!(drained.await.unwrap(), Drained::Clean);
    }

    #[tokio::test]
    async fn an_interrupt_hurries_an_operators_drain() {
        let (signals, _, drained) = drained_by_operator().await;
        signals.send(Stop::Now).await.unwrap();
        assert_eq!(drained.await.unwrap(), Drained::Clean);
    }
}
