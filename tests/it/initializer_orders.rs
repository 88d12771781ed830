//! An initializer that obeys the input of a START, and the model behind it. The benchmarks include this file too.

use sequor::initializing::wat::InitializerWat;

/// Hostile behaviour of an initializer. The number is the input that triggers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostileStart {
    Trap = 1,
    Loop = 2,
    WrongShape = 4,
    Gigabyte = 6,
    TenThousandSteps = 11,
}

impl HostileStart {
    pub(crate) const ALL: [HostileStart; 5] = [
        HostileStart::Trap,
        HostileStart::Loop,
        HostileStart::WrongShape,
        HostileStart::Gigabyte,
        HostileStart::TenThousandSteps,
    ];
}

/// The answer to a START, by its input:
/// - from 1000 on: the input is the first state;
/// - 1 traps, 2 loops forever, 3 is refused, 4 has wrong dimensions, 6 allocates 1 GiB;
/// - 5 copies sequence 7;
/// - 10 is the kept state `p`, 11 has 10,000 steps, 14 has steps that are not kept;
/// - all other inputs start with zeros.
const INITIALIZE: &str = "
    (local $v i32)
    (local.set $v (i32.load (i32.load offset=20 (local.get $inputs))))
    (if (i32.eq (local.get $v) (i32.const 1)) (then unreachable))
    (if (i32.eq (local.get $v) (i32.const 2)) (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $v) (i32.const 3)) (then (return (call $refuse (i32.const 4)))))
    (if (i32.eq (local.get $v) (i32.const 4)) (then (return (call $state (i32.const 1) (i32.const 2) (i32.const 0)))))
    (if (i32.eq (local.get $v) (i32.const 5)) (then (return (call $text (i32.const 2) (i32.const 0) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 6)) (then
        (drop (memory.grow (i32.const 16384)))
        (i32.store (i32.const 1073741824) (i32.const 1))))
    (if (i32.eq (local.get $v) (i32.const 14)) (then (return (call $text (i32.const 3) (i32.const 0) (i32.const 0)))))
    (if (i32.and (i32.ge_u (local.get $v) (i32.const 10)) (i32.lt_u (local.get $v) (i32.const 12))) (then
        (return (call $text (i32.const 3) (i32.sub (local.get $v) (i32.const 6)) (i32.const 1)))))
    (if (i32.ge_u (local.get $v) (i32.const 1000)) (then
        (return (call $state (local.get $v) (i32.const 1) (i32.const 0)))))
    (call $text (i32.const 0) (i32.const 0) (i32.const 0))";

/// Three steps of 100; for `k` 10,000 steps.
pub(crate) const STEPS: &str = "
    (if (local.get $name_len) (then
        (if (i32.eq (i32.load8_u (local.get $name)) (i32.const 107)) (then
            (return (call $steps (i32.const 1) (i32.const 10000)))))))
    (call $steps (i32.const 100) (i32.const 3))";

/// A running sum of INT32, `sum_int32.onnx`.
pub(crate) const CONFIG: &str = r#"backend: "onnxruntime" max_batch_size: 8
    input [ { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
    instance_group [ { kind: KIND_CPU count: 1 } ]
    sequence_batching { max_sequence_idle_microseconds: 600000000 oldest { max_candidate_sequences: 16 } state [ {
        input_name: "INPUT_STATE" output_name: "OUTPUT_STATE" data_type: TYPE_INT32 dims: [ 1 ] } ] }"#;

/// The guest with these steps.
pub(crate) fn guest(steps: &str) -> Vec<u8> {
    let manifest = "reads = [\"INPUT\"]\n";
    InitializerWat { initialize: INITIALIZE, steps, manifest, ..InitializerWat::default() }.component()
}
