//! How fast: rows moved against the GPU's own copy; steps through the engine against a bare loop over the same graph with its states on
//! the GPU, and with its states carried over the host.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sequor::backend::{Context, Feed, Fetch, LoadOptions};
use sequor::device::{
    Accelerators, Buffer, BufferSlice, Convert, Device, MemorySpan, MemorySpanMut, Moves, Scratch, StridedLayout,
};
use sequor_core::{DataType, Shape};

use crate::Terms;
use crate::check::TRANSDUCER;
use crate::model::{LoadedModel, On, Random};

const GRU: &str = r#"
    max_batch_size: BATCH
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1, 8 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1, 16 ] }
    sequence_batching {
      max_sequence_idle_microseconds: 600000000
      STRATEGY
      state { input_name: "H" output_name: "H_OUT" data_type: TYPE_FP32 dims: [ 16 ] }
    }
"#;

pub(crate) fn all(terms: &Terms) -> ExitCode {
    rows(terms);
    println!(
        "\nsteps a second at batch {}; idle: the share of the time in which the GPU has nothing of a batch to do",
        terms.batch
    );
    println!("host waits: of a batch besides the reply's, aim 0");
    println!("model          depth    engine   bare loop    ratio   aim        over the host      idle   host waits");
    steps(
        terms,
        &Graph {
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
        &Graph {
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

// === rows ===

fn rows(terms: &Terms) {
    let device = terms.gpus.open(0).unwrap();
    println!("\n{} random rows of one state, GB read and written a second", terms.batch);
    println!("row           axis     gather   scatter      copy    ratio   aim");
    for row in [256usize, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        for outer in [1usize, 2] {
            let [gather, scatter, copy] = race(&device, terms.batch as usize, row, outer);
            let ratio = gather.min(scatter) / copy;
            let verdict = match row >= 1 << 10 {
                true if ratio >= 0.85 => "0.85 ok",
                true => "0.85 not the aim",
                false => "-",
            };
            println!("{row:<12}{:>6}{gather:>11.0}{scatter:>10.0}{copy:>10.0}{ratio:>9.2}   {verdict}", outer - 1);
        }
    }
}

/// GB a second of gathering, scattering and of the driver's own copy of as many bytes.
fn race(device: &Arc<dyn Device>, batch: usize, row: usize, outer: usize) -> [f64; 3] {
    let slots = batch * 4;
    let arena = Buffer::new(device, slots * row).unwrap();
    let tensor = Buffer::new(device, batch * row).unwrap();
    let other = Buffer::new(device, batch * row).unwrap();
    let mut random = Random(1);
    let mut order: Vec<usize> = (0..slots).collect();
    for n in 0..batch {
        order.swap(n, n + random.below((slots - n) as u64) as usize);
    }
    let (piece, wide) = (row / outer, row / outer * batch);
    let mut scratch = Scratch::default();
    let mut way = |gather: bool| {
        speed(device, 2 * batch * row, &mut || {
            let mut moves = Moves::new(&**device, &mut scratch);
            let (from_stride, to_stride) = if gather { (piece, wide) } else { (wide, piece) };
            moves.set(StridedLayout { from_stride, to_stride, outer, inner: piece, convert: Convert::No }).unwrap();
            for (n, slot) in order.iter().take(batch).enumerate() {
                let (kept, there) = (BufferSlice::of(&arena, slot * row), BufferSlice::of(&tensor, n * piece));
                let (from, to) = if gather { (kept, there) } else { (there, kept) };
                moves.row(Some(from), to).unwrap();
            }
            moves.run().unwrap();
        })
    };
    let moved = [way(true), way(false)];
    // SAFETY: both live through this, and nothing else moves meanwhile.
    let (from, to) = unsafe { (tensor.read(0..batch * row).unwrap(), other.read(0..batch * row).unwrap()) };
    let stream = device.stream().unwrap() as cudarc::driver::sys::CUstream;
    let copy = speed(device, 2 * batch * row, &mut || {
        // SAFETY: memory of the device, of this size, which does not overlap; the context is current since the buffers were made.
        unsafe { cudarc::driver::result::memcpy_dtod_async(to.address(), from.address(), batch * row, stream) }
            .unwrap();
    });
    [moved[0], moved[1], copy]
}

/// The best of five tries of many, with one wait for all.
fn speed(device: &Arc<dyn Device>, bytes: usize, turn: &mut dyn FnMut()) -> f64 {
    let turns = ((4usize << 30) / bytes).clamp(20, 2000);
    let mut one = || {
        let began = Instant::now();
        for _ in 0..turns {
            turn();
        }
        device.wait(device.fence().unwrap()).unwrap();
        (bytes * turns) as f64 / began.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| one()).fold(0.0, f64::max)
}

// === steps ===

type State = (&'static str, &'static str, DataType, &'static [u64]);

struct Graph<'a> {
    name: &'a str,
    file: &'a str,
    config: &'a str,
    input: &'a [u64],
    output: &'a [u64],
    states: &'a [State],
}

fn steps(terms: &Terms, graph: &Graph<'_>) {
    let strategy = format!(
        "oldest {{ max_candidate_sequences: {} preferred_batch_size: {} max_queue_delay_microseconds: 1000 }}",
        2 * terms.batch,
        terms.batch
    );
    let config = graph.config.replace("BATCH", &terms.batch.to_string()).replace("STRATEGY", &strategy);
    let (bare, carried) = (bare(terms, graph, true), bare(terms, graph, false));
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
}

/// What the engine has done in a span.
struct Measured {
    /// Steps a second.
    rate: f64,
    /// Per cent of the time.
    idle: f64,
    /// A batch, besides the reply's.
    waits: f64,
}

fn runs(model: &LoadedModel) -> u64 {
    model.repository.statistics("", "").unwrap().iter().map(|s| s.counted.execution_count).sum()
}

/// So many sequences, each of which sends its next step when the last is answered.
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
        // What comes first makes memory and kernels.
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

/// Steps a second of a loop that does nothing but run the graph: inputs up, outputs down, one wait; states on the GPU, or on the host.
fn bare(terms: &Terms, graph: &Graph<'_>, on_device: bool) -> f64 {
    let device = terms.gpus.open(0).unwrap();
    let staging = device.staging().unwrap();
    let options = LoadOptions::default();
    let loaded = terms.backend.load_on(&terms.root.join(graph.file), &options, &device).unwrap();
    let names = |first: &str, of: fn(&State) -> &'static str| {
        std::iter::once(first.to_owned()).chain(graph.states.iter().map(|s| of(s).to_owned())).collect::<Vec<_>>()
    };
    let mut context = loaded.context(&names("INPUT", |s| s.0), &names("OUTPUT", |s| s.1)).unwrap();
    let batched = |dims: &[u64]| Shape::of(dims).with(0, u64::from(terms.batch));
    let bytes = |shape: &Shape, dtype: DataType| shape.elements().unwrap() as usize * dtype.size().unwrap();
    let place = if on_device { &device } else { &staging };
    let (input, output) = (batched(graph.input), batched(graph.output));
    let host = [&input, &output].map(|s| Buffer::new(&staging, bytes(s, DataType::Fp32)).unwrap());
    let mut far = [&input, &output].map(|s| Buffer::new(&device, bytes(s, DataType::Fp32)).unwrap());
    let sides: Vec<(Shape, DataType, [Buffer; 2])> = graph
        .states
        .iter()
        .map(|(_, _, dtype, dims)| {
            let shape = batched(dims);
            let side = || Buffer::new(place, bytes(&shape, *dtype)).unwrap();
            let both = [side(), side()];
            (shape, *dtype, both)
        })
        .collect();
    let mut side = 0;
    let mut turn = || {
        // SAFETY: nothing is dropped or touched before the wait at the turn's end.
        unsafe { far[0].upload(&host[0], host[0].len()) }.unwrap();
        once(&mut *context, (&input, &output), &far, &sides, side);
        // SAFETY: as above.
        unsafe { far[1].download(&host[1].write(0..host[1].len()).unwrap()) }.unwrap();
        device.wait(device.fence().unwrap()).unwrap();
        side = 1 - side;
    };
    for _ in 0..20 {
        turn();
    }
    let (began, mut turns) = (Instant::now(), 0u64);
    while began.elapsed() < Duration::from_secs(terms.seconds) {
        turn();
        turns += 1;
    }
    (turns * u64::from(terms.batch)) as f64 / began.elapsed().as_secs_f64()
}

/// One run, states read on one side and written on the other.
fn once(
    context: &mut dyn Context,
    (input, output): (&Shape, &Shape),
    far: &[Buffer; 2],
    states: &[(Shape, DataType, [Buffer; 2])],
    side: usize,
) {
    // SAFETY: buffers outlive the turn; what is read is not written.
    let read = |buffer: &Buffer| -> MemorySpan<'_> { unsafe { buffer.read(0..buffer.len()) }.unwrap() };
    // SAFETY: as above.
    let write = |buffer: &Buffer| -> MemorySpanMut<'_> { unsafe { buffer.write(0..buffer.len()) }.unwrap() };
    let mut feeds = vec![Feed { dtype: DataType::Fp32, shape: input, data: read(&far[0]) }];
    let mut fetches = vec![Fetch::Into { shape: output, data: write(&far[1]) }];
    for (shape, dtype, both) in states {
        feeds.push(Feed { dtype: *dtype, shape, data: read(&both[side]) });
        fetches.push(Fetch::Into { shape, data: write(&both[1 - side]) });
    }
    context.run(&feeds, &mut fetches).unwrap();
}
