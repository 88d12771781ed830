//! A model with a processor: stages, runs and scratch, and the state after failures.

use std::sync::Arc;

use sequor_core::{EndReason, Id, Refusal};

use super::{Fixture, load, request};
use crate::error::{Failure, ProcessorFailure};
use crate::model::*;
use crate::processing::wat_fixture::{ProcessorWat, SERVING};
use crate::processing::{PlaceRules, ProcessorComponent};
use crate::scheduling::report::{Attach, BindingState, By, PluginControl};

use sequor_wasm::grants::Grants;
use sequor_wasm::plugin_error::PluginError;

/// It traps on 1000, replies to 1001, refuses 1002, never returns from 1003, and runs `n / 100 + 1` times otherwise.
const PRE: &str = "
    (local $v i32)
    (if (i32.eqz (local.get 12)) (then (return (call $reply (i32.const 0) (i32.const 0)))))
    (local.set $v (i32.load (i32.load offset=20 (local.get 11))))
    (if (i32.eq (local.get $v) (i32.const 1000)) (then unreachable))
    (if (i32.eq (local.get $v) (i32.const 1001)) (then (return (call $reply (local.get 11) (local.get 12)))))
    (if (i32.eq (local.get $v) (i32.const 1002)) (then
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 5))
        (i32.store (i32.const 1040) (i32.const 0))
        (i32.store8 (i32.const 1048) (i32.const 0))
        (i32.store8 (i32.const 1064) (i32.const 0))
        (return (i32.const 1024))))
    (if (i32.eq (local.get $v) (i32.const 1003)) (then (loop $ever (br $ever))))
    (call $run (local.get 11) (local.get 12) (i32.add (i32.const 1) (i32.div_u (local.get $v) (i32.const 100))))";

/// It traps on 777, and otherwise adds 10000 for each call of its sequence to the output of the first run. The scratch is the count of calls.
pub(super) const POST: &str = "
    (local $b i32)
    (local.set $b (i32.load offset=20 (i32.load (local.get 11))))
    (if (i32.eq (i32.load (local.get $b)) (i32.const 777)) (then unreachable))
    (i32.store8 (i32.const 1100) (i32.const 1))
    (if (local.get 10) (then
        (i32.store8 (i32.const 1100) (i32.add (i32.const 1) (i32.load8_u (local.get 9))))))
    (i32.store (local.get $b)
        (i32.add (i32.load (local.get $b)) (i32.mul (i32.const 10000) (i32.load8_u (i32.const 1100)))))
    (i64.store (i32.const 1024) (i64.const 0))
    (i64.store (i32.const 1032) (i64.load (local.get 11)))
    (i32.store (i32.const 1040) (i32.const 1))
    (i32.store (i32.const 1044) (i32.const 1100))
    (i32.store (i32.const 1048) (i32.const 1))
    (global.set $heap (i32.const 8192))
    (i32.const 1024)";

/// The part of [`refusing_post`] that refuses.
const REFUSING: &str = "
    (if (i32.eq (i32.load (local.get $b)) (i32.const 778)) (then
        (i32.store8 (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 5))
        (i32.store (i32.const 1040) (i32.const 0))
        (i32.store8 (i32.const 1048) (i32.const 0))
        (i32.store8 (i32.const 1064) (i32.const 0))
        (return (i32.const 1024))))
    (i32.store8 (i32.const 1100)";

/// [`POST`], which refuses a step whose first sum is 778, after its runs.
pub(super) fn refusing_post() -> String {
    POST.replacen("(i32.store8 (i32.const 1100)", REFUSING, 1)
}

pub(super) fn component(_: &str, bytes: &[u8]) -> Result<Arc<ProcessorComponent>, PluginError> {
    let made = ProcessorComponent::new(&SERVING, "guest.wasm", bytes, Grants::default(), None);
    made.map(Arc::new).map_err(|e| PluginError::Invalid(e.to_string()))
}

pub(super) fn guest() -> ProcessorWat<'static> {
    ProcessorWat { pre: PRE, post: POST, ..ProcessorWat::default() }
}

