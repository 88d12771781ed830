//! The way out: first say so, then take no new sequences, then no new connections, then go. And the signals that ask for it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::shutdown::Shutdown;
use super::systemd;
use crate::api::{Api, ServerPhase};
use crate::config::server::Drain;
use crate::config::units::Span;

/// How often a server that waits for its sequences to end looks whether they have.
const LOOK: Duration = Duration::from_millis(50);
/// What requests get to end when it is to be now.
const NOW: Duration = Duration::from_secs(1);

/// A wish that the server stop. Any second one makes it stop now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// When what is live has ended, or has had its time.
    Drain,
    Now,
}

/// How the server went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Everything was answered.
    Clean,
    /// Connections had to be cut.
    Cut,
}

/// Turns signals into wishes: SIGTERM drains, SIGINT and a second SIGTERM stop now; after `sequor drain` the first SIGTERM changes nothing. To be
/// called within a runtime, before models load.
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

/// Waits for a wish to stop, then takes the server out of service.
pub(super) async fn run(
    api: Api,
    options: Drain,
    shutdown: Shutdown,
    stop: mpsc::Receiver<Stop>,
    asked: Arc<Notify>,
) -> Drained {
    let mut stop = StopSignals { receiver: stop, begun_by_operator: false };
    // An operator who asks twice has asked once: only signals hurry.
    let wish = tokio::select! {
        wish = stop.next() => wish,
        () = asked.notified() => {
            stop.begun_by_operator = true;
            Stop::Drain
        }
    };
    let begun = Instant::now();
    let limit = begun + options.exit_timeout.0;
    tracing::info!(?wish, "stopping");
    // A server that still loads what it starts with was never ready: there is nothing to announce.
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
        tracing::warn!(in_flight = api.metrics().in_flight().get(), "connections are cut");
        shutdown.cut.cancel();
        // What was cut ends at its next step; a task that never gets there does not hold the server up.
        let _ = timeout(NOW, shutdown.connections.wait()).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    match api.repository().live_unkept() {
        0 => tracing::info!(?drained, seconds, "stopped"),
        lost_sequences => tracing::warn!(?drained, seconds, lost_sequences, "stopped, live sequences are lost"),
    }
    drained
}

/// The signals that reach a stopping server.
struct StopSignals {
    receiver: mpsc::Receiver<Stop>,
    /// An operator began the stop, and no SIGTERM has come since.
    begun_by_operator: bool,
}

impl StopSignals {
    /// The next wish. A closed channel has none any more.
    async fn next(&mut self) -> Stop {
        match self.receiver.recv().await {
            Some(stop) => stop,
            None => std::future::pending().await,
        }
    }

    /// Waits for a signal that hurries the stop. After `sequor drain` the service manager sends its SIGTERM: that one hurries nothing.
    async fn hurries(&mut self) {
        while self.next().await == Stop::Drain && std::mem::take(&mut self.begun_by_operator) {
            tracing::info!("SIGTERM: the server is draining already; a second one stops it at once");
        }
    }
}

/// Announces, then lets live sequences end. Whether it was hurried on.
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

/// Until no sequence lives that the stop would end, and nothing is to be answered. Sequences that are kept do not hold the server up: their clients
/// go on with them once it is back.
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

    /// A server that an operator drains, with hours for each phase: the sender of its signals, its phases and how it ended.
    async fn drained_by_operator() -> (mpsc::Sender<Stop>, watch::Receiver<ServerPhase>, JoinHandle<Drained>) {
        let hour = Span(Duration::from_secs(3600));
        let options = Drain { announce: hour, finish: hour, exit_timeout: hour };
        let api = Api::new(Repository::empty(), Metrics::new(false), ServerLimits::default());
        let (signals, receiver) = mpsc::channel(2);
        let asked = Arc::new(Notify::new());
        asked.notify_one();
        let mut phases = api.phases();
        let drained = tokio::spawn(run(api, options, Shutdown::default(), receiver, asked));
        phases.wait_for(|phase| *phase == ServerPhase::Announcing).await.unwrap();
        (signals, phases, drained)
    }

    #[tokio::test]
    async fn the_first_sigterm_after_an_operators_drain_hurries_nothing() {
        let (signals, phases, drained) = drained_by_operator().await;
        signals.send(Stop::Drain).await.unwrap();
        // The drain acts on a signal in the same turn in which it takes it.
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
