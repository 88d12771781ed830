//! Measures gains and costs of batches:
//! - an LSTM with dynamic batching, next to one without;
//! - batches of requests with unequal lengths, next to a plain copy;
//! - an ensemble of three models, next to three calls.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor::batch::{BatchRow, Staging};
use sequor::bench::{BenchPlan, BenchReport, Child, Data, Recipe, Wanted, drive};
use sequor::config::model::settings::ModelSettings;
use sequor::config::model::{ConfigSource, Draft, Options as ConfigOptions, Port, Signature, Sources};
use sequor::device::{Device, Host};
use sequor::model::Tensor;
use sequor_core::{DataType, Dims, Id, Shape};

use crate::{Options, models, role, sequor};

/// Sequence length, features and hidden size of the LSTM, as in `models/make.py`.
pub(crate) const LSTM: [u64; 3] = [24, 32, 64];
/// Requests in one ragged batch, and their bytes.
const RAGGED: usize = 64;
const BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;

pub(crate) fn figures(options: &Options) {
    let repository = repository();
    let server = Child::serve(&sequor(), repository.path()).expect("the server");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    println!("\nbatches: CPU time of the server, us                      (gRPC; client and server on the same cores)");
    alone();
    println!(
        "                                    clients       A       B     B/A  again    aim             batch of B"
    );
    for clients in [8, 32, 64] {
        let pair = ComparedModels { first: ("lstm_each", 1.0), second: ("lstm", 1.0), clients };
        let aim = (clients == 64).then_some(0.7);
        runtime.block_on(pair.print(options, &server, "LSTM without, with dynamic batching", aim));
    }
    for clients in [1, 8, 32, 64] {
        let pair = ComparedModels { first: ("member_0", 3.0), second: ("ensemble", 1.0), clients };
        runtime.block_on(pair.print(options, &server, "three calls, ensemble of three", Some(0.7)));
    }
    ragged(options);
}

// === through the server ===

