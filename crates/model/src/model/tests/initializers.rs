//! A model with a state initializer: first states, copies, kept states, and the state after failures.

use std::sync::Arc;

use sequor_core::{EndReason, Refusal};

use super::{Fixture, load, request};
use crate::error::{Failure, ProcessorFailure};
use crate::initializing::InitializerComponent;
use crate::initializing::wat_fixture::InitializerWat;
use crate::model::*;
use crate::processing::pool::PREPARED;
use crate::processing::wat_fixture::SERVING;
use crate::processing::{PlaceRules, PluginOperations, ProcessorComponent};

use sequor_wasm::grants::Grants;
use sequor_wasm::plugin_error::PluginError;

/// The input of the START selects the answer: 1000 and more is the first state; 1 traps, 2 never returns, 3 refuses, 4 has wrong dimensions;
/// 5 is a copy of sequence 7, 6 one of sequence 8; 10 is the kept state `p`, 11 `k`, 12 `f`, 13 `e`, 14 steps that are not kept. All other
/// inputs begin with zeros.
const INITIALIZE: &str = "
    (local $v i32)
    (local.set $v (i32.load (i32.load offset=20 (local.get $inputs))))
    (if (i32.eq (local.get $v) (i32.const 1)) (then unreachable))
    (if (i32.eq (local.get $v) (i32.const 2)) (then (loop $ever (br $ever))))
    (if (i32.eq (local.get $v) (i32.const 3)) (then (return (call $refuse (i32.const 4)))))
    (if (i32.eq (local.get $v) (i32.const 4)) (then (return (call $state (i32.const 1) (i32.const 2) (i32.const 0)))))
    (if (i32.eq (local.get $v) (i32.const 5)) (then (return (call $text (i32.const 2) (i32.const 0) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 6)) (then (return (call $text (i32.const 2) (i32.const 2) (i32.const 1)))))
    (if (i32.eq (local.get $v) (i32.const 14)) (then (return (call $text (i32.const 3) (i32.const 0) (i32.const 0)))))
    (if (i32.and (i32.ge_u (local.get $v) (i32.const 10)) (i32.lt_u (local.get $v) (i32.const 14))) (then
        (return (call $text (i32.const 3) (i32.sub (local.get $v) (i32.const 6)) (i32.const 1)))))
    (if (i32.ge_u (local.get $v) (i32.const 1000)) (then
        (return (call $state (local.get $v) (i32.const 1) (i32.const 0)))))
    (call $text (i32.const 0) (i32.const 0) (i32.const 0))";

/// Three steps of 100; of `k` 10,000 steps, of `f` steps that the model fails at, of `e` none; without a name two steps.
const STEPS: &str = "
    (local $c i32)
    (if (i32.eqz (local.get $name_len)) (then (return (call $steps (i32.const 100) (i32.const 2)))))
    (local.set $c (i32.load8_u (local.get $name)))
    (if (i32.eq (local.get $c) (i32.const 107)) (then (return (call $steps (i32.const 1) (i32.const 10000)))))
    (if (i32.eq (local.get $c) (i32.const 102)) (then (return (call $steps (i32.const 666) (i32.const 3)))))
    (if (i32.eq (local.get $c) (i32.const 101)) (then (return (call $steps (i32.const 1) (i32.const 0)))))
    (call $steps (i32.const 100) (i32.const 3))";

/// The guest of these bytes: empty for the one above; `other` has one step of 5 for each name; `bad` cannot be configured.
pub(super) fn component(_: &str, bytes: &[u8]) -> Result<Arc<InitializerComponent>, PluginError> {
    let guest = InitializerWat {
        initialize: INITIALIZE,
        steps: STEPS,
        manifest: "reads = [\"INPUT\"]\n",
        ..InitializerWat::default()
    };
    let guest = match bytes {
        b"other" => InitializerWat { steps: "(call $steps (i32.const 5) (i32.const 1))", ..guest },
        b"bad" => InitializerWat { configure: "unreachable", ..guest },
        _ => guest,
    };
    InitializerComponent::new(&SERVING, "guest.wasm", &guest.component(), Grants::default(), None)
        .map(Arc::new)
        .map_err(|e| PluginError::Invalid(e.to_string()))
}

pub(super) fn no_processor(name: &str, _: &[u8]) -> Result<Arc<ProcessorComponent>, PluginError> {
    Err(PluginError::Invalid(format!("there is no {name}")))
}

/// The model `sum` with this sequor.toml; a run fails on 666.
fn fixture(toml: &str, state_limit: u64, strikes: u32) -> Fixture {
    let fixture = Fixture::empty(state_limit);
    // Slots for all sequences of a test.
    let config = fixture.model().join("config.pbtxt");
    let text = fs_err::read_to_string(&config).unwrap();
    fs_err::write(&config, text.replace("max_candidate_sequences: 4", "max_candidate_sequences: 16")).unwrap();
    fs_err::write(fixture.folder.path().join("guest.wasm"), "").unwrap();
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32 poison=666").unwrap();
    let dir = Some(fixture.folder.path().to_owned());
    fixture.repository.run_processors(PlaceRules::default(), Box::new(no_processor)).unwrap();
    let rules = PlaceRules { dir, strikes, ..PlaceRules::default() };
    fixture.repository.run_initializers(rules, Box::new(component)).unwrap();
    fs_err::write(fixture.model().join("sequor.toml"), toml).unwrap();
    fixture
}

const FEATURE: &str =
    "[[feature]]\nname = \"tenant\"\nfrom = \"parameter\"\nkey = \"tenant\"\ntype = \"key\"\n[plugins.initializer]\n";
pub(super) const TOML: &str = "[plugins.initializer]\nuse = \"guest\"\ntime = \"500ms\"\n";

fn loaded(toml: &str) -> Fixture {
    let fixture = fixture(toml, u64::MAX, 1000);
    load(&fixture.repository, &fixture.model());
    fixture
}

fn copies() -> Fixture {
    loaded(&format!("{FEATURE}use = \"guest\"\ntime = \"500ms\"\ncopy_if_same = [\"tenant\"]\n"))
}

fn failed(answer: Result<InferAnswer, Failure>) -> ProcessorFailure {
    match answer {
        Err(Failure::Processor(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

fn start(fixture: &Fixture, id: u64, value: i32) -> i32 {
    fixture.sum(id, value, |s| s.start = true)
}

/// A START of this tenant.
fn of_tenant(fixture: &Fixture, id: u64, value: i32, tenant: &str) -> Result<i32, Failure> {
    let mut start = request(id, value, |s| s.start = true);
    start.parameters.push(("tenant".to_owned(), Parameter::Text(tenant.to_owned())));
    let answer = fixture.answer(start)?;
    Ok(i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap()))
}

/// Hits and misses of kept states, and runs of the model.
fn counts(fixture: &Fixture) -> (u64, u64, u64) {
    let text = fixture.repository.0.resources.metrics.encode();
    let of = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64
    };
    let lookups =
        |result: &str| of(&format!("sequor_kept_states_total{{model=\"sum\",version=\"1\",result=\"{result}\"}}"));
    (lookups("hit"), lookups("miss"), of("nv_inference_exec_count{model=\"sum\",version=\"1\"}"))
}

#[test]
fn a_sequence_begins_with_the_states_that_the_initializer_gives() {
    let fixture = loaded(TOML);
    assert_eq!(start(&fixture, 1, 50), 50, "default is zero");
    assert_eq!(start(&fixture, 2, 1000), 2000);
    assert_eq!((fixture.sum(2, 1, |_| {}), fixture.sum(1, 1, |_| {})), (2001, 51));
    // A START on a live id restarts the sequence.
    assert_eq!(start(&fixture, 2, 3000), 6000);
    assert_eq!(start(&fixture, 2, 50), 50);
}

#[test]
fn a_failure_refuses_the_start_and_leaves_the_others() {
    let fixture = loaded(TOML);
    start(&fixture, 1, 50);
    let fails = |value: i32| failed(fixture.send(9, value, |s| s.start = true));
    for (value, text) in [
        (1, "it gave up (unreachable), in initialize"),
        (4, "initialize \"INPUT_STATE\" has the shape [2]; [1] is expected"),
        (11, "steps answered 10000 steps; there may be 1 to 4096"),
        (13, "steps answered 0 steps; there may be 1 to 4096"),
    ] {
        let failure = fails(value);
        assert_eq!((failure.text.as_str(), failure.code, failure.ended, failure.may_retry), (text, None, true, true));
        assert_eq!(failure.world, "initializer");
    }
    assert!(fails(2).text.starts_with("time limit"));
    assert_eq!((fails(3).code, fails(3).ended), (Some(4), true));
    let absent = fails(5);
    assert_eq!(absent.text, "copy-of \"7\": no live sequence that may be copied has this id");
    assert_eq!((absent.code, absent.ended, absent.may_retry), (Some(4), true, true));
    let step = fails(12);
    assert!(step.text.starts_with("the model did not run step 0 of 3: "), "{}", step.text);
    assert_eq!((step.ended, step.may_retry), (true, true));
    let gone = fixture.send(9, 1, |_| {}).unwrap_err();
    assert!(matches!(&gone, Failure::Refused(refused) if matches!(refused.refusal, Refusal::Unknown(_))), "{gone:?}");
    assert_eq!((fixture.sum(1, 1, |_| {}), fixture.repository.live()), (51, 1));
    assert_eq!(fixture.repository.state_bytes().0, 4);
}

#[test]
fn the_second_start_of_a_name_reuses_the_kept_state() {
    let fixture = loaded(TOML);
    assert_eq!(start(&fixture, 1, 10), 310);
    assert_eq!(counts(&fixture), (0, 1, 4));
    assert_eq!(start(&fixture, 2, 10), 310);
    assert_eq!(counts(&fixture), (1, 1, 5));
    assert_eq!((fixture.sum(1, 1, |_| {}), fixture.sum(2, 1, |_| {})), (311, 311));
    // A START on a live id gets a copy as well.
    assert_eq!(start(&fixture, 2, 10), 310);
    assert_eq!(start(&fixture, 3, 14), 214, "without a name nothing is kept");
    assert_eq!(start(&fixture, 3, 14), 214);
    assert_eq!(counts(&fixture), (2, 1, 5 + 2 + 1 + 2 * 3));
    // Kept states are counted with those of sequences, and are released with their load.
    assert!(fixture.repository.state_bytes().0 > 3 * 4 + 4);
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32 poison=665").unwrap();
    load(&fixture.repository, &fixture.model());
    for id in 1..4 {
        fixture.sum(id, 1, |s| s.end = true);
    }
    assert_eq!(start(&fixture, 4, 10), 310);
    assert_eq!(counts(&fixture).1, 2);
}

#[test]
fn concurrent_starts_of_a_name_wait_for_the_start_that_runs_its_steps() {
    let fixture = loaded(TOML);
    let pending: Vec<_> =
        (1..9).map(|id| fixture.repository.submit(request(id, 10, |s| s.start = true)).unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut pending = pending.into_iter();
    // A cancelled START does not delay the others, even if it runs the steps.
    drop(pending.next());
    for answer in pending {
        let answer = runtime.block_on(answer).unwrap();
        assert_eq!(answer.outputs[0].tensor.data[..], 310i32.to_le_bytes());
    }
    let (_, misses, _) = counts(&fixture);
    assert!((1..=2).contains(&misses), "{misses}");
}

#[test]
fn live_sequences_evict_kept_states_if_memory_is_full() {
    // Two sequences, or one and the states of a name: 4 bytes, the name with the version that answered it, and 256.
    let fixture = fixture(TOML, 4 + 4 + 18 + 256, 1000);
    load(&fixture.repository, &fixture.model());
    assert_eq!(start(&fixture, 1, 10), 310);
    assert_eq!(fixture.repository.state_bytes().0, 282);
    assert_eq!(start(&fixture, 2, 50), 50);
    assert_eq!(fixture.repository.state_bytes().0, 8);
}

#[test]
fn a_child_begins_with_the_state_of_its_parent() {
    let fixture = copies();
    of_tenant(&fixture, 7, 50, "a").unwrap();
    assert_eq!(fixture.sum(7, 3, |_| {}), 53);
    assert_eq!(of_tenant(&fixture, 20, 5, "a").unwrap(), 58);
    assert_eq!((fixture.sum(7, 5, |_| {}), fixture.sum(20, 1, |_| {})), (58, 59), "both go on by themselves");
}

#[test]
fn a_sequence_of_another_tenant_is_not_copied() {
    let fixture = copies();
    of_tenant(&fixture, 7, 50, "a").unwrap();
    let foreign = failed(of_tenant(&fixture, 20, 5, "b").map(|_| unreachable!()));
    let absent = failed(of_tenant(&fixture, 20, 6, "a").map(|_| unreachable!()));
    assert_eq!(foreign.text, "copy-of \"7\": no live sequence that may be copied has this id");
    assert_eq!(absent.text, foreign.text.replace('7', "8"), "a client does not learn whether the sequence exists");
    // Two STARTs without a tenant do not share one.
    let fixture = copies();
    start(&fixture, 7, 50);
    failed(fixture.send(20, 5, |s| s.start = true));
    assert_eq!(fixture.repository.live(), 1);
}

#[test]
fn an_initializer_that_cannot_serve_refuses_the_model() {
    let refused = |toml: &str| {
        let fixture = fixture(toml, u64::MAX, 1000);
        fixture.repository.load(&fixture.model());
        match fixture.repository.statuses().remove(0).availability {
            Availability::Failed(faults) => faults[0].to_string(),
            Availability::Ready(_) => panic!("it is ready"),
        }
    };
    let absent = refused("[plugins.initializer]\nuse = \"guests\"\n");
    assert!(absent.contains("sequor.toml:2:1: guests: there is no plug-in \"guests\": "), "{absent}");
    assert!(absent.ends_with("did you mean \"guest\"?"), "{absent}");
    let files = refused(&format!("{TOML}files = [\"../x\"]\n"));
    assert!(files.ends_with("guest: ../x: a file of a plug-in must be in the model's directory"), "{files}");
    let feature = refused(&format!("{TOML}copy_if_same = [\"tenant\"]\n"));
    assert!(feature.contains("copy_if_same: no [[feature]] of type \"key\" is named \"tenant\""), "{feature}");
}

#[test]
fn replacing_an_initializer_drops_its_kept_states() {
    let fixture = loaded(TOML);
    let registry = fixture.repository.initializers().unwrap();
    assert_eq!(start(&fixture, 1, 10), 310);
    let first = registry.show("guest").unwrap();
    assert_eq!((first.world, first.attached.len()), ("state-initializer", 1));
    let refused = registry.replace("guest", b"bad".to_vec(), "local").unwrap_err().to_string();
    assert!(refused.contains("does not fit sum: it gave up (unreachable), in configure"), "{refused}");
    assert_eq!((start(&fixture, 2, 10), counts(&fixture).0), (310, 1), "the version before goes on");
    let second = registry.replace("guest", b"other".to_vec(), "local").unwrap();
    assert_eq!(second.attached[0].sha256, second.sha256);
    assert_eq!((start(&fixture, 3, 10), counts(&fixture).1), (15, 2), "at once, without a load");
    assert_eq!((fixture.sum(1, 1, |_| {}), fixture.sum(2, 1, |_| {})), (311, 311), "live sequences go on");
    assert_eq!(registry.rollback("guest", "local").unwrap().sha256, first.sha256);
    assert_eq!(start(&fixture, 4, 10), 310);
    assert!(matches!(registry.unload("guest", "local"), Err(PluginError::Conflict(_))));
    registry.park("guest", "local").unwrap();
    assert!(failed(fixture.send(9, 50, |s| s.start = true)).unavailable);
    registry.unpark("guest", "local").unwrap();
    assert_eq!(start(&fixture, 9, 50), 50);
}

#[test]
fn the_end_of_a_sequence_names_the_initializer_that_refused_its_start() {
    let fixture = loaded(TOML);
    for (id, value) in [(1, 3), (2, 1)] {
        assert!(failed(fixture.send(id, value, |s| s.start = true)).ended);
        let Err(Failure::Refused(refused)) = fixture.send(id, 1, |_| {}) else { panic!("{id} lives") };
        assert!(matches!(refused.refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Failed));
        let by = refused.ended_by.map(|by| (by.world, by.plugin));
        assert_eq!(by, Some(("initializer", "guest".to_owned())));
    }
}

#[test]
fn a_changed_file_waits_for_the_hash_and_an_operator_has_it_written() {
    let fixture = fixture(TOML, u64::MAX, 1000);
    let file = fixture.model().join("sequor.toml");
    let hash = |bytes: &[u8]| component("", bytes).unwrap().sha256().to_owned();
    let pinned = |bytes: &[u8]| format!("# first states\n{TOML}sha256 = \"{}\"   # of Monday\n", hash(bytes));
    fs_err::write(&file, pinned(b"")).unwrap();
    load(&fixture.repository, &fixture.model());
    let registry = fixture.repository.initializers().unwrap();
    let says = || (registry.show("guest").unwrap().sha256, fs_err::read_to_string(&file).unwrap());
    fs_err::write(fixture.folder.path().join("guest.wasm"), "other").unwrap();
    registry.look();
    assert_eq!(says(), (hash(b""), pinned(b"")), "a changed file");
    let line = registry.logs("guest", 0).unwrap().pop().unwrap().message;
    assert!(line.contains("sequor.toml names ") && line.contains("sequor plugin replace guest"), "{line}");
    registry.replace("guest", b"other".to_vec(), "local").unwrap();
    assert_eq!(says(), (hash(b"other"), pinned(b"other")));
    assert_eq!(start(&fixture, 1, 10), 15);
    // The file has its present contents again, so nothing is reloaded.
    let loads =
        || fixture.repository.0.catalog.model("sum").unwrap().loads().iter().map(|load| load.key).collect::<Vec<_>>();
    let before = loads();
    load(&fixture.repository, &fixture.model());
    assert_eq!(loads(), before);
    registry.rollback("guest", "local").unwrap();
    assert_eq!(says(), (hash(b""), pinned(b"")));
    registry.replace("guest", b"bad".to_vec(), "local").unwrap_err();
    assert_eq!(says(), (hash(b""), pinned(b"")), "a version that does not fit is not written");
}

#[test]
fn inputs_of_initializer_steps_count_against_the_prepared_input_limit() {
    let fixture = loaded(TOML);
    let model = fixture.repository.0.catalog.model("sum").unwrap();
    let pool = Arc::clone(&model.loads().first().unwrap().initializer.as_ref().unwrap().pool);
    let others = pool.hold(PREPARED).unwrap();
    let full = failed(fixture.send(9, 10, |s| s.start = true));
    assert_eq!((full.unavailable, full.ended, full.may_retry), (true, true, true));
    assert_eq!(full.text, "the prepared inputs of all requests have 1073741824 bytes, the maximum");
    assert_eq!(start(&fixture, 8, 50), 50, "a START without steps needs no room");
    drop(others);
    assert_eq!(start(&fixture, 9, 10), 310);
    assert!(pool.hold(PREPARED).is_some(), "nothing is counted once the steps have run");
}

#[test]
fn three_failures_park_an_initializer_and_live_sequences_continue() {
    let fixture = fixture(TOML, u64::MAX, 3);
    load(&fixture.repository, &fixture.model());
    start(&fixture, 1, 50);
    let fails = |value: i32| failed(fixture.send(9, value, |s| s.start = true));
    assert!((0..3).all(|_| !fails(1).unavailable));
    let parked = fails(50);
    assert_eq!((parked.unavailable, parked.may_retry), (true, true));
    let why = "guest is parked on sum after 3 strikes in 60 s (trap)";
    assert_eq!(parked.text, why);
    assert_eq!(fixture.repository.find("sum", "").unwrap().unready().as_deref(), Some(why), "the model is not ready");
    assert_eq!(fixture.sum(1, 1, |_| {}), 51);
    // The model is reloaded, so it begins without strikes.
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32").unwrap();
    load(&fixture.repository, &fixture.model());
    assert_eq!(start(&fixture, 9, 50), 50);
}

/// The states of a client replace those of the initializer. Steps run from them, and no state is kept.
#[test]
fn a_client_state_overrides_the_initializer() {
    let fixture = loaded(&format!("[sequence]\nclient_state = true\n{TOML}"));
    let with_state = |id: u64, value: i32, state: i32| {
        let mut request = request(id, value, |s| s.start = true);
        let tensor = super::request(id, state, |_| {}).inputs.remove(0).tensor;
        request.inputs.push(NamedTensor { name: "INPUT_STATE".to_owned(), tensor });
        let answer = fixture.answer(request).unwrap();
        i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
    };
    assert_eq!(start(&fixture, 1, 1000), 2000);
    assert_eq!(with_state(2, 1000, 7), 1007);
    assert_eq!(with_state(3, 50, 7), 57, "the initializer gives none");
    assert_eq!(with_state(4, 14, 7), 221, "two steps of 100");
    assert_eq!(with_state(5, 10, 7), 317, "three steps of a name");
    assert_eq!(start(&fixture, 6, 10), 310, "what was kept is what the model's own first state leads to");
    assert_eq!(with_state(7, 10, 7), 317);
    // The initializer is not called for a copy.
    let copy = fixture.send(8, 1000, |s| (s.start, s.from) = (true, Some(sequor_core::Id::from(3)))).unwrap();
    assert_eq!(copy.outputs[0].tensor.data[..], 1057_i32.to_le_bytes());
}
