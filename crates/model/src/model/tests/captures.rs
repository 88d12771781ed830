//! Captures of sequences of a whole model: their contents, what ends them, and that a replay gives the same answers.

use std::time::Duration;

use sequor_core::Id;

use super::processors;
use super::{Fixture, load, request};
use crate::model::*;
use crate::processing::wat_fixture::ProcessorWat;
use crate::state::Capture;

const LIMITS: CaptureLimits = CaptureLimits { steps: 5, bytes: 1 << 20, wait: Duration::from_secs(60) };

/// A model whose runs fail on 13.
fn fixture() -> Fixture {
    let fixture = Fixture::empty(u64::MAX);
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32 poison=13").unwrap();
    load(&fixture.repository, &fixture.model());
    fixture
}

/// Captures sequence 7 while it continues, until the capture ends.
fn captured(fixture: &Fixture, limits: CaptureLimits, step: impl Fn(i32)) -> Result<Vec<u8>, TransferError> {
    let served = fixture.repository.find("sum", "").unwrap();
    std::thread::scope(|scope| {
        let capture = scope.spawn(move || served.capture(&Id::from(7), limits));
        for n in 1.. {
            if capture.is_finished() {
                break;
            }
            step(n);
        }
        capture.join().unwrap()
    })
}

/// Replays the five steps of this file on a server, and expects the same answers.
fn runs_again(file: &[u8], there: &Fixture) {
    let capture = Capture::parse(file).unwrap();
    assert_eq!((capture.steps.len(), capture.ended.as_str()), (5, "steps"));
    let served = there.repository.find("sum", "").unwrap();
    assert_eq!(served.digest().unwrap(), capture.digest);
    served.import(Id::from(7), file).unwrap();
    for step in &capture.steps {
        let again = InferRequest { inputs: step.inputs.clone(), ..request(7, 0, |_| {}) };
        assert_eq!(there.answer(again).unwrap().outputs, step.outputs, "step {}", step.number);
    }
}

#[test]
fn a_replayed_capture_gives_the_same_results() {
    let here = fixture();
    here.sum(7, 40, |s| s.start = true);
    let file = captured(&here, LIMITS, |n| {
        // Every third step fails, and the sequence continues without it.
        let value = if n % 3 == 0 { 13 } else { n };
        assert_eq!(here.send(7, value, |_| {}).is_err(), value == 13);
        here.sum(8, 1, |s| s.start = n == 1);
    });
    runs_again(&file.unwrap(), &fixture());
}

