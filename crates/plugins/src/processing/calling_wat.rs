//! For tests: guests that call other models, and one that refuses. Tests of the whole program include this file too, so it uses nothing of
//! this crate.

/// `$call(name, len, elements, v)`: returns the first element of the model's answer, or the negative code of the failure.
pub const CALLS: &str = r#"
    (import "sequor:plugin/models@0.1.0" "infer" (func $infer (param i32 i32 i32 i32 i32)))
    (func $call (param $name i32) (param $len i32) (param $n i32) (param $v i32) (result i32)
        (local $heap_before i32)
        (local.set $heap_before (global.get $heap))
        (i32.store (i32.const 400) (i32.const 700))
        (i32.store (i32.const 404) (i32.const 5))
        (i32.store8 (i32.const 408) (i32.const 0))
        (i32.store (i32.const 412) (i32.const 8))
        (i32.store (i32.const 416) (i32.const 440))
        (i32.store (i32.const 420) (i32.const 2))
        (i32.store (i32.const 424) (i32.const 464))
        (i32.store (i32.const 428) (i32.mul (i32.const 4) (local.get $n)))
        (i64.store (i32.const 440) (i64.const 1))
        (i64.store (i32.const 448) (i64.extend_i32_u (local.get $n)))
        (i32.store (i32.const 464) (local.get $v))
        (i32.store (i32.const 468) (local.get $v))
        (call $infer (local.get $name) (local.get $len) (i32.const 400) (i32.const 1) (i32.const 480))
        (if (i32.load8_u (i32.const 480)) (then
            (return (i32.sub (i32.const 0) (i32.load (i32.const 488))))))
        (local.set $v (i32.load (i32.load offset=24 (i32.load (i32.const 488)))))
        (global.set $heap (local.get $heap_before))
        (local.get $v))
    ;; One value for port 0 at 600: INT32 [1].
    (func $one (param $v i32) (result i32)
        (i32.store (i32.const 600) (i32.const 0))
        (i32.store (i32.const 604) (i32.const 0))
        (i32.store (i32.const 608) (i32.const 8))
        (i32.store (i32.const 612) (i32.const 640))
        (i32.store (i32.const 616) (i32.const 1))
        (i32.store (i32.const 620) (i32.const 660))
        (i32.store (i32.const 624) (i32.const 4))
        (i64.store (i32.const 640) (i64.const 1))
        (i32.store (i32.const 660) (local.get $v))
        (i32.const 600))
    (data (i32.const 700) "INPUT")
    (data (i32.const 710) "echo")
    (data (i32.const 720) "slow")
    (data (i32.const 730) "absent")
    (data (i32.const 740) "refuser")
    (data (i32.const 750) "scorer")
    (data (i32.const 760) "denied")"#;

/// A `pre` that calls a model by the value of its input. 1: a model without a grant, 2: a slow one, 3: one that refuses, 4: its own model,
/// 5: ten thousand calls, 6: a missing model, 7: endless calls. Any other value: `echo`. The answer is the model's.
pub const PRE: &str = r#"
    (local $v i32) (local $i i32)
    (local.set $v (i32.load (i32.load offset=20 (local.get 11))))
    (if (i32.eq (local.get $v) (i32.const 1)) (then
        (return (call $reply (call $one (call $call (i32.const 760) (i32.const 6) (i32.const 1) (i32.const 1))) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 2)) (then
        (return (call $reply (call $one (call $call (i32.const 720) (i32.const 4) (i32.const 2) (i32.const 2))) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 3)) (then
        (return (call $reply (call $one (call $call (i32.const 740) (i32.const 7) (i32.const 1) (i32.const 3))) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 4)) (then
        (return (call $reply (call $one (call $call (i32.const 750) (i32.const 6) (i32.const 1) (i32.const 9))) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 5)) (then
        (block $out (loop $more
            (br_if $out (i32.ge_u (local.get $i) (i32.const 10000)))
            (if (i32.ne (local.get $i) (call $call (i32.const 710) (i32.const 4) (i32.const 1) (local.get $i)))
                (then unreachable))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $more)))
        (return (call $reply (call $one (local.get $i)) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 7)) (then
        (loop $ever
            (local.set $i (i32.const 3000000))
            (loop $burn
                (local.set $i (i32.sub (local.get $i) (i32.const 1)))
                (br_if $burn (local.get $i)))
            (drop (call $call (i32.const 710) (i32.const 4) (i32.const 1) (local.get $v)))
            (br $ever))))
    (if (i32.eq (local.get $v) (i32.const 6)) (then
        (return (call $reply (call $one (call $call (i32.const 730) (i32.const 6) (i32.const 1) (i32.const 6))) (i32.const 1)))))
    (call $reply (call $one (call $call (i32.const 710) (i32.const 4) (i32.const 1) (local.get $v))) (i32.const 1))"#;

/// Refuses with code 5.
pub const REFUSES: &str = "
    (i32.store8 (i32.const 1024) (i32.const 1))
    (i32.store (i32.const 1032) (i32.const 5))
    (i32.store (i32.const 1040) (i32.const 0))
    (i32.store8 (i32.const 1048) (i32.const 0))
    (i32.store8 (i32.const 1064) (i32.const 0))
    (i32.const 1024)";
