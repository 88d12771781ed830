//! Sequences that continue from a state that is not in memory, and whose first step here is cancelled before it runs. Also STARTs on their
//! ids.

use std::time::Duration;

use futures_util::FutureExt as _;
use sequor_core::{EndReason, Id, Refusal, Stage};

use super::machine::{Machine, OLDEST, Server, answered, start};
use super::request;
use crate::error::Failure;
use crate::model::Pending;

/// A machine with this durability. If it `keeps`, a cancelled request does not end its sequence.
fn machine(when: &str, keeps: bool) -> Machine {
    let on_cancel = if keeps { "keep" } else { "end" };
    Machine::new(&format!("{when}\"\n[sequence]\non_cancel = \"{on_cancel}\" # \""), OLDEST)
}

/// A server that continues from stored states. The first step of sequence 7, whose sum is 40, was cancelled while the store read its state.
fn cancelled_while_read(machine: &Machine) -> Server {
    let first = machine.serve();
    [7, 8].into_iter().for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
    first.stop();
    let second = machine.serve();
    machine.hold_disk(true);
    // It adds 0, in case the store is quicker than this thread.
    drop(second.repository.submit(request(7, 0, |_| {})).unwrap());
    machine.hold_disk(false);
    assert_eq!(second.sum(8, 1, |_| {}), 41, "the store does what it was asked for in order");
    second
}

#[test]
fn a_step_cancelled_while_its_state_loads_ends_its_sequence_only_if_configured() {
    for (when, keeps) in [("drain", true), ("step", true), ("every", true), ("drain", false), ("every", false)] {
        let machine = machine(when, keeps);
        let second = cancelled_while_read(&machine);
        let is_cancelled =
            |refusal| matches!(refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Cancelled);
        if keeps {
            assert_eq!(second.sum(7, 2, |_| {}), 42, "{when}");
        } else {
            assert!(is_cancelled(second.refusal(7, |_| {})), "{when}");
        }
        second.stop();
        let third = machine.serve();
        if keeps {
            assert_eq!(third.sum(7, 1, |_| {}), 43, "{when}");
        } else {
            assert!(is_cancelled(third.refusal(7, |_| {})), "{when}");
        }
    }
}

#[test]
fn a_step_repeated_before_its_state_is_restored_gets_a_store_error() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, true);
        let first = machine.serve();
        (7..=9).for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
        first.stop();
        let second = machine.serve();
        machine.hold_disk(true);
        let ninth = second.repository.submit(request(9, 1, |_| {})).unwrap();
        // The store writes the result. It reads no other state meanwhile.
        machine.wait_for_held_commit();
        let kept = || second.repository.resumable("sum").unwrap().len();
        assert_eq!(kept(), 2);
        drop(second.repository.submit(request(7, 100, |_| {})).unwrap());
        assert_eq!(kept(), 1, "{when}: the store has not read it yet");
        let again = second.send(7, 2, |_| {}).unwrap_err();
        assert!(matches!(again, Failure::Store { .. }), "{when}: {again:?}");
        machine.hold_disk(false);
        answered(ninth);
        assert_eq!(second.sum(8, 1, |_| {}), 41, "{when}: the store does what it was asked for in order");
        assert_eq!(second.sum(7, 2, |_| {}), 42, "{when}");
    }
}

#[test]
fn a_state_returns_to_its_origin_if_its_first_step_is_cancelled_in_the_backlog() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, true);
        let first = machine.serve();
        first.sum(7, 40, start);
        first.stop();
        let second = machine.serve();
        (11..=18).for_each(|id| assert_eq!(second.sum(id, 1, start), 1));
        let sum = || second.repository.find("sum", "").unwrap();
        sum().import(Id::from(9), &sum().export(&Id::from(11)).unwrap()).unwrap();
        for (id, ends, sum) in [(7, 11, 42), (9, 12, 3)] {
            let waits = second.repository.submit(request(id, 100, |_| {})).unwrap();
            while second.repository.live_sequences("sum").unwrap().iter().all(|live| live.stage != Stage::Backlogged) {
                std::thread::yield_now();
            }
            drop(waits);
            assert!(second.resumable().contains(&(Id::from(id), 1)), "{when}: {:?}", second.resumable());
            second.sum(ends, 0, |s| s.end = true);
            assert_eq!(second.sum(id, 2, |_| {}), sum, "{when}");
        }
    }
}

#[test]
fn a_state_returned_after_a_cancellation_survives_a_restart() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, true);
        cancelled_while_read(&machine).stop();
        assert_eq!(machine.serve().sum(7, 2, |_| {}), 42, "{when}");
    }
}

/// All slots are taken, and a START of sequence 7 waits for one.
fn waiting_start(server: &Server) -> Pending {
    (11..=18).for_each(|id| assert_eq!(server.sum(id, 1, start), 1));
    let waits = server.repository.submit(request(7, 100, start)).unwrap();
    while server.repository.live_sequences("sum").unwrap().iter().all(|live| live.stage != Stage::Backlogged) {
        std::thread::yield_now();
    }
    waits
}

