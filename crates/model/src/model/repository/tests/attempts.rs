//! Tests what a load leaves in the catalog, also if it failed or met another load of the name.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use parking_lot::{Condvar, Mutex};
use sequor_core::Shape;

use crate::backend::mock::MockBackend;
use crate::config::server::file::ControlMode;
use crate::error::{Failure, NoVersionReason, NotServed};
use crate::model::repository::{Repository, RepositoryControl, RepositoryOptions};
use crate::model::tests::Fixture;
use crate::telemetry::Metrics;

/// The configuration of `sum` as a client sends it.
const SENT: &str = r#"{ "backend": "onnxruntime", "max_batch_size": 4,
    "input": [ { "name": "INPUT", "data_type": "TYPE_INT32", "dims": [ 1 ] } ],
    "output": [ { "name": "OUTPUT", "data_type": "TYPE_INT32", "dims": [ 1 ] } ],
    "instance_group": [ { "kind": "KIND_CPU", "count": 1 } ],
    "sequence_batching": { "oldest": { "max_candidate_sequences": 4 }, "state": [
        { "input_name": "INPUT_STATE", "output_name": "OUTPUT_STATE", "data_type": "TYPE_INT32", "dims": [ 1 ] } ] } }"#;

/// A plain model whose sample runs before each load serves.
const WARMED: &str = r#"{ "backend": "onnxruntime", "max_batch_size": 4,
    "input": [ { "name": "INPUT", "data_type": "TYPE_INT32", "dims": [ 1 ] } ],
    "output": [ { "name": "OUTPUT", "data_type": "TYPE_INT32", "dims": [ 1 ] } ],
    "instance_group": [ { "kind": "KIND_CPU", "count": 1 } ],
    "model_warmup": [ { "name": "sent", "batch_size": 1, "inputs": {
        "INPUT": { "data_type": "TYPE_INT32", "dims": [ 1 ], "zero_data": true } } } ] }"#;

fn explicit(fixture: &Fixture) {
    let directories = vec![fixture.folder.path().to_owned()];
    fixture.repository.govern(RepositoryControl { directories, mode: ControlMode::Explicit });
    fixture.repository.take_uploads(1 << 20);
}

fn graph(program: &str) -> Vec<(PathBuf, Vec<u8>)> {
    vec![(PathBuf::from("1/model.onnx"), program.as_bytes().to_vec())]
}

/// Whether the files that a client sent are those that serve.
fn check_upload(fixture: &Fixture) {
    let entries = fixture.repository.0.catalog.entries.read();
    let (served, uploaded) = (&entries["sum"].directory, entries["sum"].uploaded.as_ref().unwrap().directory());
    assert_eq!(*served, uploaded);
    assert!(uploaded.join("1/model.onnx").is_file(), "{}", uploaded.display());
}

#[test]
fn a_failed_load_of_the_repositorys_files_leaves_the_uploaded_model() {
    let fixture = Fixture::empty(u64::MAX);
    explicit(&fixture);
    fixture.repository.load_files("sum", SENT, &graph("accumulate INT32 plus=1000")).unwrap();
    assert_eq!(fixture.sum(1, 5, |s| s.start = true), 1005);
    fs_err::write(fixture.model().join("config.pbtxt"), "nonsense {").unwrap();
    fixture.repository.load_by_request("sum", None).unwrap_err();
    check_upload(&fixture);
    let key = || fixture.repository.0.catalog.entries.read()["sum"].model.as_ref().unwrap().load_for(None).unwrap().key;
    let before = key();
    fixture.repository.0.loader.reload("sum").unwrap();
    assert_ne!(key(), before, "it is a new load");
    assert_eq!(fixture.sum(2, 5, |s| s.start = true), 1005, "of the files that the client sent");
    // A failed upload leaves them, too.
    fixture.repository.load_files("sum", "{}", &graph("nonsense")).unwrap_err();
    check_upload(&fixture);
    fixture.repository.0.loader.reload("sum").unwrap();
    // The repository's files replace them once they load.
    fs_err::write(fixture.model().join("config.pbtxt"), "backend: 'onnxruntime'").unwrap();
    fixture.repository.load_by_request("sum", None).unwrap();
    let entries = fixture.repository.0.catalog.entries.read();
    assert!(entries["sum"].uploaded.is_none());
    assert_eq!(entries["sum"].directory, fixture.model());
}

/// The loser's folder is removed, whichever it is.
#[test]
fn the_folder_of_the_upload_that_serves_stays() {
    let fixture = Fixture::empty(u64::MAX);
    explicit(&fixture);
    for round in 0..50 {
        thread::scope(|scope| {
            for client in 0..4 {
                let program = format!("accumulate INT32 plus={}", round * 4 + client);
                let fixture = &fixture;
                scope.spawn(move || fixture.repository.load_files("sum", SENT, &graph(&program)).unwrap());
            }
        });
        check_upload(&fixture);
    }
}

/// A server whose loads can be stopped in their sample run.
struct StoppedLoads {
    fixture: Fixture,
    /// Whether sample runs wait, and how many have begun.
    runs: Arc<(Mutex<(bool, u32)>, Condvar)>,
}