/// The model `sum` with this sequor.toml.
fn fixture(toml: &str) -> Fixture {
    fixture_with(toml, &guest())
}

fn fixture_with(toml: &str, guest: &ProcessorWat<'_>) -> Fixture {
    let fixture = Fixture::empty(u64::MAX);
    fs_err::write(fixture.folder.path().join("guest.wasm"), guest.component()).unwrap();
    let dir = Some(fixture.folder.path().to_owned());
    let rules = PlaceRules { dir, strikes: 3, ..PlaceRules::default() };
    fixture.repository.run_processors(rules, Box::new(component)).unwrap();
    fs_err::write(fixture.model().join("sequor.toml"), toml).unwrap();
    fixture
}

pub(super) const TOML: &str =
    "[sequence]\nend_without_inputs = true\n[[plugins.processor]]\nuse = \"guest\"\ntime = \"500ms\"\n";

pub(super) fn loaded(toml: &str) -> Fixture {
    loaded_with(toml, &guest())
}

pub(super) fn loaded_with(toml: &str, guest: &ProcessorWat<'_>) -> Fixture {
    let fixture = fixture_with(toml, guest);
    load(&fixture.repository, &fixture.model());
    fixture
}

fn failed(answer: Result<InferAnswer, Failure>) -> ProcessorFailure {
    match answer {
        Err(Failure::Processor(failure)) => *failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn scratch_is_committed_with_the_state_and_a_failed_step_leaves_both() {
    let fixture = loaded(TOML);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    assert_eq!(fixture.sum(7, 1, |_| {}), 20_006);
    let trap = failed(fixture.send(7, 1000, |_| {}));
    assert_eq!((trap.code, trap.ended, trap.may_retry), (None, false, true));
    assert!(trap.text.contains("unreachable"), "{trap:?}");
    assert_eq!(fixture.sum(7, 1, |_| {}), 30_007);
    let late = failed(fixture.send(7, 1003, |_| {}));
    assert!(late.text.starts_with("time limit"), "{late:?}");
    assert_eq!(fixture.sum(7, 1, |_| {}), 40_008);
    let refused = failed(fixture.send(7, 1002, |_| {}));
    assert_eq!((refused.code, refused.ended), (Some(5), false));
    assert_eq!(fixture.sum(7, 1001, |_| {}), 1001, "a reply runs nothing");
    assert_eq!(fixture.sum(7, 1, |_| {}), 50_009);
    // Three runs, one answer: that of the first.
    assert_eq!(fixture.sum(7, 205, |_| {}), 60_214);
    assert_eq!(fixture.sum(7, 1, |_| {}), 70_000 + 9 + 3 * 205 + 1);
    // A START begins with an empty scratch.
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
}

#[test]
fn an_end_without_inputs_is_shown_to_the_processor() {
    let fixture = loaded(TOML);
    fixture.sum(7, 5, |s| s.start = true);
    let mut end = request(7, 0, |s| s.end = true);
    end.inputs.clear();
    assert!(fixture.answer(end).unwrap().outputs.is_empty());
    let gone = fixture.send(7, 1, |_| {}).unwrap_err();
    assert!(
        matches!(&gone, Failure::Refused(refused) if matches!(refused.refusal, Refusal::Unknown(Some(_)))),
        "{gone:?}"
    );
}

/// Why a sequence has ended, as its next step reports it.
fn ended_because(fixture: &Fixture, id: u64) -> EndReason {
    ended_by(fixture, id).0
}

/// The same, and the plug-in that ended it.
fn ended_by(fixture: &Fixture, id: u64) -> (EndReason, Option<String>) {
    match fixture.send(id, 1, |_| {}) {
        Err(Failure::Refused(refused)) => match refused.refusal {
            Refusal::Unknown(Some(stone)) => {
                (stone.why, refused.ended_by.map(|by| format!("{} {}", by.world, by.plugin)))
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// [`guest`], whose refusals end the sequence.
pub(super) fn ending_guest(pre: &str) -> ProcessorWat<'_> {
    ProcessorWat { pre, ..guest() }
}

/// `pre` of [`ending_guest`].
pub(super) fn ending_pre() -> String {
    PRE.replace("(i32.store8 (i32.const 1064) (i32.const 0))", "(i32.store8 (i32.const 1064) (i32.const 1))")
}

#[test]
fn the_end_of_a_sequence_names_the_processor_that_caused_it() {
    let fixture = loaded_with(TOML, &ending_guest(&ending_pre()));
    let by_guest = |why| (why, Some("processor guest".to_owned()));
    fixture.sum(1, 5, |s| s.start = true);
    assert!(failed(fixture.send(1, 1002, |_| {})).ended);
    assert_eq!(ended_by(&fixture, 1), by_guest(EndReason::Rejected));
    assert!(failed(fixture.send(2, 1002, |s| s.start = true)).ended);
    assert_eq!(ended_by(&fixture, 2), by_guest(EndReason::Failed));
    // After the run.
    assert!(failed(fixture.send(3, 777, |s| s.start = true)).ended);
    assert_eq!(ended_by(&fixture, 3), by_guest(EndReason::Failed));
    fixture.sum(4, 5, |s| s.start = true);
    assert!(failed(fixture.send(4, 772, |_| {})).ended);
    assert_eq!(ended_by(&fixture, 4), by_guest(EndReason::Broken));
    let ended = fixture.repository.ended_sequences("sum").unwrap();
    assert!(ended.len() == 4 && ended.iter().all(|end| end.by.as_ref().is_some_and(|by| by.plugin == "guest")));
    // A later sequence of the same id ends by itself.
    fixture.sum(1, 5, |s| s.start = true);
    fixture.sum(1, 5, |s| s.end = true);
    assert_eq!(ended_by(&fixture, 1), (EndReason::End, None));
}

#[test]
fn a_given_state_is_gone_once_a_processor_ends_its_sequence() {
    let here = loaded(TOML);
    here.sum(7, 5, |s| s.start = true);
    let file = here.repository.find("sum", "").unwrap().export(&Id::from(7)).unwrap();
    let there = loaded_with(TOML, &ending_guest(&ending_pre()));
    let served = there.repository.find("sum", "").unwrap();
    served.import(Id::from(7), &file).unwrap();
    assert!(failed(there.send(7, 1002, |_| {})).ended);
    assert_eq!(ended_by(&there, 7), (EndReason::Rejected, Some("processor guest".to_owned())));
    // A failure does not change the state.
    served.import(Id::from(7), &file).unwrap();
    assert!(!failed(there.send(7, 1000, |_| {})).ended);
    assert_eq!(there.sum(7, 1, |_| {}), 20_006);
}

#[test]
fn a_failure_after_the_run_ends_the_sequence() {
    let fixture = loaded(TOML);
    fixture.sum(1, 5, |s| s.start = true);
    let trap = failed(fixture.send(2, 777, |s| s.start = true));
    assert_eq!((trap.code, trap.ended, trap.may_retry), (None, true, false));
    assert_eq!(ended_because(&fixture, 2), EndReason::Failed);
    assert_eq!(fixture.sum(2, 5, |s| s.start = true), 10_005);
    let trap = failed(fixture.send(2, 772, |_| {}));
    assert_eq!((trap.code, trap.ended, trap.may_retry), (None, true, false));
    assert_eq!(ended_because(&fixture, 2), EndReason::Broken);
    assert_eq!(fixture.sum(1, 1, |_| {}), 20_006, "the other one lives on");
}

#[test]
fn a_start_that_fails_or_is_cancelled_leaves_no_sequence() {
    let fixture = loaded(TOML);
    let trap = failed(fixture.send(3, 1000, |s| s.start = true));
    assert!(trap.ended && trap.may_retry, "{trap:?}");
    drop(fixture.repository.submit(request(3, 1003, |s| s.start = true)).unwrap());
    assert_eq!(fixture.sum(3, 5, |s| s.start = true), 10_005);
    assert_eq!(fixture.repository.live(), 1);
}

#[test]
fn clients_see_the_signature_of_the_processor() {
    let fixture = loaded(TOML);
    let served = fixture.repository.find("sum", "").unwrap();
    let input = served.metadata().inputs[0].clone();
    assert_eq!((input.name.as_str(), input.dims.to_string().as_str()), ("INPUT", "[-1,1]"));
    let config = served.config();
    assert_eq!((config.max_batch_size, config.input[0].dims.as_slice()), (0, [-1, 1].as_slice()));
}

#[test]
fn a_processor_that_cannot_serve_refuses_the_model() {
    let refused = |toml: &str| {
        let fixture = fixture(toml);
        fixture.repository.load(&fixture.model());
        match fixture.repository.statuses().remove(0).availability {
            Availability::Failed(faults) => faults[0].to_string(),
            Availability::Ready(_) => panic!("it is ready"),
        }
    };
    let ends = |message: &str, with: &str| assert!(message.ends_with(with), "{message}");
    let absent = refused("[[plugins.processor]]\nuse = \"guests\"\n");
    assert!(absent.contains("sequor.toml:2:1: guests: there is no plug-in \"guests\": "), "{absent}");
    ends(&absent, "; did you mean \"guest\"?");
    let files = refused("[[plugins.processor]]\nuse = \"guest\"\nfiles = [\"../x\"]\n");
    ends(&files, "guest: ../x: a file of a plug-in must be in the model's directory");
    let feature = "[[feature]]\nname = \"n\"\nfrom = \"input\"\nkey = \"INPUT\"\ntype = \"number\"\n";
    let feature = refused(&format!("{feature}[[plugins.processor]]\nuse = \"guest\"\n"));
    ends(&feature, "is not served yet for a model with processors, which change its inputs");
    let wrong = refused("[[plugins.processor]]\nuse = \"guest\"\non_failure = \"ignore\"\n");
    assert!(wrong.contains("unknown variant `ignore`"), "{wrong}");
}

// === failures and replacement ===

const LOCAL: By<'_> = By("local");

/// Stores a guest under this name in the plug-in folder.
fn put(fixture: &Fixture, name: &str, guest: ProcessorWat<'_>) {
    fs_err::write(fixture.folder.path().join(format!("{name}.wasm")), guest.component()).unwrap();
}

#[test]
fn a_parked_processor_makes_its_model_not_ready_until_it_is_unparked() {
    let fixture = loaded(TOML);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    for _ in 0..3 {
        assert!(!failed(fixture.send(7, 1000, |_| {})).unavailable);
    }
    let parked = failed(fixture.send(7, 1, |_| {}));
    assert!(parked.unavailable && parked.may_retry && !parked.ended, "{parked:?}");
    assert!(parked.text.starts_with("guest is parked on sum after 3 strikes in 60 s (trap)"), "{parked:?}");
    let ready = || fixture.repository.find("sum", "").unwrap().unready();
    assert_eq!(ready().as_deref(), Some(parked.text.as_str()));
    let row = fixture.repository.index().remove(0);
    assert_eq!((row.state, row.reason), ("UNAVAILABLE", parked.text));
    assert!(!fixture.repository.complete());
    let shown = PluginControl::show(&fixture.repository, "guest").unwrap();
    let at = &shown.attached[0];
    assert_eq!(
        (shown.world.as_str(), at.state, at.strikes, at.model.as_str()),
        ("processor", BindingState::Parked, 3, "sum")
    );
    assert_eq!(at.last_fault.as_ref().map(|fault| fault.kind.as_str()), Some("trap"));
    let log = PluginControl::logs(&fixture.repository, "guest", 0).unwrap();
    assert!(log.last().unwrap().message.contains("The model is not ready. sequor plugin show guest"), "{log:?}");
    fixture.repository.unpark("guest", LOCAL).unwrap();
    assert_eq!((ready(), fixture.repository.complete()), (None, true));
    assert_eq!(fixture.sum(7, 1, |_| {}), 20_006, "state and scratch are as they were");
}

#[test]
fn a_bypassed_processor_is_parked_and_the_model_stays_ready() {
    let fixture = loaded(&format!("{TOML}on_failure = \"bypass\"\n"));
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    for n in 1..=3 {
        assert_eq!(fixture.sum(7, 1000, |_| {}), 5 + n * 1000, "the model runs without it");
    }
    assert_eq!(PluginControl::show(&fixture.repository, "guest").unwrap().attached[0].state, BindingState::Parked);
    assert_eq!(fixture.repository.find("sum", "").unwrap().unready(), None);
    assert_eq!(fixture.sum(7, 1, |_| {}), 3006);
    fixture.repository.unpark("guest", LOCAL).unwrap();
    assert_eq!(fixture.sum(7, 1, |_| {}), 23_007, "the scratch is that of the last call");
}

#[test]
fn another_version_takes_over_and_the_scratch_of_live_sequences_is_carried_over() {
    let fixture = loaded(TOML);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    let post = POST.replace("10000", "20000");
    let other = ProcessorWat { post: &post, ..guest() }.component();
    let by_wire = fixture.repository.replace("guest", other.clone(), LOCAL).unwrap();
    assert_eq!(fixture.sum(7, 1, |_| {}), 40_006);
    let in_folder = fs_err::read(fixture.folder.path().join("guest.wasm")).unwrap();
    assert!(in_folder == other, "the next start finds it");
    fixture.repository.rollback("guest", LOCAL).unwrap();
    assert_eq!(fixture.sum(7, 1, |_| {}), 30_007);
    // A changed file does the same.
    put(&fixture, "guest", ProcessorWat { post: &post, manifest: "scratch = \"8B\"\n\n", ..guest() });
    fixture.repository.processors().unwrap().look();
    assert_ne!(PluginControl::show(&fixture.repository, "guest").unwrap().sha256, by_wire.sha256);
    assert_eq!(fixture.sum(7, 1, |_| {}), 80_008);
}

#[test]
fn a_version_with_another_scratch_size_serves_only_new_sequences() {
    let fixture = loaded(TOML);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    let post = POST.replace("10000", "20000");
    let other = ProcessorWat { post: &post, manifest: "scratch = \"16B\"\n", ..guest() };
    fixture.repository.replace("guest", other.component(), LOCAL).unwrap();
    assert_eq!(fixture.sum(8, 5, |s| s.start = true), 20_005);
    assert_eq!(fixture.sum(7, 1, |_| {}), 20_006, "the old version");
    assert_eq!(fixture.sum(8, 1, |_| {}), 40_006);
    assert_eq!(fixture.sum(7, 1, |s| s.end = true), 30_007);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 20_005, "a new sequence");
}

#[test]
fn a_processor_version_that_does_not_fit_is_refused_and_the_old_stays() {
    let fixture = loaded(TOML);
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    let bad = ProcessorWat { configure: "unreachable", ..guest() };
    let refused = fixture.repository.replace("guest", bad.component(), LOCAL).unwrap_err().to_string();
    assert!(refused.contains("(unreachable), in configure"), "{refused}");
    assert_eq!(fixture.sum(7, 1, |_| {}), 20_006);
    let attached = fixture.repository.attach(&Attach { plugin: "guest".to_owned(), ..Attach::default() }, LOCAL);
    assert!(attached.unwrap_err().to_string().contains("is a processor"));
}

#[test]
fn a_replacement_writes_the_hash_that_the_models_file_names() {
    let fixture = loaded(TOML);
    let file = fixture.model().join("sequor.toml");
    let hash = || PluginControl::show(&fixture.repository, "guest").unwrap().sha256;
    let with = |sha256: &str| format!("# words\n{TOML}sha256 = \"{sha256}\" # of Monday\n");
    let file_says = || fs_err::read_to_string(&file).unwrap();
    fs_err::write(&file, with(&hash())).unwrap();
    assert_eq!(fixture.sum(7, 5, |s| s.start = true), 10_005);
    let post = POST.replace("10000", "20000");
    fixture.repository.replace("guest", ProcessorWat { post: &post, ..guest() }.component(), LOCAL).unwrap();
    assert_eq!((fixture.sum(7, 1, |_| {}), file_says()), (40_006, with(&hash())));
    // A scratch of another size needs a new load, which checks the component against the hash in the file.
    let wider = ProcessorWat { post: &post, manifest: "scratch = \"16B\"\n", ..guest() };
    fixture.repository.replace("guest", wider.component(), LOCAL).unwrap();
    assert_eq!((fixture.sum(8, 5, |s| s.start = true), file_says()), (20_005, with(&hash())));
    fixture.repository.rollback("guest", LOCAL).unwrap();
    assert_eq!((fixture.sum(9, 5, |s| s.start = true), file_says()), (20_005, with(&hash())));
    // If the model does not load, the file has the hash of the version that serves.
    let (is, graph) = (hash(), fixture.model().join("1/model.onnx"));
    fs_err::rename(&graph, graph.with_extension("away")).unwrap();
    let wider = ProcessorWat { manifest: "scratch = \"24B\"\n", ..guest() };
    let refused = fixture.repository.replace("guest", wider.component(), LOCAL).unwrap_err().to_string();
    assert!(refused.contains("does not load"), "{refused}");
    assert_eq!((hash(), file_says()), (is.clone(), with(&is)));
}

#[test]
fn a_cancelled_request_that_waits_for_its_processor_costs_no_call() {
    let fixture = loaded(TOML);
    fixture.sum(1, 5, |s| s.start = true);
    let calls = || PluginControl::show(&fixture.repository, "guest").unwrap().attached[0].calls;
    let before = calls();
    let submit = |id, value| fixture.repository.submit(request(id, value, |s| s.start = true)).unwrap();
    // Calls that take their whole limit: one for each thread at a time, with others queued behind them.
    let busy: Vec<_> = (10..40).map(|id| submit(id, 1003)).collect();
    let busy_calls = busy.len() as u64;
    let cancelled: Vec<_> = (100..200).map(|id| submit(id, 1)).collect();
    drop(cancelled);
    drop(busy);
    assert_eq!(fixture.sum(1, 1, |_| {}), 20_006);
    let all = busy_calls + 1;
    assert!(calls() - before <= all, "{} calls, {all} of them of requests that were not cancelled", calls() - before);
    // A call whose client has left still runs to its limit.
    while fixture.repository.live() != 1 {
        std::thread::yield_now();
    }
}

#[test]
fn outputs_that_cannot_be_joined_end_the_sequence_because_it_has_run() {
    // It declares an output of two elements, and the model gives one.
    let configure = "
        (i64.store offset=8 (i32.load offset=12 (i32.load offset=72 (local.get 0))) (i64.const 2))
        (i32.store8 (i32.const 1024) (i32.const 0))
        (memory.copy (i32.const 1028) (i32.add (local.get 0) (i32.const 64)) (i32.const 16))
        (global.set $heap (i32.const 8192))
        (i32.const 1024)";
    let fixture = fixture(TOML);
    put(&fixture, "guest", ProcessorWat { configure, manifest: "wants = [\"pre\"]\n", ..ProcessorWat::default() });
    load(&fixture.repository, &fixture.model());
    let failure = failed(fixture.send(7, 5, |s| s.start = true));
    assert!(failure.ended && !failure.may_retry && failure.text.contains("output \"OUTPUT\""), "{failure:?}");
    assert_eq!(fixture.repository.live(), 0);
}

#[test]
fn a_step_of_two_rows_is_the_client_s_fault() {
    let fixture = loaded(TOML);
    fixture.sum(7, 5, |s| s.start = true);
    let mut two = request(7, 0, |_| {});
    let tensor = &mut two.inputs[0].tensor;
    (tensor.shape, tensor.data) = (sequor_core::Shape::new(&[2, 1]), bytes::Bytes::from_static(&[0; 8]));
    let refused = failed(fixture.answer(two));
    assert_eq!((refused.code, refused.ended), (Some(1), false), "{refused:?}");
    assert_eq!(PluginControl::show(&fixture.repository, "guest").unwrap().attached[0].strikes, 0);
}
