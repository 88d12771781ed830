//! Whole models over the stand-in backend: tests of the core, the store and the threads together.

mod answer_room;
mod answers_in_order;
mod calls;
mod cancellation;
mod captures;
mod displaced_states;
mod ensemble_bounds;
mod ensemble_circles;
mod ensemble_inline;
mod ensemble_reloads;
mod ensembles;
mod growth;
mod handovers;
mod history;
mod imports;
mod initializers;
mod inline_steps;
mod machine;
mod panics;
mod panics_of_instances;
mod pending_ends;
mod processors;
mod rates;
mod reloads;
mod restarts;
mod restarts_with_plugins;
mod restarts_with_reloads;
mod rollbacks;
mod store_order;
mod stores_under_pressure;
mod tiers;
mod waking;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{DataType, Dialect, Event, Id, LoadSpec, Refusal, Shape, Stages};
use tempfile::TempDir;

use super::*;
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::sync::SPAWNS_LEFT;
use crate::telemetry::Metrics;

const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 4 } state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

/// A repository of one model, `sum`, and its folder.
pub(super) struct Fixture {
    pub(super) repository: Repository,
    pub(super) folder: TempDir,
}

impl Fixture {
    fn new(state_limit: u64) -> Fixture {
        let fixture = Fixture::empty(state_limit);
        load(&fixture.repository, &fixture.model());
        fixture
    }

    /// With the model's files, but nothing loaded.
    pub(super) fn empty(state_limit: u64) -> Fixture {
        Fixture::with(RepositoryOptions { state_limit, ..RepositoryOptions::default() })
    }

    /// The same with this clock.
    pub(super) fn by(clock: Clock) -> Fixture {
        Fixture::with(RepositoryOptions { clock, ..RepositoryOptions::default() })
    }

    fn with(options: RepositoryOptions) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("sum");
        fs_err::create_dir_all(model.join("1")).unwrap();
        fs_err::write(model.join("config.pbtxt"), CONFIG).unwrap();
        fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
        let options = RepositoryOptions { reply_pool: 1 << 20, ..options };
        let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
        Fixture { repository, folder }
    }

    pub(super) fn model(&self) -> std::path::PathBuf {
        self.folder.path().join("sum")
    }

    pub(super) fn send(
        &self,
        id: u64,
        value: i32,
        change: impl FnOnce(&mut SequenceStep),
    ) -> Result<InferAnswer, Failure> {
        self.answer(request(id, value, change))
    }

    pub(super) fn answer(&self, request: InferRequest) -> Result<InferAnswer, Failure> {
        self.answer_from(RequestOrigin::default(), request)
    }

    pub(super) fn answer_from(&self, origin: RequestOrigin<'_>, request: InferRequest) -> Result<InferAnswer, Failure> {
        let pending = self.repository.find(&request.model, &request.version)?.submit_from(origin, request)?;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
    }

    pub(super) fn sum(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> i32 {
        let answer = self.send(id, value, change).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    }
}

/// One step of a sequence.
pub(super) fn request(id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> InferRequest {
    let mut sequence = SequenceStep { id: Id::from(id), ..SequenceStep::default() };
    change(&mut sequence);
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: "sum".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence,
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.repository.stop();
    }
}

pub(super) fn load(repository: &Repository, model: &Path) {
    repository.load(model);
    let status = repository.statuses().remove(0);
    assert!(matches!(status.availability, Availability::Ready(_)), "{status:?}");
}

#[test]
fn a_sequence_continues_on_another_server_from_its_snapshot() {
    let (here, there) = (Fixture::new(u64::MAX), Fixture::new(u64::MAX));
    here.sum(7, 40, |s| s.start = true);
    assert_eq!(here.sum(7, 1, |_| {}), 41);
    let id = Id::from(7);
    let file = here.repository.find("sum", "").unwrap().export(&id).unwrap();
    let served = there.repository.find("sum", "").unwrap();
    served.import(id.clone(), &file).unwrap();
    assert_eq!(there.sum(7, 1, |s| s.step = Some(3)), 42);
    assert!(matches!(served.import(id, &file), Err(TransferError::Live { .. })));
    assert_eq!(here.sum(7, 100, |_| {}), 141, "the original lives on");
}

#[test]
fn a_file_that_is_no_state_of_the_model_is_not_imported() {
    let fixture = Fixture::new(u64::MAX);
    let served = fixture.repository.find("sum", "").unwrap();
    assert!(matches!(served.import(Id::from(1), b"no such file"), Err(TransferError::Snapshot(_))));
    assert!(matches!(served.export(&Id::from(1)), Err(TransferError::Unknown { .. })));
    assert!(fixture.send(1, 1, |_| {}).is_err());
}

