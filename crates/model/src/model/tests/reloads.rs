//! A new version takes over while sequences live: `[reload] drain`, `then`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sequor_core::{EndReason, Refusal, Tombstone};

use super::{Fixture, load, request};
use crate::backend::mock::MockBackend;
use crate::error::{Failure, NotServed};
use crate::model::sequences::ModelScheduler;
use crate::model::*;
use crate::telemetry::Metrics;

const SEQUENCES: u64 = 200;

/// Versions 1 and 2 add up. The answers of version 2 are 1000 more.
fn served(toml: &str, clock: Option<&Clock>) -> Fixture {
    let mut fixture = Fixture::empty(u64::MAX);
    if let Some(clock) = clock {
        let options = RepositoryOptions { reply_pool: 1 << 20, clock: clock.clone(), ..RepositoryOptions::default() };
        fixture.repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
    }
    let file = fixture.model().join("config.pbtxt");
    let config = fs_err::read_to_string(&file).unwrap();
    fs_err::write(file, config.replace("max_candidate_sequences: 4", "max_candidate_sequences: 200")).unwrap();
    fs_err::write(fixture.model().join("sequor.toml"), toml).unwrap();
    load(&fixture.repository, &fixture.model());
    fixture
}

fn replace(fixture: &Fixture) {
    let folder = fixture.model().join("2");
    fs_err::create_dir(&folder).unwrap();
    fs_err::write(folder.join("model.onnx"), "accumulate INT32 plus=1000").unwrap();
    load(&fixture.repository, &fixture.model());
}

fn start(step: &mut SequenceStep) {
    step.start = true;
}

fn live_on(fixture: &Fixture, version: u64) -> u32 {
    let models = fixture.repository.0.catalog.models();
    let of = |model: &Arc<ModelScheduler>| -> u32 {
        let loads = model.loads();
        loads.iter().filter(|load| load.version == version).map(|load| model.usage(load.key).live).sum()
    };
    models.iter().map(of).sum()
}

fn until_none_lives_on_version_1(fixture: &Fixture, between: impl Fn()) {
    let began = Instant::now();
    while live_on(fixture, 1) > 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "{} live on version 1", live_on(fixture, 1));
        between();
        std::thread::yield_now();
    }
}