#[test]
fn a_capture_holds_the_scratch_of_processors() {
    let here = processors::loaded(processors::TOML);
    here.sum(7, 5, |s| s.start = true);
    let file = captured(&here, LIMITS, |n| {
        // Every third is answered without a run, and every fourth runs the model three times.
        let value = if n % 3 == 0 { 1001 } else { n % 20 + if n % 4 == 0 { 200 } else { 0 } };
        assert!(here.send(7, value, |_| {}).is_ok());
    });
    let file = file.unwrap();
    runs_again(&file, &processors::loaded(processors::TOML));
    let without = fixture();
    match without.repository.find("sum", "").unwrap().import(Id::from(7), &file).unwrap_err() {
        TransferError::Other { why, .. } => assert!(why.starts_with("its processors were ["), "{why}"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_step_is_captured_even_if_a_processor_refused_its_answer() {
    let post = processors::refusing_post();
    let guest = ProcessorWat { post: &post, ..processors::guest() };
    let here = processors::loaded_with(processors::TOML, &guest);
    // The third of four steps comes to 778, which is refused after eight runs.
    let value = |n: i32| [1, 5, 1, 772][n as usize % 4];
    here.sum(7, 5, |s| s.start = true);
    let step = |n: i32| assert_eq!(here.send(7, value(n), |s| s.start = n % 4 == 1).is_err(), n % 4 == 3);
    let file = captured(&here, LIMITS, step).unwrap();
    let capture = Capture::parse(&file).unwrap();
    assert!(capture.steps.iter().any(|step| step.refused), "{capture:?}");
    answers_again(&file, &capture, &processors::loaded_with(processors::TOML, &guest));
}

/// Replays the steps of this file on a server, and expects the same answers and refusals.
fn answers_again(file: &[u8], capture: &Capture, there: &Fixture) {
    there.repository.find("sum", "").unwrap().import(Id::from(7), file).unwrap();
    for step in &capture.steps {
        let again = InferRequest { inputs: step.inputs.clone(), ..request(7, 0, |s| s.start = step.start) };
        let outputs = there.answer(again).map(|answer| answer.outputs);
        assert_eq!(outputs.is_err(), step.refused, "step {}", step.number);
        assert_eq!(outputs.unwrap_or_default(), step.outputs, "step {}", step.number);
    }
}

#[test]
fn a_step_that_ended_its_sequence_is_not_captured() {
    let post = processors::refusing_post().replace("(i32.const 1064) (i32.const 0)", "(i32.const 1064) (i32.const 1)");
    let guest = ProcessorWat { post: &post, ..processors::guest() };
    let here = processors::loaded_with(processors::TOML, &guest);
    // The third of four steps comes to 778, and is refused after its runs. That ends the sequence, so the fourth step belongs to none.
    let value = |n: i32| [1, 5, 1, 772][n as usize % 4];
    let step = |n: i32| assert_eq!(here.send(7, value(n), |s| s.start = n % 4 == 1).is_err(), n % 4 == 3 || n % 4 == 0);
    let file = loop {
        match captured(&here, LIMITS, step) {
            Err(TransferError::NoState { .. } | TransferError::Unknown { .. } | TransferError::Gone { .. }) => {}
            file => break file.unwrap(),
        }
    };
    let capture = Capture::parse(&file).unwrap();
    assert!(capture.steps.iter().all(|step| !step.refused), "{capture:?}");
    let there = processors::loaded_with(processors::TOML, &guest);
    there.repository.find("sum", "").unwrap().import(capture.id, &file).unwrap();
    for step in &capture.steps {
        let again = InferRequest { inputs: step.inputs.clone(), ..request(7, 0, |s| s.start = step.start) };
        assert_eq!(there.answer(again).unwrap().outputs, step.outputs, "step {}", step.number);
    }
}

#[test]
fn a_failed_start_is_captured_and_the_steps_before_it_stay() {
    let fixture = fixture();
    fixture.sum(7, 40, |s| s.start = true);
    let step = |n: i32| {
        // A START that fails leaves the sequence with its first state.
        let fails = n % 3 == 0;
        assert_eq!(fixture.send(7, if fails { 13 } else { 1 }, |s| s.start = fails).is_err(), fails);
    };
    let file = captured(&fixture, LIMITS, step).unwrap();
    let capture = Capture::parse(&file).unwrap();
    assert_eq!((capture.steps.len(), capture.ended.as_str()), (5, "steps"));
    assert!(capture.steps.iter().any(|step| step.start && step.refused), "{capture:?}");
    answers_again(&file, &capture, &self::fixture());
}

#[test]
fn a_capture_of_a_sequence_that_has_no_state_yet_waits_for_it() {
    let fixture = fixture();
    // All four slots are taken, so that the START of 7 waits in the backlog.
    (1..5).for_each(|id| assert_eq!(fixture.sum(id, 1, |s| s.start = true), 1));
    let start = fixture.repository.find("sum", "").unwrap().submit(request(7, 40, |s| s.start = true)).unwrap();
    let served = fixture.repository.find("sum", "").unwrap();
    let capture = || loop {
        match served.capture(&Id::from(7), LIMITS) {
            Err(TransferError::Busy { .. }) => {}
            outcome => break outcome,
        }
    };
    let file = std::thread::scope(|scope| {
        let capture = scope.spawn(capture);
        // A second capture is refused while the first one waits.
        let now = CaptureLimits { wait: Duration::ZERO, ..LIMITS };
        let is_waiting = || matches!(served.capture(&Id::from(2), now), Err(TransferError::Busy { .. }));
        while !is_waiting() && !capture.is_finished() {}
        fixture.sum(1, 1, |s| s.end = true);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(start).unwrap();
        while !capture.is_finished() {
            fixture.sum(7, 1, |_| {});
        }
        capture.join().unwrap().unwrap()
    });
    runs_again(&file, &self::fixture());
}

#[test]
fn an_end_and_the_maximum_of_bytes_end_a_capture() {
    let fixture = fixture();
    fixture.sum(7, 40, |s| s.start = true);
    let step = |_: i32| drop(fixture.send(7, 1, |_| {}));
    let small = CaptureLimits { bytes: 8, ..LIMITS };
    assert!(matches!(captured(&fixture, small, step), Err(TransferError::TooLarge { limit: 8, .. })));
    let state = fixture.repository.find("sum", "").unwrap().export(&Id::from(7)).unwrap().len() as u64;
    // A number in the header may take more digits by then.
    let two = CaptureLimits { bytes: state + 2 * 8 + 7, ..LIMITS };
    let capture = Capture::parse(&captured(&fixture, two, step).unwrap()).unwrap();
    assert!(capture.ended == "bytes" && capture.steps.len() <= 2, "{capture:?}");
    let many = CaptureLimits { steps: 1000, ..LIMITS };
    let ends = |n: i32| drop(fixture.send(7, 1, |s| (s.start, s.end) = (n % 20 == 1, n % 20 == 0)));
    let capture = loop {
        match captured(&fixture, many, ends) {
            Ok(file) => break Capture::parse(&file).unwrap(),
            // It had just ended.
            Err(TransferError::Unknown { .. } | TransferError::Gone { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert!(capture.ended == "end" && capture.steps.last().is_some_and(|step| step.end), "{capture:?}");
}

#[test]
fn a_quiet_sequence_is_captured_as_its_state_and_an_unknown_is_refused() {
    let fixture = fixture();
    let served = fixture.repository.find("sum", "").unwrap();
    assert!(matches!(served.capture(&Id::from(7), LIMITS), Err(TransferError::Unknown { .. })));
    fixture.sum(7, 40, |s| s.start = true);
    let now = CaptureLimits { wait: Duration::ZERO, ..LIMITS };
    let capture = Capture::parse(&served.capture(&Id::from(7), now).unwrap()).unwrap();
    assert_eq!((capture.steps.len(), capture.ended.as_str(), capture.note("sequor.step")), (0, "wait", "1"));
    assert_eq!(fixture.sum(7, 2, |_| {}), 42, "nothing has changed");
}
