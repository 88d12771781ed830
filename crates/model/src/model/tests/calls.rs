//! Plug-ins that are models and call other models: batches, failures, limits, and the effects of hostile plug-ins.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sequor_core::{DataType, Dialect, Id, Shape};
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::{GrantTable, Grants};
use sequor_wasm::plugin_error::PluginError;
use sequor_wasm::room::GuestRoom;
use tempfile::TempDir;

use crate::backend::mock::MockBackend;
use crate::config::server::file::ControlMode;
use crate::error::Failure;
use crate::model::*;
use crate::processing::calling_wat::{CALLS, PRE, REFUSES};
use crate::processing::wat_fixture::{SERVING, component_with_wasi_nn};
use crate::processing::wat_guest::{ALIKE, WatGuest};
use crate::processing::{PlaceRules, ProcessorComponent};
use crate::scheduling::PluginRules;
use crate::scheduling::guest::Source;
use crate::scheduling::report::{Attach, By, PluginControl};
use crate::scheduling::wat_fixture::SchedulerWat;
use crate::scheduling::world::SchedulerComponent;
use crate::telemetry::Metrics;

const LOCAL: By<'_> = By("local");

/// Replies with the number of steps, which the scratch keeps.
const COUNTS: &str = "
    (i32.store8 (i32.const 800) (i32.const 1))
    (if (local.get 10) (then
        (i32.store8 (i32.const 800) (i32.add (i32.const 1) (i32.load8_u (local.get 9))))))
    (drop (call $reply (call $one (i32.load8_u (i32.const 800))) (i32.const 1)))
    (i32.store (i32.const 1044) (i32.const 1))
    (i32.store (i32.const 1048) (i32.const 800))
    (i32.store (i32.const 1052) (i32.const 1))
    (i32.const 1024)";

/// `$nn(name, len, v)`: the same over wasi-nn. `$load`: the negated code of the error that `load` returns.
const NN: &str = r#"
    (import "wasi:nn/tensor@0.2.0-rc-2024-10-28" "[constructor]tensor" (func $tensor (param i32 i32 i32 i32 i32) (result i32)))
    (import "wasi:nn/tensor@0.2.0-rc-2024-10-28" "[method]tensor.data" (func $data (param i32 i32)))
    (import "wasi:nn/graph@0.2.0-rc-2024-10-28" "load" (func $load (param i32 i32 i32 i32 i32)))
    (import "wasi:nn/graph@0.2.0-rc-2024-10-28" "load-by-name" (func $by_name (param i32 i32 i32)))
    (import "wasi:nn/graph@0.2.0-rc-2024-10-28" "[method]graph.init-execution-context" (func $context (param i32 i32)))
    (import "wasi:nn/inference@0.2.0-rc-2024-10-28" "[method]graph-execution-context.compute"
        (func $compute (param i32 i32 i32 i32)))
    (import "wasi:nn/errors@0.2.0-rc-2024-10-28" "[method]error.code" (func $code (param i32) (result i32)))
    (func $failed (result i32) (i32.sub (i32.const 0) (call $code (i32.load (i32.const 484)))))
    (func $bytes (result i32)
        (call $load (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 480))
        (call $failed))
    (func $nn (param $name i32) (param $len i32) (param $v i32) (result i32)
        (call $by_name (local.get $name) (local.get $len) (i32.const 480))
        (if (i32.load8_u (i32.const 480)) (then (return (call $failed))))
        (call $context (i32.load (i32.const 484)) (i32.const 480))
        (if (i32.load8_u (i32.const 480)) (then (return (call $failed))))
        (i32.store (i32.const 440) (i32.const 1))
        (i32.store (i32.const 444) (i32.const 1))
        (i32.store (i32.const 464) (local.get $v))
        (i32.store (i32.const 400) (i32.const 700))
        (i32.store (i32.const 404) (i32.const 5))
        ;; The type I32 is the sixth.
        (i32.store (i32.const 408)
            (call $tensor (i32.const 440) (i32.const 2) (i32.const 5) (i32.const 464) (i32.const 4)))
        (call $compute (i32.load (i32.const 484)) (i32.const 400) (i32.const 1) (i32.const 480))
        (if (i32.load8_u (i32.const 480)) (then (return (call $failed))))
        (call $data (i32.load offset=8 (i32.load (i32.const 484))) (i32.const 500))
        (i32.load (i32.load (i32.const 500))))"#;

