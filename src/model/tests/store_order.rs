//! The store gets the changes of a sequence in the order in which they were made, whichever threads make them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Wake, Waker};

use futures_util::FutureExt as _;
use sequor_core::Id;

use super::machine::{Machine, OLDEST, answered, start};
use super::request;
use crate::backend::mock::MockBackend;
use crate::model::Repository;

/// States are written after each step, and answers do not wait for that.
const EVERY_STEP: &str = "every\"\nevery = 1 # \"";

/// An operator who ends a sequence as soon as its step is answered, before the thread that answers it does anything else.
struct EndsWhenAnswered {
    repository: Repository,
    id: u64,
    done: SyncSender<()>,
}

impl Wake for EndsWhenAnswered {
    fn wake(self: Arc<Self>) {
        assert!(self.repository.drop_sequence("sum", &Id::from(self.id)).unwrap());
        self.done.send(()).unwrap();
    }
}

#[test]
fn the_state_of_an_answered_step_does_not_reach_the_store_after_the_end_of_its_sequence() {
    let machine = Machine::new(EVERY_STEP, OLDEST);
    let server = machine.serve();
    for id in 1.. {
        let (done, ended) = sync_channel(1);
        let waker = Waker::from(Arc::new(EndsWhenAnswered { repository: server.repository.clone(), id, done }));
        let mut step = server.repository.submit(request(id, 40, start)).unwrap();
        // The next one, if this one was answered before anybody waited for it.
        if step.poll_unpin(&mut Context::from_waker(&waker)).is_pending() {
            drop(waker);
            ended.recv().unwrap();
            server.stop();
            let left: Vec<Id> = machine.serve().resumable().into_iter().map(|(left, _)| left).collect();
            return assert!(!left.contains(&Id::from(id)), "{id} has ended, and {left:?} are stored");
        }
    }
}

/// The request behind a running step is cancelled. The sequence ends with that step.
#[test]
fn a_sequence_that_ends_with_a_running_step_leaves_no_state_in_the_store() {
    let (is_held, (begun, running), (goes_on, held)) =
        (Arc::new(AtomicBool::new(false)), sync_channel(1), sync_channel(1));
    let (holds, held) = (Arc::clone(&is_held), parking_lot::Mutex::new(held));
    let mut machine = Machine::new(EVERY_STEP, OLDEST);
    machine.backend = MockBackend::with_hook(Arc::new(move |_| {
        if holds.swap(false, Ordering::AcqRel) {
            begun.send(()).unwrap();
            held.lock().recv().unwrap();
        }
    }));
    let server = machine.serve();
    assert_eq!(server.sum(7, 40, start), 40);
    is_held.store(true, Ordering::Release);
    let step = server.repository.submit(request(7, 1, |_| {})).unwrap();
    running.recv().unwrap();
    drop(server.repository.submit(request(7, 1, |_| {})).unwrap());
    goes_on.send(()).unwrap();
    answered(step);
    assert_eq!(server.repository.live(), 0);
    server.stop();
    assert_eq!(machine.serve().resumable(), []);
}
