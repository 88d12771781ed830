//! Tests a server's recording and its replay: requests run on the mock backend, the trace is parsed, and it has no ids.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sequor::backend::LoadOptions;
use sequor::backend::mock::MockBackend;
use sequor::model::{InferRequest, NamedTensor, Repository, RepositoryOptions, SequenceStep, Tensor};
use sequor::simulate::workload::replay::Replay;
use sequor::simulate::{ComparedPolicy, Experiment, ServingOptions, Workload};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Id, Shape};

const CONFIG: &str = r#"
max_batch_size: 4
instance_group { count: 1 kind: KIND_CPU }
input { name: "INPUT" data_type: TYPE_FP32 dims: [1] }
output { name: "OUTPUT" data_type: TYPE_FP32 dims: [1] }
sequence_batching {
  max_sequence_idle_microseconds: 600000000
  oldest { max_candidate_sequences: 8 }
  state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_FP32 dims: [1] }
}
"#;

fn repository(folder: &Path, trace: &Path) -> Repository {
    let model = folder.join("sums");
    std::fs::create_dir_all(model.join("1")).unwrap();
    std::fs::write(model.join("config.pbtxt"), CONFIG).unwrap();
    std::fs::write(model.join("1/model.onnx"), "accumulate FP32 cost=300").unwrap();
    let load = LoadOptions::default();
    let options = RepositoryOptions { load, ..RepositoryOptions::default() };
    let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
    repository.record(trace, 1 << 20).unwrap();
    assert!(repository.record(trace, 1 << 20).is_err(), "one recording at a time");
    repository.load_all(folder).unwrap();
    assert!(repository.ready(), "{:?}", repository.statuses());
    repository
}

fn request(id: Id, step: u32, steps: u32) -> InferRequest {
    let data = Bytes::copy_from_slice(&1f32.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Fp32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: "sums".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id, start: step == 0, end: step + 1 == steps, ..SequenceStep::default() },
        priority: 0,
        timeout: Some(Duration::from_secs(5)),
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// A number whose digits do not occur in a time or a hash by chance.
const FIRST: u64 = 7_000_000_000_000_000;

/// Six sequences of five steps, and one step of a sequence that never started.
async fn traffic(repository: &Repository) {
    for step in 0..5 {
        let ids = (0..6u64).map(|n| if n == 0 { Id::from("caller@example.org") } else { Id::from(FIRST + n) });
        let pending: Vec<_> = ids.map(|id| repository.submit(request(id, step, 5)).unwrap()).collect();
        for answer in pending {
            answer.await.unwrap();
        }
    }
    assert!(repository.submit(request(Id::from(9), 1, 5)).unwrap().await.is_err());
}

fn replay(trace: &Path) -> Workload {
    let mut replay = Replay::new(None);
    replay.file(trace, std::io::BufReader::new(std::fs::File::open(trace).unwrap())).unwrap();
    replay.finish().unwrap()
}

#[tokio::test]
async fn a_recording_of_served_requests_can_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let (models, trace) = (folder.path().join("models"), folder.path().join("t.jsonl"));
    let repository = repository(&models, &trace);
    traffic(&repository).await;
    repository.stop();
    // Dropping the last handle finishes the recording.
    drop(repository);

    let text = std::fs::read_to_string(&trace).unwrap();
    assert!(!text.contains("caller") && !text.contains(&(FIRST + 3).to_string()), "{text}");
    assert_eq!(text.lines().count(), 1 + 1 + 31, "{text}");
    assert!(text.contains(r#""outcome":"never_started""#), "{text}");

    let workload = replay(&trace);
    assert_eq!((workload.arrivals.len(), workload.sequences), (31, 7));
    assert_eq!(workload.arrivals.iter().filter(|a| a.start).count(), 7, "six begin, and one is made to");
    assert!(workload.arrivals.iter().all(|a| a.bytes == 4 && a.within == Some(Duration::from_secs(5))));
    let live = workload.live.clone().unwrap();
    assert_eq!((live.strategy.as_deref(), live.waits.len()), (Some("oldest"), 30));
    let serving = ServingOptions::default().or(live.wishes).resolve().unwrap();
    assert_eq!((serving.slots, serving.max_batch, serving.instances.clone()), (8, 4, vec![1]));
    let costs = live.costs.unwrap();
    let policies = vec![ComparedPolicy::named("oldest").unwrap()];
    let report = Experiment { workload, serving, costs, policies, seed: 1 }.run();
    assert_eq!(report.runs.first().map(|r| (r.answered, r.rejected)), Some((31, 0)));
    assert!(report.live.is_some_and(|l| l.run == Some(0)), "the run that was served alike is found");
}
