//! The store gets the changes of a sequence in the order in which they were made, whichever threads make them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use sequor_core::Id;
use tempfile::TempDir;

use super::machine::{Machine, OLDEST, answered, start};
use super::{CONFIG, load, processors, request};
use crate::backend::mock::MockBackend;
use crate::model::*;
use crate::processing::PlaceRules;
use crate::state::tier::{self, ClosedTask};
use crate::telemetry::Metrics;

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

/// The store. It notes what is queued, and whether the model was locked then.
#[derive(Debug)]
struct WatchedStore {
    store: Arc<SequenceStore>,
    model: OnceLock<Weak<sequences::ModelScheduler>>,
    /// The steps of the sequence.
    queued: Mutex<Vec<(u64, bool)>>,
}

impl StateTier for WatchedStore {
    fn seal(&self, batch: BatchToSeal, sealed: Sealed) -> Option<ClosedTask> {
        let model = self.model.get().and_then(Weak::upgrade).unwrap();
        let step = batch.states.first().map_or(0, |state| state.step);
        self.queued.lock().push((step, model.table.try_lock().is_none()));
        self.store.seal(batch, sealed)
    }

    fn wake(&self) {
        StateTier::wake(&*self.store);
    }
}

/// A sequence goes on while its reply is being stored. Only under the lock can the state of the step behind not overtake that of the reply.
#[test]
fn the_states_of_replies_and_of_steps_behind_them_are_queued_in_their_order_under_the_lock() {
    let folder = TempDir::new().unwrap();
    let model = folder.path().join("sum");
    fs_err::create_dir_all(model.join("1")).unwrap();
    fs_err::write(model.join("config.pbtxt"), CONFIG).unwrap();
    fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
    fs_err::write(model.join("sequor.toml"), format!("{}[durability]\nwhen = \"step\"\n", processors::TOML)).unwrap();
    fs_err::write(folder.path().join("guest.wasm"), processors::guest().component()).unwrap();
    let opened = tier::open(&folder.path().join("state"), u64::MAX, Duration::ZERO).unwrap();
    let clock = Clock::manual();
    let store = Arc::new(SequenceStore::new(Arc::new(opened.tier), 1, clock.clone()).unwrap());
    let watched = WatchedStore { store: Arc::clone(&store), model: OnceLock::new(), queued: Mutex::default() };
    let watched = Arc::new(watched);
    let options = RepositoryOptions {
        reply_pool: 1 << 20,
        store: Some(store),
        tier: Some(Arc::clone(&watched) as Arc<dyn StateTier>),
        clock,
        ..RepositoryOptions::default()
    };
    let repository = Repository::new(Arc::new(MockBackend::new()), options, Metrics::new(true)).unwrap();
    let rules = PlaceRules { dir: Some(folder.path().to_owned()), strikes: 3, ..PlaceRules::default() };
    repository.run_processors(rules, Box::new(processors::component)).unwrap();
    load(&repository, &model);
    let of_model = repository.0.catalog.entries.read()["sum"].model.clone().unwrap();
    watched.model.set(Arc::downgrade(&of_model)).unwrap();
    let steps = [request(7, 5, start), request(7, 1001, |_| {}), request(7, 1, |_| {})];
    let pending: Vec<Pending> = steps.into_iter().map(|step| repository.submit(step).unwrap()).collect();
    pending.into_iter().for_each(|step| drop(answered(step)));
    assert_eq!(*watched.queued.lock(), [1, 2, 3].map(|step| (step, true)));
    repository.stop();
}
