//! Measures START and END of a sequence in turn, for three servers: without an initializer, with an initializer that answers `default`, and
//! with an initializer whose prompt is kept. It runs in this process on a mock backend, so that the graph's runs cost nothing.
//! `cargo bench --bench initializer [-- --quick]`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::backend::mock::MockBackend;
use sequor::initializing::InitializerComponent;
use sequor::initializing::wat::InitializerWat;
use sequor::model::request::SequenceStep;
use sequor::model::{InferRequest, NamedTensor, Repository, RepositoryOptions, Tensor};
use sequor::processing::PlaceRules;
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Id, Shape};
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::plugin_error::PluginError;
use tempfile::TempDir;

/// Input 10 starts with the kept state of `p`, all other inputs with zeros.
const INITIALIZE: &str = "
    (if (i32.eq (i32.load (i32.load offset=20 (local.get $inputs))) (i32.const 10)) (then
        (return (call $text (i32.const 3) (i32.const 4) (i32.const 1)))))
    (call $text (i32.const 0) (i32.const 0) (i32.const 0))";
const STEPS: &str = "(call $steps (i32.const 100) (i32.const 100))";

const CONFIG: &str = r#"max_batch_size: 4 instance_group { count: 1 kind: KIND_CPU }
    input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }
    sequence_batching { oldest { max_candidate_sequences: 4 }
        state { input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } }"#;

const DEFAULT: i32 = 20;
const KEPT: i32 = 10;

fn main() {
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let quick = std::env::args().any(|a| a == "--quick");
    if cfg!(debug_assertions) {
        println!("DEBUG BUILD: figures mean nothing");
    }
    let (rounds, each) = if quick { (5, 200) } else { (41, 1000) };
    let folder = TempDir::new().expect("a folder");
    let (without, with) =
        (serve(&folder, "without", ""), serve(&folder, "with", "[plugins.initializer]\nuse = \"guest\"\n"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // A, A again, and B are measured in turn, so that the machine's noise is in all of them.
    let mut medians: [Vec<Duration>; 4] = Default::default();
    for _ in 0..rounds {
        for (n, (server, value)) in
            [(&without, DEFAULT), (&with, DEFAULT), (&with, DEFAULT), (&with, KEPT)].iter().enumerate()
        {
            medians[n].push(sequences(&runtime, server, *value, each));
        }
    }
    let [native, default, again, kept] = medians.map(|mut all| {
        all.sort_unstable();
        all[all.len() / 2]
    });
    println!("START and END of one sequence, median of {rounds} rounds of {each}");
    println!("  no initializer             {native:>10.2?}");
    println!("  initializer says default   {default:>10.2?}   against itself {:.2}", ratio(again, default));
    println!("  kept prompt (100 steps)    {kept:>10.2?}   of default {:.2} (aim 1.20)", ratio(kept, default));
}

fn ratio(part: Duration, of: Duration) -> f64 {
    part.as_secs_f64() / of.as_secs_f64()
}

/// The mean time of one sequence.
fn sequences(runtime: &tokio::runtime::Runtime, server: &Repository, value: i32, count: u32) -> Duration {
    let began = Instant::now();
    for _ in 0..count {
        let answer = runtime.block_on(server.submit(request(value)).expect("a request that is taken"));
        answer.expect("an answer");
    }
    began.elapsed() / count
}

fn serve(folder: &TempDir, name: &str, toml: &str) -> Repository {
    let folder = folder.path().join(name);
    let model = folder.join("sum");
    std::fs::create_dir_all(model.join("1")).expect("a folder");
    let write = |to: &Path, what: &[u8]| std::fs::write(to, what).expect("a file");
    write(&model.join("1/model.onnx"), b"accumulate INT32");
    write(&model.join("config.pbtxt"), CONFIG.as_bytes());
    write(&model.join("sequor.toml"), toml.as_bytes());
    let manifest = "reads = [\"INPUT\"]\n";
    let guest = InitializerWat { initialize: INITIALIZE, steps: STEPS, manifest, ..InitializerWat::default() };
    write(&folder.join("guest.wasm"), &guest.component());
    let engine = Arc::new(Engine::new(Mode::Serving).expect("an engine"));
    let make = move |_: &str, bytes: &[u8]| {
        let component = InitializerComponent::new(&engine, "guest.wasm", bytes, Grants::default(), None);
        component.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
    };
    let no_processor = |name: &str, _: &[u8]| Err(PluginError::Invalid(format!("there is no {name}")));
    let rules = PlaceRules { dir: Some(folder), strikes: 3, ..PlaceRules::default() };
    let metrics = Metrics::new(true);
    let server = Repository::new(Arc::new(MockBackend::new()), RepositoryOptions::default(), metrics).expect("threads");
    server.run_processors(PlaceRules::default(), Box::new(no_processor)).expect("the only processors");
    server.run_initializers(rules, Box::new(make)).expect("the only initializers");
    server.load(&model);
    server
}

fn request(value: i32) -> InferRequest {
    let data = value.to_le_bytes().to_vec().into();
    let tensor = Tensor { dtype: DataType::Int32, shape: Shape::new(&[1, 1]), data };
    InferRequest {
        model: "sum".to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::Int(1), start: true, end: true, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: vec![NamedTensor { name: "INPUT".to_owned(), tensor }],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}
