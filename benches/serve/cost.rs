//! Measures the server's CPU time a request, next to a bare echo of the same message, and an echo that answers from a separate thread.

use std::collections::BTreeMap;
use std::time::Duration;

use sequor::bench::{BenchPlan, BenchReport, Child, Data, Recipe, Wanted, drive};

use crate::{Options, models, role, sequor};

/// The maximum ratio of the server's cost to the echo's, and the target.
struct Figure {
    model: &'static str,
    /// Whether each client uses a stream instead of single calls.
    streaming: bool,
    clients: &'static [usize],
    must: f64,
    aim: f64,
}

const CALLS: &[usize] = &[1, 8, 32, 64];

const FIGURES: [Figure; 7] = [
    Figure { model: "identity", streaming: false, clients: CALLS, must: 2.0, aim: 1.5 },
    Figure { model: "direct", streaming: false, clients: CALLS, must: 2.0, aim: 1.5 },
    Figure { model: "oldest", streaming: false, clients: CALLS, must: 2.0, aim: 1.5 },
    Figure { model: "direct", streaming: true, clients: CALLS, must: 2.0, aim: 1.5 },
    Figure { model: "oldest", streaming: true, clients: CALLS, must: 2.0, aim: 1.5 },
    Figure { model: "wide_direct", streaming: false, clients: &[32], must: 2.0, aim: 2.0 },
    Figure { model: "wide_oldest", streaming: false, clients: &[32], must: 2.0, aim: 2.0 },
];

impl Figure {
    fn name(&self) -> String {
        format!("{}{}", self.model, if self.streaming { "_streams" } else { "" })
    }
}

struct Row {
    echo: f64,
    hop: f64,
    before: Option<f64>,
    /// The median ratio of this build to the other one, over the turns.
    change: Option<f64>,
    now: f64,
    report: BenchReport,
}

pub(crate) fn figures(options: &Options) {
    if !FIGURES.iter().any(|figure| options.wants(&figure.name())) {
        return;
    }
    let repository = models::repository();
    let now = Child::serve(&sequor(), repository.path()).expect("the server");
    let before = options.before.as_ref().map(|file| Child::serve(file, repository.path()).expect("the other build"));
    let echo = Child::start(role("echo")).expect("the echo");
    let hop = Child::start(role("hop")).expect("the echo with a hop");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    println!(
        "\nCPU time of the server, us a request                                   (gRPC; client and server on the same cores)"
    );
    let title = if before.is_some() { "  before  change" } else { "" };
    println!(
        "model           clients    echo  +thread{title}   sequor   ratio   must    aim            batch     req/s      p50      p99"
    );
    for figure in FIGURES.iter().filter(|figure| options.wants(&figure.name())) {
        for clients in figure.clients.iter().copied() {
            let servers = [Some(&echo), Some(&hop), before.as_ref(), Some(&now)];
            let row = runtime.block_on(measure(options, figure, clients, servers));
            print(figure, clients, &row);
        }
    }
    if options.wants("wide") {
        wide_parts();
    }
}

/// A model with this many clients.
pub(crate) struct Cell {
    pub(crate) model: &'static str,
    pub(crate) streaming: bool,
    pub(crate) clients: usize,
    pub(crate) sequences: bool,
}

impl Cell {
    /// The requests, built for a server with this model.
    async fn recipe(&self, server: &Child) -> Recipe {
        let wanted = Wanted {
            model: self.model.to_owned(),
            data: if self.sequences { Data::Whole } else { Data::Random },
            shapes: BTreeMap::new(),
            sequence_length: 20,
            variation: 20,
            check_sums: self.sequences,
            seed: 1,
        };
        let channel = drive::connect(&server.grpc).await.expect("a connection");
        Recipe::ask(channel, &wanted).await.expect("the model")
    }
}

