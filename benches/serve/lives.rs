//! Measures whole sequences of a model with large states, from START to END: CPU time and page faults a step. The same run measures the
//! parts of the minimum:
//! - a bare run of ONNX Runtime;
//! - copies of the states;
//! - a request of as many bytes to a stateless model.

use std::collections::BTreeMap;
use std::process::Output;
use std::time::Duration;

use sequor::bench::{BenchPlan, BenchReport, Child, Data, Recipe, Wanted, drive};
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{ModelStatistics, ModelStatisticsRequest};
use tonic::transport::Channel;

use crate::{Options, models, role, sequor};

const MODELS: [&str; 3] = ["cached_direct", "cached_compact", "cached_oldest"];
const IDENTITY: &str = "wide_identity";

/// Batch size, and microseconds a row.
type Bare = BTreeMap<u64, f64>;

/// The figures of the bare loop.
struct Least {
    runs: Bare,
    copies: Bare,
}

/// One model at one number of clients.
struct Cell {
    /// The server's CPU time in microseconds a step.
    cpu: f64,
    /// ONNX Runtime's share of it.
    run: f64,
    /// The server's minor page faults a step.
    faults: f64,
    /// Rows of a batch with a request, and all rows.
    ready: f64,
    executed: f64,
    report: BenchReport,
}

pub(crate) fn figures(options: &Options) {
    let wanted: Vec<&str> = MODELS.into_iter().filter(|m| options.wants("lives") || options.wants(m)).collect();
    if wanted.is_empty() {
        return;
    }
    let repository = models::repository();
    let server = Child::serve(&sequor(), repository.path()).expect("the server");
    let least = least();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    println!("\nsequences of 20 steps of a model with four states, 3.4 MiB a sequence: us of CPU time a step");
    println!(
        "model           clients   ready/run  sequor   in ORT  faults    p50     p99     bare    copy  R       least  ratio   aim"
    );
    for clients in [1, 8, 32] {
        let request = runtime.block_on(measure(&server, options, IDENTITY, clients)).cpu;
        for model in &wanted {
            let cell = runtime.block_on(measure(&server, options, model, clients));
            print(model, clients, &cell, &least, request);
        }
    }
}

/// The bare figures, from a separate process.
fn least() -> Least {
    let Output { stdout, .. } = role("cached").output().expect("the bare loop");
    let mut least = Least { runs: Bare::new(), copies: Bare::new() };
    for line in String::from_utf8_lossy(&stdout).lines() {
        let figures: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        let [batch, run, copy] = figures[..] else { panic!("{line}") };
        least.runs.insert(batch as u64, run);
        least.copies.insert(batch as u64, copy);
    }
    least
}

async fn measure(server: &Child, options: &Options, model: &str, clients: usize) -> Cell {
    let wanted = Wanted {
        model: model.to_owned(),
        data: Data::Random,
        shapes: BTreeMap::new(),
        sequence_length: 20,
        variation: 0,
        check_sums: false,
        seed: 1,
    };
    let channel = drive::connect(&server.grpc).await.expect("a connection");
    let recipe = Recipe::ask(channel.clone(), &wanted).await.expect("the model");
    let plan = |requests: u64| BenchPlan {
        span: Duration::from_secs(120),
        requests: Some(requests),
        metrics: server.metrics.clone(),
        pid: Some(server.pid()),
        ..BenchPlan::closed(server.grpc.clone(), clients)
    };
    let run = |requests: u64| {
        let (plan, recipe) = (plan(requests), &recipe);
        async move {
            let report = drive::run(&plan, recipe, std::future::pending()).await.expect("a run");
            assert_eq!(report.failures(), 0, "{report}");
            report
        }
    };
    run(400.max(60 * clients as u64)).await;
    let (before, faults) = (statistics(channel.clone(), model).await, minor_faults(server.pid()));
    let report = run(if options.quick { 2_000 } else { 10_000 }).await;
    let (faults, after) = (minor_faults(server.pid()) - faults, statistics(channel, model).await);
    let steps = (after.inference_count - before.inference_count) as f64;
    let batches = (after.execution_count - before.execution_count) as f64;
    let (rows, nanos) = rows_and_nanos(&after);
    let (rows_before, nanos_before) = rows_and_nanos(&before);
    Cell {
        cpu: report.server.as_ref().expect("a local server").cpu_us_per_request,
        run: (nanos - nanos_before) as f64 / 1e3 / steps,
        faults: faults as f64 / steps,
        ready: steps / batches,
        executed: (rows - rows_before) as f64 / batches,
        report,
    }
}

/// Rows that ran, including padding, and ONNX Runtime's time for them.
fn rows_and_nanos(statistics: &ModelStatistics) -> (u64, u64) {
    let of_size = |batch: &sequor_proto::InferBatchStatistics| {
        let run = batch.compute_infer.as_ref();
        (batch.batch_size * run.map_or(0, |run| run.count), run.map_or(0, |run| run.ns))
    };
    statistics.batch_stats.iter().map(of_size).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

async fn statistics(channel: Channel, model: &str) -> ModelStatistics {
    let asked = ModelStatisticsRequest { name: model.to_owned(), version: String::new() };
    let answer = GrpcInferenceServiceClient::new(channel).model_statistics(asked).await.expect("statistics");
    answer.into_inner().model_stats.pop().expect("one version")
}

/// Minor page faults of a process so far: the tenth field of its `stat`.
fn minor_faults(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let behind_name = stat.rsplit_once(") ").expect("a name").1;
    behind_name.split(' ').nth(7).and_then(|n| n.parse().ok()).expect("a number")
}

/// The figure of the nearest batch size.
fn nearest(figures: &Bare, batch: f64) -> f64 {
    let near = figures.iter().min_by(|a, b| (*a.0 as f64 - batch).abs().total_cmp(&(*b.0 as f64 - batch).abs()));
    *near.expect("figures").1
}

fn print(model: &str, clients: usize, cell: &Cell, least: &Least, request: f64) {
    let Cell { cpu, run, faults, ready, executed, report } = cell;
    let (bare, copy) = (nearest(&least.runs, *ready), nearest(&least.copies, *ready));
    let copies = if model == "cached_oldest" && clients > 1 { 2.0 } else { 0.0 };
    let bound = bare + copies * copy + request;
    let [p50, p99] = [report.latency_us.p50, report.latency_us.p99].map(|us| us as f64);
    let ratio = cpu / bound;
    let aims: Vec<(String, bool)> = [
        (model == "cached_direct" && clients == 1).then(|| ("1.4".to_owned(), ratio <= 1.4)),
        (model == "cached_direct" && clients == 1).then(|| ("p99 4 x p50".to_owned(), p99 <= 4.0 * p50)),
        (model == "cached_oldest" && clients > 1).then(|| ("1.2".to_owned(), ratio <= 1.2)),
        (model == "cached_direct" && clients > 1)
            .then(|| (format!("{:.0} of 100 us outside ORT", cpu - run), cpu - run <= 100.0)),
        Some(("1 fault".to_owned(), *faults <= 1.0)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let verdicts: Vec<String> =
        aims.iter().map(|(aim, is_met)| format!("{aim}: {}", if *is_met { "ok" } else { "MISSED" })).collect();
    println!(
        "{model:<16}{clients:>6}{ready:>7.1}/{executed:<5.1}{cpu:>7.0}{run:>9.0}{faults:>8.2}{p50:>8.0}{p99:>8.0}{bare:>8.0}{copy:>8.0}{request:>6.0}{bound:>9.0}{ratio:>7.2}   {}",
        verdicts.join(", ")
    );
}
