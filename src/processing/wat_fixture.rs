//! For tests: processor guests in the text format of WebAssembly, and chains of them.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use sequor_core::{DataType, Dims, Shape};
use sequor_wasm::component::Component;
use sequor_wasm::engine::{Engine, Mode};
use sequor_wasm::grants::Grants;
use sequor_wasm::limits::Limits;
use sequor_wasm::services::ServiceLog;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::processing::{
    CallFacts, Chain, LoadFacts, OnFailure, ProcessorComponent, ProcessorOptions, ProcessorSource, TensorPort,
    TensorSignature,
};
use crate::telemetry::Metrics;
use crate::tensor::Tensor;

/// One engine for all tests: each has a thread of its own.
pub(crate) static SERVING: LazyLock<Arc<Engine>> = LazyLock::new(|| Arc::new(Engine::new(Mode::Serving).unwrap()));

/// A guest: the bodies of its functions, and its plugin.toml beyond the first four fields. As it comes it passes everything on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessorWat<'a> {
    /// Imports and functions of its own.
    pub(crate) extra: &'a str,
    pub(crate) configure: &'a str,
    pub(crate) pre: &'a str,
    pub(crate) post: &'a str,
    pub(crate) manifest: &'a str,
    pub(crate) on_failure: OnFailure,
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
        }
    }
}

/// Answers `inner`, which stands at 64 of the arguments.
pub(crate) const ALIKE: &str = "
    (i32.store8 (i32.const 1024) (i32.const 0))
    (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// One run with the inputs as they are, and the scratch as it is.
pub(crate) const PASS: &str = "(call $run (local.get 11) (local.get 12) (i32.const 1))";

/// The outputs of the first run, and the scratch as it is.
pub(crate) const FIRST_RUN: &str = "
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load (local.get 11)))
    (i64.store (i32.const 1040) (i64.const 0))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// The outputs of the first run, and one byte of scratch: one more than the byte before.
pub(crate) const COUNT: &str = "
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

/// `$run(first, len, k)`: k runs, each with these values. `$reply(first, len)`: no run.
const HELPERS: &str = "
    (func $run (param $first i32) (param $len i32) (param $k i32) (result i32)
        (local $i i32) (local $at i32)
        (local.set $at (i32.const 16384))
        (block $out (loop $more
            (br_if $out (i32.ge_u (local.get $i) (local.get $k)))
            (i32.store (local.get $at) (local.get $first))
            (i32.store offset=4 (local.get $at) (local.get $len))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $more)))
        (i64.store (i32.const 1024) (i64.const 0))
        (i32.store (i32.const 1032) (i32.const 0))
        (i32.store (i32.const 1036) (i32.const 16384))
        (i32.store (i32.const 1040) (local.get $k))
        (i32.store (i32.const 1044) (i32.const 0))
        (global.set $heap (i32.const 8192))
        (i32.const 1024))
    (func $reply (param $first i32) (param $len i32) (result i32)
        (i64.store (i32.const 1024) (i64.const 0))
        (i32.store (i32.const 1032) (i32.const 1))
        (i32.store (i32.const 1036) (local.get $first))
        (i32.store (i32.const 1040) (local.get $len))
        (i32.store (i32.const 1044) (i32.const 0))
        (global.set $heap (i32.const 8192))
        (i32.const 1024))";

impl ProcessorWat<'_> {
    /// Addresses up to 1024 are its author's, up to 8192 for answers, from 16384 on for lists of runs. What it is given lies between and behind.
    fn module(&self) -> String {
        let ProcessorWat { extra, configure, pre, post, .. } = self;
        let name = "sequor:plugin/processor@0.1.0";
        let call = "(param i64 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)";
        format!(
            "(module {extra}
            (memory (export \"memory\") 32)
            (global $heap (mut i32) (i32.const 8192))
            (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
                (local $at i32)
                (if (i32.gt_u (local.get 3) (i32.const 4096)) (then
                    (if (i32.lt_u (global.get $heap) (i32.const 262144)) (then (global.set $heap (i32.const 262144))))))
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get 3)))
                (local.get $at))
            {HELPERS}
            (func (export \"{name}#configure\") (param i32) (result i32) {configure})
            (func (export \"{name}#pre\") {call} {pre})
            (func (export \"{name}#post\") {call} {post}))"
        )
    }

    pub(crate) fn component(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (contract, _) = resolve.push_dir("wit/0.1.0").unwrap();
        let world = resolve.select_world(&[contract], Some("processor-plugin")).unwrap();
        let mut module = wat::parse_str(self.module()).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        let mut component = ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap();
        let common = "name = \"guest\"\nversion = \"0.1.0\"\nworld = \"processor\"\ncontract = \"0.1.0\"\n";
        component.extend(section("sequor:plugin", &format!("{common}{}", self.manifest)));
        component
    }

    fn source(&self, metrics: &Metrics) -> ProcessorSource {
        let component = Component::new(&SERVING, "guest.wasm", &self.component(), Grants::default(), None);
        let component: Arc<ProcessorComponent> = Arc::new(component.unwrap());
        ProcessorSource {
            name: "guest".to_owned(),
            component,
            options: ProcessorOptions {
                config: "{}".to_owned(),
                limits: Limits { time: std::time::Duration::from_millis(20), memory: None },
                on_failure: self.on_failure,
                files: Vec::new(),
            },
            services: Arc::new(ServiceLog::default()),
            metrics: metrics.processor("guest"),
        }
    }
}

/// A custom section as a file has it.
fn section(name: &str, text: &str) -> Vec<u8> {
    let mut body = vec![u8::try_from(name.len()).unwrap()];
    body.extend(name.bytes());
    body.extend(text.bytes());
    let mut section = vec![0];
    let mut len = body.len();
    while len >= 0x80 {
        section.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    section.push(u8::try_from(len).unwrap());
    section.extend(body);
    section
}

fn port(name: &str, dims: &[i64]) -> TensorPort {
    TensorPort { name: name.to_owned(), dtype: DataType::Uint8, dims: Dims::from_wire(dims), optional: false }
}

/// A model that takes bytes "x" and gives bytes "y".
pub(crate) fn model() -> TensorSignature {
    TensorSignature { inputs: vec![port("x", &[-1])], outputs: vec![port("y", &[-1])] }
}

pub(crate) fn try_chain(guests: &[ProcessorWat<'_>]) -> Result<Chain, (usize, String)> {
    let metrics = Metrics::new(false);
    let sources = guests.iter().map(|guest| guest.source(&metrics)).collect();
    Chain::new(sources, &LoadFacts::default(), model(), 2)
}

pub(crate) fn chain(guests: &[ProcessorWat<'_>]) -> Chain {
    try_chain(guests).unwrap()
}

pub(crate) fn tensor(bytes: &[u8]) -> Tensor {
    let shape = Shape::of(&[bytes.len() as u64]);
    Tensor { dtype: DataType::Uint8, shape, data: Bytes::copy_from_slice(bytes) }
}

/// A step of sequence 7 that asks for all outputs.
pub(crate) fn step() -> CallFacts {
    CallFacts { sequence: 7, step: 1, outputs: vec![0], ..CallFacts::default() }
}