/// A server that continues from the state of sequence 7, whose sum is 40, and a START of it that has not run.
fn start_on_stored(machine: &Machine) -> (Server, Pending) {
    let first = machine.serve();
    assert_eq!(first.sum(7, 40, start), 40);
    first.stop();
    let second = machine.serve();
    let waits = waiting_start(&second);
    let crashed = machine.serve_from(&machine.crashed());
    assert!(crashed.resumable().contains(&(Id::from(7), 1)), "the START has not run");
    (second, waits)
}

/// The last step of sequence 7 and why it has ended.
fn end_of(server: &Server) -> (u64, EndReason) {
    match server.refusal(7, |_| {}) {
        Refusal::Unknown(Some(stone)) => (stone.step, stone.why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancelled_start_ends_the_stored_sequence_of_its_id_like_a_live_one() {
    for keeps in [false, true] {
        for when in ["drain", "step", "every"] {
            let machine = machine(when, keeps);
            let (second, waits) = start_on_stored(&machine);
            drop(waits);
            assert_eq!(
                end_of(&second),
                (1, EndReason::Cancelled),
                "{when} {keeps}: a later step has nothing to go on from"
            );
            let left = machine.serve_from(&machine.crashed()).resumable();
            assert!(!left.contains(&(Id::from(7), 1)), "{when} {keeps}: {left:?}");
            second.stop();
            assert_eq!(end_of(&machine.serve()), (1, EndReason::Cancelled), "{when} {keeps}");
        }
        let machine = machine("step", keeps);
        let live = machine.serve();
        assert_eq!(live.sum(7, 40, start), 40);
        machine.hold_disk(true);
        let running = live.repository.submit(request(7, 1, |_| {})).unwrap();
        let sealing = || live.repository.live_sequences("sum").unwrap().iter().any(|live| live.stage == Stage::Sealing);
        while !sealing() {
            std::thread::yield_now();
        }
        drop(live.repository.submit(request(7, 100, start)).unwrap());
        machine.hold_disk(false);
        answered(running);
        assert_eq!(end_of(&live), (2, EndReason::Cancelled), "{keeps}: live");
    }
}

#[test]
fn a_start_not_run_before_a_stop_leaves_the_stored_sequence_of_its_id() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, false);
        let (second, _waits) = start_on_stored(&machine);
        second.stop();
        assert_eq!(machine.serve().sum(7, 2, |_| {}), 42, "{when}");
    }
}

/// The store accepts nothing more, so no sequence can leave memory for the START that waits.
#[test]
fn a_start_without_room_leaves_the_stored_sequence_of_its_id() {
    let machine = Machine::new("every\"\nevery = 1000 # \"", OLDEST).with_memory(12);
    let first = machine.serve();
    assert_eq!(first.sum(7, 40, start), 40);
    first.stop();
    let second = machine.serve();
    let bytes = second.repository.resumable("sum").unwrap()[0].bytes;
    second.stop();
    let machine = machine.with_limit(bytes + 8);
    let third = machine.serve();
    (11..=14).for_each(|id| assert_eq!(third.sum(id, 1, start), 1));
    assert!(matches!(third.send(15, 1, start).unwrap_err(), Failure::StateMemory { .. }), "none leaves for a second");
    machine.clock.advance(Duration::from_millis(1100));
    assert!(matches!(third.send(7, 1, start).unwrap_err(), Failure::StateMemory { .. }));
    assert_eq!(third.sum(14, 0, |s| s.end = true), 1);
    assert!(machine.serve_from(&machine.crashed()).resumable().contains(&(Id::from(7), 1)));
    assert_eq!(third.sum(7, 2, |_| {}), 42);
}

#[test]
fn a_start_on_a_stored_id_is_answered_once_the_store_has_removed_the_state() {
    for when in ["drain", "step", "every"] {
        let machine = Machine::new(when, OLDEST);
        let first = machine.serve();
        assert_eq!(first.sum(7, 40, start), 40);
        first.stop();
        let second = machine.serve();
        machine.hold_disk(true);
        let mut begins = second.repository.submit(request(7, 1, start)).unwrap();
        machine.wait_for_held_commit();
        assert!((&mut begins).now_or_never().is_none(), "{when}: the server may die, and go on from the state");
        machine.hold_disk(false);
        answered(begins);
        let left = machine.serve_from(&machine.crashed()).send(7, 1, |_| {});
        let is_older = matches!(&left, Ok(answer) if answer.outputs[0].tensor.data[..] != 2_i32.to_le_bytes());
        assert!(!is_older, "{when}: {left:?}");
    }
}

#[test]
fn a_step_waiting_for_a_slot_at_a_stop_leaves_its_stored_state() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, false);
        let first = machine.serve();
        assert_eq!(first.sum(7, 40, start), 40);
        first.stop();
        let second = machine.serve();
        (11..=18).for_each(|id| assert_eq!(second.sum(id, 1, start), 1));
        let _waits = second.repository.submit(request(7, 100, |_| {})).unwrap();
        while second.repository.live_sequences("sum").unwrap().iter().all(|live| live.stage != Stage::Backlogged) {
            std::thread::yield_now();
        }
        second.stop();
        // Its client has no answer, and cannot know.
        assert_eq!(machine.serve().sum(7, 2, |s| s.step = Some(2)), 42, "{when}");
    }
}
