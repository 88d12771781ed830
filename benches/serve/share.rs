//! Measures the share of work on states in a step: a model with four states of two types, 3.4 MiB a sequence, and little computation.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sequor::bench::{BenchPlan, Child, Data, Recipe, Wanted, drive};
use sequor_proto::service::grpc_inference_service_client::GrpcInferenceServiceClient;
use sequor_proto::{InferStatistics, ModelStatisticsRequest};
use tonic::transport::Channel;

use crate::{Options, models, sequor};

const CLIENTS: usize = 32;
/// Bytes of a sequence's states.
const STATE: usize = 8 * (2 * 64 * 512 + 512 * 92) * 4 + 8 * 8;

pub(crate) fn figures(options: &Options) {
    let repository = models::repository();
    let server = Child::serve(&sequor(), repository.path()).expect("the server");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let [state_in, run, state_out] = runtime.block_on(measure(&server, options));
    let (state, copy) = (state_in + state_out, copy());
    println!("\nfour states of two types, 3.4 MiB a sequence, {CLIENTS} clients: us a step");
    println!(
        "states and tensors in {state_in:.0}, run {run:.0}, out {state_out:.0}: {:.0} % of the step",
        100.0 * state / (state + run)
    );
    println!("a copy of such a state {copy:.0}: in and out cost {:.2} of two copies", state / (2.0 * copy));
}

/// Microseconds a request: input, run, output.
async fn measure(server: &Child, options: &Options) -> [f64; 3] {
    let wanted = Wanted {
        model: "cached".to_owned(),
        data: Data::Random,
        shapes: BTreeMap::new(),
        sequence_length: 20,
        variation: 20,
        check_sums: false,
        seed: 1,
    };
    let channel = drive::connect(&server.grpc).await.expect("a connection");
    let recipe = Recipe::ask(channel.clone(), &wanted).await.expect("the model");
    let plan = BenchPlan {
        warm_up: Duration::from_millis(500),
        span: Duration::from_secs(if options.quick { 3 } else { 20 }),
        metrics: server.metrics.clone(),
        pid: Some(server.pid()),
        ..BenchPlan::closed(server.grpc.clone(), CLIENTS)
    };
    let before = statistics(channel.clone()).await;
    let report = drive::run(&plan, &recipe, std::future::pending()).await.expect("a run");
    assert_eq!(report.failures(), 0, "{report}");
    let after = statistics(channel).await;
    let spent = |of: fn(&InferStatistics) -> u64| {
        let count = |s: &InferStatistics| s.success.as_ref().map_or(0, |s| s.count);
        (of(&after) - of(&before)) as f64 / 1e3 / (count(&after) - count(&before)) as f64
    };
    // The statistics count the whole batch's time for each of its requests.
    let batch = report.mean_batch.expect("batches");
    let parts: [fn(&InferStatistics) -> u64; 3] = [
        |s| s.compute_input.as_ref().map_or(0, |d| d.ns),
        |s| s.compute_infer.as_ref().map_or(0, |d| d.ns),
        |s| s.compute_output.as_ref().map_or(0, |d| d.ns),
    ];
    parts.map(|part| spent(part) / batch)
}

async fn statistics(channel: Channel) -> InferStatistics {
    let asked = ModelStatisticsRequest { name: "cached".to_owned(), version: String::new() };
    let answer = GrpcInferenceServiceClient::new(channel).model_statistics(asked).await.expect("statistics");
    let counted = answer.into_inner().model_stats.pop().expect("one version");
    counted.inference_stats.expect("statistics")
}

/// Microseconds to copy a sequence's states among many in distant memory; the mean over some time, like the server's figures.
fn copy() -> f64 {
    let from: Vec<Vec<u8>> = (0..CLIENTS).map(|n| vec![n as u8; STATE]).collect();
    let mut to = vec![1u8; STATE * CLIENTS];
    let (began, mut copies) = (Instant::now(), 0u32);
    while began.elapsed() < Duration::from_secs(2) {
        for (from, to) in from.iter().zip(to.chunks_exact_mut(STATE)) {
            to.copy_from_slice(from);
            copies += 1;
        }
        std::hint::black_box(&mut to);
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(copies)
}