#[test]
fn a_repeated_counted_step_gets_the_same_answer_and_runs_once() {
    let fixture = Fixture::new(u64::MAX);
    let step = |n| move |s: &mut SequenceStep| (s.start, s.step) = (n == 1, Some(n));
    fixture.sum(9, 5, step(1));
    assert_eq!(fixture.sum(9, 6, step(2)), 11);
    let again = fixture.send(9, 6, step(2)).unwrap();
    assert_eq!(again.outputs[0].tensor.data[..], 11i32.to_le_bytes());
    assert_eq!(again.parameters, [("sequor_replayed".to_owned(), Parameter::Bool(true))]);
    assert_eq!(fixture.sum(9, 1, step(3)), 12);
    let Err(Failure::Refused(gap)) = fixture.send(9, 1, step(9)) else { panic!() };
    assert_eq!(gap.refusal, Refusal::StepGap { want: 4 });
}

/// The answer of the last step is kept for a repetition of the step.
#[test]
fn the_kept_answer_of_a_numbered_step_counts_against_the_limit_of_states() {
    let fixture = Fixture::new(u64::MAX);
    let used = || fixture.repository.state_bytes().0;
    fixture.sum(9, 5, |s| (s.start, s.step) = (true, Some(1)));
    assert_eq!(used(), 4 + 4);
    fixture.sum(9, 6, |s| s.step = Some(2));
    assert_eq!(used(), 4 + 4, "only the last answer is kept");
    fixture.sum(9, 6, |_| {});
    assert_eq!(used(), 4);
    fixture.sum(9, 6, |s| s.step = Some(4));
    fixture.sum(9, 1, |s| s.end = true);
    assert_eq!(used(), 0);
}

#[test]
fn state_memory_is_taken_at_start_and_given_back_at_the_end() {
    let fixture = Fixture::new(8);
    fixture.sum(1, 1, |s| s.start = true);
    fixture.sum(2, 1, |s| s.start = true);
    let Err(Failure::StateMemory { wanted: 4, used: 8, .. }) = fixture.send(3, 1, |s| s.start = true) else { panic!() };
    assert_eq!(fixture.sum(1, 1, |s| s.end = true), 2, "live sequences are not affected");
    assert_eq!(fixture.sum(3, 1, |s| s.start = true), 1);
    // A START on a live id needs no further memory, and none is left.
    assert_eq!(fixture.sum(2, 7, |s| s.start = true), 7);
    assert_eq!(fixture.repository.state_bytes(), (8, 8));
    fixture.sum(3, 1, |s| s.end = true);
    fixture.sum(2, 1, |s| s.end = true);
    assert_eq!(fixture.repository.state_bytes(), (0, 8));
}

