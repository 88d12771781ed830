//! A model with a processor: stages, runs and scratch, and what failures leave.

use sequor_core::Refusal;

use super::tests::{Fixture, load, request};
use super::*;
use crate::error::{Failure, ProcessorFailure};
use crate::processing::ProcessorComponent;
use crate::processing::wat_fixture::{ProcessorWat, SERVING};

use sequor_wasm::grants::Grants;

/// It traps on 1000, replies to 1001, refuses 1002, never comes back from 1003, and runs `n / 100 + 1` times otherwise.
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
const POST: &str = "
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

fn component(_: &str, _: &[u8]) -> Result<ProcessorComponent, String> {
    let guest = ProcessorWat { pre: PRE, post: POST, ..ProcessorWat::default() };
    ProcessorComponent::new(&SERVING, "guest.wasm", &guest.component(), Grants::default(), None)
        .map_err(|e| e.to_string())
}

/// The model `sum` with this sequor.toml.
fn fixture(toml: &str) -> Fixture {
    let fixture = Fixture::empty(u64::MAX);
    fs_err::write(fixture.folder.path().join("guest.wasm"), "").unwrap();
    let dir = Some(fixture.folder.path().to_owned());
    fixture.repository.run_processors(ProcessorHost::new(dir, false, None, Box::new(component))).unwrap();
    fs_err::write(fixture.model().join("sequor.toml"), toml).unwrap();
    fixture
}

const TOML: &str = "[sequence]\nend_without_inputs = true\n[[plugins.processor]]\nuse = \"guest\"\ntime = \"50ms\"\n";

fn loaded(toml: &str) -> Fixture {
    let fixture = fixture(toml);
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

#[test]
fn a_failure_after_the_run_ends_the_sequence() {
    let fixture = loaded(TOML);
    fixture.sum(1, 5, |s| s.start = true);
    let trap = failed(fixture.send(2, 777, |s| s.start = true));
    assert_eq!((trap.code, trap.ended, trap.may_retry), (None, true, false));
    assert!(fixture.send(2, 1, |_| {}).is_err());
    assert_eq!(fixture.sum(2, 5, |s| s.start = true), 10_005);
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
    let ends = |said: &str, with: &str| assert!(said.ends_with(with), "{said}");
    let absent = refused("[[plugins.processor]]\nuse = \"guests\"\n");
    assert!(absent.contains("sequor.toml:2:1: guests: there is no guests.wasm in "), "{absent}");
    ends(&absent, "; did you mean \"guest\"?");
    let files = refused("[[plugins.processor]]\nuse = \"guest\"\nfiles = [\"../x\"]\n");
    ends(&files, "guest: ../x: a file of a processor must be in the model's directory");
    let feature = "[[feature]]\nname = \"n\"\nfrom = \"input\"\nkey = \"INPUT\"\ntype = \"number\"\n";
    let feature = refused(&format!("{feature}[[plugins.processor]]\nuse = \"guest\"\n"));
    ends(&feature, "is not served yet for a model with processors, which change its inputs");
    let wrong = refused("[[plugins.processor]]\nuse = \"guest\"\non_failure = \"ignore\"\n");
    assert!(wrong.contains("unknown variant `ignore`"), "{wrong}");
}
