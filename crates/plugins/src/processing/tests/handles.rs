//! Tensors by handle: read, cut, written and passed on.

use crate::processing::{Plan, RefusedBy, SequenceScratch};

use crate::processing::wat_fixture::{ProcessorWat, chain, step, tensor};

const METHODS: &str = "
    (import \"sequor:plugin/tensors@0.1.0\" \"[method]tensor.read\" (func $read (param i32 i64 i64 i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[method]tensor.part\" (func $part (param i32 i64 i64 i32 i32) (result i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[method]tensor.cast\" (func $cast (param i32 i32 i32 i32) (result i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[constructor]buffer\" (func $buffer (param i32 i32 i32 i64) (result i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[method]buffer.copy\" (func $copy (param i32 i64 i32 i64 i64)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[method]buffer.write\" (func $write (param i32 i64 i32 i32)))
    (import \"sequor:plugin/tensors@0.1.0\" \"[static]buffer.finish\" (func $finish (param i32) (result i32)))";

const BY_HANDLE: &str = "by-value = \"0B\"\n";

/// One run, with the handle in place of the first input.
const RUN: &str = "
    (i32.store offset=8 (local.get 11) (local.get $t))
    (call $run (local.get 11) (local.get 12) (i32.const 1))";

fn ran(pre: &str) -> Result<Vec<u8>, String> {
    let chain = chain(&[ProcessorWat { extra: METHODS, pre, manifest: BY_HANDLE, ..ProcessorWat::default() }]);
    let prepared = chain.pre(&step(), &SequenceScratch::default(), vec![Some(tensor(b"abcdef"))]);
    match prepared.map_err(|refused| refused.why) {
        Ok(prepared) => match prepared.plan {
            Plan::Run(runs) => Ok(runs[0][0].as_ref().unwrap().data.to_vec()),
            Plan::Reply(_) => panic!("it does not run"),
        },
        Err(RefusedBy::Failure { what }) => Err(what),
        Err(why) => panic!("{why:?}"),
    }
}

#[test]
fn a_tensor_is_passed_on_by_its_handle() {
    assert_eq!(ran(crate::processing::wat_fixture::PASS), Ok(b"abcdef".to_vec()));
}

#[test]
fn a_part_is_a_tensor_of_its_own() {
    let part = |at: u32, len: u32, shape: u32| {
        ran(&format!(
            "(local $t i32)
            (i64.store (i32.const 512) (i64.const {shape}))
            (local.set $t (call $part (i32.load offset=8 (local.get 11)) (i64.const {at}) (i64.const {len}) (i32.const 512) (i32.const 1)))
            {RUN}"
        ))
    };
    assert_eq!(part(2, 3, 3), Ok(b"cde".to_vec()));
    assert_eq!(part(4, 3, 3).unwrap_err(), "3 bytes from byte 4 on are not within 6 bytes, in pre");
    assert_eq!(part(0, 3, 4).unwrap_err(), "a part UINT8 [4] must have 4 bytes, in pre");
}

#[test]
fn a_cast_has_the_same_bytes_with_another_type() {
    // To INT16 and back, because the model takes UINT8.
    let cast = |dtype: u32, elements: u32| {
        ran(&format!(
            "(local $t i32)
            (i64.store (i32.const 512) (i64.const {elements}))
            (local.set $t (call $cast (i32.load offset=8 (local.get 11)) (i32.const {dtype}) (i32.const 512) (i32.const 1)))
            (i64.store (i32.const 512) (i64.const 6))
            (local.set $t (call $cast (local.get $t) (i32.const 2) (i32.const 512) (i32.const 1)))
            {RUN}"
        ))
    };
    assert_eq!(cast(7, 3), Ok(b"abcdef".to_vec()));
    assert_eq!(cast(7, 6).unwrap_err(), "a cast to INT16 [6] must have 12 bytes, in pre");
    assert_eq!(cast(99, 6).unwrap_err(), "99 is no type of tensors, in pre");
}

#[test]
fn a_buffer_becomes_a_tensor() {
    let buffer = |size: u64, at: u64| {
        ran(&format!(
            "(local $t i32) (local $b i32)
            (i64.store (i32.const 512) (i64.const {size}))
            (i32.store (i32.const 520) (i32.const 0x7a))
            (local.set $b (call $buffer (i32.const 2) (i32.const 512) (i32.const 1) (i64.const {size})))
            (call $copy (local.get $b) (i64.const 1) (i32.load offset=8 (local.get 11)) (i64.const 2) (i64.const 2))
            (call $write (local.get $b) (i64.const {at}) (i32.const 520) (i32.const 1))
            (local.set $t (call $finish (local.get $b)))
            {RUN}"
        ))
    };
    assert_eq!(buffer(4, 3), Ok(b"\0cdz".to_vec()));
    assert_eq!(buffer(4, 4).unwrap_err(), "1 bytes from byte 4 on are not within 4 bytes, in pre");
    assert_eq!(buffer(1 << 30, 0).unwrap_err(), "more than 64 MiB of buffers in one call, in pre");
}

#[test]
fn a_guest_that_keeps_too_much_is_replaced() {
    // Each call makes more than a quarter of what a guest may keep. After four calls another guest is called, so no guest counts to five.
    let calls = "(global $calls (mut i32) (i32.const 0))
        (func $counts
            (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (if (i32.gt_u (global.get $calls) (i32.const 4)) (then unreachable)))";
    let extra = format!(
        "{METHODS} (import \"sequor:plugin/tensors@0.1.0\" \"[resource-drop]tensor\" (func $drop (param i32))) {calls}"
    );
    let keeps_buffer = "(drop (call $buffer (i32.const 2) (i32.const 512) (i32.const 1) (i64.const 20971520)))";
    // A part keeps the whole in memory.
    let keeps_part = "
        (local.set $t (call $finish
            (call $buffer (i32.const 2) (i32.const 512) (i32.const 1) (i64.const 20971520))))
        (i64.store (i32.const 512) (i64.const 1))
        (drop (call $part (local.get $t) (i64.const 0) (i64.const 1) (i32.const 512) (i32.const 1)))
        (call $drop (local.get $t))";
    for keeps in [keeps_buffer, keeps_part] {
        let pre = format!(
            "(local $t i32) (call $counts) (i64.store (i32.const 512) (i64.const 20971520)) {keeps}
            (call $run (local.get 11) (local.get 12) (i32.const 1))"
        );
        let guest = ProcessorWat { extra: &extra, pre: &pre, manifest: BY_HANDLE, ..ProcessorWat::default() };
        let chain = chain(&[guest]);
        for _ in 0..12 {
            let prepared = chain.pre(&step(), &SequenceScratch::default(), vec![Some(tensor(b"a"))]);
            assert!(prepared.is_ok(), "{prepared:?}");
        }
    }
}

#[test]
fn the_number_of_dimensions_is_bounded() {
    let buffer = |rank: u32| {
        ran(&format!(
            "(local $t i32)
            (local.set $t (call $finish (call $buffer (i32.const 2) (i32.const 512) (i32.const {rank}) (i64.const 0))))
            {RUN}"
        ))
    };
    assert_eq!(buffer(65).unwrap_err(), "a tensor of 65 dimensions; the maximum is 64, in pre");
    let shape = "pre answered run 0: \"x\" has the shape [0,0,0";
    assert!(buffer(64).unwrap_err().starts_with(shape), "it fits no port, and is no fault of its own");
}
