//! Sequences that leave memory for the store, and a disk that is slow or full.

use std::time::Duration;

use futures_util::FutureExt as _;
use sequor_core::{EndReason, Id, Refusal, Stage};

use super::machine::{Machine, OLDEST, Server, answered, start};
use super::request;
use crate::error::Failure;
use crate::model::sequences::state_transfer;
use crate::model::*;

#[test]
fn idle_sequences_go_to_the_store_where_a_start_needs_their_memory() {
    for (when, strategy) in [("drain", OLDEST), ("step", "direct { }"), ("every", OLDEST)] {
        // Three states of four bytes. `direct` has two copies of each.
        let sides = if strategy == OLDEST { 1 } else { 2 };
        let machine = Machine::new(when, strategy).with_memory(12 * sides);
        let server = machine.serve();
        for id in 1..=20 {
            machine.clock.advance(Duration::from_millis(1));
            assert_eq!(server.sum(id, 10 * id as i32, start), 10 * id as i32, "{when}");
        }
        // The sequences that were idle longest have left.
        let ids: Vec<Id> = server.resumable().into_iter().map(|(id, _)| id).collect();
        assert_eq!((ids.len(), ids.contains(&Id::from(20))), (17, false), "{ids:?}");
        for round in 1..=5 {
            (1..=20).for_each(|id| assert_eq!(server.sum(id, 1, |_| {}), 10 * id as i32 + round, "{when} {id}"));
        }
        assert_eq!(server.sum(7, 1, |s| s.end = true), 76);
        assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::End));
        assert_eq!(server.sum(8, 1, start), 1, "a START on an id that is not in memory begins anew");
        // They expire as others do.
        machine.clock.advance(Duration::from_secs(6));
        server.repository.live_sequences("sum").unwrap();
        assert!(matches!(server.refusal(1, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle));
        assert_eq!(server.sum(30, 1, start), 1);
        server.stop();
        assert_eq!(machine.serve().resumable(), [(Id::from(30), 1)], "{when}");
    }
}

#[test]
fn spilled_sequences_survive_a_restart_and_a_crash() {
    let machine = Machine::new("drain", OLDEST).with_memory(12);
    let server = machine.serve();
    (1..=5).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    // A step of a sequence that returns passes the store, which has finished its earlier work by then.
    assert_eq!(server.sum(1, 1, |_| {}), 11);
    assert_eq!(server.sum(2, 1, |_| {}), 11);
    let crashed = machine.serve_from(&machine.crashed());
    let left: Vec<Id> = crashed.resumable().into_iter().map(|(id, _)| id).collect();
    assert!(!left.contains(&Id::from(1)) && !left.contains(&Id::from(2)), "they went on: {left:?}");
    for id in left {
        let Id::Int(id) = id else { panic!("{id:?}") };
        assert_eq!(crashed.sum(id, 1, |_| {}), 11);
    }
    server.stop();
    let second = machine.serve();
    assert_eq!(second.resumable().len(), 5);
    (1..=5).for_each(|id| assert_eq!(second.sum(id, 100, |_| {}), if id < 3 { 111 } else { 110 }));
}

#[test]
fn with_a_full_disk_no_sequence_is_lost_and_a_start_beyond_memory_is_refused() {
    // One file of a little more than a hundred bytes fits.
    let machine = Machine::new("drain", OLDEST).with_memory(12).with_limit(300);
    let server = machine.serve();
    let mut started = 0;
    let refused = loop {
        machine.clock.advance(Duration::from_millis(1));
        match server.send(started + 1, 10, start) {
            Ok(_) => started += 1,
            Err(failure) => break failure,
        }
        assert!(started < 100, "all of them were started");
    };
    assert!(matches!(refused, Failure::StateMemory { limit: 12, .. }), "{refused:?}");
    assert!(started > 3, "{started}");
    // Each can continue once another one has ended: the file of one is still in memory.
    let live: Vec<Id> = server.repository.live_sequences("sum").unwrap().into_iter().map(|live| live.id).collect();
    let Id::Int(last) = live[0] else { panic!("{live:?}") };
    assert_eq!(server.sum(last, 1, |s| s.end = true), 11);
    for id in (1..=started).filter(|id| *id != last) {
        assert_eq!(server.sum(id, 1, |s| s.end = true), 11, "{id} of {started}");
    }
}

/// Sequence 7 has left memory at its third step, which the store could not write. The store has the second one.
fn left_on_a_full_disk() -> (Machine, Server) {
    let machine = Machine::new("every\"\nevery = 2 # \"", OLDEST).with_memory(12);
    let server = machine.serve();
    server.sum(7, 1, start);
    server.sum(7, 1, |_| {});
    while machine.serve_from(&machine.crashed()).resumable() != [(Id::from(7), 2)] {
        std::thread::yield_now();
    }
    machine.fail_disk(true);
    server.sum(7, 1, |_| {});
    for id in 1..=3 {
        machine.clock.advance(Duration::from_millis(1));
        server.sum(id, 1, start);
    }
    assert_eq!(server.resumable(), [(Id::from(7), 3)]);
    (machine, server)
}