/// Two models on one server, each with the number of its requests to compare.
struct ComparedModels {
    first: (&'static str, f64),
    second: (&'static str, f64),
    clients: usize,
}

impl ComparedModels {
    async fn print(&self, options: &Options, server: &Child, title: &str, aim: Option<f64>) {
        let [first, second] = [self.first.0, self.second.0].map(|model| recipe(server, model));
        let (first, second) = (first.await, second.await);
        let (mut rows, mut batch) = (Vec::new(), 0.0);
        for turn in 0..options.turns {
            let mut row = [0.0; 3];
            let mut order = [0, 1, 2];
            if turn % 2 == 1 {
                order.reverse();
            }
            for n in order {
                // The first model again, to show the machine's noise.
                let (recipe, times) = if n == 1 { (&second, self.second.1) } else { (&first, self.first.1) };
                let report = self.turn(options, server, recipe).await;
                row[n] = report.server.expect("a local server").cpu_us_per_request * times;
                batch = if n == 1 { report.mean_batch.unwrap_or_default() } else { batch };
            }
            rows.push(row);
        }
        let column = |n: usize| middle(rows.iter().map(|row| row[n]).collect());
        let ratio = |n: usize| middle(rows.iter().map(|row| row[n] / row[0]).collect());
        let verdict = aim.map(|aim| format!("{aim:.1} {}", if ratio(1) <= aim { "ok" } else { "MISSED" }));
        println!(
            "{title:<36}{:>7}{:>8.1}{:>8.1}{:>8.3}{:>7.3}    {:<12}{batch:>12.1}",
            self.clients,
            column(0),
            column(1),
            ratio(1),
            ratio(2),
            verdict.unwrap_or_else(|| "-".to_owned()),
        );
    }

    async fn turn(&self, options: &Options, server: &Child, recipe: &Recipe) -> BenchReport {
        let plan = BenchPlan {
            warm_up: Duration::from_millis(200),
            span: Duration::from_secs(120),
            requests: Some(options.requests()),
            metrics: server.metrics.clone(),
            pid: Some(server.pid()),
            ..BenchPlan::closed(server.grpc.clone(), self.clients)
        };
        let report = drive::run(&plan, recipe, std::future::pending()).await.expect("a run");
        assert_eq!(report.failures(), 0, "{report}");
        report
    }
}

async fn recipe(server: &Child, model: &str) -> Recipe {
    let wanted = Wanted {
        model: model.to_owned(),
        data: Data::Random,
        shapes: BTreeMap::new(),
        sequence_length: 0,
        variation: 0,
        check_sums: false,
        seed: 1,
    };
    let channel = drive::connect(&server.grpc).await.expect("a connection");
    Recipe::ask(channel, &wanted).await.expect("the model")
}

/// Microseconds a row of the LSTM in ONNX Runtime alone.
fn alone() {
    let output = role("lstm").output().expect("the bare loop");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |line: &str| {
        let (batch, us) = line.split_once(' ')?;
        Some(format!("{:.1} in {batch}", us.parse::<f64>().ok()?))
    };
    println!("LSTM in ONNX Runtime alone, us a row: {}", output.lines().filter_map(of).collect::<Vec<_>>().join(", "));
}

/// The LSTM with and without dynamic batching, three identities, and the ensemble that runs them one after the other.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let add = |name: &str, config: &str, graph: Option<&str>| {
        let model = folder.path().join(name);
        std::fs::create_dir_all(model.join("1")).expect("a folder");
        std::fs::write(model.join("config.pbtxt"), config).expect("a file");
        if let Some(graph) = graph {
            std::fs::copy(models::root(graph), model.join("1/model.onnx")).expect("a graph");
        }
    };
    let [frames, features, hidden] = LSTM;
    let tensor = |name: &str, dims: &[u64]| format!("{{ name: \"{name}\" data_type: TYPE_FP32 dims: {dims:?} }}");
    let (input, output) = (tensor("INPUT", &[frames, features]), tensor("OUTPUT", &[hidden]));
    let lstm = format!("max_batch_size: 64 input {input} output {output} instance_group {{ count: 1 kind: KIND_CPU }}");
    add("lstm_each", &lstm, Some("benches/models/lstm.onnx"));
    add("lstm", &format!("{lstm} dynamic_batching {{ }}"), Some("benches/models/lstm.onnx"));
    let identity = include_str!("../models/identity.pbtxt").replace("name: \"identity\"", "");
    for n in 0..3 {
        add(&format!("member_{n}"), &identity, Some("benches/models/identity.onnx"));
    }
    let names = ["INPUT", "one", "two", "OUTPUT"];
    let steps: String = (0..3)
        .map(|n| {
            let (from, to) = (names[n], names[n + 1]);
            format!(
                "step {{ model_name: \"member_{n}\" model_version: -1 input_map {{ key: \"INPUT\" value: \"{from}\" }} \
                 output_map {{ key: \"OUTPUT\" value: \"{to}\" }} }} "
            )
        })
        .collect();
    let (input, output) = (tensor("INPUT", &[16]), tensor("OUTPUT", &[16]));
    let ensemble = format!("platform: \"ensemble\" max_batch_size: 64 input {input} output {output}");
    add("ensemble", &format!("{ensemble} ensemble_scheduling {{ {steps} }}"), None);
    folder
}

// === in this process ===

/// Number of batches of unequal lengths. Each is staged, copied and copied again in turn, and never twice in a row, because a read leaves
/// the batch in the nearest cache.
const BATCHES: usize = 9;

