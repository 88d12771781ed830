//! A processor for the integer running sum that obeys the input. Clients see the input as "VALUE". Inputs that are not orders go to the
//! model unchanged. The scratch counts the steps of a sequence.

use std::fs;
use std::path::Path;

use sequor::processing::wat_guest::{ALIKE, WatGuest};

/// Inputs from this value on are orders.
pub(crate) const ORDERS: i32 = -2_000_000_100;

/// The behaviour for an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum PuppetOrder {
    Trap = 0,
    Loop = 1,
    Gigabyte = 2,
    WrongShape = 3,
    WrongPort = 4,
    TenThousandRuns = 5,
    ScratchOfGigabyte = 6,
    /// Refuses with code 5 and a retry time of half a second. The sequence stays live.
    Refuse = 7,
    RefuseAndEnd = 8,
    /// Replies with the count of steps, without a run.
    Reply = 9,
    TrapInPost = 10,
    LoopInPost = 11,
    RefuseInPost = 12,
    /// Three runs with an input of 1 each.
    ThreeRuns = 13,
    /// Takes some tens of milliseconds, and runs with 1.
    SlowPre = 14,
    SlowPost = 15,
    /// Keeps more scratch than plugin.toml allows.
    ScratchBeyond = 16,
    PortTwice = 17,
    WrongType = 18,
}

impl PuppetOrder {
    pub(crate) fn value(self) -> i32 {
        ORDERS + self as i32
    }
}

const EXTRA: &str = r#"
    (func $burn (param $n i32)
        (loop $more
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br_if $more (local.get $n))))
    (func $refuse (param $ends i32) (result i32)
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 5))
        (i32.store (i32.const 1036) (i32.const 900))
        (i32.store (i32.const 1040) (i32.const 5))
        (i32.store8 (i32.const 1048) (i32.const 1))
        (i64.store (i32.const 1056) (i64.const 500000))
        (i32.store8 (i32.const 1064) (local.get $ends))
        (global.set $heap (i32.const 8192))
        (i32.const 1024))
    ;; The answer at 1024 with a scratch of these bytes at 800.
    (func $keep (param $len i32) (result i32)
        (i32.store (i32.const 1044) (i32.const 1))
        (i32.store (i32.const 1048) (i32.const 800))
        (i32.store (i32.const 1052) (local.get $len))
        (i32.const 1024))
    ;; One value for port 0 at 600: INT32 [1,1].
    (func $one (param $v i32) (result i32)
        (i32.store (i32.const 600) (i32.const 0))
        (i32.store (i32.const 604) (i32.const 0))
        (i32.store (i32.const 608) (i32.const 8))
        (i32.store (i32.const 612) (i32.const 640))
        (i32.store (i32.const 616) (i32.const 2))
        (i32.store (i32.const 620) (i32.const 660))
        (i32.store (i32.const 624) (i32.const 4))
        (i64.store (i32.const 640) (i64.const 1))
        (i64.store (i32.const 648) (i64.const 1))
        (i32.store (i32.const 660) (local.get $v))
        (i32.const 600))
    (data (i32.const 900) "quota")"#;

/// Renames the first input to "VALUE".
const RENAME: &str = r#"
    (i32.store (i32.load (i32.load offset=64 (local.get 0))) (i32.const 0x554c4156))
    (i32.store8 offset=4 (i32.load (i32.load offset=64 (local.get 0))) (i32.const 0x45))"#;