#[test]
fn a_start_on_a_full_disk_is_answered_and_the_earlier_state_is_removed_later() {
    let (machine, server) = left_on_a_full_disk();
    server.sum(1, 1, |s| s.end = true);
    assert_eq!(server.sum(7, 100, start), 100);
    assert_eq!(machine.serve_from(&machine.crashed()).resumable(), [(Id::from(7), 2)], "as after an END");
    machine.fail_disk(false);
    assert_eq!(server.sum(7, 1, |_| {}), 101);
    // The second step after the START is written after its answer.
    loop {
        let crashed = machine.serve_from(&machine.crashed());
        match crashed.send(7, 1, |s| s.step = Some(3)) {
            Ok(answer) if answer.outputs[0].tensor.data[..] == 102_i32.to_le_bytes() => break,
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_start_on_a_failing_store_leaves_nothing_of_the_earlier_sequence() {
    for when in ["drain", "step", "every"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(7, 40, start), 40);
        first.stop();
        let second = machine.serve();
        machine.fail_disk(true);
        let answer = second.send(7, 1, start);
        // With `step` no answer leaves without its state.
        assert_eq!(answer.is_err(), when == "step", "{when}: {answer:?}");
        machine.fail_disk(false);
        second.stop();
        let third = machine.serve();
        match when {
            "step" => assert!(third.send(7, 2, |_| {}).is_err(), "its client has read that the sequence ended"),
            _ => assert_eq!(third.sum(7, 2, |_| {}), 3, "{when}"),
        }
    }
}

#[test]
fn on_a_full_disk_a_sequence_that_left_memory_goes_on_from_there() {
    let (machine, server) = left_on_a_full_disk();
    server.sum(1, 1, |s| s.end = true);
    assert_eq!(server.sum(7, 1, |_| {}), 4);
    let crashed = machine.serve_from(&machine.crashed());
    assert!(matches!(crashed.send(7, 1, |_| {}).unwrap_err(), Failure::NotResumed { .. }), "its client has seen more");
}

#[test]
fn an_export_retries_if_its_sequence_resumes_from_the_store_meanwhile() {
    let machine = Machine::new("drain", OLDEST).with_memory(12);
    let server = machine.serve();
    (1..=4).for_each(|id| assert_eq!(server.sum(id, 1, start), 1));
    assert_eq!(server.sum(1, 1, |_| {}), 2);
    let model = server.repository.0.catalog.models().remove(0);
    let stored = |id| state_transfer::stored(&model, &Id::from(id), None);
    assert!(matches!(stored(1), Err(TransferError::Gone { .. })), "it lives again");
    assert!(stored(2).is_ok());
    assert!(matches!(stored(9), Err(TransferError::Unknown { .. })));
}

#[test]
fn steps_answered_before_their_write_are_limited_with_durability_every() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let server = machine.serve();
    machine.hold_disk(true);
    server.sum(7, 1, start);
    server.sum(7, 1, |_| {});
    assert_eq!(server.sum(7, 1, |_| {}), 3, "its write is on its way");
    let mut fourth = server.repository.submit(request(7, 1, |_| {})).unwrap();
    assert!((&mut fourth).now_or_never().is_none());
    let other = server.send(8, 1, start).unwrap();
    assert_eq!(other.parameters, [("sequor_durable_step".to_owned(), Parameter::Int(0))], "others go on");
    machine.hold_disk(false);
    assert_eq!(answered(fourth).parameters, [("sequor_durable_step".to_owned(), Parameter::Int(3))]);
}

#[test]
fn steps_that_wait_for_a_slow_disk_share_a_commit() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    server.sum(1, 1, start);
    machine.hold_disk(true);
    let first = server.repository.submit(request(1, 1, |_| {})).unwrap();
    let waiting: Vec<Pending> =
        (2..=8).map(|id| server.repository.submit(request(id, 1, |s| s.start = true)).unwrap()).collect();
    while server.repository.live_sequences("sum").unwrap().iter().filter(|live| live.stage == Stage::Sealing).count()
        < 8
    {
        std::thread::yield_now();
    }
    let before = machine.commits();
    machine.hold_disk(false);
    answered(first);
    waiting.into_iter().for_each(|pending| drop(answered(pending)));
    let commits = machine.commits() - before;
    assert!(commits <= 4, "{commits} commits of 8 steps");
}

