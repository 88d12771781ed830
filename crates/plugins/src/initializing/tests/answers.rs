//! Tests of how a guest's answers are used.

use std::sync::Arc;

use bytes::Bytes;
use sequor_core::{DataType, Dims, Shape};
use sequor_wasm::grants::Grants;

use crate::initializing::wat_fixture::InitializerWat;
use crate::initializing::{FirstAnswer, Initializer, InitializerComponent, InitializerPorts, KeptName};
use crate::processing::place::Replacement;
use crate::processing::wat_fixture::SERVING;
use crate::processing::{CallFacts, PluginPlace as _, PortTensors, RefusedBy, TensorPort};
use crate::tensor::Tensor;

fn port(name: &str, dims: &[i64]) -> TensorPort {
    TensorPort { name: name.to_owned(), dtype: DataType::Int32, dims: Dims::from_wire(dims), optional: false }
}

fn ports() -> InitializerPorts {
    let x = port("x", &[-1, 1]);
    InitializerPorts { states: vec![port("s", &[1])], request: vec![x.clone()], step: vec![x] }
}

fn initializer(guest: InitializerWat<'_>) -> Initializer {
    guest.initializer(ports()).unwrap()
}

fn tensor(shape: &[u64], value: i32) -> Tensor {
    let data = Bytes::copy_from_slice(&value.to_le_bytes());
    Tensor { dtype: DataType::Int32, shape: Shape::new(shape), data }
}

fn inputs() -> PortTensors {
    vec![Some(tensor(&[1, 1], 42))]
}

fn start() -> CallFacts {
    CallFacts { sequence: 7, step: 1, start: true, ..CallFacts::default() }
}

fn failure(refused: crate::processing::ProcessorRefusal) -> String {
    assert_eq!((refused.world, refused.plugin.as_str()), ("initializer", "guest"));
    match refused.why {
        RefusedBy::Failure { what } => what,
        RefusedBy::Plugin { .. } | RefusedBy::Unavailable { .. } => panic!("{refused:?}"),
    }
}

#[test]
fn every_kind_of_initializer_answer_is_accepted() {
    let answer = |initialize: &str| {
        let guest = InitializerWat { initialize, manifest: "reads = [\"x\"]\n", ..InitializerWat::default() };
        initializer(guest).initialize(&start(), &inputs()).unwrap()
    };
    assert_eq!(answer(InitializerWat::default().initialize), FirstAnswer::Default);
    // The guest reads the value of its input.
    let state = "(call $state (i32.load (i32.load offset=20 (local.get $inputs))) (i32.const 1) (i32.const 0))";
    assert_eq!(answer(state), FirstAnswer::States(vec![Some(tensor(&[1], 42))]));
    assert_eq!(answer("(call $text (i32.const 2) (i32.const 1) (i32.const 2))"), FirstAnswer::CopyOf("78".to_owned()));
    assert_eq!(kept_name(answer("(call $text (i32.const 3) (i32.const 4) (i32.const 1))")).name(), "p");
}

fn kept_name(answer: FirstAnswer) -> KeptName {
    match answer {
        FirstAnswer::Kept(name) => name,
        other => panic!("{other:?}"),
    }
}

/// A name as if the current version had answered it.
fn name(of: &Initializer, name: &str) -> KeptName {
    KeptName::new(name.to_owned(), of.current.load_full())
}

#[test]
fn the_version_that_answered_a_name_is_asked_for_its_steps() {
    let initialize = "(call $text (i32.const 3) (i32.const 4) (i32.const 1))";
    let first = InitializerWat { initialize, steps: "(call $steps (i32.const 1) (i32.const 1))", ..Default::default() };
    let second = InitializerWat { steps: "(call $steps (i32.const 2) (i32.const 2))", ..first };
    let of = initializer(first);
    let before = kept_name(of.initialize(&start(), &inputs()).unwrap());
    let other = InitializerComponent::new(&SERVING, "guest.wasm", &second.component(), Grants::default(), None);
    match of.try_version(&Arc::new(other.unwrap())).unwrap() {
        Replacement::InPlace(version) => of.take_over(version),
        Replacement::NewLoad => panic!("it needs no new load"),
    }
    let after = kept_name(of.initialize(&start(), &inputs()).unwrap());
    assert_eq!((before.name(), after.name()), ("p", "p"));
    assert_ne!(before.key(), after.key(), "the states of one are not those of the other");
    let steps = |name: &KeptName| of.steps(name, &start(), &inputs()).unwrap();
    assert_eq!(steps(&before), vec![vec![Some(tensor(&[1, 1], 1))]]);
    assert_eq!(steps(&after), vec![vec![Some(tensor(&[1, 1], 2))]; 2]);
}

