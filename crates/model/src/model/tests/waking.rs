//! Requests that meet a stored sequence while the store reads its state for another request.

use sequor_core::Id;

use super::ensembles;
use super::machine::{Machine, OLDEST, Server, answered, start};
use super::request;
use crate::error::Failure;
use crate::model::*;

/// A machine whose store has sequences 7 and 9, with the sum 40 each.
fn stored(when: &str) -> Machine {
    let machine = Machine::new(when, OLDEST);
    let first = machine.serve();
    [7, 9].into_iter().for_each(|id| assert_eq!(first.sum(id, 40, start), 40));
    first.stop();
    machine
}

/// Keeps the store busy with sequence 9. It reads no other state meanwhile.
fn busy(machine: &Machine, server: &Server) -> Pending {
    machine.hold_disk(true);
    let step = server.repository.submit(request(9, 1, |_| {})).unwrap();
    machine.wait_for_held_commit();
    step
}

fn answer(pending: Pending) -> Result<InferAnswer, Failure> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
}

#[test]
fn a_start_behind_a_failed_read_is_answered_once_the_old_state_is_removed() {
    for when in ["drain", "step", "every"] {
        let machine = stored(when);
        let second = machine.serve();
        let other = busy(&machine, &second);
        let step = second.repository.submit(request(7, 1, |_| {})).unwrap();
        let begins = second.repository.submit(request(7, 5, start)).unwrap();
        machine.fail_reads(true);
        machine.hold_disk(false);
        assert!(matches!(answer(step), Err(Failure::Store { .. })), "{when}");
        answered(other);
        assert_eq!(answered(begins).outputs[0].tensor.data[..], 5_i32.to_le_bytes(), "{when}");
        machine.fail_reads(false);
        let after = machine.serve_from(&machine.crashed());
        let left = after.send(7, 1, |_| {});
        let is_older = matches!(&left, Ok(answer) if answer.outputs[0].tensor.data[..] != 6_i32.to_le_bytes());
        assert!(!is_older, "{when}: {left:?}");
    }
}

#[test]
fn an_ensemble_does_not_restart_a_sequence_that_the_store_reads_for_a_client() {
    let machine = stored("drain");
    let second = machine.serve();
    let ensemble = machine.folder.path().join("of");
    fs_err::create_dir_all(ensemble.join("1")).unwrap();
    fs_err::write(ensemble.join("config.pbtxt"), ensembles::ensemble("of", &["sum"], "")).unwrap();
    second.repository.load(&ensemble);
    let by_ensemble = |id| {
        let pending = second.repository.submit(ensembles::request("of", id, 5, start));
        pending.and_then(answer)
    };
    by_ensemble(3).unwrap();
    let other = busy(&machine, &second);
    let step = second.repository.submit(request(7, 1, |_| {})).unwrap();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| by_ensemble(7));
        // Its START is in the queue of the member if it is not refused.
        while !starting.is_finished() && queued(&second) < 2 {
            std::thread::yield_now();
        }
        machine.hold_disk(false);
        let refused = starting.join().unwrap();
        assert!(matches!(&refused, Err(Failure::Member { may_retry: true, .. })), "{refused:?}");
    });
    answered(other);
    assert_eq!(answered(step).outputs[0].tensor.data[..], 41_i32.to_le_bytes());
    assert_eq!(second.sum(7, 1, |_| {}), 42, "it goes on");
}

/// Requests in the queue of sequence 7.
fn queued(server: &Server) -> u32 {
    let live = server.repository.live_sequences("sum").unwrap();
    live.iter().filter(|live| live.id == Id::from(7)).map(|live| live.queued).sum()
}

/// With `on_cancel = "keep"` the state of a cancelled step goes back to the store. The step behind it did not ask for that.
#[test]
fn a_step_behind_a_cancelled_one_is_not_called_cancelled() {
    for when in ["drain", "step", "every"] {
        let machine = stored(&format!("{when}\"\n[sequence]\non_cancel = \"keep\" # \""));
        let second = machine.serve();
        let other = busy(&machine, &second);
        let first = second.repository.submit(request(7, 100, |_| {})).unwrap();
        let behind = second.repository.submit(request(7, 100, |_| {})).unwrap();
        drop(first);
        let refused = answer(behind);
        machine.hold_disk(false);
        answered(other);
        assert!(matches!(&refused, Err(Failure::Store { .. })), "{when}: {refused:?}");
        // The store reads the state for nothing first.
        let again = || second.send(7, 2, |_| {});
        let answer = std::iter::repeat_with(again).find(|answer| !matches!(answer, Err(Failure::Store { .. })));
        assert_eq!(answer.unwrap().unwrap().outputs[0].tensor.data[..], 42_i32.to_le_bytes(), "{when}");
    }
}
