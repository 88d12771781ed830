//! Sequences that go on from a state that was found elsewhere, and whose first step here is cancelled before it runs.

use sequor_core::{EndReason, Id, Refusal, Stage};

use super::machine::{Machine, OLDEST, Server, answered, start};
use super::request;
use crate::error::Failure;

/// A machine whose model keeps its states like this, and the sequences of cancelled requests as well if it `keeps`.
fn machine(when: &str, keeps: bool) -> Machine {
    let on_cancel = if keeps { "keep" } else { "end" };
    Machine::new(&format!("{when}\"\n[sequence]\non_cancel = \"{on_cancel}\" # \""), OLDEST)
}

/// A server that goes on from stored states. The first step of sequence 7, whose sum is 40, was cancelled while the store read its state.
fn cancelled_while_read(machine: &Machine) -> Server {
    let first = machine.serve();
    [7, 8].into_iter().for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
    first.stop();
    let second = machine.serve();
    machine.hold_disk(true);
    // It adds nothing, should the store be quicker than this thread.
    drop(second.repository.submit(request(7, 0, |_| {})).unwrap());
    machine.hold_disk(false);
    assert_eq!(second.sum(8, 1, |_| {}), 41, "the store does what it was asked for in order");
    second
}

#[test]
fn a_step_that_is_cancelled_while_its_state_is_read_ends_its_sequence_only_where_the_model_says_so() {
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
fn a_step_that_is_sent_again_before_the_state_is_back_is_to_come_once_more() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, true);
        let first = machine.serve();
        (7..=9).for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
        first.stop();
        let second = machine.serve();
        machine.hold_disk(true);
        let ninth = second.repository.submit(request(9, 1, |_| {})).unwrap();
        // The store writes what that leads to. It reads no other state meanwhile.
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
fn a_state_whose_first_step_is_cancelled_in_the_backlog_goes_back_to_where_it_was_found() {
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
fn a_state_that_went_back_survives_a_restart() {
    for when in ["drain", "step", "every"] {
        let machine = machine(when, true);
        cancelled_while_read(&machine).stop();
        assert_eq!(machine.serve().sum(7, 2, |_| {}), 42, "{when}");
    }
}
