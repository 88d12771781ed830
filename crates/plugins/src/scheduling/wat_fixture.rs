//! For tests: scheduler guests in the text format of WebAssembly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use std::sync::{Arc, LazyLock};

use sequor_wasm::engine::{Engine, Mode};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub use sequor_wasm::services::ServiceLog;

/// One engine for all tests, because each engine has its own thread.
pub static SERVING: LazyLock<Arc<Engine>> = LazyLock::new(|| Arc::new(Engine::new(Mode::Serving).unwrap()));

/// A guest in WebAssembly's text format: the bodies of its functions. By default it fires the first `max-batch` candidates, takes all
/// waiting sequences into instance 0 and saves nothing.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerWat<'a> {
    /// Additional imports, globals, data and functions.
    pub extra: &'a str,
    pub configure: &'a str,
    pub plan: &'a str,
    pub admit: &'a str,
    pub observe: &'a str,
    pub save: &'a str,
    pub restore: &'a str,
    /// Its plugin.toml.
    pub manifest: Option<&'a str>,
}

/// The host's log, for `extra`; messages as `data` at an address below 512.
pub const LOG: &str = "(import \"sequor:plugin/host@0.1.0\" \"log\" (func $log (param i32 i32 i32)))";

impl Default for SchedulerWat<'_> {
    fn default() -> Self {
        SchedulerWat {
            extra: "",
            configure: "(i32.const 512)",
            plan: FIRST,
            admit: "(i32.const 512)",
            observe: "",
            save: "(i32.const 512)",
            restore: "(i32.const 512)",
            manifest: None,
        }
    }
}

/// The question has `len` at offset 40 and `max-batch` at 20. The answer: present, and a list that counts up.
const FIRST: &str = "
    (local $i i32) (local $n i32)
    (local.set $n (i32.load offset=40 (local.get 0)))
    (if (i32.gt_u (local.get $n) (i32.load offset=20 (local.get 0))) (then (local.set $n (i32.load offset=20 (local.get 0)))))
    (block $out (loop $more
        (br_if $out (i32.ge_u (local.get $i) (local.get $n)))
        (i32.store (i32.add (i32.const 2048) (i32.shl (local.get $i) (i32.const 2))) (local.get $i))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $more)))
    (i32.store8 (i32.const 1024) (i32.const 1))
    (i32.store (i32.const 1032) (i32.const 2048))
    (i32.store (i32.const 1036) (local.get $n))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// A custom section in binary form.
fn section(name: &str, text: &str) -> Vec<u8> {
    let mut body = leb128(name.len());
    body.extend(name.bytes());
    body.extend(text.bytes());
    let mut section = vec![0];
    section.extend(leb128(body.len()));
    section.extend(body);
    section
}

fn leb128(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

impl SchedulerWat<'_> {
    /// Its core module. Addresses up to 512 are free for the author, 512 to 1024 are zero, 1024 to 8192 hold answers. Its input is above that.
    fn module(&self) -> String {
        let SchedulerWat { extra, configure, plan, admit, observe, save, restore, .. } = self;
        let name = "sequor:plugin/scheduler@0.1.0";
        format!(
            "(module {extra}
            (memory (export \"memory\") 8)
            (global $heap (mut i32) (i32.const 8192))
            (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
                (local $at i32)
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get 3)))
                (local.get $at))
            (func $configure (export \"{name}#configure\")
                (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {configure})
            (func $plan (export \"{name}#plan\") (param i32) (result i32) {plan})
            (func $admit (export \"{name}#admit\") (param i32) (result i32) {admit})
            (func $observe (export \"{name}#observe\") (param i32 i32 i32 i32 i32 i32 i32 i32) {observe})
            (func $save (export \"{name}#save\") (result i32) {save})
            (func $restore (export \"{name}#restore\") (param i32 i32) (result i32) {restore}))"
        )
    }

    pub fn component(&self) -> Vec<u8> {
        self.component_of("", "sequor:plugin/scheduler-plugin@0.1.0")
    }

    /// The component for another world. `wit`: packages beside the contract; `world`: the world's name.
    pub fn component_of(&self, wit: &str, world: &str) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (contract, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/0.1.0")).unwrap();
        let package = if wit.is_empty() { contract } else { resolve.push_str("test.wit", wit).unwrap() };
        let world = resolve.select_world(&[package], Some(world)).unwrap();
        let mut module = wat::parse_str(self.module()).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        let encoder = ComponentEncoder::default();
        let mut component = encoder.validate(true).module(&module).unwrap().encode().unwrap();
        if let Some(manifest) = self.manifest {
            component.extend(section("sequor:plugin", manifest));
        }
        component
    }
}
