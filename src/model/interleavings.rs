//! The driver's lock, its wake-ups and its instances under a scheduler that tries interleavings: clients that submit and cancel, time that
//! passes, an instance that pulls, or a client's own thread in its place. Every request must be answered once, every sum must be right, no slot may run or be freed without its state.
//! Run with `--features shuttle`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{DataType, Dialect, Id, Shape};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use tempfile::TempDir;

use super::*;
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::telemetry::Metrics;

/// Two slots for three clients, so that somebody waits; a batch has room for both.
const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 2
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: INSTANCES } ]
    sequence_batching { STRATEGY state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

const STEPS: i32 = 3;

fn request(id: u64, value: i32, start: bool, end: bool) -> InferRequest {
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::of(&[1, 1]), data };
    InferRequest {
        model: "sum".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::from(id), start, end, step: None },
        priority: 0,
        timeout: None,
        inputs: vec![Named { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        headers: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// A whole sequence, sent ahead; every sum is checked.
fn whole(repository: &Repository, id: u64) {
    check(id, send(repository, id));
}

/// The same from a socket's thread, which does steps of the model itself.
fn whole_in_turns(repository: &Repository, id: u64) {
    let mut turn = Turn::begin();
    let sent = send(repository, id);
    while turn.run() {}
    // What came to be left to this thread in the meantime is handed on.
    drop(turn);
    check(id, sent);
}

fn send(repository: &Repository, id: u64) -> Vec<Pending> {
    let send = |n: i32| repository.submit(request(id, n + 1, n == 0, n == STEPS - 1)).unwrap();
    (0..STEPS).map(send).collect()
}

fn check(id: u64, sent: Vec<Pending>) {
    let mut sum = 0;
    for (n, pending) in (0..STEPS).zip(sent) {
        sum += n + 1;
        let answer = shuttle::future::block_on(pending).unwrap();
        assert_eq!(answer.outputs[0].tensor.data[..], sum.to_le_bytes(), "sequence {id}, step {n}");
    }
}

/// A sequence whose client goes away in the middle, and comes back in turns with a new one of the same id.
fn broken(repository: &Repository, id: u64) {
    let first = repository.submit(request(id, 5, true, false)).unwrap();
    let second = repository.submit(request(id, 6, false, false)).unwrap();
    drop(second);
    match shuttle::future::block_on(first) {
        Ok(answer) => assert_eq!(answer.outputs[0].tensor.data[..], 5i32.to_le_bytes()),
        Err(Failure::Refused(refused)) => assert_eq!(refused.refusal, sequor_core::Refusal::Cancelled),
        Err(other) => panic!("{other}"),
    }
    whole_in_turns(repository, id);
}

/// The model's folder; it is written once and loaded for every schedule.
fn folder(strategy: &str, instances: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("sum");
    fs_err::create_dir_all(model.join("1")).unwrap();
    fs_err::write(model.join("config.pbtxt"), CONFIG.replace("STRATEGY", strategy).replace("INSTANCES", instances))
        .unwrap();
    fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
    folder
}

fn house(folder: &Path) {
    let options = Options { reply_pool: 1 << 20, ..Options::default() };
    let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
    repository.load(&folder.join("sum"));
    let act = |run: fn(&Repository)| {
        let repository = repository.clone();
        shuttle::thread::spawn(move || run(&repository))
    };
    let clients = [act(|r| whole(r, 1)), act(|r| broken(r, 2)), act(|r| whole_in_turns(r, 3))];
    let time = act(|r| (0..3).for_each(|_| r.tick()));
    for client in clients {
        client.join().unwrap();
    }
    time.join().unwrap();
    // What was cancelled while it ran ends with its run.
    while repository.live() > 0 {
        shuttle::thread::yield_now();
    }
    repository.stop();
    assert_eq!(repository.state_bytes().0, 0);
}

fn tried(strategy: &str, instances: &str, scheduler: impl Scheduler + 'static) {
    let folder = folder(strategy, instances);
    let mut config = Config::new();
    // The driver's stack is a server's, not a toy's.
    config.stack_size = 1 << 20;
    let schedules = Runner::new(scheduler, config).run(move || house(folder.path()));
    println!("{schedules} schedules");
}

#[test]
fn every_interleaving_tried_answers_everything_right_in_oldest() {
    tried("oldest { max_candidate_sequences: 2 }", "1", RandomScheduler::new(3000));
}

#[test]
fn every_interleaving_tried_answers_everything_right_in_direct() {
    tried("direct { }", "1", PctScheduler::new(3, 3000));
}

#[test]
fn every_interleaving_tried_lets_two_instances_go() {
    tried("oldest { max_candidate_sequences: 1 }", "2", RandomScheduler::new(2000));
}