#[test]
fn an_input_that_is_not_read_is_not_shown() {
    let initialize = "(if (local.get $len) (then unreachable)) (call $text (i32.const 0) (i32.const 0) (i32.const 0))";
    let of = initializer(InitializerWat { initialize, ..InitializerWat::default() });
    assert_eq!(of.initialize(&start(), &inputs()).unwrap(), FirstAnswer::Default);
}

#[test]
fn the_steps_of_an_initializer_depend_on_the_name() {
    let steps = "(call $steps (i32.load8_u (local.get $name)) (i32.const 3))";
    let of = initializer(InitializerWat { steps, ..InitializerWat::default() });
    let steps = of.steps(&name(&of, "A"), &start(), &inputs()).unwrap();
    assert_eq!(steps, vec![vec![Some(tensor(&[1, 1], 65))]; 3]);
}

#[test]
fn an_invalid_initializer_answer_fails_the_start() {
    let with = |initialize: &str| {
        let of = initializer(InitializerWat { initialize, ..InitializerWat::default() });
        let what = failure(of.initialize(&start(), &inputs()).unwrap_err());
        // Another guest replaces one that trapped.
        assert_eq!(failure(of.initialize(&start(), &inputs()).unwrap_err()), what);
        what
    };
    assert_eq!(with("unreachable"), "it gave up (unreachable), in initialize");
    let dims = "(call $state (i32.const 1) (i32.const 2) (i32.const 0))";
    assert_eq!(with(dims), "initialize \"s\" has the shape [2]; [1] is expected");
    let port = "(call $state (i32.const 1) (i32.const 1) (i32.const 9))";
    assert_eq!(with(port), "initialize answered for port 9 of 1");
    let name = "(call $text (i32.const 3) (i32.const 16384) (i32.const 257))";
    assert_eq!(with(name), "initialize answered a name of 257 bytes; the maximum is 256");
    let memory =
        "(drop (memory.grow (i32.const 16384))) (i32.store (i32.const 1073741824) (i32.const 1)) (i32.const 0)";
    let of = initializer(InitializerWat { initialize: memory, ..InitializerWat::default() });
    let what = failure(of.initialize(&start(), &inputs()).unwrap_err());
    assert!(what.starts_with("memory limit"), "{what}");
    let of = initializer(InitializerWat {
        initialize: "(loop $ever (br $ever)) (i32.const 0)",
        ..InitializerWat::default()
    });
    let late = failure(of.initialize(&start(), &inputs()).unwrap_err());
    assert!(late.starts_with("time limit ") && late.contains(" in initialize (0 KiB)"), "{late}");
}

#[test]
fn wrong_steps_fail_the_start() {
    let with = |steps: &str| {
        let of = initializer(InitializerWat { steps, ..InitializerWat::default() });
        failure(of.steps(&name(&of, "p"), &start(), &inputs()).unwrap_err())
    };
    let many = |k: u32| with(&format!("(call $steps (i32.const 1) (i32.const {k}))"));
    assert_eq!(many(0), "steps answered 0 steps; there may be 1 to 4096");
    assert_eq!(many(10_000), "steps answered 10000 steps; there may be 1 to 4096");
    let empty = "
        (drop (call $steps (i32.const 1) (i32.const 2)))
        (i32.store (i32.const 16396) (i32.const 0))
        (i32.const 1024)";
    assert_eq!(with(empty), "steps answered step 1 without \"x\"");
}

#[test]
fn a_refusal_is_the_plug_in_s_own() {
    let of = initializer(InitializerWat { initialize: "(call $refuse (i32.const 4))", ..InitializerWat::default() });
    let refused = of.initialize(&start(), &inputs()).unwrap_err();
    assert_eq!(refused.why, RefusedBy::Plugin { code: 4, text: String::new(), retry: None });
}

#[test]
fn an_initializer_that_does_not_fit_is_refused_at_load() {
    let refused = |guest: InitializerWat<'_>| guest.initializer(ports()).unwrap_err();
    let manifest = "reads = [\"y\"]\n";
    assert_eq!(
        refused(InitializerWat { manifest, ..InitializerWat::default() }),
        "reads names \"y\", which is no input of requests"
    );
    let traps = refused(InitializerWat { configure: "unreachable", ..InitializerWat::default() });
    assert_eq!(traps, "it gave up (unreachable), in configure");
}
