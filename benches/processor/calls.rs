//! Measures calls in this process, on one thread, in the thread's CPU time. The best of many runs counts.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::time::ClockId;
use sequor::config::model::LoadFacts;
use sequor::processing::health::ProcessorTime;
use sequor::processing::{
    CallFacts, Chain, OnFailure, Plan, PortTensors, ProcessorComponent, ProcessorOptions, ProcessorSource,
    SequenceScratch, TensorPort, TensorSignature,
};
use sequor::telemetry::Metrics;
use sequor::tensor::Tensor;
use sequor_core::{DataType, Dims, Shape, Time};
use sequor_wasm::counter::CounterName;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::Services;
use wasmtime::component::{Component, Linker, TypedFunc};
use wasmtime::{Config, Store};

use crate::BenchResult;
use sequor::processing::wat_guest::{ALIKE, WatGuest};

const LONG: Duration = Duration::from_millis(400);
const MIB: usize = 1 << 20;

/// One run with the unchanged inputs, then the outputs of that run. The scratch stays unchanged.
const PASS: &str = "(call $run (local.get 11) (local.get 12) (i32.const 1))";
const FIRST_RUN: &str = "
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load (local.get 11)))
    (i64.store (i32.const 1040) (i64.const 0))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// An empty function, and one that returns a list of bytes. The list's memory is at the same place as in the processor.
const BARE: &str = r#"(component
    (core module $m
        (memory (export "memory") 32)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 262144))
        (func (export "echo") (param i32 i32) (result i32)
            (i32.store (i32.const 16) (local.get 0))
            (i32.store (i32.const 20) (local.get 1))
            (i32.const 16))
        (func (export "empty")))
    (core instance $i (instantiate $m))
    (func (export "echo") (param "bytes" (list u8)) (result (list u8))
        (canon lift (core func $i "echo") (memory $i "memory") (realloc (func $i "cabi_realloc"))))
    (func (export "empty") (canon lift (core func $i "empty"))))"#;

/// The component that passes all tensors on.
pub(crate) fn pass_through(manifest: &str) -> Vec<u8> {
    WatGuest { extra: "", configure: ALIKE, pre: PASS, post: FIRST_RUN, manifest }.component()
}

pub(crate) fn figures() -> BenchResult<()> {
    let engine = Arc::new(Engine::new(Mode::Serving)?);
    let (empty, echo) = bare()?;
    let small = both(&chain(&engine, "")?, 4)?;
    let by_value = both(&chain(&engine, "by-value = \"1MiB\"\n")?, MIB)?;
    let by_handle = both(&chain(&engine, "")?, MIB)?;
    println!("pre and post of a request that passes, beside wasmtime's empty call ({:.0} ns):", empty * 1e3);
    println!("  4 bytes: {small:.2} us, {:.1} x two empty calls (aim 20)", small / (2.0 * empty));
    println!("1 MiB into pre and back, beside wasmtime's bare echo of it ({echo:.0} us):");
    println!(
        "  by value: {:.0} us, {:.2} x (aim 1.3); by handle: {:.1} us",
        by_value / 2.0,
        by_value / 2.0 / echo,
        by_handle / 2.0
    );
    Ok(())
}

/// Microseconds of `pre` and `post` for a request of this size.
fn both(chain: &Chain, size: usize) -> BenchResult<f64> {
    let data = Bytes::from(vec![1; size]);
    let tensor = Tensor { dtype: DataType::Uint8, shape: Shape::new(&[size as u64]), data };
    let facts = CallFacts { sequence: 7, step: 1, outputs: vec![0], ..CallFacts::default() };
    let scratch = SequenceScratch::default();
    let once = || -> Result<PortTensors, String> {
        let prepared = chain.pre(&facts, &scratch, vec![Some(tensor.clone())]).map_err(|e| format!("{e:?}"))?;
        let Plan::Run(runs) = prepared.plan else { return Err("it does not run".to_owned()) };
        let (answer, _) = chain.post(&facts, prepared.pending, runs).map_err(|e| format!("{e:?}"))?;
        Ok(answer)
    };
    once()?;
    Ok(best(if size > 4096 { 4 } else { 64 }, || drop(once())))
}