impl StoppedLoads {
    fn new() -> StoppedLoads {
        let runs = Arc::new((Mutex::new((false, 0)), Condvar::new()));
        let seen = Arc::clone(&runs);
        let hook = move |_: &Shape| {
            let mut state = seen.0.lock();
            state.1 += 1;
            seen.1.notify_all();
            while state.0 {
                seen.1.wait(&mut state);
            }
        };
        let mut fixture = Fixture::empty(u64::MAX);
        let backend = MockBackend::with_hook(Arc::new(hook));
        fixture.repository =
            Repository::new(Arc::new(backend), RepositoryOptions::default(), Metrics::new(true)).unwrap();
        explicit(&fixture);
        fs_err::write(fixture.model().join("config.pbtxt"), "backend: 'onnxruntime'").unwrap();
        fs_err::write(fixture.model().join("1/model.onnx"), "identity INT32").unwrap();
        fixture.repository.load_by_request("sum", Some(WARMED)).unwrap();
        StoppedLoads { fixture, runs }
    }

    fn count(&self) -> u32 {
        self.runs.0.lock().1
    }

    /// Runs `late` while a reload is stopped, and lets both go on once `late` has ended or waits for the model.
    fn during_a_reload(&self, late: impl FnOnce(&Repository) + Send) {
        let repository = &self.fixture.repository;
        self.runs.0.lock().0 = true;
        let before = self.count();
        thread::scope(|scope| {
            let first = scope.spawn(|| repository.0.loader.reload("sum").unwrap());
            let mut state = self.runs.0.lock();
            while state.1 == before {
                self.runs.1.wait(&mut state);
            }
            drop(state);
            let second = scope.spawn(|| late(repository));
            while !second.is_finished() && !self.waits_for_its_gate() {
                thread::yield_now();
            }
            self.runs.0.lock().0 = false;
            self.runs.1.notify_all();
            [first, second].map(ScopedJoinHandle::join).into_iter().for_each(|ended| ended.unwrap());
        });
    }

    /// The catalog, the first load and the second one hold the gate.
    fn waits_for_its_gate(&self) -> bool {
        Arc::strong_count(&self.fixture.repository.0.catalog.entries.read()["sum"].gate) >= 3
    }

    fn config(&self) -> Option<String> {
        let entries = self.fixture.repository.0.catalog.entries.read();
        entries["sum"].served.as_ref().unwrap().config().map(str::to_owned)
    }
}

#[test]
fn a_reload_during_another_one_waits_and_loads_again() {
    let loads = StoppedLoads::new();
    assert_eq!(loads.count(), 1);
    loads.during_a_reload(|repository| repository.0.loader.reload("sum").unwrap());
    assert_eq!(loads.count(), 3);
    // A load of unchanged files changes nothing.
    loads.during_a_reload(|repository| repository.load_by_request("sum", Some(WARMED)).unwrap());
    assert_eq!(loads.count(), 4);
}

#[test]
fn a_look_at_the_files_during_a_reload_keeps_the_configuration_that_a_client_sent() {
    let loads = StoppedLoads::new();
    loads.during_a_reload(|repository| {
        repository.reload().unwrap();
    });
    assert_eq!(loads.config().as_deref(), Some(WARMED));
    assert_eq!(loads.count(), 2);
}

/// Whether the refusal of a request for a model asks to try again.
fn is_loading(repository: &Repository, name: &str) -> bool {
    let loading = NotServed::NoVersion { model: name.to_owned(), why: NoVersionReason::Loading };
    matches!(repository.find(name, ""), Err(Failure::NotServed(why)) if why == loading)
}

#[test]
fn a_model_that_waits_for_its_turn_to_load_says_that_it_is_being_loaded() {
    let loads = StoppedLoads::new();
    let (repository, folder) = (&loads.fixture.repository, tempfile::tempdir().unwrap());
    let names: Vec<_> = (0..=thread::available_parallelism().unwrap().get()).map(|n| format!("model{n}")).collect();
    for name in &names {
        let version = folder.path().join(name).join("1");
        fs_err::create_dir_all(&version).unwrap();
        fs_err::write(version.join("model.onnx"), "identity INT32").unwrap();
        let config = "backend: 'onnxruntime' max_batch_size: 4
            input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 }
            model_warmup { name: 'sent' batch_size: 1 inputs { key: 'INPUT'
                value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }";
        fs_err::write(folder.path().join(name).join("config.pbtxt"), config).unwrap();
    }
    loads.runs.0.lock().0 = true;
    let before = loads.count();
    thread::scope(|scope| {
        let loading = scope.spawn(|| repository.load_all(folder.path()).unwrap());
        let mut state = loads.runs.0.lock();
        while state.1 == before {
            loads.runs.1.wait(&mut state);
        }
        drop(state);
        assert!(names.iter().all(|name| is_loading(repository, name)));
        loads.runs.0.lock().0 = false;
        loads.runs.1.notify_all();
        loading.join().unwrap();
    });
    assert!(names.iter().all(|name| repository.find(name, "").is_ok()));
}

#[test]
fn no_model_is_unknown_before_the_folders_have_been_read() {
    let repository = Repository::empty();
    let loading = repository.loading();
    assert!(is_loading(&repository, "nope"));
    drop(loading);
    assert!(!is_loading(&repository, "nope"));
}