/// The table of a model's loads holds only its own loads. So the cost of a submit grows neither with the models nor with the reloads.
/// Four slots of 2 MiB, and a limit of 16 MiB.
#[test]
fn free_slots_give_their_memory_back_once_other_sequences_need_it() {
    const ELEMENTS: u64 = 1 << 18;
    const SLOT: u64 = 2 << 20;
    let fixture = Fixture::empty(16 << 20);
    let config = CONFIG.replace("dims: [ 1 ]", &format!("dims: [ {ELEMENTS} ]"));
    let config = config.replace("oldest { max_candidate_sequences: 4 }", "direct { }");
    fs_err::write(fixture.model().join("config.pbtxt"), config).unwrap();
    fs_err::write(fixture.model().join("1/model.onnx"), format!("accumulate INT32 dims={ELEMENTS}")).unwrap();
    load(&fixture.repository, &fixture.model());
    let step = |id, change: fn(&mut SequenceStep)| {
        let mut request = request(id, 0, change);
        let data = Bytes::from(vec![0; 4 * ELEMENTS as usize]);
        request.inputs[0].tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, ELEMENTS]), data };
        drop(fixture.answer(request).unwrap());
    };
    (1..=4).for_each(|id| step(id, |s| s.start = true));
    (2..=4).for_each(|id| step(id, |s| s.end = true));
    let resources = &fixture.repository.0.resources;
    let settles_at = |bytes| {
        let since = std::time::Instant::now();
        while resources.chunk_cache.idle() != bytes {
            assert!(since.elapsed().as_secs() < 20, "{} bytes are idle", resources.chunk_cache.idle());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    settles_at(3 * SLOT);
    let _others = resources.budget.take(7 * SLOT).unwrap();
    fixture.repository.upkeep_after(std::time::Duration::from_secs(1));
    settles_at(0);
    step(1, |_| {});
}

#[test]
fn the_table_of_loads_grows_neither_with_the_models_nor_with_the_reloads() {
    let fixture = Fixture::empty(u64::MAX);
    let capacity = |name: &str| {
        let models = fixture.repository.0.catalog.entries.read();
        models[name].model.as_ref().unwrap().table.lock().core.load_capacity()
    };
    let names: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    for name in &names {
        let folder = fixture.folder.path().join(name);
        fs_err::create_dir_all(folder.join("1")).unwrap();
        fs_err::copy(fixture.model().join("config.pbtxt"), folder.join("config.pbtxt")).unwrap();
        fs_err::copy(fixture.model().join("1/model.onnx"), folder.join("1/model.onnx")).unwrap();
        fixture.repository.load(&folder);
    }
    assert!(names.iter().all(|name| capacity(name) == 1));

    let loads =
        || fixture.repository.0.catalog.entries.read()["sum"].model.as_ref().map(|model| Arc::clone(&model.loads()));
    let mut served = Vec::new();
    let mut before = std::sync::Weak::new();
    for reload in 0..100 {
        fs_err::write(fixture.model().join("1/model.onnx"), format!("accumulate INT32{}", "\n".repeat(reload)))
            .unwrap();
        load(&fixture.repository, &fixture.model());
        served.push(fixture.sum(u64::try_from(reload).unwrap() + 1, 3, |s| (s.start, s.end) = (true, true)));
        // The old load and its key go when its thread ends.
        while loads().unwrap().len() > 1 || before.strong_count() > 0 {
            std::thread::yield_now();
        }
        before = Arc::downgrade(&loads().unwrap()[0]);
    }
    assert_eq!((served, capacity("sum")), (vec![3; 100], 2));
}

/// The stages are for processors and tiers. Without any, a load that names a stage still answers.
#[test]
fn a_stage_without_a_plug_in_is_answered_and_blocks_no_request() {
    let none = Stages::default();
    let cases = [
        (Stages { pre: true, ..none }, Err(Refusal::Failed(1))),
        (Stages { initialize: true, ..none }, Err(Refusal::Failed(1))),
        (Stages { post: true, ..none }, Ok(5)),
        (Stages { seal: true, ..none }, Err(Refusal::Failed(2))),
    ];
    for (stages, want) in cases {
        let fixture = Fixture::new(u64::MAX);
        let model = fixture.repository.0.catalog.entries.read()["sum"].model.clone().unwrap();
        let load = Arc::clone(&model.loads()[0]);
        model.apply(Event::Loaded(load.key, LoadSpec { stages, ..load.spec() }));
        load.wake_all();
        let got = match fixture.send(1, 5, |s| s.start = true) {
            Ok(answer) => Ok(i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())),
            Err(Failure::Refused(refused)) => Err(refused.refusal),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(got, want, "{stages:?}");
    }
}

/// If a load cannot start all its threads, it leaves nothing behind, and the older load continues to serve.
#[test]
fn a_load_without_all_its_threads_never_serves() {
    let fixture = Fixture::new(u64::MAX);
    fixture.sum(1, 5, |s| s.start = true);
    fs_err::write(fixture.model().join("config.pbtxt"), CONFIG.replace("count: 1", "count: 2")).unwrap();
    SPAWNS_LEFT.set(Some(1));
    fixture.repository.load(&fixture.model());
    SPAWNS_LEFT.set(None);
    let loads = || {
        let models = fixture.repository.0.catalog.entries.read();
        let model = models["sum"].model.as_ref().unwrap();
        let instances: Vec<u16> = model.loads().iter().map(|load| load.settings.instances).collect();
        (instances, models["sum"].faults.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let fault = "a thread of sum cannot start: a test wants no more threads";
    assert_eq!(loads(), (vec![1], vec![fault.to_owned()]));
    assert_eq!(fixture.sum(1, 1, |_| {}), 6);
    // Its files change once more, so that they are loaded again.
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32\n").unwrap();
    load(&fixture.repository, &fixture.model());
    assert_eq!(fixture.sum(2, 7, |s| s.start = true), 7);
    assert_eq!(loads(), (vec![1, 2], Vec::new()));
}
