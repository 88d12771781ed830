//! Ends that the store has not recorded yet. A crash would undo them, so no client or operator may learn of them. The disk is slow.

use std::time::Duration;

use futures_util::FutureExt as _;
use sequor_core::{EndReason, Id, Refusal, Stage};

use super::machine::{Machine, OLDEST, Server, answered, start};
use super::request;
use crate::error::Failure;
use crate::model::Pending;

fn refusal(pending: Pending) -> Refusal {
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending);
    match answer.unwrap_err() {
        Failure::Refused(refused) => refused.refusal,
        other => panic!("{other:?}"),
    }
}

fn step(server: &Server) -> Pending {
    server.repository.submit(request(7, 1, |_| {})).unwrap()
}

/// A step of sequence 7 that has run and waits for the disk.
fn sealing(server: &Server) -> Pending {
    let step = step(server);
    while server.repository.live_sequences("sum").unwrap().iter().all(|live| live.stage != Stage::Sealing) {
        std::thread::yield_now();
    }
    step
}

fn reason(refusal: Refusal) -> EndReason {
    let (Refusal::Unknown(Some(sequor_core::Tombstone { why, .. })) | Refusal::Ended(why)) = refusal else {
        panic!("{refusal:?}")
    };
    why
}

#[test]
fn a_client_learns_of_an_end_only_after_the_store_removed_the_state() {
    let expires = |machine: &Machine, server: &Server| {
        machine.clock.advance(Duration::from_secs(6));
        server.repository.tick();
        None
    };
    // The request behind a running step is cancelled. That step's state is stored after the end.
    let is_cancelled = |_: &Machine, server: &Server| {
        let running = sealing(server);
        drop(step(server));
        Some(running)
    };
    type Ends<'a> = &'a dyn Fn(&Machine, &Server) -> Option<Pending>;
    for (ends, why) in [(&expires as Ends<'_>, EndReason::Idle), (&is_cancelled, EndReason::Cancelled)] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        assert_eq!(server.sum(7, 40, start), 40);
        machine.hold_disk(true);
        let running = ends(&machine, &server);
        let mut late = step(&server);
        assert!((&mut late).now_or_never().is_none(), "{why:?}: the server may die, and go on from the state");
        machine.hold_disk(false);
        assert_eq!(reason(refusal(late)), why);
        running.into_iter().for_each(|running| drop(answered(running)));
        assert_eq!(machine.serve_from(&machine.crashed()).resumable(), [], "{why:?}");
        assert_eq!(server.sum(7, 2, start), 2, "{why:?}: its id is free");
    }
}

#[test]
fn an_operator_has_dropped_a_sequence_once_the_store_has_removed_its_state() {
    for is_running in [false, true] {
        let machine = Machine::new("step", OLDEST);
        let server = machine.serve();
        assert_eq!(server.sum(7, 40, start), 40);
        machine.hold_disk(true);
        let running = is_running.then(|| sealing(&server));
        let mut behind = is_running.then(|| step(&server));
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| server.repository.drop_sequence("sum", &Id::from(7)).unwrap());
            while server.repository.ended_sequences("sum").unwrap().is_empty() {
                std::thread::yield_now();
            }
            // A step behind it is not refused yet.
            assert!(behind.as_mut().is_none_or(|behind| behind.now_or_never().is_none()));
            let mut late = step(&server);
            assert!((&mut late).now_or_never().is_none());
            assert!(!dropping.is_finished());
            machine.hold_disk(false);
            assert!(dropping.join().unwrap());
            assert_eq!(machine.serve_from(&machine.crashed()).resumable(), []);
            assert_eq!(reason(refusal(late)), EndReason::Admin);
        });
        behind.into_iter().for_each(|behind| assert_eq!(reason(refusal(behind)), EndReason::Admin));
        running.into_iter().for_each(|running| drop(answered(running)));
    }
}

/// A state that waited for its next step has expired, and its id starts again. In mode "drain" the store does not record the START.
#[test]
fn a_start_is_answered_only_after_the_store_removed_the_old_state() {
    let machine = Machine::new("drain", OLDEST);
    let first = machine.serve();
    assert_eq!(first.sum(7, 40, start), 40);
    first.stop();
    let second = machine.serve();
    machine.hold_disk(true);
    machine.clock.advance(Duration::from_secs(6));
    second.repository.tick();
    assert_eq!(second.resumable(), []);
    let mut begins = second.repository.submit(request(7, 1, start)).unwrap();
    while second
        .repository
        .live_sequences("sum")
        .unwrap()
        .iter()
        .all(|live| (live.step, live.stage) != (1, Stage::Idle))
    {
        std::thread::yield_now();
    }
    assert!((&mut begins).now_or_never().is_none());
    assert_eq!(second.sum(8, 1, start), 1, "others do not wait");
    machine.hold_disk(false);
    answered(begins);
    assert_eq!(machine.serve_from(&machine.crashed()).resumable(), []);
}

/// In this mode no answer waits for the disk, not even that of an END.
#[test]
fn an_end_does_not_wait_for_the_disk_with_durability_every() {
    let machine = Machine::new("every", OLDEST);
    let server = machine.serve();
    assert_eq!(server.sum(7, 40, start), 40);
    machine.hold_disk(true);
    assert_eq!(server.sum(7, 1, |s| s.end = true), 41);
    let mut late = step(&server);
    assert!((&mut late).now_or_never().is_none());
    machine.hold_disk(false);
    assert_eq!(reason(refusal(late)), EndReason::End);
}

/// Without a store there is nothing to wait for, even while a step runs.
#[test]
fn an_end_is_reported_at_once_without_a_store() {
    let machine = Machine::new("never", OLDEST);
    let server = machine.serve();
    assert_eq!(server.sum(7, 40, start), 40);
    assert!(server.repository.drop_sequence("sum", &Id::from(7)).unwrap());
    let late = step(&server).now_or_never().expect("at once").unwrap_err();
    assert!(matches!(late, Failure::Refused(_)), "{late:?}");
    assert!(!server.repository.drop_sequence("sum", &Id::from(9)).unwrap());
}