/// The reason why the sequence of this id ended.
fn end_of(fixture: &Fixture, id: u64) -> EndReason {
    match fixture.send(id, 1, |_| {}).unwrap_err() {
        Failure::Refused(refused) => match refused.refusal {
            Refusal::Unknown(Some(Tombstone { why, .. })) | Refusal::Ended(why) => why,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn live_sequences_finish_on_the_version_on_which_they_began() {
    let fixture = served("[sequence]\nidle = \"never\"\n", None);
    let first: Vec<i32> = (1..=SEQUENCES).map(|id| fixture.sum(id, id as i32, start)).collect();
    assert_eq!(first, (1..=SEQUENCES as i32).collect::<Vec<_>>());
    replace(&fixture);
    for id in 1..=SEQUENCES {
        assert_eq!(fixture.sum(id, 1, |_| {}), id as i32 + 1);
        assert_eq!(fixture.sum(id, 1, |s| s.end = true), id as i32 + 2);
    }
    assert_eq!(fixture.sum(1, 5, start), 1005, "a new sequence begins on version 2");
    assert_eq!((live_on(&fixture, 1), live_on(&fixture, 2)), (0, 1));
}

#[test]
fn a_replaced_version_takes_steps_of_its_sequences_and_is_unknown_to_new_ones() {
    let fixture = served("[sequence]\nidle = \"never\"\n", None);
    assert_eq!(fixture.sum(1, 5, start), 5);
    replace(&fixture);
    let of_version_1 = |id: u64, is_start: bool| {
        let step = request(id, 1, |step| step.start = is_start);
        fixture.answer(InferRequest { version: "1".to_owned(), ..step })
    };
    assert!(of_version_1(1, false).is_ok());
    for id in [1, 2] {
        let gone = NotServed::UnknownVersion { model: "sum".to_owned(), version: 1 };
        assert!(matches!(of_version_1(id, true), Err(Failure::NotServed(of)) if of == gone));
    }
    let unready = |version: &str| fixture.repository.find("sum", version).unwrap().unready();
    assert!(unready("1").is_some() && unready("2").is_none());
    assert_eq!(fixture.sum(1, 1, |_| {}), 7, "the refused START has not ended it");
}

#[test]
fn live_sequences_move_to_the_new_version_with_their_states() {
    let fixture = served("[sequence]\nidle = \"never\"\n[reload]\ndrain = \"0s\"\nthen = \"carry\"\n", None);
    (1..=SEQUENCES).for_each(|id| assert_eq!(fixture.sum(id, id as i32, start), id as i32));
    let held = fixture.repository.state_bytes().0;
    replace(&fixture);
    until_none_lives_on_version_1(&fixture, || {});
    assert_eq!(fixture.repository.state_bytes().0, held, "the memory goes along");
    for id in 1..=SEQUENCES {
        assert_eq!(fixture.sum(id, 1, |s| s.step = Some(2)), id as i32 + 1001, "sequence {id}");
    }
    // The answer of a numbered step is kept: 4 bytes of each sequence.
    assert_eq!((live_on(&fixture, 2), fixture.repository.state_bytes().0), (SEQUENCES as u32, held + 4 * SEQUENCES));
    for id in 1..=SEQUENCES {
        assert_eq!(fixture.sum(id, 1, |s| s.end = true), id as i32 + 1002);
    }
    assert_eq!(fixture.repository.state_bytes().0, 0);
}

/// Clients continue meanwhile. Each sees version 2 from some step on, and never loses a step.
#[test]
fn no_step_fails_while_sequences_move() {
    let fixture = served("[sequence]\nidle = \"never\"\n[reload]\ndrain = \"0s\"\nthen = \"carry\"\n", None);
    (1..=16).for_each(|id| assert_eq!(fixture.sum(id, 1, start), 1));
    let began = std::sync::Barrier::new(5);
    let moved = std::thread::scope(|scope| {
        let (fixture, began) = (&fixture, &began);
        let client = |first: u64| {
            scope.spawn(move || {
                let mut moved = 0;
                began.wait();
                for id in (first..=16).step_by(4) {
                    let mut sum = 1;
                    let mut is_new = false;
                    // At least one step after the move.
                    while !is_new || sum < 50 {
                        let more = i32::from(sum < 50);
                        sum += more;
                        let answer = fixture.sum(id, more, |_| {});
                        assert!(answer == sum + 1000 || (answer == sum && !is_new), "{id}: {answer} for {sum}");
                        is_new |= answer > 1000;
                    }
                    moved += u64::from(is_new);
                }
                moved
            })
        };
        let clients: Vec<_> = (1..=4).map(client).collect();
        began.wait();
        replace(fixture);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
    });
    assert_eq!((moved, live_on(&fixture, 1), live_on(&fixture, 2)), (16, 0, 16));
}

#[test]
fn a_sequence_that_cannot_move_ends_with_a_reason() {
    let toml = "[sequence]\nidle = \"never\"\n[reload]\ndrain = \"0s\"\n";
    let ends = served(toml, None);
    ends.sum(7, 1, start);
    replace(&ends);
    assert_eq!(end_of(&ends, 7), EndReason::Drained);
    let others = served(&format!("{toml}then = \"carry\"\n"), None);
    others.sum(7, 1, start);
    let file = others.model().join("config.pbtxt");
    let config = fs_err::read_to_string(&file).unwrap();
    fs_err::write(file, config.replace("dims: [ 1 ]", "dims: [ 2 ]")).unwrap();
    fs_err::write(others.model().join("1/model.onnx"), "accumulate INT32 dims=2").unwrap();
    load(&others.repository, &others.model());
    until_none_lives_on_version_1(&others, || {});
    let ended: Vec<_> =
        others.repository.ended_sequences("sum").unwrap().iter().map(|end| (end.step, end.reason)).collect();
    assert_eq!(ended, [(1, "retired")]);
}

#[test]
fn idle_time_continues_while_a_sequence_moves_between_versions() {
    let clock = Clock::manual();
    let toml = "[sequence]\nidle = \"5s\"\n[reload]\ndrain = \"1s\"\nthen = \"carry\"\n";
    let fixture = served(toml, Some(&clock));
    (1..=2).for_each(|id| assert_eq!(fixture.sum(id, 1, start), 1));
    replace(&fixture);
    assert_eq!(fixture.sum(2, 1, |_| {}), 2, "it stays for a second");
    clock.advance(Duration::from_secs(2));
    until_none_lives_on_version_1(&fixture, || fixture.repository.tick());
    assert_eq!(fixture.sum(2, 1, |_| {}), 1003);
    clock.advance(Duration::from_secs(4));
    fixture.repository.tick();
    assert_eq!(end_of(&fixture, 1), EndReason::Idle);
    assert_eq!(fixture.sum(2, 1, |_| {}), 1004);
}

/// A server whose slots are all taken.
fn full(toml: &str) -> Fixture {
    let fixture = served(&format!("[sequence]\nidle = \"never\"\n{toml}"), None);
    (1..=200).for_each(|id| assert_eq!(fixture.sum(id, 1, start), 1));
    fixture
}

/// Waits for the answer to a request.
fn answer(pending: Pending) -> Result<i32, (Refusal, bool)> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match runtime.block_on(pending) {
        Ok(answer) => Ok(i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())),
        Err(Failure::Refused(refused)) => Err((refused.refusal, refused.may_retry)),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_start_that_waits_while_its_model_reloads_begins_on_the_new_version() {
    for toml in ["[reload]\ndrain = \"0s\"\n", "", "[reload]\nthen = \"carry\"\n"] {
        let fixture = full(toml);
        let submit = |id: u64, more: i32, change: fn(&mut SequenceStep)| {
            fixture.repository.submit(request(id, more, change)).unwrap()
        };
        let both = [submit(201, 5, start), submit(201, 6, |_| {})];
        let other = submit(202, 7, start);
        let gone = submit(203, 7, start);
        replace(&fixture);
        drop(gone);
        assert_eq!(both.map(answer), [Ok(1005), Ok(1011)], "{toml}");
        assert_eq!(answer(other), Ok(1007));
        assert_eq!(fixture.sum(201, 1, |_| {}), 1012);
    }
}

#[test]
fn a_start_that_cannot_go_to_the_new_version_may_be_retried() {
    let fixture = full("[reload]\ndrain = \"0s\"\n");
    let mut named = request(201, 5, start);
    "1".clone_into(&mut named.version);
    let waiting = fixture.repository.submit(named).unwrap();
    let behind = fixture.repository.submit(request(201, 5, |_| {})).unwrap();
    replace(&fixture);
    for (pending, may_retry) in [(waiting, true), (behind, false)] {
        assert_eq!(answer(pending), Err((Refusal::Ended(EndReason::Drained), may_retry)));
    }
    assert_eq!(fixture.sum(201, 5, start), 1005, "sent again it starts on the new version");
}
