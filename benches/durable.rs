//! Measures the cost of durable states:
//! - a paced load with and without them, next to the bare store;
//! - the writing of live sequences when the server stops, and the first step after a restart;
//! - the memory of sequences that were moved to the store.
//!
//! It runs in this process on a mock backend. The model with four states runs on ONNX Runtime.
//! `cargo bench --bench durable [-- --quick] [--only pace|four|drain|resume|spill]`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use sequor::backend::Backend;
use sequor::backend::mock::MockBackend;
use sequor::backend::onnx::OnnxBackend;
use sequor::backend::onnx::library::{self, System};
use sequor::model::repository::Availability;
use sequor::model::request::SequenceStep;
use sequor::model::{Clock, InferRequest, NamedTensor, Repository, RepositoryOptions, SequenceStore, Tensor};
use sequor::state::tier::{self, GroupWriter, IdleTime, StateHead, Tier as _, TierChange, TierKey};
use sequor::telemetry::Metrics;
use sequor_core::{DataType, Dialect, Id, Shape};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Number of streams at the pace of speech; fewer for the model with four states, whose step writes 3.4 MiB.
const STREAMS: u64 = 64;
const LARGE_STREAMS: u64 = 2;
const PACE: Duration = Duration::from_millis(32);
const KIB: usize = 1 << 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|a| a == "--list") {
        return;
    }
    let quick = arguments.iter().any(|a| a == "--quick");
    let only = arguments.iter().position(|a| a == "--only").and_then(|at| arguments.get(at + 1));
    let wants = |mode: &str| only.is_none_or(|only| only == mode);
    if cfg!(debug_assertions) {
        println!("DEBUG BUILD: figures mean nothing");
    }
    let seconds = if quick { 2 } else { 15 };
    if wants("pace") {
        pace(Model::Sum(KIB), STREAMS, seconds);
        pace(Model::Sum(64 * KIB), STREAMS, seconds);
    }
    if wants("pace") || wants("four") {
        pace(Model::FourStates, LARGE_STREAMS, seconds);
    }
    if wants("drain") || wants("resume") {
        drain(if quick { 50 } else { 1000 }, 64 * KIB);
    }
    if wants("spill") {
        spill(if quick { 2000 } else { 100_000 }, KIB);
    }
}

/// The model of a server.
#[derive(Clone, Copy)]
enum Model {
    /// A running sum with a state of this many bytes.
    Sum(usize),
    /// Four states of two types, as in a streaming encoder.
    FourStates,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Model::Sum(_) => "sum",
            Model::FourStates => "cached_oldest",
        }
    }

    fn state_bytes(self) -> usize {
        match self {
            Model::Sum(size) => size,
            Model::FourStates => 4 * (2 * 8 * 64 * 512 + 8 * 512 * 92) + 8 * 8,
        }
    }

    fn backend(self) -> Arc<dyn Backend> {
        match self {
            Model::Sum(_) => Arc::new(MockBackend::new()),
            Model::FourStates => {
                let library = library::find(None, &System).expect("ONNX Runtime");
                Arc::new(OnnxBackend::new(&library.path).expect("ONNX Runtime"))
            }
        }
    }

    /// Writes the files of the model except sequor.toml.
    fn write(self, folder: &Path, slots: u64) {
        std::fs::create_dir_all(folder.join("1")).expect("a folder");
        let (graph, settings) = match self {
            Model::Sum(size) => (format!("accumulate INT32 dims={}", size / 4).into_bytes(), config(size / 4, slots)),
            Model::FourStates => {
                let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/models/cached_rows.onnx");
                (std::fs::read(path).expect("a graph"), include_str!("models/cached_oldest.pbtxt").to_owned())
            }
        };
        std::fs::write(folder.join("1/model.onnx"), graph).expect("a file");
        std::fs::write(folder.join("config.pbtxt"), settings).expect("a file");
    }

    fn input(self) -> NamedTensor {
        let (name, dtype, shape, data) = match self {
            Model::Sum(size) => ("INPUT", DataType::Int32, Shape::new(&[1, (size / 4) as u64]), vec![1; size]),
            Model::FourStates => ("x", DataType::Fp32, Shape::new(&[1, 16, 80]), vec![0; 4 * 16 * 80]),
        };
        NamedTensor { name: name.to_owned(), tensor: Tensor { dtype, shape, data: Bytes::from(data) } }
    }
}

