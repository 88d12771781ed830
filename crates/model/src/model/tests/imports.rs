//! States that are given to the server, and stored sequences, as operators use them.

use std::time::Duration;

use sequor_core::{Dialect, EndReason, Id, Refusal, Stage, WhenFull};

use super::machine::{Machine, OLDEST, Server, start};
use super::restarts_with_reloads::{carrying, move_all, put_version};
use super::{Fixture, load, request};
use crate::error::Failure;
use crate::model::*;

fn fixture() -> Fixture {
    let fixture = Fixture::empty(u64::MAX);
    load(&fixture.repository, &fixture.model());
    fixture
}

/// The state of a sequence whose sum is 40.
fn state(fixture: &Fixture) -> Vec<u8> {
    fixture.sum(1, 40, |s| s.start = true);
    let file = fixture.repository.find("sum", "").unwrap().export(&Id::from(1)).unwrap();
    fixture.sum(1, 0, |s| s.end = true);
    file
}

fn give(repository: &Repository, id: u64, file: &[u8]) {
    repository.find("sum", "").unwrap().import(Id::from(id), file).unwrap();
}

#[test]
fn an_imported_state_is_used_only_by_a_load_with_the_same_states() {
    let fixture = fixture();
    give(&fixture.repository, 7, &state(&fixture));
    let config = fixture.model().join("config.pbtxt");
    let before = fs_err::read_to_string(&config).unwrap();
    fs_err::write(&config, before.replace("dims: [ 1 ]", "dims: [ 2 ]")).unwrap();
    fs_err::write(fixture.model().join("1/model.onnx"), "accumulate INT32 dims=2").unwrap();
    load(&fixture.repository, &fixture.model());
    let wide = |id: u64, starts: bool| {
        let mut request = request(id, 1, |s| s.start = starts);
        let tensor = &mut request.inputs[0].tensor;
        (tensor.shape, tensor.data) = (sequor_core::Shape::new(&[1, 2]), vec![0; 8].into());
        fixture.answer(request)
    };
    wide(2, true).unwrap();
    match wide(7, false).unwrap_err() {
        Failure::NotResumed { why, .. } => assert!(why.contains("states differ"), "{why}"),
        other => panic!("{other:?}"),
    }
    wide(2, false).unwrap();
    wide(7, true).unwrap();
}

#[test]
fn an_imported_state_is_kept_if_its_step_is_refused() {
    let fixture = fixture();
    give(&fixture.repository, 7, &state(&fixture));
    (11..=14).for_each(|id| assert_eq!(fixture.sum(id, 1, |s| s.start = true), 1));
    let full = || {
        let mut request = request(7, 2, |_| {});
        request.dialect = Dialect { full: WhenFull::Refuse, ..Dialect::TRITON };
        fixture.answer(request)
    };
    assert!(matches!(full(), Err(Failure::Refused(refused)) if matches!(refused.refusal, Refusal::TooMany { .. })));
    fixture.sum(11, 1, |s| s.end = true);
    assert_eq!(full().unwrap().outputs[0].tensor.data[..], 42_i32.to_le_bytes());
}

#[test]
fn an_imported_state_is_listed_can_be_dropped_and_expires() {
    let machine = Machine::new("drain", OLDEST);
    let server = machine.serve();
    server.sum(1, 40, start);
    let file = server.repository.find("sum", "").unwrap().export(&Id::from(1)).unwrap();
    let used = || server.repository.state_bytes().0;
    let before = used();
    let drop = |id: u64| server.repository.drop_sequence("sum", &Id::from(id)).unwrap();
    give(&server.repository, 7, &file);
    assert_eq!((server.resumable(), used() > before), (vec![(Id::from(7), 1)], true));
    assert!(drop(7) && !drop(7));
    assert_eq!((server.resumable(), used()), (vec![], before));
    assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Admin));
    give(&server.repository, 7, &file);
    machine.clock.advance(Duration::from_secs(599));
    server.repository.tick();
    assert_eq!(server.resumable().len(), 1);
    machine.clock.advance(Duration::from_secs(2));
    server.repository.tick();
    assert_eq!((server.resumable(), used()), (vec![], 0), "sequence 1 has expired as well");
}