/// Microseconds of an empty call, and of an echo of 1 MiB.
fn bare() -> BenchResult<(f64, f64)> {
    let engine = wasmtime::Engine::new(&Config::new())?;
    let component = Component::new(&engine, wat::parse_str(BARE)?)?;
    let mut store = Store::new(&engine, ());
    let instance = Linker::new(&engine).instantiate(&mut store, &component)?;
    let empty: TypedFunc<(), ()> = instance.get_typed_func(&mut store, "empty")?;
    let echo: TypedFunc<(&[u8],), (Vec<u8>,)> = instance.get_typed_func(&mut store, "echo")?;
    let bytes = vec![1u8; MIB];
    let of_empty = best(64, || drop(empty.call(&mut store, ())));
    let of_echo = best(4, || drop(echo.call(&mut store, (&bytes,))));
    Ok((of_empty, of_echo))
}

fn chain(engine: &Arc<Engine>, manifest: &str) -> BenchResult<Chain> {
    let port = |name| port(name, DataType::Uint8, &[-1]);
    let model = TensorSignature { inputs: vec![port("x")], outputs: vec![port("y")] };
    chain_of(engine, &pass_through(manifest), "{}", model)
}

pub(crate) fn port(name: &str, dtype: DataType, dims: &[i64]) -> TensorPort {
    TensorPort { name: name.to_owned(), dtype, dims: Dims::from_wire(dims), optional: false }
}

/// A component in front of a model with this signature.
pub(crate) fn chain_of(
    engine: &Arc<Engine>,
    component: &[u8],
    config: &str,
    model: TensorSignature,
) -> BenchResult<Chain> {
    let component = ProcessorComponent::new(engine, "x.wasm", component, Grants::default(), None)?;
    let source = ProcessorSource {
        name: "pass".to_owned(),
        component: Arc::new(component),
        options: ProcessorOptions {
            config: config.to_owned(),
            limits: Limits { time: Duration::from_secs(1), memory: None },
            on_failure: OnFailure::Fail,
            files: Vec::new(),
            strikes: 3,
            calls: None,
            is_model: false,
            instances: None,
        },
        services: Arc::new(NoBenchServices),
        metrics: Metrics::new(false).processor("pass"),
        journal: Arc::new(Journal::new("pass")),
        clock: Arc::new(SystemTime(Instant::now())),
        purpose: RoomPurpose::New,
    };
    Ok(Chain::new(vec![source], &LoadFacts::default(), model, 2).map_err(|(_, misfit)| misfit)?)
}

#[derive(Debug)]
struct SystemTime(Instant);

impl ProcessorTime for SystemTime {
    fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

struct NoBenchServices;

impl fmt::Debug for NoBenchServices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoBenchServices")
    }
}

impl Services for NoBenchServices {
    fn log(&self, _: u32, _: &str) {}
    fn metric_add(&self, _: &CounterName, _: f64) {}
    fn key_text(&self, _: u64) -> Option<String> {
        None
    }
    fn sequence_text(&self, _: u64) -> Option<String> {
        None
    }
}

/// Microseconds of a call in the fastest run.
pub(crate) fn best(calls: u32, mut call: impl FnMut()) -> f64 {
    let (began, mut best) = (Instant::now(), f64::MAX);
    while began.elapsed() < LONG {
        let (start, wall) = (own_time(), Instant::now());
        (0..calls).for_each(|_| call());
        let took = start.zip(own_time()).map_or_else(|| wall.elapsed(), |(from, to)| to.saturating_sub(from));
        best = best.min(took.as_secs_f64() * 1e6 / f64::from(calls));
    }
    best
}

/// CPU time of this thread, so that busy neighbours do not count.
fn own_time() -> Option<Duration> {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().ok().map(Duration::from)
}
