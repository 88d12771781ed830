//! For tests, including those of the whole program: initializer guests in the text format of WebAssembly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests use it"
)]

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A guest: the bodies of its functions, and its plugin.toml beyond the first four fields. The default answers `default`.
#[derive(Debug, Clone, Copy)]
pub struct InitializerWat<'a> {
    pub configure: &'a str,
    /// `$inputs` and `$len` are the list of inputs.
    pub initialize: &'a str,
    /// `$name` and `$name_len` are the name.
    pub steps: &'a str,
    pub manifest: &'a str,
}

impl Default for InitializerWat<'_> {
    fn default() -> Self {
        InitializerWat {
            configure: "(i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024)",
            initialize: "(call $text (i32.const 0) (i32.const 0) (i32.const 0))",
            steps: "unreachable",
            manifest: "",
        }
    }
}

/// `$text(case, ptr, len)`: an answer with a text or nothing. `$state(value, dims, port)`: one INT32 state of this dimension.
/// `$steps(value, k)`: k steps with this INT32 of shape [1,1]. `$refuse(code)`: a refusal without a text.
const HELPERS: &str = "
    (func $text (param $case i32) (param $ptr i32) (param $len i32) (result i32)
        (i32.store8 (i32.const 1024) (i32.const 0))
        (i32.store8 (i32.const 1032) (local.get $case))
        (i32.store (i32.const 1036) (local.get $ptr))
        (i32.store (i32.const 1040) (local.get $len))
        (global.set $heap (i32.const 8192))
        (i32.const 1024))
    (func $value (param $at i32) (param $port i32) (param $value i32) (param $rank i32)
        (i32.store (local.get $at) (local.get $port))
        (i32.store8 offset=4 (local.get $at) (i32.const 0))
        (i32.store offset=8 (local.get $at) (i32.const 8))
        (i32.store offset=12 (local.get $at) (i32.const 2112))
        (i32.store offset=16 (local.get $at) (local.get $rank))
        (i32.store offset=20 (local.get $at) (i32.const 2160))
        (i32.store offset=24 (local.get $at) (i32.const 4))
        (i32.store (i32.const 2160) (local.get $value)))
    (func $state (param $value i32) (param $dim i32) (param $port i32) (result i32)
        (call $value (i32.const 2048) (local.get $port) (local.get $value) (i32.const 1))
        (i64.store (i32.const 2112) (i64.extend_i32_u (local.get $dim)))
        (call $text (i32.const 1) (i32.const 2048) (i32.const 1)))
    (func $steps (param $value i32) (param $k i32) (result i32)
        (local $i i32) (local $at i32)
        (call $value (i32.const 2048) (i32.const 0) (local.get $value) (i32.const 2))
        (i64.store (i32.const 2112) (i64.const 1))
        (i64.store (i32.const 2120) (i64.const 1))
        (local.set $at (i32.const 16384))
        (block $out (loop $more
            (br_if $out (i32.ge_u (local.get $i) (local.get $k)))
            (i32.store (local.get $at) (i32.const 2048))
            (i32.store offset=4 (local.get $at) (i32.const 1))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $more)))
        (i32.store8 (i32.const 1024) (i32.const 0))
        (i32.store (i32.const 1032) (i32.const 16384))
        (i32.store (i32.const 1036) (local.get $k))
        (global.set $heap (i32.const 8192))
        (i32.const 1024))
    (func $refuse (param $code i32) (result i32)
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (local.get $code))
        (i32.store (i32.const 1036) (i32.const 0))
        (i32.store (i32.const 1040) (i32.const 0))
        (i32.store8 (i32.const 1048) (i32.const 0))
        (i32.store8 (i32.const 1064) (i32.const 0))
        (i32.const 1024))";

impl InitializerWat<'_> {
    /// Addresses up to 1024 belong to the author, those up to 8192 to answers, and those from 16384 to lists of steps. Arguments are from
    /// 262144 on.
    fn module(&self) -> String {
        let InitializerWat { configure, initialize, steps, .. } = self;
        let name = "sequor:plugin/state-initializer@0.1.0";
        let call = "(param i64 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (param $inputs i32) (param $len i32)";
        format!(
            "(module
            (memory (export \"memory\") 32)
            (data (i32.const 0) \"7789pkfe\")
            (global $heap (mut i32) (i32.const 262144))
            (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
                (local $at i32)
                (if (i32.lt_u (global.get $heap) (i32.const 262144)) (then (global.set $heap (i32.const 262144))))
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.set $heap (i32.add (local.get $at) (local.get 3)))
                (local.get $at))
            {HELPERS}
            (func (export \"{name}#configure\") (param i32) (result i32) {configure})
            (func (export \"{name}#initialize\") {call} (result i32) {initialize})
            (func (export \"{name}#steps\") (param $name i32) (param $name_len i32) {call} (result i32) {steps}))"
        )
    }

    pub fn component(&self) -> Vec<u8> {
        let mut resolve = Resolve::default();
        let (contract, _) = resolve.push_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/0.1.0")).unwrap();
        let world = resolve.select_world(&[contract], Some("state-initializer-plugin")).unwrap();
        let mut module = wat::parse_str(self.module()).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        let mut component = ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap();
        let common = "name = \"guest\"\nversion = \"0.1.0\"\nworld = \"state-initializer\"\ncontract = \"0.1.0\"\n";
        component.extend(custom_section("sequor:plugin", &format!("{common}{}", self.manifest)));
        component
    }
}

/// A custom section in the binary format.
fn custom_section(name: &str, text: &str) -> Vec<u8> {
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
