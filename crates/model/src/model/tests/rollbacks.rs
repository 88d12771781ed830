//! Steps whose states cannot be stored: they are refused, and their sequences go on from the last stored state once the store works again.

use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal};

use super::machine::{Machine, OLDEST, Server, start};
use super::request;
use super::restarts_with_reloads::{put_version, set_reload};
use crate::error::{Failure, StoreFault};
use crate::model::*;

const DIRECT: &str = "direct { }";

/// A change of a step that gives it its number, if its client numbers steps.
fn number(counted: bool, step: u64) -> impl FnOnce(&mut SequenceStep) {
    move |of| (of.start, of.step) = (step == 1, counted.then_some(step))
}

fn outcome(pending: Pending) -> Result<InferAnswer, Failure> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
}

/// The step was refused because its own state is not stored, and the sequence goes on.
fn rolled_back(failure: &Failure) -> bool {
    matches!(failure, Failure::NotStored { goes_on: true, .. })
}

/// Sequence 7 is stored as of step 2, with the sum 41.
fn begin(server: &Server, counted: bool) {
    assert_eq!(server.sum(7, 40, number(counted, 1)), 40);
    assert_eq!(server.sum(7, 1, number(counted, 2)), 41);
}

/// Sends step 3, whose write fails, and step 4 behind it.
fn fail_third(machine: &Machine, server: &Server, counted: bool) -> [Failure; 2] {
    machine.hold_disk(true);
    let third = server.repository.submit(request(7, 1, number(counted, 3))).unwrap();
    machine.wait_for_held_commit();
    let fourth = server.repository.submit(request(7, 1, number(counted, 4))).unwrap();
    machine.fail_disk(true);
    machine.hold_disk(false);
    [third, fourth].map(|pending| outcome(pending).unwrap_err())
}

fn stored(step: u64) -> Vec<(Id, u64)> {
    vec![(Id::from(7), step)]
}

#[test]
fn a_step_that_cannot_be_stored_may_be_sent_again_and_goes_on_from_the_last_stored_state() {
    for (strategy, counted) in [(OLDEST, false), (DIRECT, false), (OLDEST, true), (DIRECT, true)] {
        let machine = Machine::new("step", strategy);
        let server = machine.serve();
        begin(&server, counted);
        let [third, fourth] = fail_third(&machine, &server, counted);
        assert!(rolled_back(&third), "{third:?}");
        assert!(matches!(fourth, Failure::Store { .. }), "the step behind it has no write of its own: {fourth:?}");
        assert!(server.repository.live_sequences("sum").unwrap().is_empty(), "it has left memory");
        assert_eq!(server.resumable(), stored(2));
        let again = server.send(7, 1, number(counted, 3)).unwrap_err();
        assert!(rolled_back(&again), "the store still fails: {again:?}");
        if counted {
            assert_eq!(server.sum(7, 1, number(true, 2)), 41, "the last answer is kept");
            assert_eq!(server.refusal(7, number(true, 4)), Refusal::StepGap { want: 3 });
        }
        machine.fail_disk(false);
        assert_eq!(server.sum(7, 1, number(counted, 3)), 42);
        assert_eq!(server.sum(7, 1, number(counted, 4)), 43);
        if counted {
            assert_eq!(server.sum(7, 1, number(true, 4)), 43, "it counts once");
        }
        let crashed = machine.serve_from(&machine.crashed());
        assert_eq!(crashed.sum(7, 1, number(counted, 5)), 44);
    }
}

#[test]
fn a_sequence_that_went_back_to_the_store_survives_a_stop_and_a_crash() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    assert!(rolled_back(&fail_third(&machine, &server, false)[0]));
    let crashed = machine.serve_from(&machine.crashed());
    machine.fail_disk(false);
    assert_eq!(crashed.sum(7, 1, |_| {}), 42);
    server.stop();
    assert_eq!(machine.serve().sum(7, 2, |_| {}), 43);
}

#[test]
fn a_sequence_that_went_back_to_the_store_expires_there() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    assert!(rolled_back(&fail_third(&machine, &server, false)[0]));
    machine.fail_disk(false);
    machine.clock.advance(Duration::from_secs(6));
    // Without a request.
    while !server.resumable().is_empty() {
        std::thread::yield_now();
    }
    assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle));
    server.stop();
    assert_eq!(machine.serve().resumable(), []);
}