#[test]
fn a_spilled_sequence_is_not_written_again_with_durability_step() {
    // Three sequences with a state and the kept answer of a numbered step.
    let machine = Machine::new("step", OLDEST).with_memory(24);
    let server = machine.serve();
    (1..=8).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    (1..=8).for_each(|id| assert_eq!(server.sum(id, 1, |s| s.step = Some(2)), 11));
    // After this call the store has finished its earlier work.
    server.sum(1, 1, |s| s.step = Some(3));
    assert_eq!(machine.states_written(), 8 + 8 + 1);
    let crashed = machine.serve_from(&machine.crashed());
    (2..=4).for_each(|id| assert_eq!(crashed.sum(id, 5, |s| s.step = Some(2)), 11, "the answer of the first time"));
    (2..=8).for_each(|id| assert_eq!(crashed.sum(id, 5, |s| s.step = Some(3)), 16));
}

#[test]
fn no_further_sequence_leaves_memory_while_the_disk_has_too_much_to_write() {
    let machine = Machine::new("drain", OLDEST).with_memory(12);
    let server = machine.serve();
    machine.hold_disk(true);
    for id in 1..=4 {
        machine.clock.advance(Duration::from_millis(1));
        assert_eq!(server.sum(id, 10, start), 10);
    }
    assert_eq!(server.resumable().len(), 1);
    let mut fifth = server.repository.submit(request(5, 10, |s| s.start = true)).unwrap();
    // Each instance has finished its earlier requests by then.
    let live: Vec<Id> = server.repository.live_sequences("sum").unwrap().into_iter().map(|live| live.id).collect();
    let here = live.into_iter().filter_map(|id| if let Id::Int(id) = id { Some(id) } else { None });
    here.filter(|id| *id != 5).for_each(|id| assert_eq!(server.sum(id, 1, |_| {}), 11));
    assert!((&mut fifth).now_or_never().is_none());
    assert_eq!(server.resumable().len(), 1);
    machine.hold_disk(false);
    answered(fifth);
    assert_eq!(server.resumable().len(), 2);
}

#[test]
fn the_answer_of_an_earlier_step_is_not_given_for_a_later_one() {
    let machine = Machine::new("drain", OLDEST);
    let server = machine.serve();
    server.sum(7, 1, |s| (s.start, s.step) = (true, Some(1)));
    assert_eq!(server.sum(7, 1, |_| {}), 2, "this one is not counted");
    assert_eq!(server.refusal(7, |s| s.step = Some(2)), Refusal::StepGone { want: 3 });
    assert_eq!(server.sum(7, 1, |s| s.step = Some(3)), 3);
}

#[test]
fn a_step_that_waits_for_the_disk_at_shutdown_gets_no_earlier_answer() {
    let machine = Machine::new("every\"\nevery = 3 # \"", OLDEST);
    let server = machine.serve();
    machine.hold_disk(true);
    (1..=3).for_each(|n| assert_eq!(server.sum(7, 1, |s| (s.start, s.step) = (n == 1, Some(n))), n as i32));
    let repository = server.repository.clone();
    let _fourth = repository.submit(request(7, 1, |s| s.step = Some(4))).unwrap();
    let live = || repository.live_sequences("sum").unwrap().pop();
    while live().is_none_or(|live| live.stage != Stage::Sealing) {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let stopping = scope.spawn(move || server.stop());
        // Its state has been copied.
        while live().is_some_and(|live| !live.ending) {
            std::thread::yield_now();
        }
        machine.hold_disk(false);
        stopping.join().unwrap();
    });
    let second = machine.serve();
    // It may or may not have been applied; it is applied once.
    match second.send(7, 1, |s| s.step = Some(4)) {
        Ok(answer) => assert_eq!(answer.outputs[0].tensor.data[..], 4_i32.to_le_bytes()),
        Err(Failure::Refused(refused)) => assert!(matches!(refused.refusal, Refusal::StepGone { want: 5 })),
        Err(other) => panic!("{other:?}"),
    }
    assert_eq!(second.sum(7, 1, |s| s.step = Some(5)), 5);
}

/// Seven states of 4 bytes and seven answers of 4 bytes are beyond the memory of 50 bytes. With the next state, 10 bytes are missing.
#[test]
fn an_answer_that_leaves_with_its_state_makes_room_as_well() {
    let machine = Machine::new("every\"\nevery = 1000 # \"", OLDEST).with_memory(50);
    let server = machine.serve();
    (1..=7).for_each(|id| assert_eq!(server.sum(id, 10, start), 10));
    (1..=7).for_each(|id| assert_eq!(server.sum(id, 1, |s| s.step = Some(2)), 11));
    assert_eq!([server.sum(8, 10, start), server.sum(8, 1, |_| {})], [10, 11]);
    assert_eq!(server.resumable(), [1, 2].map(|id| (Id::from(id), 2)));
}
