//! The history of a sequence: its last steps with their batches, and its refused requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal, Shape};

use super::{CONFIG, Fixture, load, request};
use crate::backend::mock::MockBackend;
use crate::error::Failure;
use crate::model::*;
use crate::telemetry::Metrics;

const RUN: Duration = Duration::from_millis(11);

/// A model whose runs take 11 ms of a manual clock, and can be held up.
struct HeldModel {
    fixture: Fixture,
    clock: Clock,
    holds: Arc<AtomicBool>,
    is_held: Arc<AtomicBool>,
}

impl HeldModel {
    fn new() -> HeldModel {
        let (clock, holds, is_held) = (Clock::manual(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (time, wait, held) = (clock.clone(), Arc::clone(&holds), Arc::clone(&is_held));
        let hook = Arc::new(move |_: &Shape| {
            while wait.load(Ordering::Acquire) {
                held.store(true, Ordering::Release);
                thread::yield_now();
            }
            time.advance(RUN);
        });
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("sum");
        fs_err::create_dir_all(model.join("1")).unwrap();
        fs_err::write(model.join("config.pbtxt"), CONFIG).unwrap();
        fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
        let options = RepositoryOptions { reply_pool: 1 << 20, clock: clock.clone(), ..RepositoryOptions::default() };
        let repository = Repository::new(Arc::new(MockBackend::with_hook(hook)), options, Metrics::new(true)).unwrap();
        load(&repository, &model);
        HeldModel { fixture: Fixture { repository, folder }, clock, holds, is_held }
    }

    /// Runs a step of one sequence, and meanwhile lets steps of these others arrive. They wait `RUN`, and then run in one batch.
    fn together(&self, first: u64, others: [u64; 2]) {
        let submit = |id| self.fixture.repository.submit(request(id, 1, |_| {})).unwrap();
        self.is_held.store(false, Ordering::Release);
        self.holds.store(true, Ordering::Release);
        let mut pending = vec![submit(first)];
        while !self.is_held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        pending.extend(others.map(submit));
        self.holds.store(false, Ordering::Release);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        pending.into_iter().for_each(|pending| assert!(runtime.block_on(pending).is_ok()));
    }

    fn history(&self, id: u64) -> SequenceHistory {
        self.fixture.repository.sequence_history("sum", &Id::Int(id)).unwrap()
    }
}

#[test]
fn a_history_has_the_last_steps_with_their_batches_also_after_the_end() {
    let model = HeldModel::new();
    for id in 1..=3 {
        model.fixture.sum(id, 1, |step| step.start = true);
    }
    model.together(3, [1, 2]);
    let history = model.history(1);
    assert_eq!((history.steps.len(), history.policy, history.refusals.len()), (2, "oldest", 0));
    let PastStep { step, ago, waited, ran, batch, ref mates, chosen_by, failed } = history.steps[0];
    assert_eq!((step, ago, waited, ran), (2, Duration::ZERO, RUN, RUN));
    assert_eq!((batch, mates.as_slice(), chosen_by, failed), (2, &[Id::Int(2)][..], ChosenBy::Policy, false));
    let first = &history.steps[1];
    assert_eq!((first.step, first.batch, first.mates.len(), first.waited), (1, 1, 0, Duration::ZERO));
    assert_eq!(model.history(3).steps[0].mates, []);

    model.clock.advance(Duration::from_secs(700));
    let refused = model.fixture.send(1, 1, |_| {});
    assert!(refused.is_err());
    let history = model.history(1);
    assert_eq!((history.steps.len(), history.steps[0].mates.as_slice()), (2, &[Id::Int(2)][..]));
    assert_eq!(history.steps[0].ago, Duration::from_secs(700));
    let Some(Failure::Refused(refused)) = &history.refusals[0].failure else { panic!("{:?}", history.refusals) };
    assert!(matches!(refused.refusal, Refusal::Unknown(Some(stone)) if stone.why == EndReason::Idle));
    assert!(model.history(9).steps.is_empty() && model.history(9).refusals.is_empty());
}

/// A sequence that ends with its step: the answer and the end are in one lock section.
#[test]
fn the_step_that_ends_a_sequence_is_in_its_history() {
    let model = HeldModel::new();
    model.fixture.sum(1, 1, |step| step.start = true);
    model.fixture.sum(1, 1, |step| step.end = true);
    let steps: Vec<_> = model.history(1).steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [2, 1]);
}

#[test]
fn a_restart_of_a_live_id_begins_a_history_of_its_own() {
    let model = HeldModel::new();
    for (n, value) in [5, 6, 7].into_iter().enumerate() {
        model.fixture.sum(1, value, |step| step.start = n != 1);
    }
    let steps: Vec<_> = model.history(1).steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [1], "and not those of the sequence before it");
}

#[test]
fn refusals_before_the_queue_are_in_the_history() {
    let fixture = Fixture::new(4);
    fixture.sum(1, 1, |step| step.start = true);
    assert!(matches!(fixture.send(2, 1, |step| step.start = true), Err(Failure::StateMemory { .. })));
    let mut wrong = request(3, 1, |step| step.start = true);
    wrong.inputs.clear();
    assert!(matches!(fixture.answer(wrong), Err(Failure::Invalid { .. })));
    let of = |id| fixture.repository.sequence_history("sum", &Id::Int(id)).unwrap().refusals.remove(0).failure;
    assert!(matches!(of(2), Some(Failure::StateMemory { wanted: 4, limit: 4, .. })));
    assert!(of(3).is_none(), "the names that a client sends are not kept");
}