/// 1 loads a model that no grant names, 2 loads bytes, 3 calls one that refuses. Every other value calls `echo`.
const NN_PRE: &str = r#"
    (local $v i32)
    (local.set $v (i32.load (i32.load offset=20 (local.get 11))))
    (if (i32.eq (local.get $v) (i32.const 1)) (then
        (return (call $reply (call $one (call $nn (i32.const 760) (i32.const 6) (i32.const 1))) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 2)) (then
        (return (call $reply (call $one (call $bytes)) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 3)) (then
        (return (call $reply (call $one (call $nn (i32.const 740) (i32.const 7) (i32.const 3))) (i32.const 1)))))
    (call $reply (call $one (call $nn (i32.const 710) (i32.const 4) (local.get $v))) (i32.const 1))"#;

const NAMES: &str = r#"
    (data (i32.const 700) "INPUT")
    (data (i32.const 710) "echo")
    (data (i32.const 740) "refuser")
    (data (i32.const 760) "denied")"#;

const ONE: &str = r#"(func $one (param $v i32) (result i32)
        (i32.store (i32.const 600) (i32.const 0))
        (i32.store (i32.const 604) (i32.const 0))
        (i32.store (i32.const 608) (i32.const 8))
        (i32.store (i32.const 612) (i32.const 640))
        (i32.store (i32.const 616) (i32.const 1))
        (i32.store (i32.const 620) (i32.const 660))
        (i32.store (i32.const 624) (i32.const 4))
        (i64.store (i32.const 640) (i64.const 1))
        (i32.store (i32.const 660) (local.get $v))
        (i32.const 600))"#;

/// The configuration of a plug-in model on disk.
const PLUGIN_CONFIG: &str = r#"backend: "python"
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "/x" } }
    "#;

/// Compiles components for this engine.
fn components(
    engine: &Arc<Engine>,
) -> impl Fn(&str, &[u8]) -> Result<Arc<ProcessorComponent>, PluginError> + Send + Sync + use<> {
    let engine = Arc::clone(engine);
    move |_, bytes| {
        let grants = Grants { models: true, ..Grants::default() };
        let made = ProcessorComponent::new(&engine, "guest.wasm", bytes, grants, None);
        made.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
    }
}

/// Compiles schedulers for this engine.
fn schedulers(
    engine: &Arc<Engine>,
) -> impl Fn(&str, &[u8]) -> Result<Arc<dyn Source>, PluginError> + Send + Sync + use<> {
    let engine = Arc::clone(engine);
    move |_, bytes| {
        let made = SchedulerComponent::new(&engine, "fair.wasm", bytes, Grants::default(), None);
        Ok(Arc::new(made.map_err(|e| PluginError::Invalid(e.to_string()))?))
    }
}

/// An engine for this many instances.
fn engine(instances: u32) -> Arc<Engine> {
    Arc::new(Engine::in_room(Mode::Serving, GuestRoom::new(instances)).unwrap())
}

fn guest(extra: &str, pre: &str) -> Vec<u8> {
    WatGuest { extra, configure: ALIKE, pre, post: "unreachable", manifest: "scratch = \"8B\"\nwants = [\"pre\"]\n" }
        .component()
}

/// Blocks runs of two elements until it is opened.
#[derive(Debug, Default)]
struct Gate {
    /// Whether runs pass, and how many have come.
    state: Mutex<(bool, u32)>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock();
        state.1 += 1;
        self.changed.notify_all();
        while !state.0 {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until as many runs have come.
    fn wait_for_runs(&self, count: u32) {
        let mut state = self.state.lock();
        while state.1 < count {
            self.changed.wait(&mut state);
        }
    }

    fn open(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }
}

struct Calling {
    repository: Repository,
    folder: TempDir,
    metrics: Metrics,
    clock: Clock,
    gate: Arc<Gate>,
}

impl Calling {
    /// The models `echo` and `slow`, and plug-ins with these grants.
    fn new(grants: &[&str]) -> Calling {
        Calling::of_engine(grants, &SERVING)
    }

