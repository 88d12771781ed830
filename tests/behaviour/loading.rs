//! Loading of models at the server's start.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::Mutex;
use sequor::backend::mock::MockBackend;
use sequor::backend::{Backend, BackendError, Graph, LoadOptions};
use sequor::model::{Repository, RepositoryOptions};
use sequor::telemetry::Metrics;

const MODELS: usize = 500;
const CONFIG: &str = r#"
    backend: "onnxruntime" max_batch_size: 4
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { oldest { max_candidate_sequences: 1 } state [
        { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }
"#;

/// Records the names of the threads that load.
#[derive(Debug, Default)]
struct Counting {
    backend: MockBackend,
    threads: Mutex<BTreeSet<String>>,
}

impl Backend for Counting {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn load(&self, file: &Path, options: &LoadOptions) -> Result<Arc<dyn Graph>, BackendError> {
        let thread: ThreadId = thread::current().id();
        self.threads.lock().insert(format!("{thread:?}"));
        self.backend.load(file, options)
    }
}

#[test]
fn loading_500_models_uses_at_most_one_thread_per_core() {
    let directory = tempfile::tempdir().unwrap();
    for n in 0..MODELS {
        let model = directory.path().join(format!("sum{n}"));
        fs_err::create_dir_all(model.join("1")).unwrap();
        fs_err::write(model.join("config.pbtxt"), CONFIG).unwrap();
        fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
    }
    let backend = Arc::<Counting>::default();
    let repository =
        Repository::new(Arc::<Counting>::clone(&backend), RepositoryOptions::default(), Metrics::new(true)).unwrap();
    repository.load_all(directory.path()).unwrap();
    assert_eq!(repository.statuses().len(), MODELS);
    assert!(repository.complete(), "{:?}", repository.statuses().first());
    let threads = backend.threads.lock().len();
    repository.stop();
    let cores = thread::available_parallelism().unwrap().get();
    println!("{threads} threads loaded {MODELS} models on {cores} cores");
    assert!(threads <= cores, "{threads} threads on {cores} cores");
}
