//! Measures how long requests wait for a long step of another sequence. One instance runs a step of 500 ms, and a second request of the
//! same sequence waits for it. Meanwhile a sequence on the other instance continues. The server is in this process, on the mock backend.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::backend::mock::MockBackend;
use sequor::model::{Repository, RepositoryOptions};
use sequor::server::{Addresses, Listeners, ServerOptions, Stop, local, start};
use sequor::telemetry::Metrics;
use sequor_proto::tensorflow::serving::PredictRequest;
use sequor_proto::tensorflow_service::prediction_service_client::PredictionServiceClient;
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::Options;
use crate::predict::step_of;

const LONG: Duration = Duration::from_millis(500);
const AIM: Duration = Duration::from_millis(100);
/// A sequence ends and restarts after this many steps, because its state grows with each step.
const LIFE: u64 = 64;

const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
    instance_group [ { kind: KIND_CPU count: 2 } ]
    sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 4 } state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [ -1 ] } ] }
"#;

pub(crate) fn figures(options: &Options) {
    let rounds = if options.quick { 4 } else { 20 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let mut times = runtime.block_on(measure(rounds));
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
    let verdict = if p99 < AIM { "ok" } else { "MISSED" };
    println!(
        "\nwhile another instance is in a step of {} ms and a second request waits for it: {} requests, p50 {:.2} ms, p99 {:.2} ms, \
         longest {:.2} ms   aim p99 < {} ms: {verdict}",
        LONG.as_millis(),
        times.len(),
        p50.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3,
        most.as_secs_f64() * 1e3,
        AIM.as_millis(),
    );
}

/// The times of the requests of the sequence that continues.
async fn measure(rounds: u32) -> Vec<Duration> {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("long");
    std::fs::create_dir_all(model.join("1")).expect("a folder");
    std::fs::write(model.join("config.pbtxt"), CONFIG).expect("a file");
    // Steps of a millisecond or more run on an instance's own thread.
    std::fs::write(model.join("1/model.onnx"), "append FP32 dims=-1 cost=1500").expect("a file");
    let backend = MockBackend::with_hook(Arc::new(|shape| {
        if shape.0.last() == Some(&2) {
            std::thread::sleep(LONG);
        }
    }));
    let metrics = Metrics::new(true);
    let repository =
        Repository::new(Arc::new(backend), RepositoryOptions::default(), metrics.clone()).expect("a repository");
    repository.load_all(folder.path()).expect("the folder");
    assert!(repository.ready(), "{:?}", repository.statuses());
    let wanted = Addresses { grpc: Some(local(0)), ..Addresses::default() };
    let (stop, stopped) = mpsc::channel(1);
    let listeners = Listeners::bind(&wanted).expect("a port");
    let running = start(listeners, ServerOptions::default(), repository.clone(), metrics, stopped);
    let address = format!("http://{}", running.addresses.grpc.expect("a port"));
    let channel = Channel::from_shared(address).expect("an address").connect().await.expect("a connection");
    let client = PredictionServiceClient::new(channel);

    predict(client.clone(), step_of("long", 7, 1, 1)).await;
    predict(client.clone(), step_of("long", 8, 1, 1)).await;
    let (mut times, mut steps) = (Vec::new(), 0);
    for _ in 0..rounds {
        let long = tokio::spawn(predict(client.clone(), step_of("long", 7, 0, 2)));
        // It arrives second, while the step runs.
        tokio::time::sleep(LONG / 10).await;
        let behind = tokio::spawn(predict(client.clone(), step_of("long", 7, 0, 1)));
        while !long.is_finished() {
            steps += 1;
            let control = match steps % LIFE {
                0 => 2,
                1 if steps > 1 => 1,
                _ => 0,
            };
            times.push(predict(client.clone(), step_of("long", 8, control, 1)).await);
        }
        let [long, behind] = [long.await, behind.await].map(|time| time.expect("an answer"));
        assert!(long >= LONG && behind >= LONG / 2, "{long:?}, {behind:?}");
    }
    let _ = stop.send(Stop::Drain).await;
    drop(running);
    tokio::task::spawn_blocking(move || repository.stop()).await.expect("stopped");
    times
}

/// Sends a request. Returns the time until its answer.
async fn predict(mut client: PredictionServiceClient<Channel>, request: PredictRequest) -> Duration {
    let from = Instant::now();
    client.predict(request).await.expect("an answer");
    from.elapsed()
}
