//! Measures speed. Moves of rows are compared with the GPU's own copy. Steps through the engine are compared with bare loops over the same
//! graph:
//! - with states on the GPU;
//! - with states copied over the host;
//! - as CUDA graphs.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor_core::DataType;

use crate::bare::{BareLoop, BenchedGraph, State};
use crate::check::TRANSDUCER;
use crate::model::{LoadedModel, On, Random};
use crate::{Terms, rows};

const GRU: &str = r#"
    max_batch_size: BATCH
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1, 8 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1, 16 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state { input_name: "H" output_name: "H_OUT" data_type: TYPE_FP32 dims: [ 16 ] }
    }
"#;

pub(crate) fn all(terms: &Terms) -> ExitCode {
    rows::all(terms);
    println!(
        "\nsteps a second at batch {}; idle: the share of the time in which the GPU has nothing of a batch to do",
        terms.batch
    );
    println!("host waits: of a batch besides the reply's, aim 0");
    println!("model          depth    engine   bare loop    ratio   aim        over the host      idle   host waits");
    steps(
        terms,
        &BenchedGraph {
            name: "gru",
            file: "models/gru/1/model.onnx",
            config: GRU,
            input: &[1, 8],
            output: &[1, 16],
            states: &[("H", "H_OUT", DataType::Fp32, &[16])],
        },
    );
    let states: &[State] = &[
        ("att_cache", "new_att_cache", DataType::Fp32, &[64, 45, 192]),
        ("cnn_cache", "new_cnn_cache", DataType::Fp32, &[30, 384, 30]),
        ("sum_cache", "new_sum_cache", DataType::Fp32, &[15, 384]),
        ("len_cache", "new_len_cache", DataType::Int64, &[15]),
    ];
    steps(
        terms,
        &BenchedGraph {
            name: "four states",
            file: "tests/models/transducer.onnx",
            config: TRANSDUCER,
            input: &[1],
            output: &[8],
            states,
        },
    );
    ExitCode::SUCCESS
}

// === steps ===

fn steps(terms: &Terms, graph: &BenchedGraph<'_>) {
    let strategy = format!(
        "oldest {{ max_candidate_sequences: {} preferred_batch_size: {} max_queue_delay_microseconds: 1000 }}",
        2 * terms.batch,
        terms.batch
    );
    let config = graph.config.replace("BATCH", &terms.batch.to_string()).replace("STRATEGY", &strategy);
    let [bare, carried] = [true, false].map(|on_device| BareLoop::new(terms, graph, on_device).rate());
    for depth in [1, 2] {
        let model = LoadedModel::of_graph(terms, graph.file, &config, On::Gpu, depth);
        let Measured { rate, idle, waits } = engine(terms, &model, 2 * u64::from(terms.batch));
        let ratio = rate / bare;
        let verdict = match depth {
            2 if ratio >= 0.9 => "0.90 ok",
            2 => "0.90 not the aim",
            _ => "-",
        };
        let name = graph.name;
        println!(
            "{name:<14}{depth:>6}{rate:>10.0}{bare:>12.0}{ratio:>9.2}   {verdict:<16}{carried:>8.0}{idle:>9.1}%{waits:>13.2}"
        );
    }
    match crate::graph::rate(BareLoop::new(terms, graph, true)) {
        Ok(rate) => {
            let (name, ratio) = (graph.name, rate / bare);
            let verdict = if ratio >= 1.1 { "they win by 10 %" } else { "they do not win by 10 %" };
            println!(
                "{name:<14}CUDA graphs, bare loop: {rate:.0} steps a second, {ratio:.2} of the bare loop: {verdict}"
            );
        }
        Err(why) => println!("{:<14}CUDA graphs, bare loop: not measured: {why}", graph.name),
    }
}

/// The engine's results in a span.
struct Measured {
    /// Steps a second.
    rate: f64,
    /// Percent of the time.
    idle: f64,
    /// Waits a batch, without the one for the reply.
    waits: f64,
}

fn runs(model: &LoadedModel) -> u64 {
    model.repository.statistics("", "").unwrap().iter().map(|s| s.counted.execution_count).sum()
}

/// Runs `sequences` sequences. Each sends its next step when the last one is answered.
fn engine(terms: &Terms, model: &LoadedModel, sequences: u64) -> Measured {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    let inputs = model.inputs(&mut Random(5));
    let now = || (done.load(Ordering::Relaxed), terms.gpus.busy(), terms.gpus.waits(), runs(model));
    std::thread::scope(|scope| {
        for part in 0..4u64 {
            let (stop, done, inputs, handle) = (&stop, &done, &inputs, runtime.handle().clone());
            scope.spawn(move || {
                let ids = (1..=sequences).filter(|id| id % 4 == part);
                let one = |id: u64| async move {
                    let mut start = true;
                    while !stop.load(Ordering::Relaxed) {
                        model.send(id, start, false, inputs.clone()).unwrap().await.unwrap();
                        start = false;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                };
                handle.block_on(futures_util::future::join_all(ids.map(one)));
            });
        }
        // The first turns allocate memory and load kernels.
        std::thread::sleep(Duration::from_secs(1));
        let (began, before) = (Instant::now(), now());
        std::thread::sleep(Duration::from_secs(terms.seconds));
        let (span, after) = (began.elapsed().as_secs_f64(), now());
        stop.store(true, Ordering::Relaxed);
        let batches = (after.3 - before.3).max(1) as f64;
        Measured {
            rate: (after.0 - before.0) as f64 / span,
            idle: 100.0 * (1.0 - (after.1 - before.1).as_secs_f64() / span).max(0.0),
            waits: (after.2 - before.2) as f64 / batches - 1.0,
        }
    })
}
