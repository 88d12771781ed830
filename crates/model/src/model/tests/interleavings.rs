//! The driver's lock, its wake-ups and its instances under a scheduler that tries interleavings. Clients submit and cancel, and time passes.
//! An instance pulls its steps, or a client's own thread runs them. Every request must be answered once, every sum must be right, and no slot
//! may run or be freed without its state.
//! Run with `--features shuttle`.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use sequor_core::policy::columns;
use sequor_core::{DataType, Dialect, Hooks, Id, Shape};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};
use tempfile::TempDir;

use crate::backend::mock::MockBackend;
use crate::device::stand_in::StandIns;
use crate::error::Failure;
use crate::executor::{AfterTurn, ConnectionExecutor, ExecutorHandle};
use crate::model::*;
use crate::scheduling::PluginRules;
use crate::scheduling::guest::Source;
use crate::scheduling::report::{Attach, By, PluginControl};
use crate::scheduling::stand_in::{Does, StandInVersion};
use crate::sync::planted::{self, PlantedFault};
use crate::telemetry::Metrics;

/// Two slots for three clients, so that one of them waits; a batch has room for both.
const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 2
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: PLACE count: INSTANCES } ]
    sequence_batching { STRATEGY state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

const STEPS: i32 = 3;

fn request(id: u64, value: i32, start: bool, end: bool) -> InferRequest {
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: "sum".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::from(id), start, end, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

/// A whole sequence, whose steps are all sent at once. Every sum is checked.
fn whole(repository: &Repository, id: u64) {
    check(id, send(repository, id));
}

/// The same from a connection's thread, which runs steps of the model itself.
fn whole_inline(repository: &Repository, id: u64) {
    let mut connection = ConnectionExecutor::default();
    connection.turn();
    let handle = connection.handle();
    let sent = send_on(repository, id, Some(&handle));
    while connection.next(Waker::noop()) == AfterTurn::Turn {
        connection.turn();
    }
    check(id, sent);
}

fn send(repository: &Repository, id: u64) -> Vec<Pending> {
    send_on(repository, id, None)
}

fn send_on(repository: &Repository, id: u64, connection: Option<&ExecutorHandle>) -> Vec<Pending> {
    let served = repository.find("sum", "").unwrap();
    let send = |n: i32| {
        served
            .submit_from(
                RequestOrigin { connection, ..RequestOrigin::default() },
                request(id, n + 1, n == 0, n == STEPS - 1),
            )
            .unwrap()
    };
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

/// Sequences of one connection, whose tasks send their steps and await the answers within it. The connection sleeps while there is no work.
fn whole_connection(repository: &Repository, ids: &[u64]) {
    let mut connection = ConnectionExecutor::default();
    let (handle, left) = (connection.handle(), Arc::new(AtomicUsize::new(ids.len())));
    for id in ids.iter().copied() {
        let (repository, on, left) = (repository.clone(), handle.clone(), Arc::clone(&left));
        handle.spawn(async move {
            let (mut sum, served) = (0, repository.find("sum", "").unwrap());
            for n in 0..STEPS {
                let step = request(id, n + 1, n == 0, n == STEPS - 1);
                let answer = served
                    .submit_from(RequestOrigin { connection: Some(&on), ..RequestOrigin::default() }, step)
                    .unwrap()
                    .await
                    .unwrap();
                sum += n + 1;
                assert_eq!(answer.outputs[0].tensor.data[..], sum.to_le_bytes(), "sequence {id}, step {n}");
            }
            left.fetch_sub(1, Ordering::AcqRel);
        });
    }
    shuttle::future::block_on(poll_fn(|cx: &mut Context<'_>| {
        loop {
            connection.turn();
            let next = connection.next(cx.waker());
            match (left.load(Ordering::Acquire), next) {
                (0, _) => return Poll::Ready(()),
                (_, AfterTurn::Rest) => return Poll::Pending,
                (_, AfterTurn::Turn) => {}
            }
        }
    }));
}

/// A sequence whose client disconnects in the middle, and alternates with a new sequence of the same id.
fn broken(repository: &Repository, id: u64) {
    let first = repository.submit(request(id, 5, true, false)).unwrap();
    let second = repository.submit(request(id, 6, false, false)).unwrap();
    drop(second);
    match shuttle::future::block_on(first) {
        Ok(answer) => assert_eq!(answer.outputs[0].tensor.data[..], 5i32.to_le_bytes()),
        Err(Failure::Refused(refused)) => assert_eq!(refused.refusal, sequor_core::Refusal::Cancelled),
        Err(other) => panic!("{other}"),
    }
    whole_inline(repository, id);
}

/// The model's folder. It is written once and loaded for every schedule. With the prefix `GPU`, instances run on a stand-in for a GPU.
fn folder(strategy: &str, instances: &str) -> TempDir {
    let (place, instances) = match instances.strip_prefix("GPU ") {
        Some(instances) => ("KIND_GPU", instances),
        None => ("KIND_CPU", instances),
    };
    let config = CONFIG.replace("PLACE", place);
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("sum");
    fs_err::create_dir_all(model.join("1")).unwrap();
    fs_err::write(model.join("config.pbtxt"), config.replace("STRATEGY", strategy).replace("INSTANCES", instances))
        .unwrap();
    fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
    folder
}

fn rig(folder: &Path, operator: Option<fn(&Repository)>) {
    let accelerators = Arc::new(StandIns::new(1, 64 << 20));
    let options = RepositoryOptions { reply_pool: 1 << 20, accelerators, ..RepositoryOptions::default() };
    let backend = MockBackend::new().with_stand_ins();
    let repository = Repository::new(Arc::new(backend), options, Metrics::new(true)).unwrap();
    equip(&repository);
    repository.load(&folder.join("sum"));
    let act = |run: fn(&Repository)| {
        let repository = repository.clone();
        shuttle::thread::spawn(move || run(&repository))
    };
    let clients = [act(|r| whole(r, 1)), act(|r| broken(r, 2)), act(|r| whole_inline(r, 3))];
    let time = act(|r| (0..3).for_each(|_| r.tick()));
    let operator = operator.map(act);
    for client in clients {
        client.join().unwrap();
    }
    time.join().unwrap();
    if let Some(operator) = operator {
        operator.join().unwrap();
    }
    // A request that was cancelled while it ran ends with its run.
    while repository.live() > 0 {
        shuttle::thread::yield_now();
    }
    repository.stop();
    assert_eq!(repository.state_bytes().0, 0);
}

/// Stand-ins for plug-ins. A component is one letter, for the behaviour of its guests.
fn equip(repository: &Repository) {
    let make = |_: &str, bytes: &[u8]| {
        let (admit, does) = match bytes.first() {
            Some(b'a') => (true, Does::Admit),
            Some(b'f') => (false, Does::First),
            Some(b'x') => (false, Does::Beyond),
            _ => (false, Does::Trap),
        };
        let hooks = Hooks { plan: true, observe: true, admit, columns: columns::ALL, ..Hooks::default() };
        let version = StandInVersion::new(&String::from_utf8_lossy(bytes), hooks);
        version.does(does);
        Ok(version as Arc<dyn Source>)
    };
    repository.run_plugins(PluginRules::default(), Box::new(make)).unwrap();
}

/// The actions of an operator while requests run. The maintenance work is done here, too, so that no other thread holds these locks.
fn operate(repository: &Repository) {
    let by = By("local");
    let keep = || {
        repository.registry().map(crate::scheduling::Registry::maintain);
    };
    for (name, component) in [("p", "f"), ("q", "a")] {
        PluginControl::load(repository, name, component.into(), by).unwrap();
    }
    let attach = |plugin: &str| {
        let how = Attach { plugin: plugin.to_owned(), model: "sum".to_owned(), ..Attach::default() };
        PluginControl::attach(repository, &how, by).unwrap();
    };
    attach("p");
    keep();
    // If the plug-in was asked something already, a component that traps fails its trial.
    let _ = repository.replace("p", "t".into(), by);
    keep();
    attach("q");
    repository.replace("q", "a2".into(), by).unwrap();
    keep();
    repository.park("q", by).unwrap();
    repository.unpark("q", by).unwrap();
    let _ = repository.replace("q", "x".into(), by);
    keep();
    repository.detach("q", "sum", by).unwrap();
}

fn tried(strategy: &str, instances: &str, scheduler: impl Scheduler + 'static) {
    tried_with(strategy, instances, None, scheduler);
}

fn tried_with(strategy: &str, instances: &str, operator: Option<fn(&Repository)>, scheduler: impl Scheduler + 'static) {
    let folder = folder(strategy, instances);
    let mut config = Config::new();
    // The driver needs the stack size of a server's thread.
    config.stack_size = 1 << 20;
    let schedules = Runner::new(scheduler, config).run(move || rig(folder.path(), operator));
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

/// Two connections, and a batch with answers for both. Every task is woken, and every step runs once, by the connection or by the instance.
#[test]
fn every_interleaving_tried_wakes_the_tasks_of_connections() {
    let strategy = "oldest { max_candidate_sequences: 2 }";
    tried_connections(strategy, RandomScheduler::new(2000));
    tried_connections(strategy, PctScheduler::new(3, 1000));
}

/// The schedules above would detect a lost wake-up: with each of these faults, one of them hangs.
#[test]
fn planted_faults_of_the_executor_are_found() {
    for fault in [PlantedFault::RestsWithoutLooking, PlantedFault::ForgetsStep, PlantedFault::LeavesHostAsleep] {
        let strategy = "oldest { max_candidate_sequences: 2 }";
        let run = || tried_connections(strategy, RandomScheduler::new(2000));
        let found = planted::with(fault, || std::panic::catch_unwind(run));
        assert!(found.is_err(), "{fault:?}");
    }
}

fn tried_connections(strategy: &str, scheduler: impl Scheduler + 'static) {
    let folder = folder(strategy, "1");
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let run = move || {
        let repository =
            Repository::new(Arc::new(MockBackend::new()), RepositoryOptions::default(), Metrics::new(true)).unwrap();
        repository.load(&folder.path().join("sum"));
        let act = |ids: &'static [u64]| {
            let repository = repository.clone();
            shuttle::thread::spawn(move || whole_connection(&repository, ids))
        };
        let connections = [act(&[1, 2]), act(&[3])];
        connections.into_iter().for_each(|connection| connection.join().unwrap());
        while repository.live() > 0 {
            shuttle::thread::yield_now();
        }
        repository.stop();
    };
    println!("{} schedules", Runner::new(scheduler, config).run(run));
}

#[test]
fn every_interleaving_tried_answers_everything_right_with_two_instances() {
    tried("oldest { max_candidate_sequences: 1 }", "2", RandomScheduler::new(2000));
}

#[test]
fn every_interleaving_tried_answers_everything_right_with_two_open_batches() {
    let strategy = "oldest { max_candidate_sequences: 2 preferred_batch_size: 1 }";
    tried(strategy, "GPU 1", RandomScheduler::new(1000));
    tried(strategy, "GPU 1", PctScheduler::new(3, 500));
}

#[test]
fn every_interleaving_tried_answers_everything_right_with_two_accelerators() {
    tried("oldest { max_candidate_sequences: 1 preferred_batch_size: 1 }", "GPU 2", RandomScheduler::new(500));
}

#[test]
fn every_interleaving_tried_attaches_and_detaches_plug_ins_in_oldest() {
    tried_with("oldest { max_candidate_sequences: 2 }", "1", Some(operate), RandomScheduler::new(300));
}

#[test]
fn every_interleaving_tried_attaches_and_detaches_plug_ins_on_two_instances() {
    tried_with("oldest { max_candidate_sequences: 1 }", "2", Some(operate), RandomScheduler::new(300));
}