/// A server with one model.
struct Bench {
    model: Model,
    repository: Repository,
    _folder: Option<TempDir>,
}

impl Bench {
    fn new(when: Option<&str>, model: Model, slots: u64, memory: u64) -> Bench {
        let folder = TempDir::new().expect("a folder");
        let bench = Bench::at(folder.path(), when, model, slots, memory);
        Bench { _folder: Some(folder), ..bench }
    }

    fn at(folder: &Path, when: Option<&str>, model: Model, slots: u64, memory: u64) -> Bench {
        let directory = folder.join(model.name());
        model.write(&directory, slots);
        let mut options = RepositoryOptions { state_limit: memory, ..RepositoryOptions::default() };
        if let Some(when) = when {
            let durability = format!("[durability]\nwhen = \"{when}\"\n");
            std::fs::write(directory.join("sequor.toml"), durability).expect("a file");
            let opened = tier::open(&folder.join("state"), u64::MAX, Duration::ZERO).expect("a store");
            let epoch = opened.tier.next_epoch(1).expect("an epoch");
            options.store =
                Some(Arc::new(SequenceStore::new(Arc::new(opened.tier), epoch, Clock::default()).expect("a thread")));
        }
        let repository = Repository::new(model.backend(), options, Metrics::new(true)).expect("threads");
        repository.load(&directory);
        let status = repository.statuses().pop().map(|status| status.availability);
        assert!(matches!(status, Some(Availability::Ready(_))), "it does not load: {status:?}");
        Bench { model, repository, _folder: None }
    }

    async fn step(&self, id: u64, start: bool) -> Duration {
        let began = Instant::now();
        let pending = self.repository.submit(request(self.model, id, start)).expect("a request that is taken");
        pending.await.expect("an answer");
        began.elapsed()
    }
}

fn config(dims: usize, slots: u64) -> String {
    format!(
        r#"backend: "onnxruntime" max_batch_size: 64 instance_group {{ count: 1 kind: KIND_CPU }}
        input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ {dims} ] }}
        output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ {dims} ] }}
        sequence_batching {{
          max_sequence_idle_microseconds: 3600000000
          oldest {{ max_candidate_sequences: {slots} }}
          state {{ input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ {dims} ] }}
        }}"#
    )
}

fn request(model: Model, id: u64, start: bool) -> InferRequest {
    InferRequest {
        model: model.name().to_owned(),
        version: String::new(),
        id: String::new(),
        sequence: SequenceStep { id: Id::Int(id), start, end: false, ..SequenceStep::default() },
        priority: 0,
        timeout: None,
        inputs: vec![model.input()],
        outputs: Vec::new(),
        parameters: Vec::new(),
        dialect: Dialect::TRITON,
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads")
}

/// CPU time of this process.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros as u64)
}

/// Bytes of memory of this process.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

