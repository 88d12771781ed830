//! Drives a run: starts the senders, warms up, measures, and ends the open sequences.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, unconstrained};
use tonic::transport::{Channel, Endpoint};

use super::line::Transport;
use super::live::RunProgress;
use super::plan::{BenchPlan, Pace};
use super::random::SplitMix64;
use super::recipe::Recipe;
use super::report::{BenchReport, Cost};
use super::scrape::{self, ModelCounts};
use super::script::{Ids, RequestScript};
use super::tally::SenderTally;
use super::{BenchError, closed, open, process};

/// Bytes that a server may send ahead, as in Triton's clients and ours.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Maximum wait for answers after the end of the run.
const GRACE: Duration = Duration::from_secs(5);

/// Connects to a server.
pub async fn connect(address: &str) -> Result<Channel, BenchError> {
    let unreachable = |e: &dyn std::error::Error| {
        let why = e.source().map_or_else(|| e.to_string(), |cause| innermost(cause).to_string());
        BenchError::Unreachable { address: address.to_owned(), why }
    };
    Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| unreachable(&e))?
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .map_err(|e| unreachable(&e))
}

fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    error.source().map_or(error, innermost)
}

/// Drives a server. `stop` ends the measured span early; the report covers the span until then.
pub async fn run(plan: &BenchPlan, recipe: &Recipe, stop: impl Future<Output = ()>) -> Result<BenchReport, BenchError> {
    let live = Arc::new(RunProgress::new(plan.requests));
    let mut senders = start(plan, recipe, &live).await?;
    let mut stop = std::pin::pin!(stop);
    let stopped = tokio::select! {
        () = tokio::time::sleep(plan.warm_up) => false,
        () = &mut stop => true,
    };
    let before = Snapshot::take(plan, &recipe.model).await;
    live.begin();
    let began = Instant::now();
    if !stopped {
        tokio::select! {
            () = tokio::time::sleep(plan.span) => {}
            () = live.has_enough() => {}
            () = stop => {}
        }
    }
    live.end();
    let span = began.elapsed();
    let after = Snapshot::take(plan, &recipe.model).await;
    let all = gather(&mut senders, &live).await;
    Ok(report(plan, recipe, &all, span, (before, after)))
}

async fn start(plan: &BenchPlan, recipe: &Recipe, live: &Arc<RunProgress>) -> Result<JoinSet<SenderTally>, BenchError> {
    let mut channels = Vec::new();
    for _ in 0..plan.connections.max(1) {
        channels.push(connect(&plan.address).await?);
    }
    let (recipe, ids) = (Arc::new(recipe.clone()), Arc::new(Ids::new()));
    let mut senders = JoinSet::new();
    let begin = Instant::now();
    for (sender, channel) in (0..plan.pace.senders()).zip(channels.iter().cycle()) {
        let line = Transport::new(channel.clone(), plan.streaming, plan.key.clone());
        let mut random = SplitMix64::new(plan.seed, sender + 1);
        let (phase, live) = (random.share(), Arc::clone(live));
        let script = RequestScript::new(&recipe, &ids, random);
        // Unconstrained: otherwise tokio could delay a call for fairness, and later calls would overtake it.
        match plan.pace {
            Pace::Closed { pipeline, .. } => {
                senders.spawn(unconstrained(closed::drive(line, script, pipeline, plan.streaming, live)));
            }
            Pace::Open { chunk, .. } => {
                let begin = begin + chunk.mul_f64(phase);
                senders.spawn(unconstrained(open::drive(line, script, begin, chunk, plan.streaming, live)));
            }
        }
    }
    Ok(senders)
}

async fn gather(senders: &mut JoinSet<SenderTally>, live: &RunProgress) -> SenderTally {
    let mut all = SenderTally::new();
    let grace = tokio::time::sleep(GRACE);
    let mut grace = std::pin::pin!(grace);
    loop {
        tokio::select! {
            () = &mut grace, if !live.has_given_up() => live.give_up(),
            ended = senders.join_next() => match ended {
                Some(Ok(tally)) => all.add(&tally),
                Some(Err(_)) => {}
                None => return all,
            },
        }
    }
}

/// Counters read before and after the measured span.
#[derive(Debug, Clone, Copy)]
struct Snapshot {
    server: Option<Duration>,
    client: Option<Duration>,
    counts: Option<ModelCounts>,
}

impl Snapshot {
    async fn take(plan: &BenchPlan, model: &str) -> Snapshot {
        let (server, client) = (plan.pid.and_then(process::cpu), process::cpu(std::process::id()));
        let counts = match &plan.metrics {
            Some(metrics) => scrape::counts(metrics, model).await,
            None => None,
        };
        Snapshot { server, client, counts }
    }
}

fn report(
    plan: &BenchPlan,
    recipe: &Recipe,
    all: &SenderTally,
    span: Duration,
    (before, after): (Snapshot, Snapshot),
) -> BenchReport {
    let requests = all.answered + all.failures();
    let spent = |before: Option<Duration>, after: Option<Duration>| Some(after?.saturating_sub(before?));
    let cost = |spent: Duration| Cost::new(spent, requests, span);
    let server = spent(before.server, after.server).map(cost);
    BenchReport {
        mean_batch: before.counts.zip(after.counts).and_then(|(before, after)| after.mean_batch(before)),
        server,
        server_pid: plan.pid,
        resident: plan.pid.and_then(process::resident),
        client: spent(before.client, after.client).map(cost),
        ..BenchReport::new(plan, recipe, all, span)
    }
}