#[test]
fn a_start_that_cannot_be_stored_leaves_nothing_to_go_on_from() {
    let unsealed = |refusal| matches!(refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Unsealed);
    for lives in [false, true] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        if lives {
            begin(&server, false);
        }
        machine.fail_disk(true);
        let failed = server.send(7, 9, start).unwrap_err();
        assert!(matches!(failed, Failure::NotStored { start: true, goes_on: false, .. }), "{failed:?}");
        assert_eq!(server.resumable(), [], "a START ends the sequence before it");
        assert!(unsealed(server.refusal(7, |_| {})));
        machine.fail_disk(false);
        assert!(unsealed(server.refusal(7, |_| {})));
        assert_eq!(server.sum(7, 9, start), 9);
        assert_eq!(server.sum(7, 1, |_| {}), 10);
    }
}

/// The store reports the last write of the sequence that the START has ended only after the START has begun.
#[test]
fn a_failed_start_does_not_go_back_to_the_sequence_that_it_ended() {
    for strategy in [OLDEST, DIRECT] {
        let machine = Machine::new("every\"\nevery = 2 # \"", strategy);
        let server = machine.serve();
        assert_eq!(server.sum(7, 40, number(true, 1)), 40);
        machine.hold_disk(true);
        assert_eq!(server.sum(7, 1, number(true, 2)), 41, "its answer does not wait for its write");
        machine.wait_for_held_commit();
        let begins = server.repository.submit(request(7, 9, number(true, 1))).unwrap();
        while server.repository.live_sequences("sum").unwrap().iter().any(|live| live.step != 1) {
            std::thread::yield_now();
        }
        machine.fail_behind(true);
        machine.hold_disk(false);
        let failed = outcome(begins).unwrap_err();
        assert!(matches!(failed, Failure::NotStored { start: true, goes_on: false, .. }), "{failed:?}");
        machine.fail_behind(false);
        let gone = server.refusal(7, number(true, 3));
        assert!(matches!(gone, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Unsealed), "{gone:?}");
        assert_eq!(server.resumable(), []);
    }
}

/// Only the replaced version can go on from the state, so it stays until its time is over.
#[test]
fn a_sequence_of_a_replaced_version_goes_back_to_that_version() {
    for strategy in [OLDEST, DIRECT] {
        let machine = Machine::new("step", strategy);
        set_reload(&machine, "step", "end");
        let server = machine.serve();
        begin(&server, false);
        put_version(&machine, &server, 2);
        machine.fail_disk(true);
        for _ in 0..2 {
            let failed = server.send(7, 1, |_| {}).unwrap_err();
            assert!(rolled_back(&failed), "{failed:?}");
        }
        machine.fail_disk(false);
        assert_eq!(server.sum(7, 1, |_| {}), 42, "{strategy}");
        assert_eq!(server.sum(8, 1, start), 1001, "{strategy}: the new version takes STARTs");
        assert_eq!(server.sum(7, 1, |s| s.end = true), 43, "{strategy}");
    }
}

/// A step that names no version would go to the other one.
#[test]
fn a_sequence_whose_id_lives_on_another_version_does_not_go_back() {
    let both = "max_batch_size: 4 version_policy { all { } }";
    let machine = Machine::new("step", OLDEST).configured("max_batch_size: 4", both);
    let server = machine.serve();
    put_version(&machine, &server, 2);
    let send = |version: &str, change: fn(&mut SequenceStep)| {
        let request = InferRequest { version: version.to_owned(), ..request(7, 1, change) };
        server.repository.submit(request).and_then(outcome)
    };
    for version in ["1", "2"] {
        send(version, start).unwrap();
    }
    assert_eq!(server.repository.live_sequences("sum").unwrap().len(), 2);
    machine.fail_disk(true);
    let failed = send("2", |_| {}).unwrap_err();
    assert!(matches!(failed, Failure::NotStored { goes_on: false, .. }), "{failed:?}");
    assert_eq!(server.resumable(), []);
}

#[test]
fn a_start_replaces_a_sequence_that_went_back_to_the_store() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    assert!(rolled_back(&fail_third(&machine, &server, false)[0]));
    machine.fail_disk(false);
    assert_eq!(server.sum(7, 5, start), 5);
    let crashed = machine.serve_from(&machine.crashed());
    assert_eq!(crashed.sum(7, 1, |_| {}), 6);
    assert_eq!(server.sum(7, 1, |s| s.end = true), 6);
    assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::End));
}

/// The store tries a failed removal again later. It must not do so for an END that its client sends again.
#[test]
fn an_end_that_cannot_be_stored_may_be_sent_again() {
    for counted in [false, true] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        begin(&server, counted);
        machine.fail_disk(true);
        let end = |step: &mut SequenceStep| (step.end, step.step) = (true, counted.then_some(3));
        let failed = server.send(7, 1, end).unwrap_err();
        assert!(rolled_back(&failed), "{failed:?}");
        assert_eq!(server.resumable(), stored(2));
        machine.fail_disk(false);
        assert_eq!(server.sum(7, 1, end), 42);
        assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::End));
        server.stop();
        assert_eq!(machine.serve().resumable(), []);
    }
}