fn quantile(all: &mut [Duration], part: f64) -> Duration {
    all.sort_unstable();
    all.get(((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
}

// === a paced load ===

struct Paced {
    /// CPU time of a step.
    cpu: Duration,
    p50: Duration,
    p99: Duration,
}

impl Paced {
    fn of(began: Duration, mut latencies: Vec<Duration>) -> Paced {
        let cpu = (cpu() - began) / latencies.len().max(1) as u32;
        Paced { cpu, p50: quantile(&mut latencies, 0.5), p99: quantile(&mut latencies, 0.99) }
    }

    fn print(&self, name: &str) {
        println!("  {name:<24} CPU {:>9.1?} a step   p50 {:>9.1?}   p99 {:>9.1?}", self.cpu, self.p50, self.p99);
    }
}

fn pace(model: Model, streams: u64, seconds: u32) {
    println!("{streams} streams, a step each {PACE:?}, {} KiB of state", model.state_bytes() / KIB);
    let without = served(None, model, streams, seconds);
    let bare = bare(model.state_bytes(), streams, seconds);
    let again = served(None, model, streams, seconds);
    let [drain, every, step] = ["drain", "every", "step"].map(|when| served(Some(when), model, streams, seconds));
    without.print("without");
    again.print("without, once more");
    bare.print("bare store");
    drain.print("drain");
    every.print("every 10");
    step.print("step");
    let both = (without.cpu + bare.cpu).as_secs_f64();
    let extra = step.p50.saturating_sub(without.p50);
    let most = 2 * bare.p50 + Duration::from_micros(500);
    println!(
        "  step: CPU {:.2} of without + store (aim 1.30), p50 {extra:.1?} longer (aim {most:.1?})\n",
        step.cpu.as_secs_f64() / both
    );
}

fn served(when: Option<&str>, model: Model, streams: u64, seconds: u32) -> Paced {
    let bench = Arc::new(Bench::new(when, model, streams, u64::MAX));
    let runtime = runtime();
    let steps = Duration::from_secs(u64::from(seconds)).as_millis() / PACE.as_millis();
    let stream = |id: u64| {
        let bench = Arc::clone(&bench);
        async move {
            let mut latencies = Vec::with_capacity(steps as usize);
            let mut at =
                tokio::time::interval_at(tokio::time::Instant::now() + PACE * id as u32 / streams as u32, PACE);
            for n in 0..steps {
                at.tick().await;
                latencies.push(bench.step(id, n == 0).await);
            }
            latencies
        }
    };
    let began = cpu();
    let paced = runtime.block_on(async {
        let streams: Vec<_> = (1..=streams).map(|id| tokio::spawn(stream(id))).collect();
        let mut all = Vec::new();
        for stream in streams {
            all.extend(stream.await.expect("a stream"));
        }
        Paced::of(began, all)
    });
    bench.repository.stop();
    paced
}

/// The same rows at the same pace, through the store alone.
fn bare(size: usize, streams: u64, seconds: u32) -> Paced {
    let folder = TempDir::new().expect("a folder");
    let opened = tier::open(&folder.path().join("state"), u64::MAX, Duration::ZERO).expect("a store");
    let writer = GroupWriter::start(Arc::new(opened.tier)).expect("a thread");
    let rows = u64::from(seconds) * 1000 * streams / PACE.as_millis() as u64;
    let (sender, receiver) = sync_channel(rows as usize);
    let (began, start) = (cpu(), Instant::now());
    for row in 0..rows {
        let at = start + PACE * row as u32 / streams as u32;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let (sender, sent) = (sender.clone(), Instant::now());
        let make = move |_: &[TierChange]| vec![Ok(change(row % streams, row, size))];
        writer.write(make, move |failed| {
            assert!(failed.is_empty(), "{failed:?}");
            // The receiver exists until the last row has arrived.
            let _ = sender.send(sent.elapsed());
        });
    }
    let paced = Paced::of(began, receiver.iter().take(rows as usize).collect());
    writer.close();
    paced
}

fn change(id: u64, step: u64, size: usize) -> TierChange {
    let file = vec![step as u8; size];
    let head = StateHead::new((1, [0; 32]), (1, step), IdleTime::default(), false, &file);
    TierChange::Put { key: TierKey::new("sum", &Id::Int(id)), head: Arc::new(head), file: Bytes::from(file) }
}

// === stop and restart of the server ===

fn drain(count: u64, size: usize) {
    let (folder, runtime) = (TempDir::new().expect("a folder"), runtime());
    let bench = Bench::at(folder.path(), Some("drain"), Model::Sum(size), count, u64::MAX);
    let mut plain: Vec<Duration> = (1..=count).map(|id| runtime.block_on(bench.step(id, true))).collect();
    let began = Instant::now();
    bench.repository.stop();
    let stopped = began.elapsed();
    let raw = raw(folder.path(), count, size);
    println!("{count} live sequences of {} KiB", size / KIB);
    println!(
        "  the server stops in {stopped:.1?}, a raw write and flush of the bytes takes {raw:.1?}: {:.2} (aim 3.00)",
        stopped.as_secs_f64() / raw.as_secs_f64()
    );
    let opened = tier::open(&folder.path().join("state"), u64::MAX, Duration::ZERO).expect("a store");
    let mut reads: Vec<Duration> = (1..=count)
        .map(|id| {
            let began = Instant::now();
            opened.tier.get(&TierKey::new("sum", &Id::Int(id))).expect("a read").expect("a state");
            began.elapsed()
        })
        .collect();
    opened.tier.close();
    let began = Instant::now();
    let bench = Bench::at(folder.path(), Some("drain"), Model::Sum(size), count, u64::MAX);
    let started = began.elapsed();
    let mut resumed: Vec<Duration> = (1..=count).map(|id| runtime.block_on(bench.step(id, false))).collect();
    let [plain, read, resumed] = [&mut plain, &mut reads, &mut resumed].map(|all| quantile(all, 0.5));
    println!(
        "  it comes back in {started:.1?}; p50 of a START {plain:.1?}, of a first step {resumed:.1?}, of a read {read:.1?}"
    );
    println!("  a resumed sequence takes {:.1?} beyond its read (aim 1 ms)\n", resumed.saturating_sub(read));
    bench.repository.stop();
}

fn raw(folder: &Path, count: u64, size: usize) -> Duration {
    let (mut file, bytes) = (File::create(folder.join("raw")).expect("a file"), vec![7; size]);
    let began = Instant::now();
    (0..count).for_each(|_| file.write_all(&bytes).expect("a write"));
    file.sync_data().expect("a flush");
    began.elapsed()
}

// === more sequences than memory ===

fn spill(count: u64, size: usize) {
    let bench = Bench::new(Some("drain"), Model::Sum(size), 1024, 512 * size as u64);
    let runtime = runtime();
    let stored = || bench.repository.store().expect("a store").usage().states as u64;
    // The store lags behind the STARTs by the writes in progress.
    let written = |live: u64| {
        let until = Instant::now() + Duration::from_secs(60);
        while stored() + 512 < live && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // The first sequences use memory that is allocated only once.
    for id in 1..=1000 {
        runtime.block_on(bench.step(id, true));
    }
    written(1000);
    let (idle, began) = (memory(), Instant::now());
    for id in 1001..=1000 + count {
        runtime.block_on(bench.step(id, true));
    }
    let (took, at_once) = (began.elapsed(), memory().saturating_sub(idle));
    written(1000 + count);
    let (later, more) = (began.elapsed(), memory().saturating_sub(idle));
    println!("{count} more sequences of {} KiB beyond memory for 512", size / KIB);
    println!(
        "  {:.1?} a START; {} MiB more, and once the store has {} of them, after {later:.1?}: {} MiB",
        took / count as u32,
        at_once >> 20,
        stored(),
        more >> 20,
    );
    println!(
        "  {} B a sequence (aim 512 B and the store's cache of 16 MiB: {})",
        more / count,
        512 + (16 << 20) / count
    );
    let mut back: Vec<Duration> =
        (1001..=1000 + count.min(1000)).map(|id| runtime.block_on(bench.step(id, false))).collect();
    println!("  p50 of a step that brings its sequence back: {:.1?}", quantile(&mut back, 0.5));
    bench.repository.stop();
}