/// An END without inputs runs once more, with the count of steps. `$c` is the order.
const PRE: &str = "
    (local $v i32) (local $c i32)
    (i32.store (i32.const 800) (i32.const 0))
    (if (local.get 10) (then (i32.store8 (i32.const 800) (i32.load8_u (local.get 9)))))
    (if (i32.eqz (local.get 12)) (then
        (return (call $run (call $one (i32.load8_u (i32.const 800))) (i32.const 1) (i32.const 1)))))
    (local.set $v (i32.load (i32.load offset=20 (local.get 11))))
    (local.set $c (i32.add (local.get $v) (i32.const 2000000100)))
    (if (i32.ge_u (local.get $c) (i32.const 100)) (then
        (drop (call $run (local.get 11) (local.get 12) (i32.const 1)))
        (return (call $keep (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 0)) (then unreachable))
    (if (i32.eq (local.get $c) (i32.const 1)) (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $c) (i32.const 2)) (then
        (if (i32.eq (memory.grow (i32.const 16384)) (i32.const -1)) (then unreachable))))
    (if (i32.eq (local.get $c) (i32.const 3)) (then
        (drop (call $one (i32.const 1)))
        (i64.store (i32.const 640) (i64.const 3))
        (return (call $run (i32.const 600) (i32.const 1) (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 4)) (then
        (drop (call $one (i32.const 1)))
        (i32.store (i32.const 600) (i32.const 7))
        (return (call $run (i32.const 600) (i32.const 1) (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 5)) (then
        (return (call $run (call $one (i32.const 1)) (i32.const 1) (i32.const 10000)))))
    (if (i32.eq (local.get $c) (i32.const 6)) (then
        (drop (call $run (call $one (i32.const 1)) (i32.const 1) (i32.const 1)))
        (return (call $keep (i32.const 1073741824)))))
    (if (i32.eq (local.get $c) (i32.const 7)) (then (return (call $refuse (i32.const 0)))))
    (if (i32.eq (local.get $c) (i32.const 8)) (then (return (call $refuse (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 9)) (then
        (return (call $reply (call $one (i32.load8_u (i32.const 800))) (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 13)) (then
        (return (call $run (call $one (i32.const 1)) (i32.const 1) (i32.const 3)))))
    (if (i32.eq (local.get $c) (i32.const 14)) (then (call $burn (i32.const 600000000))))
    (if (i32.eq (local.get $c) (i32.const 16)) (then
        (drop (call $run (call $one (i32.const 1)) (i32.const 1) (i32.const 1)))
        (return (call $keep (i32.const 9)))))
    (drop (call $one (i32.const 1)))
    (if (i32.eq (local.get $c) (i32.const 17)) (then
        (memory.copy (i32.const 628) (i32.const 600) (i32.const 28))
        (i32.store (i32.const 640) (i32.const 704))
        (i32.store (i32.const 612) (i32.const 704))
        (i64.store (i32.const 704) (i64.const 1))
        (i64.store (i32.const 712) (i64.const 1))
        (i32.store (i32.const 648) (i32.const 736))
        (i32.store (i32.const 620) (i32.const 736))
        (return (call $run (i32.const 600) (i32.const 2) (i32.const 1)))))
    (if (i32.eq (local.get $c) (i32.const 18)) (then (i32.store (i32.const 608) (i32.const 11))))
    (drop (call $run (i32.const 600) (i32.const 1) (i32.const 1)))
    ;; What `post` is to do stands behind the count.
    (i32.store8 (i32.const 801) (local.get $c))
    (call $keep (i32.const 2))";

/// Returns the outputs of the last run. The scratch is the count of steps.
const POST: &str = "
    (local $c i32)
    (i32.store (i32.const 800) (i32.const 0))
    (if (local.get 10) (then (i32.store8 (i32.const 800) (i32.load8_u (local.get 9)))))
    (if (i32.gt_u (local.get 10) (i32.const 1)) (then (local.set $c (i32.load8_u offset=1 (local.get 9)))))
    (if (i32.eq (local.get $c) (i32.const 10)) (then unreachable))
    (if (i32.eq (local.get $c) (i32.const 11)) (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $c) (i32.const 12)) (then (return (call $refuse (i32.const 0)))))
    (if (i32.eq (local.get $c) (i32.const 15)) (then (call $burn (i32.const 60000000))))
    (i32.store8 (i32.const 800) (i32.add (i32.const STEP) (i32.load8_u (i32.const 800))))
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032)
        (i64.load (i32.add (local.get 11) (i32.mul (i32.const 8) (i32.sub (local.get 12) (i32.const 1))))))
    (i32.store (i32.const 1040) (i32.const 1))
    (i32.store (i32.const 1044) (i32.const 800))
    (i32.store (i32.const 1048) (i32.const 1))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// Options for the component.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PuppetProcessor {
    /// Whether clients see the input as "VALUE".
    pub(crate) renames: bool,
    /// The number that a step adds to the count.
    pub(crate) step: u8,
    /// Bytes of scratch in plugin.toml.
    pub(crate) scratch: u32,
}

impl Default for PuppetProcessor {
    fn default() -> Self {
        PuppetProcessor { renames: false, step: 1, scratch: 8 }
    }
}

impl PuppetProcessor {
    pub(crate) fn component(self) -> Vec<u8> {
        let configure = format!("{}{ALIKE}", if self.renames { RENAME } else { "" });
        let post = POST.replace("STEP", &self.step.to_string());
        let manifest = format!("scratch = \"{}B\"\n", self.scratch);
        WatGuest { extra: EXTRA, configure: &configure, pre: PRE, post: &post, manifest: &manifest }.component()
    }

    /// Puts the component into a plug-in folder, and makes a model use it.
    pub(crate) fn install(self, plugins: &Path, model: &Path, more: &str) {
        fs::create_dir_all(plugins).unwrap();
        fs::write(plugins.join("puppet.wasm"), self.component()).unwrap();
        let table = format!("[[plugins.processor]]\nuse = \"puppet\"\n{more}");
        fs::write(model.join("sequor.toml"), format!("[sequence]\nend_without_inputs = true\n{table}")).unwrap();
    }
}