/// An END is queued behind the failed step. It has not run, so the sequence has not ended.
#[test]
fn an_end_behind_a_step_that_cannot_be_stored_may_be_sent_again() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    machine.hold_disk(true);
    let third = server.repository.submit(request(7, 1, |_| {})).unwrap();
    machine.wait_for_held_commit();
    let end = server.repository.submit(request(7, 1, |s| s.end = true)).unwrap();
    machine.fail_disk(true);
    machine.hold_disk(false);
    assert!(rolled_back(&outcome(third).unwrap_err()));
    assert!(matches!(outcome(end).unwrap_err(), Failure::Store { .. }));
    machine.fail_disk(false);
    assert_eq!(server.sum(7, 1, |_| {}), 42);
    assert_eq!(server.sum(7, 1, |s| s.end = true), 43);
}

/// The id belongs to the younger sequence, and the store keeps one state of an id.
#[test]
fn a_sequence_whose_id_has_begun_anew_does_not_go_back() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    machine.hold_disk(true);
    let third = server.repository.submit(request(7, 1, |_| {})).unwrap();
    machine.wait_for_held_commit();
    let end = server.repository.submit(request(7, 1, |s| s.end = true)).unwrap();
    let begun = server.repository.submit(request(7, 100, start)).unwrap();
    machine.fail_disk(true);
    machine.hold_disk(false);
    let failed = outcome(third).unwrap_err();
    assert!(matches!(failed, Failure::NotStored { goes_on: false, .. }), "{failed:?}");
    let Failure::Refused(refused) = outcome(end).unwrap_err() else { panic!("its sequence has ended") };
    assert_eq!(refused.refusal, Refusal::Ended(EndReason::Unsealed));
    assert!(outcome(begun).is_err(), "the disk still fails");
    assert_eq!(server.resumable(), []);
}

#[test]
fn with_durability_every_only_a_client_with_step_numbers_goes_back() {
    for counted in [false, true] {
        let machine = Machine::new("every\"\nevery = 2 # \"", OLDEST);
        let server = machine.serve();
        begin(&server, counted);
        while machine.serve_from(&machine.crashed()).resumable() != stored(2) {
            std::thread::yield_now();
        }
        machine.fail_disk(true);
        // The state of step 4 is not stored, and no answer waits for it. That of step 6 must be.
        (3..=5).for_each(|step| assert_eq!(server.sum(7, 1, number(counted, step)), 39 + step as i32));
        let failed = server.send(7, 1, number(counted, 6)).unwrap_err();
        assert_eq!(rolled_back(&failed), counted, "{failed:?}");
        machine.fail_disk(false);
        if counted {
            assert_eq!(server.refusal(7, number(true, 6)), Refusal::StepGap { want: 3 });
            (3..=6).for_each(|step| assert_eq!(server.sum(7, 1, number(true, step)), 39 + step as i32));
        } else {
            let gone = server.refusal(7, |_| {});
            assert!(matches!(gone, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Unsealed), "{gone:?}");
        }
    }
}

/// With the answer of a numbered step the state takes more bytes than before.
#[test]
fn a_full_store_refuses_a_step_and_keeps_the_sequence() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    assert_eq!(server.sum(7, 40, start), 40);
    server.stop();
    let bytes = machine.serve().repository.resumable("sum").unwrap()[0].bytes;
    let machine = machine.with_limit(bytes + 8);
    let server = machine.serve();
    for _ in 0..2 {
        let failed = server.send(7, 1, |s| s.step = Some(2)).unwrap_err();
        assert!(rolled_back(&failed), "{failed:?}");
        assert!(matches!(failed, Failure::NotStored { fault: StoreFault::Limit, .. }), "{failed:?}");
    }
    assert_eq!(server.sum(7, 1, |_| {}), 41, "it fits without the answer");
    server.stop();
    let server = machine.with_limit(u64::MAX).serve();
    assert_eq!(server.sum(7, 1, |s| s.step = Some(3)), 42);
}

/// The store has the state of the refused step. Whether its client has to send the step again is known only from its number.
#[test]
fn a_write_that_was_done_although_it_failed_counts_once() {
    for counted in [true, false] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        begin(&server, counted);
        machine.fail_done(true);
        let failed = server.send(7, 1, number(counted, 3)).unwrap_err();
        assert!(rolled_back(&failed), "{failed:?}");
        machine.fail_done(false);
        // The store reads what it has without being asked.
        while server.resumable() != stored(3) {
            std::thread::yield_now();
        }
        if counted {
            let answer = server.send(7, 1, number(true, 3)).unwrap();
            assert_eq!(answer.outputs[0].tensor.data[..], 42_i32.to_le_bytes());
            assert_eq!(answer.parameters, [("sequor_replayed".to_owned(), Parameter::Bool(true))]);
            assert_eq!(server.sum(7, 1, number(true, 4)), 43);
        } else {
            let refused = server.send(7, 1, |_| {}).unwrap_err();
            assert!(matches!(refused, Failure::NotResumed { .. }), "it would count twice: {refused:?}");
            assert_eq!(server.sum(7, 1, start), 1);
        }
    }
}

