//! For tests: chains of processor guests in the text format of WebAssembly (`wat_guest`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use sequor_core::{DataType, Dims, Shape, Time};
use sequor_wasm::component::Component;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::journal::Journal;
use sequor_wasm::limits::Limits;
use sequor_wasm::room::RoomPurpose;
use sequor_wasm::services::ServiceLog;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::config::model::LoadFacts;
use crate::processing::health::ProcessorTime;
pub use crate::processing::wat_guest::ALIKE;
use crate::processing::wat_guest::{WatGuest, section};
use crate::processing::{
    CallFacts, Chain, OnFailure, ProcessorComponent, ProcessorOptions, ProcessorSource, TensorPort, TensorSignature,
};
use crate::telemetry::Metrics;
use crate::tensor::Tensor;

/// One engine for all tests, because each engine has its own thread.
pub static SERVING: LazyLock<Arc<Engine>> = LazyLock::new(|| Arc::new(Engine::new(Mode::Serving).unwrap()));

/// A guest: the bodies of its functions, and its plugin.toml beyond the first four fields. The default passes everything on.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorWat<'a> {
    /// Imports and functions of its own.
    pub extra: &'a str,
    pub configure: &'a str,
    pub pre: &'a str,
    pub post: &'a str,
    pub manifest: &'a str,
    pub on_failure: OnFailure,
    /// Number of strikes that park the processor.
    pub strikes: u32,
    /// CPU time of a call. It is far more than needed, also on a slow machine.
    pub time: Duration,
}

impl Default for ProcessorWat<'_> {
    fn default() -> Self {
        ProcessorWat {
            extra: "",
            configure: ALIKE,
            pre: PASS,
            post: FIRST_RUN,
            manifest: "scratch = \"8B\"\n",
            on_failure: OnFailure::Fail,
            strikes: 1000,
            time: Duration::from_secs(20),
        }
    }
}

/// Answers `inner`, with any size for the first dimension of the first input.
pub const OPEN: &str = "
    (i64.store (i32.load offset=12 (i32.load offset=64 (local.get 0))) (i64.const -1))
    (i32.store8 (i32.const 1024) (i32.const 0))
    (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// One run with unchanged inputs and unchanged scratch.
pub const PASS: &str = "(call $run (local.get 11) (local.get 12) (i32.const 1))";

/// The outputs of the first run, with unchanged scratch.
pub const FIRST_RUN: &str = "
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load (local.get 11)))
    (i64.store (i32.const 1040) (i64.const 0))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// The outputs of the first run, and one byte of scratch: the previous byte plus one.
pub const COUNT: &str = "
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load (local.get 11)))
    (i32.store (i32.const 1040) (i32.const 1))
    (i32.store (i32.const 1044) (i32.const 1100))
    (i32.store (i32.const 1048) (i32.const 1))
    (i32.store8 (i32.const 1100) (i32.const 1))
    (if (local.get 10) (then
        (i32.store8 (i32.const 1100) (i32.add (i32.const 1) (i32.load8_u (local.get 9))))))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

impl ProcessorWat<'_> {
    pub fn component(&self) -> Vec<u8> {
        let ProcessorWat { extra, configure, pre, post, manifest, .. } = *self;
        WatGuest { extra, configure, pre, post, manifest }.component()
    }

    fn source(&self, metrics: &Metrics) -> ProcessorSource {
        let component = Component::new(&SERVING, "guest.wasm", &self.component(), Grants::default(), None);
        let component: Arc<ProcessorComponent> = Arc::new(component.unwrap());
        ProcessorSource {
            name: "guest".to_owned(),
            component,
            options: ProcessorOptions {
                config: "{}".to_owned(),
                limits: Limits { time: self.time, memory: None },
                on_failure: self.on_failure,
                files: Vec::new(),
                strikes: self.strikes,
                calls: None,
                is_model: false,
                instances: None,
            },
            services: Arc::new(ServiceLog::default()),
            metrics: metrics.processor("guest"),
            journal: Arc::new(Journal::new("guest")),
            clock: Arc::new(StillClock),
            purpose: RoomPurpose::New,
        }
    }
}

/// A clock that never advances.
#[derive(Debug)]
pub struct StillClock;

impl ProcessorTime for StillClock {
    fn now(&self) -> Time {
        Time(0)
    }
}

fn port(name: &str, dims: &[i64]) -> TensorPort {
    TensorPort { name: name.to_owned(), dtype: DataType::Uint8, dims: Dims::from_wire(dims), optional: false }
}

/// A model with an input of bytes "x" and an output of bytes "y".
pub fn model() -> TensorSignature {
    TensorSignature { inputs: vec![port("x", &[-1])], outputs: vec![port("y", &[-1])] }
}

pub fn try_chain(guests: &[ProcessorWat<'_>]) -> Result<Chain, (usize, String)> {
    try_chain_before(model(), guests)
}

/// Processors in front of this model.
pub fn try_chain_before(model: TensorSignature, guests: &[ProcessorWat<'_>]) -> Result<Chain, (usize, String)> {
    let metrics = Metrics::new(false);
    let sources = guests.iter().map(|guest| guest.source(&metrics)).collect();
    Chain::new(sources, &LoadFacts::default(), model, 2).map_err(|(n, misfit)| (n, misfit.into()))
}

pub fn chain(guests: &[ProcessorWat<'_>]) -> Chain {
    try_chain(guests).unwrap()
}

pub fn tensor(bytes: &[u8]) -> Tensor {
    let shape = Shape::new(&[bytes.len() as u64]);
    Tensor { dtype: DataType::Uint8, shape, data: Bytes::copy_from_slice(bytes) }
}

/// A step of sequence 7 that asks for all outputs.
pub fn step() -> CallFacts {
    CallFacts { sequence: 7, step: 1, outputs: vec![0], ..CallFacts::default() }
}

/// A processor that imports wasi-nn, with the types of our copy of its interface.
pub fn component_with_wasi_nn(guest: &WatGuest<'_>) -> Vec<u8> {
    const WORLD: &str = "package test:guest;
        world nn-processor {
            include sequor:plugin/processor-plugin@0.1.0;
            import wasi:nn/tensor@0.2.0-rc-2024-10-28;
            import wasi:nn/graph@0.2.0-rc-2024-10-28;
            import wasi:nn/inference@0.2.0-rc-2024-10-28;
            import wasi:nn/errors@0.2.0-rc-2024-10-28;
        }";
    let mut resolve = Resolve::default();
    resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/0.1.0")).unwrap();
    resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/wasi-nn/0.2.0-rc-2024-10-28")).unwrap();
    let package = resolve.push_str("guest.wit", WORLD).unwrap();
    let world = resolve.select_world(&[package], Some("nn-processor")).unwrap();
    let mut module = wat::parse_str(guest.module()).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    let mut component = ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap();
    let common = "name = \"guest\"\nversion = \"0.1.0\"\nworld = \"processor\"\ncontract = \"0.1.0\"\n";
    component.extend(section("sequor:plugin", &format!("{common}{}", guest.manifest)));
    component
}