/// Stages requests of unequal lengths, next to copies of the same bytes to one place.
fn ragged(options: &Options) {
    let settings = ragged_settings();
    let device: Arc<dyn Device> = Arc::new(Host);
    let mut staging = Staging::new(&device, &settings).expect("memory");
    let batches: Vec<Vec<[Option<Tensor>; 1]>> = (0..BATCHES).map(batch).collect();
    let bytes = |of: &[Option<Tensor>; 1]| of[0].as_ref().map_or(0, |tensor| tensor.data.len());
    let most = batches.iter().map(|batch| batch.iter().map(bytes).sum::<usize>()).max().expect("batches");
    let (mut to, mut to_again) = (vec![1u8; most], vec![1u8; most]);
    let id = Id::None;
    let mut times = [const { Vec::new() }; 3];
    let turns = BATCHES * if options.quick { 20 } else { 200 };
    for turn in 0..turns {
        for n in 0..times.len() {
            let part = (n + turn) % times.len();
            let batch = &batches[(turn + part * BATCHES / times.len()) % BATCHES];
            times[part].push(match part {
                0 => laid_together(&mut staging, batch, &id),
                1 => copied(&mut to, batch),
                _ => copied(&mut to_again, batch),
            });
        }
    }
    let [laid, copied, again] = times.map(middle);
    let ratio = laid / copied;
    let verdict = if ratio <= 1.3 { "ok" } else { "MISSED" };
    println!(
        "{RAGGED} requests of 4 to 64 KiB laid together: {laid:.0} us, copied {copied:.0} us: {ratio:.3}, copied again {:.3}   aim 1.3 {verdict}",
        again / copied
    );
}

/// Microseconds to stage a batch.
fn laid_together(staging: &mut Staging, batch: &[[Option<Tensor>; 1]], id: &Id) -> f64 {
    let row = |inputs| Some(BatchRow { inputs, rows: 1, start: false, end: false, id });
    let rows: Vec<_> = batch.iter().map(|inputs| row(inputs.as_slice())).collect();
    let began = Instant::now();
    staging.fill(black_box(&rows)).expect("a batch");
    began.elapsed().as_secs_f64() * 1e6
}

/// Microseconds to copy the bytes of a batch to one place.
fn copied(to: &mut [u8], batch: &[[Option<Tensor>; 1]]) -> f64 {
    let began = Instant::now();
    let mut at = 0;
    for tensor in batch.iter().filter_map(|inputs| inputs[0].as_ref()) {
        let end = at + tensor.data.len();
        to[at..end].copy_from_slice(&tensor.data);
        at = end;
    }
    black_box(to);
    began.elapsed().as_secs_f64() * 1e6
}

fn ragged_settings() -> ModelSettings {
    let config = format!(
        "backend: \"onnxruntime\" max_batch_size: {RAGGED} instance_group {{ count: 1 }} \
         input {{ name: \"INPUT\" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }} \
         batch_input {{ kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: \"LIST\" data_type: TYPE_INT32 source_input: \"INPUT\" }} \
         output {{ name: \"OUTPUT\" data_type: TYPE_FP32 dims: [ -1 ] }} \
         batch_output {{ target_name: \"OUTPUT\" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: \"INPUT\" }} \
         dynamic_batching {{ }}"
    );
    let sources = Sources {
        directory: Path::new("ragged").to_owned(),
        config: ConfigSource::Text(config),
        files: vec!["model.onnx".to_owned()],
        ..Sources::default()
    };
    let draft = Draft::parse(sources, &ConfigOptions::default()).expect("a configuration");
    let port = |name: &str, dtype| Port { name: name.to_owned(), dtype, dims: Dims::from_wire(&[-1]) };
    let signature = Signature {
        inputs: vec![port("INPUT", DataType::Fp32), port("LIST", DataType::Int32)],
        outputs: vec![port("OUTPUT", DataType::Fp32)],
        ..Signature::default()
    };
    draft.resolve(&signature).expect("a configuration of this graph")
}

/// Requests with evenly spread lengths, in mixed order.
fn batch(seed: usize) -> Vec<[Option<Tensor>; 1]> {
    let step = (BYTES.end() - BYTES.start()) / (RAGGED - 1);
    let request = |n: usize| {
        let bytes = (BYTES.start() + (n * 37 + seed) % RAGGED * step) / 4 * 4;
        let shape = Shape::new(&[1, bytes as u64 / 4]);
        [Some(Tensor { dtype: DataType::Fp32, shape, data: vec![n as u8; bytes].into() })]
    };
    (0..RAGGED).map(request).collect()
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