#[test]
fn no_step_goes_on_before_it_is_known_which_state_the_store_has() {
    for (done, counted) in [(false, false), (false, true), (true, true)] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        begin(&server, counted);
        machine.be_unsure();
        machine.fail_reads(true);
        if done {
            machine.fail_done(true);
        } else {
            machine.fail_disk(true);
        }
        assert!(rolled_back(&server.send(7, 1, number(counted, 3)).unwrap_err()));
        if done {
            machine.fail_done(false);
        } else {
            machine.fail_disk(false);
        }
        for _ in 0..3 {
            let refused = server.send(7, 1, number(counted, 3)).unwrap_err();
            assert!(matches!(refused, Failure::Store { .. }), "{refused:?}");
        }
        machine.fail_reads(false);
        // The step that comes first lets the store read again.
        let third = loop {
            match server.send(7, 1, number(counted, 3)) {
                Ok(answer) => break answer,
                Err(Failure::Store { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(third.outputs[0].tensor.data[..], 42_i32.to_le_bytes());
        assert_eq!(third.parameters.len(), usize::from(done), "it was replayed: {done}");
        assert_eq!(server.sum(7, 1, number(counted, 4)), 43);
    }
}

#[test]
fn an_end_that_was_done_although_it_failed_has_ended_the_sequence() {
    let machine = Machine::new("step", OLDEST);
    let server = machine.serve();
    begin(&server, false);
    machine.fail_done(true);
    assert!(rolled_back(&server.send(7, 1, |s| s.end = true).unwrap_err()));
    machine.fail_done(false);
    let gone = loop {
        match server.send(7, 1, |s| s.end = true).unwrap_err() {
            Failure::Refused(refused) => break refused.refusal,
            Failure::Store { .. } => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(gone, Refusal::Unknown(Some(stone)) if stone.why == EndReason::End), "{gone:?}");
}

/// An operator may end a sequence while its write is under way, and after it went back.
#[test]
fn a_sequence_that_an_operator_ended_does_not_come_back() {
    for late in [false, true] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        begin(&server, false);
        machine.hold_disk(true);
        let third = server.repository.submit(request(7, 1, |_| {})).unwrap();
        machine.wait_for_held_commit();
        machine.fail_disk(true);
        let repository = server.repository.clone();
        if late {
            machine.hold_disk(false);
            assert!(rolled_back(&outcome(third).unwrap_err()));
            machine.fail_disk(false);
            assert!(repository.drop_sequence("sum", &Id::from(7)).unwrap());
        } else {
            let dropping = std::thread::spawn(move || repository.drop_sequence("sum", &Id::from(7)));
            while server.repository.live_sequences("sum").unwrap().iter().any(|live| !live.ending) {
                std::thread::yield_now();
            }
            machine.hold_disk(false);
            let failed = outcome(third).unwrap_err();
            assert!(!rolled_back(&failed), "{failed:?}");
            assert!(dropping.join().unwrap().is_err(), "the disk fails, so its state is removed later");
        }
        assert_eq!(server.resumable(), [], "{late}");
        assert!(matches!(server.refusal(7, |_| {}), Refusal::Unknown(Some(stone)) if stone.why == EndReason::Admin));
    }
}

/// Redis refuses each write as long as it is full.
#[test]
fn with_a_full_redis_a_sequence_goes_on_from_its_last_stored_state_on_any_server() {
    for counted in [false, true] {
        let machine = Machine::new("step", OLDEST).sharing();
        let (one, other) = (machine.serve(), machine.serve());
        begin(&one, counted);
        machine.fill_redis(true);
        for _ in 0..2 {
            let failed = one.send(7, 1, number(counted, 3)).unwrap_err();
            assert!(rolled_back(&failed), "{failed:?}");
            assert!(matches!(failed, Failure::NotStored { fault: StoreFault::Redis, .. }), "{failed:?}");
        }
        machine.fill_redis(false);
        assert_eq!(one.sum(7, 1, number(counted, 3)), 42);
        machine.fill_redis(true);
        assert!(rolled_back(&one.send(7, 1, number(counted, 4)).unwrap_err()));
        machine.fill_redis(false);
        assert_eq!(other.sum(7, 1, number(counted, 4)), 43, "it was handed over");
        assert_eq!(one.sum(7, 1, number(counted, 5)), 44);
    }
}
