//! For tests: a processor in the text format of WebAssembly, as a component. Tests of the whole program include this file too, so it uses
//! nothing of this crate.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The bodies of a processor's functions, and its plugin.toml beyond the first four fields.
#[derive(Debug, Clone, Copy)]
pub struct WatGuest<'a> {
    /// Imports and functions of its own.
    pub extra: &'a str,
    pub configure: &'a str,
    pub pre: &'a str,
    pub post: &'a str,
    pub manifest: &'a str,
}

/// Answers `inner`, which is at 64 of the arguments.
pub const ALIKE: &str = "
    (i32.store8 (i32.const 1024) (i32.const 0))
    (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
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

impl WatGuest<'_> {
    /// Addresses up to 1024 belong to the author, those up to 8192 to answers, and those from 16384 to lists of runs. Arguments are between
    /// and behind them.
    pub fn module(&self) -> String {
        let WatGuest { extra, configure, pre, post, .. } = self;
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

    pub fn component(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (contract, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/0.1.0")).unwrap();
        let world = resolve.select_world(&[contract], Some("processor-plugin")).unwrap();
        let mut module = wat::parse_str(self.module()).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        let mut component = ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap();
        let common = "name = \"guest\"\nversion = \"0.1.0\"\nworld = \"processor\"\ncontract = \"0.1.0\"\n";
        component.extend(section("sequor:plugin", &format!("{common}{}", self.manifest)));
        component
    }
}

/// A custom section in the binary format.
pub fn section(name: &str, text: &str) -> Vec<u8> {
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