#[test]
fn a_kept_sequence_can_be_dropped() {
    let machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    first.sum(7, 40, start);
    first.sum(8, 1, start);
    first.stop();
    let second = machine.serve();
    assert!(second.repository.drop_sequence("sum", &Id::from(7)).unwrap());
    assert_eq!(second.resumable(), [(Id::from(8), 1)]);
    match second.send(7, 1, |_| {}).unwrap_err() {
        Failure::Refused(refused) => {
            assert!(matches!(refused.refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Admin));
        }
        other => panic!("{other:?}"),
    }
    // After this call the store has finished its earlier work.
    assert_eq!(second.sum(8, 1, |_| {}), 2);
    assert_eq!(machine.serve_from(&machine.crashed()).resumable(), []);
}

#[test]
fn a_stored_sequence_is_exported_and_copied_like_a_live_sequence() {
    for when in ["drain", "step"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(7, 40, |s| (s.start, s.step) = (true, Some(1))), 40);
        let id = Id::from(7);
        let file_of = |server: &Server| server.repository.find("sum", "").unwrap().export(&id);
        let live = file_of(&first).unwrap();
        first.stop();
        let second = machine.serve();
        assert_eq!(second.resumable(), [(id.clone(), 1)]);
        let stored = file_of(&second).unwrap();
        let answers = [&live, &stored].map(|file| crate::state::answer_of(file).unwrap());
        assert_eq!(answers, [vec![], vec![]], "{when}: the state alone, without the kept answer");
        let served = second.repository.find("sum", "").unwrap();
        served.fork(&id, Id::from(8)).unwrap();
        assert_eq!(second.resumable(), [(id.clone(), 1), (Id::from(8), 1)], "{when}: it waits as before");
        assert_eq!((second.sum(8, 1, |_| {}), second.sum(7, 2, |_| {})), (41, 42), "{when}");
        let taken = served.import(id.clone(), &stored).unwrap_err();
        assert!(matches!(taken, TransferError::Live { .. }), "{when}: {taken}");
    }
}

/// A replaced version left the state for a version that is replaced in turn. Meanwhile a step that continues from it waits there.
#[test]
fn a_returned_carried_state_resumes_only_on_a_load_with_the_same_states() {
    for width in [1, 2] {
        let machine = carrying("never\"\n[sequence]\non_cancel = \"keep\" # \"", OLDEST);
        let server = machine.serve();
        assert_eq!(server.sum(7, 40, start), 40);
        put_version(&machine, &server, 2);
        move_all(&machine, &server);
        (11..=18).for_each(|id| assert_eq!(server.sum(id, 1, start), 1001));
        let waits = server.repository.submit(request(7, 100, |_| {})).unwrap();
        while server.repository.live_sequences("sum").unwrap().iter().all(|live| live.stage != Stage::Backlogged) {
            std::thread::yield_now();
        }
        let config = machine.model().join("config.pbtxt");
        let text = fs_err::read_to_string(&config).unwrap();
        fs_err::write(&config, text.replace("dims: [ 1 ]", &format!("dims: [ {width} ]"))).unwrap();
        fs_err::create_dir(machine.model().join("3")).unwrap();
        let graph = format!("accumulate INT32 dims={width} plus=2000");
        fs_err::write(machine.model().join("3/model.onnx"), graph).unwrap();
        load(&server.repository, &machine.model());
        drop(waits);
        let mut next = request(7, 2, |_| {});
        let tensor = &mut next.inputs[0].tensor;
        (tensor.shape, tensor.data) =
            (sequor_core::Shape::new(&[1, width]), 2_i32.to_le_bytes().repeat(width as usize).into());
        let pending = server.repository.submit(next);
        let answer = pending
            .and_then(|pending| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending));
        match (width, answer) {
            (1, Ok(answer)) => assert_eq!(answer.outputs[0].tensor.data[..], 2042_i32.to_le_bytes()),
            (2, Err(Failure::NotResumed { why, .. })) => assert!(why.contains("states differ"), "{why}"),
            (_, other) => panic!("{width}: {other:?}"),
        }
    }
}