/// CPU time a request with each server, one row a turn. Every second turn uses the reverse order.
pub(crate) async fn costs<const N: usize>(options: &Options, cell: &Cell, servers: &[&Child; N]) -> Vec<[f64; N]> {
    let recipe = cell.recipe(servers[0]).await;
    let mut rows = Vec::new();
    for number in 0..options.turns {
        let mut row = [0.0; N];
        let order: Vec<usize> = if number % 2 == 0 { (0..N).collect() } else { (0..N).rev().collect() };
        for n in order {
            let report = turn(servers[n], (cell.clients, cell.streaming), options.requests(), &recipe).await;
            row[n] = report.server.expect("a local server").cpu_us_per_request;
        }
        rows.push(row);
    }
    rows
}

async fn measure(options: &Options, figure: &Figure, clients: usize, servers: [Option<&Child>; 4]) -> Row {
    let sequences = figure.model != "identity";
    let cell = Cell { model: figure.model, streaming: figure.streaming, clients, sequences };
    let recipe = cell.recipe(servers[3].expect("the server")).await;
    let requests = options.requests();
    let mut costs = [const { Vec::new() }; 4];
    let mut last = None;
    for _ in 0..options.turns {
        for (n, child) in servers.iter().enumerate() {
            let Some(child) = child else { continue };
            let recipe = if n < 2 { recipe.clone().unchecked() } else { recipe.clone() };
            let report = turn(child, (clients, figure.streaming), requests, &recipe).await;
            costs[n].push(report.server.expect("a local server").cpu_us_per_request);
            last = Some(report);
        }
    }
    let change = middle(costs[3].iter().zip(&costs[2]).map(|(now, before)| now / before).collect());
    let [echo, hop, before, now] = costs.map(middle);
    let [echo, hop, now] = [echo, hop, now].map(|cost| cost.expect("figures"));
    Row { echo, hop, before, change, now, report: last.expect("a report") }
}

async fn turn(child: &Child, (clients, streaming): (usize, bool), requests: u64, recipe: &Recipe) -> BenchReport {
    let plan = BenchPlan {
        warm_up: Duration::from_millis(200),
        span: Duration::from_secs(120),
        requests: Some(requests),
        streaming,
        metrics: child.metrics.clone(),
        pid: Some(child.pid()),
        ..BenchPlan::closed(child.grpc.clone(), clients)
    };
    let report = drive::run(&plan, recipe, std::future::pending()).await.expect("a run");
    assert_eq!(report.failures(), 0, "{report}");
    assert_eq!(report.wrong_sums.unwrap_or(0), 0, "{report}");
    report
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn print(figure: &Figure, clients: usize, row: &Row) {
    let Figure { must, aim, .. } = *figure;
    let name = figure.name();
    let Row { echo, hop, before, change, now, report } = row;
    let ratio = now / echo;
    // The target is for many clients; with a single client, wake-ups dominate.
    let aim = (clients >= 32).then_some(aim);
    let verdict = match aim {
        _ if ratio > must => "MISSED",
        Some(aim) if ratio > aim => "ok, not the aim",
        _ => "ok",
    };
    let before = before.zip(*change).map(|(b, change)| format!("{b:8.1}{change:8.3}")).unwrap_or_default();
    let aim = aim.map_or("    -".to_owned(), |aim| format!("{aim:5.1}"));
    let latency = report.latency_us;
    println!(
        "{name:<16}{clients:>6}{echo:>8.1}{hop:>9.1}{before}{now:>9.1}{ratio:>8.2}{must:>7.1}  {aim}  {verdict:<15}{:>6.1}{:>10.0}{:>6.2} ms{:>6.2} ms",
        report.mean_batch.unwrap_or(0.0),
        report.per_second,
        latency.p50 as f64 / 1e3,
        latency.p99 as f64 / 1e3,
    );
}

/// Prints the share of the model's own run in the cost of a 64 KiB state, and the cost of one copy.
fn wide_parts() {
    let message = role("wide").output().expect("the bare loop");
    println!("64 KiB of state: the bound is twice the echo, the model's own run and one copy of the state");
    for line in String::from_utf8_lossy(&message.stdout).lines() {
        let figures: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        if let [batch, run, copy] = figures.as_slice() {
            println!("  batch {batch:>2}: run {run:>5.1} us a row, copy {copy:>4.1} us");
        }
    }
}