    fn of_engine(grants: &[&str], engine: &Arc<Engine>) -> Calling {
        let (gate, clock, metrics) = (Arc::<Gate>::default(), Clock::manual(), Metrics::new(true));
        let of_runs = Arc::clone(&gate);
        let backend = MockBackend::with_hook(Arc::new(move |shape| {
            if shape.0.last() == Some(&2) {
                of_runs.wait();
            }
        }));
        let options = RepositoryOptions { clock: clock.clone(), ..RepositoryOptions::default() };
        let repository = Repository::new(Arc::new(backend), options, metrics.clone()).unwrap();
        let calling = Calling { repository, folder: tempfile::tempdir().unwrap(), metrics, clock, gate };
        let grants = GrantTable::parse(grants.iter().copied()).unwrap();
        let dir = Some(calling.folder.path().to_owned());
        let rules = PlaceRules { dir, strikes: 3, grants, instances: 64, ..PlaceRules::default() };
        calling.repository.run_processors(rules, Box::new(components(engine))).unwrap();
        for (name, guest) in
            [("caller", guest(CALLS, PRE)), ("refuser", guest("", REFUSES)), ("counter", guest(ONE, COUNTS))]
        {
            fs_err::write(calling.folder.path().join(format!("{name}.wasm")), guest).unwrap();
        }
        for (name, dims) in [("echo", 1), ("slow", 2)] {
            let model = calling.folder.path().join("models").join(name);
            fs_err::create_dir_all(model.join("1")).unwrap();
            let config = format!(
                "backend: \"onnxruntime\" max_batch_size: 8 dynamic_batching {{ }}
                 input [ {{ name: \"INPUT\" data_type: TYPE_INT32 dims: [ {dims} ] }} ]
                 output [ {{ name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ {dims} ] }} ]
                 instance_group [ {{ kind: KIND_CPU count: 1 }} ]"
            );
            fs_err::write(model.join("config.pbtxt"), config).unwrap();
            fs_err::write(model.join("1/model.onnx"), format!("identity INT32 dims={dims}")).unwrap();
        }
        let directories = vec![calling.folder.path().join("models")];
        calling.repository.govern(RepositoryControl { mode: ControlMode::Explicit, directories });
        calling.load("echo").unwrap();
        calling.load("slow").unwrap();
        calling
    }

    /// The model `scorer`, whose plug-in calls others.
    fn scorer() -> Calling {
        Calling::scorer_of(&SERVING)
    }

    fn scorer_of(engine: &Arc<Engine>) -> Calling {
        let grants = ["caller=model:echo", "caller=model:slow", "caller=model:refuser", "caller=model:absent"];
        let calling = Calling::of_engine(&grants, engine);
        calling.write("refuser", &PLUGIN_CONFIG.replace("[ 1 ]", "[ 1, 1 ]"), "[model]\nplugin = \"refuser\"\n");
        calling.write("scorer", PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\ntime = \"60s\"\n");
        calling.load("refuser").unwrap();
        calling.load("scorer").unwrap();
        calling
    }

    fn load(&self, model: &str) -> Result<(), String> {
        self.repository.load_by_request(model, None).map_err(|failure| format!("{failure:?}"))
    }

    fn write(&self, model: &str, config: &str, toml: &str) {
        let model = self.folder.path().join("models").join(model);
        fs_err::create_dir_all(&model).unwrap();
        fs_err::write(model.join("config.pbtxt"), config).unwrap();
        fs_err::write(model.join("sequor.toml"), toml).unwrap();
    }

    fn begin(&self, model: &str, value: i32, change: impl FnOnce(&mut InferRequest)) -> Result<Pending, Failure> {
        let mut request = request(model, value);
        change(&mut request);
        self.repository.submit(request)
    }

    /// The answer of a model.
    fn ask(&self, model: &str, value: i32) -> i32 {
        first(&wait(self.begin(model, value, |_| {}).unwrap()).unwrap())
    }

    /// Number of calls that wait.
    fn waiting(&self) -> f64 {
        self.count("sequor_plugin_model_calls{")
    }

    /// The sum of all series whose names begin with `series`.
    fn count(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let lines = text.lines().filter(|line| line.starts_with(series));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    fn wait_for(&self, calls: f64) {
        while self.waiting() < calls {
            std::thread::yield_now();
        }
    }

    /// Asserts that no call waits any more and that all models answer as at first.
    fn is_as_before(&self) {
        while self.waiting() > 0.0 {
            std::thread::yield_now();
        }
        assert_eq!((self.ask("echo", 77), self.ask("scorer", 78)), (77, 78));
        assert_eq!(self.waiting(), 0.0);
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.gate.open();
        self.repository.stop();
    }
}

fn request(model: &str, value: i32) -> InferRequest {
    let rank = if model == "echo" { &[1, 1][..] } else { &[1] };
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(rank), data };
    InferRequest {
        model: model.to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep::default(),
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

fn wait(pending: Pending) -> Result<InferAnswer, Failure> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
}

fn first(answer: &InferAnswer) -> i32 {
    i32::from_le_bytes(answer.outputs[0].tensor.data[..4].try_into().unwrap())
}

#[test]
fn a_model_without_a_graph_is_a_model_like_any_other() {
    let calling = Calling::new(&[]);
    let stateful = format!("{PLUGIN_CONFIG} sequence_batching {{ oldest {{ max_candidate_sequences: 4 }} }}");
    calling.write("counter", &stateful, "[model]\nplugin = \"counter\"\n");
    calling.load("counter").unwrap();
    let step = |id: u64, start: bool| {
        let change = |r: &mut InferRequest| (r.sequence.id, r.sequence.start) = (Id::from(id), start);
        first(&wait(calling.begin("counter", 5, change).unwrap()).unwrap())
    };
    assert_eq!([step(1, true), step(2, true), step(1, false), step(1, false), step(2, false)], [1, 1, 2, 3, 2]);
    assert_eq!(step(1, true), 1, "a START begins with nothing");
    let handle = calling.repository.find("counter", "").unwrap();
    let metadata = handle.metadata();
    assert_eq!((metadata.platform.as_str(), metadata.versions.as_slice()), ("python", &[1][..]));
    assert_eq!((metadata.inputs.len(), metadata.inputs[0].name.as_str()), (1, "INPUT"));
    let statistics = calling.repository.statistics("counter", "").unwrap().remove(0);
    let counted = &statistics.counted;
    assert_eq!((counted.inference_count, counted.execution_count, counted.success.count), (6, 6, 6));
    calling.load("counter").unwrap();
}

#[test]
fn a_model_without_a_graph_is_refused_where_only_a_graph_helps() {
    let calling = Calling::new(&[]);
    for (config, toml, why) in [
        ("backend: \"python\"", "[model]\nplugin = \"counter\"\n", "a model without a graph names each input"),
        (&PLUGIN_CONFIG.replace("python", "onnxruntime"), "[model]\nplugin = \"counter\"\n", "runs a graph"),
        (PLUGIN_CONFIG, "[model]\nplugin = \"counter\"\n[input.INPUT]\nconstant = 1\n", "[input.INPUT] is not served"),
        (PLUGIN_CONFIG, "[model]\nplugin = \"other\"\n", "other"),
        (PLUGIN_CONFIG, "[model]\n", "missing field `plugin`"),
        (PLUGIN_CONFIG, "", "[model] plugin in sequor.toml"),
    ] {
        calling.write("bad", config, toml);
        let refused = calling.load("bad").unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn calls_of_many_requests_run_in_the_batches_of_the_called_model() {
    let calling = Calling::scorer();
    assert_eq!(calling.ask("scorer", 40), 40);
    // The first run waits, so the others form a batch behind it.
    let first_of_all = calling.begin("scorer", 2, |_| {}).unwrap();
    calling.gate.wait_for_runs(1);
    let others: Vec<Pending> = (0..8).map(|_| calling.begin("scorer", 2, |_| {}).unwrap()).collect();
    // A call starts to wait before its request is in the queue.
    while calling.count("nv_inference_pending_request_count{model=\"slow\"") < 8.0 {
        std::thread::yield_now();
    }
    calling.gate.open();
    assert_eq!(first(&wait(first_of_all).unwrap()), 2);
    assert!(others.into_iter().all(|pending| first(&wait(pending).unwrap()) == 2));
    let statistics = calling.repository.statistics("slow", "").unwrap().remove(0);
    let counted = &statistics.counted;
    assert_eq!((counted.inference_count, counted.execution_count), (9, 2), "eight of them share a batch");
    calling.is_as_before();
}

#[test]
fn more_calls_than_instances_wait_in_their_order() {
    let calling = Calling::scorer();
    let waiting: Vec<Pending> = (0..100).map(|_| calling.begin("scorer", 2, |_| {}).unwrap()).collect();
    calling.wait_for(64.0);
    assert_eq!(calling.waiting(), 64.0, "plugins.instances");
    assert_eq!(calling.ask("echo", 1), 1, "other models go on");
    calling.gate.open();
    assert!(waiting.into_iter().all(|pending| first(&wait(pending).unwrap()) == 2));
    calling.is_as_before();
}

#[test]
fn requests_wait_for_an_instance_of_their_plug_in_if_the_engine_is_full() {
    // One warm instance of `refuser`, three of `scorer`, and as many as `scorer` has beyond its first for others.
    let calling = Calling::scorer_of(&engine(6));
    let waiting: Vec<Pending> = (0..20).map(|_| calling.begin("scorer", 2, |_| {}).unwrap()).collect();
    calling.wait_for(3.0);
    assert_eq!((calling.waiting(), calling.count("sequor_plugin_instances{")), (3.0, 4.0));
    assert_eq!(calling.ask("echo", 1), 1, "other models go on");
    calling.gate.open();
    assert!(waiting.into_iter().all(|pending| first(&wait(pending).unwrap()) == 2));
    assert_eq!(calling.count("sequor_plugin_traps_total{"), 0.0, "no strike");
    calling.is_as_before();
}

/// Three models hold all the room that they may have, with instances that wait for another model.
#[test]
fn models_that_hold_all_the_room_keep_no_other_plug_in_from_an_instance() {
    let engine = engine(64);
    let calling = Calling::scorer_of(&engine);
    let rules = PluginRules { dir: Some(calling.folder.path().to_owned()), ..PluginRules::default() };
    calling.repository.run_plugins(rules, Box::new(schedulers(&engine))).unwrap();
    fs_err::write(calling.folder.path().join("fair.wasm"), SchedulerWat::default().component()).unwrap();
    calling.write("hasty", PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\ntime = \"200ms\"\n");
    calling.load("hasty").unwrap();
    let greedy = ["scorer", "scorer2", "scorer3"];
    for model in &greedy[1..] {
        calling.write(model, PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\ntime = \"60s\"\n");
        calling.load(model).unwrap();
    }
    let begin = |model: &&str| (0..64).map(|_| calling.begin(model, 2, |_| {}).unwrap()).collect::<Vec<_>>();
    let suspended: Vec<Pending> = greedy.iter().flat_map(begin).collect();
    // Each of the models was refused an instance, and those that it has wait. Requests behind a refused one wait for their turn.
    let is_full = || {
        let usage = engine.room().usage();
        usage.refused.further >= 3 && calling.waiting() >= f64::from(3 + usage.further)
    };
    while !is_full() {
        std::thread::yield_now();
    }
    let held = calling.waiting();
    assert!((40.0..=56.0).contains(&held), "{held} of 64, of which 8 are kept for replacements");
    assert_eq!(calling.ask("echo", 1), 1, "other models go on");

    // The only instance of another model ends, twice.
    for value in [8, 9] {
        assert!(wait(calling.begin("hasty", 7, |_| {}).unwrap()).is_err());
        assert_eq!(calling.ask("hasty", value), value);
    }
    calling.write("late", PLUGIN_CONFIG, "[model]\nplugin = \"counter\"\n");
    calling.load("late").unwrap();
    let (plugin, model, config) = ("fair".to_owned(), "echo".to_owned(), String::new());
    let how = Attach { plugin, model, shadow: false, save: false, config, time: None, max_wait: None };
    calling.repository.attach(&how, LOCAL).unwrap();
    calling.repository.replace("caller", guest(&format!("{CALLS} (func $other)"), PRE), LOCAL).unwrap();
    assert_eq!(calling.ask("hasty", 10), 10);
    calling.load("scorer").unwrap();
    assert_eq!((calling.waiting(), calling.ask("scorer", 11)), (held, 11));
    assert_eq!(calling.count("sequor_plugin_traps_total{"), 2.0, "those of `hasty`");

    calling.gate.open();
    assert!(suspended.into_iter().all(|pending| first(&wait(pending).unwrap()) == 2));
    // Unused instances make room: one stays at each of the six models, and one decides for `echo`.
    calling.repository.upkeep_after(Duration::from_secs(61));
    calling.repository.upkeep_after(Duration::from_secs(122));
    assert_eq!(calling.count("sequor_plugin_instances{"), 6.0);
    let usage = engine.room().usage();
    assert_eq!((usage.own, usage.further, usage.free), (7, 0, 57));
}

#[test]
fn plug_in_instances_end_when_their_model_is_unloaded() {
    let calling = Calling::scorer();
    let waiting: Vec<Pending> = (0..9).map(|_| calling.begin("scorer", 2, |_| {}).unwrap()).collect();
    calling.wait_for(9.0);
    assert_eq!(calling.count("sequor_plugin_instances{"), 10.0);
    drop(waiting);
    calling.is_as_before();
    calling.gate.open();
    for model in ["scorer", "refuser"] {
        calling.repository.unload_by_request(model, false).unwrap();
    }
    while calling.count("sequor_plugin_instances{") > 0.0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_failed_model_call_returns_an_error_code_to_the_guest() {
    let calling = Calling::scorer();
    let cases = [(1, -3, "no grant"), (3, -5, "it refuses"), (4, -3, "itself"), (6, -4, "not there")];
    for (value, code, why) in cases {
        assert_eq!(calling.ask("scorer", value), code, "{why}");
    }
    assert_eq!(calling.ask("scorer", 5), 10_000, "ten thousand calls in one request");
    calling.is_as_before();
}

#[test]
fn calls_without_end_reach_the_limit_of_cpu_time() {
    let calling = Calling::scorer();
    calling.write("hasty", PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\ntime = \"200ms\"\n");
    calling.load("hasty").unwrap();
    match wait(calling.begin("hasty", 7, |_| {}).unwrap()) {
        Err(Failure::Processor(failed)) => assert!(failed.text.starts_with("time limit"), "{failed:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(calling.ask("hasty", 8), 8);
    calling.is_as_before();
}

#[test]
fn a_call_ends_with_the_deadline_of_its_request() {
    let calling = Calling::scorer();
    let timeout = |request: &mut InferRequest| request.timeout = Some(Duration::from_secs(2));
    let late = calling.begin("scorer", 2, timeout).unwrap();
    calling.wait_for(1.0);
    assert_eq!(calling.ask("scorer", 50), 50);
    calling.clock.advance(Duration::from_secs(3));
    assert_eq!(first(&wait(late).unwrap()), -7, "the model takes longer");
    calling.is_as_before();
}

#[test]
fn a_request_that_is_cancelled_ends_its_call() {
    let calling = Calling::scorer();
    let pending: Vec<Pending> = (0..8).map(|_| calling.begin("scorer", 2, |_| {}).unwrap()).collect();
    calling.wait_for(8.0);
    drop(pending);
    calling.is_as_before();
    calling.gate.open();
    assert_eq!(calling.ask("scorer", 2), 2);
}

#[test]
fn a_call_to_a_model_that_was_unloaded_fails() {
    let calling = Calling::scorer();
    let runs = calling.begin("scorer", 2, |_| {}).unwrap();
    calling.wait_for(1.0);
    let waits = calling.begin("scorer", 2, |_| {}).unwrap();
    calling.wait_for(2.0);
    calling.repository.unload_by_request("slow", false).unwrap();
    assert_eq!(calling.ask("scorer", 2), -4, "it is no longer there");
    calling.gate.open();
    assert_eq!(first(&wait(runs).unwrap()), 2, "a run that has begun is finished");
    assert!([2, -2, -4].contains(&first(&wait(waits).unwrap())));
    calling.is_as_before();
}

/// The model `circle` calls the ensemble `around`, and is a step of that ensemble.
fn circle_through_an_ensemble() -> Calling {
    let calling = Calling::new(&["circler=model:around"]);
    let calls = CALLS.replace("(i32.const 420) (i32.const 2)", "(i32.const 420) (i32.const 1)");
    let extra = format!("{calls} (data (i32.const 770) \"around\")");
    let pre = "(call $reply (call $one (call $call (i32.const 770) (i32.const 6) (i32.const 1) (i32.const 9))) (i32.const 1))";
    fs_err::write(calling.folder.path().join("circler.wasm"), guest(&extra, pre)).unwrap();
    calling.write("circle", PLUGIN_CONFIG, "[model]\nplugin = \"circler\"\n");
    let ensemble = "platform: \"ensemble\"
        input [ { name: \"INPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]
        output [ { name: \"OUTPUT\" data_type: TYPE_INT32 dims: [ 1 ] } ]
        ensemble_scheduling { step [ {
            model_name: \"circle\" model_version: -1
            input_map { key: \"INPUT\" value: \"INPUT\" } output_map { key: \"OUTPUT\" value: \"OUTPUT\" }
        } ] }";
    calling.write("around", ensemble, "");
    fs_err::create_dir_all(calling.folder.path().join("models/around/1")).unwrap();
    calling.load("circle").unwrap();
    calling.load("around").unwrap();
    calling
}

#[test]
fn a_call_that_leads_back_through_an_ensemble_is_denied() {
    let calling = circle_through_an_ensemble();
    assert_eq!(calling.ask("circle", 5), -3);
    let statistics = calling.repository.statistics("circle", "").unwrap().remove(0);
    assert_eq!(statistics.counted.inference_count, 1, "the step of the ensemble does not wait for the model");
    assert_eq!(calling.waiting(), 0.0);
}

#[test]
fn grants_that_lead_back_through_an_ensemble_refuse_the_model() {
    let calling = circle_through_an_ensemble();
    calling.write("circle", PLUGIN_CONFIG, "[model]\nplugin = \"circler\"\ntime = \"30ms\"\n");
    let refused = calling.load("circle").unwrap_err();
    assert!(refused.contains("circle → around → circle"), "{refused}");
}

#[test]
fn wasi_nn_calls_the_same_models() {
    let calling = Calling::new(&["nn=model:echo", "nn=model:refuser"]);
    let extra = format!("{NN}{ONE}{NAMES}");
    let manifest = "wants = [\"pre\"]\n";
    let guest = WatGuest { extra: &extra, configure: ALIKE, pre: NN_PRE, post: "unreachable", manifest };
    fs_err::write(calling.folder.path().join("nn.wasm"), component_with_wasi_nn(&guest)).unwrap();
    calling.write("refuser", &PLUGIN_CONFIG.replace("[ 1 ]", "[ 1, 1 ]"), "[model]\nplugin = \"refuser\"\n");
    calling.write("scorer", PLUGIN_CONFIG, "[model]\nplugin = \"nn\"\n");
    calling.load("refuser").unwrap();
    calling.load("scorer").unwrap();
    assert_eq!([calling.ask("scorer", 40), calling.ask("scorer", 41)], [40, 41]);
    // The error codes of wasi-nn: security, unsupported-operation, too-large.
    assert_eq!([calling.ask("scorer", 1), calling.ask("scorer", 2), calling.ask("scorer", 3)], [-7, -4, -5]);
    calling.is_as_before();
}

#[test]
fn grants_that_lead_back_to_a_model_refuse_it() {
    let calling = Calling::new(&["caller=model:scorer", "counter=model:scorer", "caller=model:counter"]);
    calling.write("scorer", PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\n");
    let refused = calling.load("scorer").unwrap_err();
    assert!(refused.contains("it may call models that may call 'scorer' in turn: scorer → scorer"), "{refused}");
    let two = Calling::new(&["caller=model:counter", "counter=model:scorer"]);
    two.write("scorer", PLUGIN_CONFIG, "[model]\nplugin = \"caller\"\n");
    two.write("counter", PLUGIN_CONFIG, "[model]\nplugin = \"counter\"\n");
    two.load("counter").unwrap();
    let refused = two.load("scorer").unwrap_err();
    assert!(refused.contains("scorer → counter → scorer"), "{refused}");
}
