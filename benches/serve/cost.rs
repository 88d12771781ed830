//! CPU time of the server for a request, beside that of a bare echo of the same message, and of one that answers from a thread of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use sequor::bench::{Child, Data, Plan, Recipe, Report, Wanted, drive};

use crate::{Options, models, role, sequor};

/// Turns that each figure is measured in; the middle one is taken.
const TURNS: u64 = 5;

/// Model, clients at once, and by how much the server may cost more than the echo: at most, and as is aimed at.
const FIGURES: [(&str, &[usize], f64, f64); 5] = [
    ("identity", &[1, 8, 32, 64], 2.0, 1.5),
    ("direct", &[1, 8, 32, 64], 2.0, 1.5),
    ("oldest", &[1, 8, 32, 64], 2.0, 1.5),
    ("wide_direct", &[32], 2.0, 2.0),
    ("wide_oldest", &[32], 2.0, 2.0),
];

struct Row {
    echo: f64,
    hop: f64,
    before: Option<f64>,
    now: f64,
    report: Report,
}

pub(crate) fn figures(options: &Options) {
    if !FIGURES.iter().any(|(model, ..)| options.wants(model)) {
        return;
    }
    let repository = models::repository();
    let now = Child::serve(&sequor(), repository.path()).expect("the server");
    let before = options.before.as_ref().map(|file| Child::serve(file, repository.path()).expect("the other build"));
    let echo = Child::start(role("echo")).expect("the echo");
    let hop = Child::start(role("hop")).expect("the echo with a hop");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    println!(
        "\nCPU time of the server, us a request                                   (unary gRPC; client and server on the same cores)"
    );
    let title = if before.is_some() { "  before" } else { "" };
    println!(
        "model         clients    echo  +thread{title}   sequor   ratio   must    aim            batch     req/s      p50      p99"
    );
    for (model, clients, must, aim) in FIGURES {
        for clients in clients.iter().copied().filter(|_| options.wants(model)) {
            let row = runtime.block_on(measure(
                options,
                model,
                clients,
                [Some(&echo), Some(&hop), before.as_ref(), Some(&now)],
            ));
            print(model, clients, &row, must, aim);
        }
    }
    if options.wants("wide") {
        wide_parts();
    }
}

async fn measure(options: &Options, model: &str, clients: usize, servers: [Option<&Child>; 4]) -> Row {
    let sequences = model != "identity";
    let wanted = Wanted {
        model: model.to_owned(),
        data: if sequences { Data::Whole } else { Data::Random },
        shapes: BTreeMap::new(),
        sequence_length: 20,
        variation: 20,
        check_sums: sequences,
        seed: 1,
    };
    let channel = drive::connect(&servers[3].expect("the server").grpc).await.expect("a connection");
    let recipe = Recipe::ask(channel, &wanted).await.expect("the model");
    let requests = if options.quick { 5_000 } else { 50_000 } / TURNS;
    let mut costs = [const { Vec::new() }; 4];
    let mut last = None;
    for _ in 0..TURNS {
        for (n, child) in servers.iter().enumerate() {
            let Some(child) = child else { continue };
            let recipe = if n < 2 { recipe.clone().unchecked() } else { recipe.clone() };
            let report = turn(child, clients, requests, &recipe).await;
            costs[n].push(report.server.expect("a local server").cpu_us_per_request);
            last = Some(report);
        }
    }
    let [echo, hop, before, now] = costs.map(middle);
    let [echo, hop, now] = [echo, hop, now].map(|cost| cost.expect("figures"));
    Row { echo, hop, before, now, report: last.expect("a report") }
}

async fn turn(child: &Child, clients: usize, requests: u64, recipe: &Recipe) -> Report {
    let plan = Plan {
        warm_up: Duration::from_millis(200),
        span: Duration::from_secs(120),
        requests: Some(requests),
        metrics: child.metrics.clone(),
        pid: Some(child.pid()),
        ..Plan::closed(child.grpc.clone(), clients)
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

fn print(model: &str, clients: usize, row: &Row, must: f64, aim: f64) {
    let Row { echo, hop, before, now, report } = row;
    let ratio = now / echo;
    // The aim is for many clients; alone, a request costs its wake-ups.
    let aim = (clients >= 32).then_some(aim);
    let verdict = match aim {
        _ if ratio > must => "MISSED",
        Some(aim) if ratio > aim => "ok, not the aim",
        _ => "ok",
    };
    let before = before.map(|b| format!("{b:8.1}")).unwrap_or_default();
    let aim = aim.map_or("    -".to_owned(), |aim| format!("{aim:5.1}"));
    let latency = report.latency_us;
    println!(
        "{model:<14}{clients:>6}{echo:>8.1}{hop:>9.1}{before}{now:>9.1}{ratio:>8.2}{must:>7.1}  {aim}  {verdict:<15}{:>6.1}{:>10.0}{:>6.2} ms{:>6.2} ms",
        report.mean_batch.unwrap_or(0.0),
        report.per_second,
        latency.p50 as f64 / 1e3,
        latency.p99 as f64 / 1e3,
    );
}

/// What of a 64 KiB state's cost is the model's own run, and what one copy of it costs.
fn wide_parts() {
    let said = role("wide").output().expect("the bare loop");
    println!("64 KiB of state: the bound is twice the echo, the model's own run and one copy of the state");
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        let figures: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        if let [batch, run, copy] = figures.as_slice() {
            println!("  batch {batch:>2}: run {run:>5.1} us a row, copy {copy:>4.1} us");
        }
    }
}
