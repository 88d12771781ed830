//! Panics in the thread of an instance. The requests of its batch fail, and the instance goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sequor_core::{EndReason, Id, Refusal, Shape};

use super::ensemble_bounds::PLAIN;
use super::ensembles::{self, EnsembleRig, ensemble};
use super::{CONFIG, Fixture, load, request};
use crate::backend::mock::MockBackend;
use crate::device::stand_in::StandIns;
use crate::error::{ExceededLimit, Failure};
use crate::model::*;
use crate::telemetry::Metrics;

/// The model `sum` on the host, or on a stand-in for an accelerator, whose runs call `hook`.
fn fixture(place: &str, hook: impl Fn(&Shape) + Send + Sync + 'static) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("sum");
    fs_err::create_dir_all(model.join("1")).unwrap();
    fs_err::write(model.join("config.pbtxt"), CONFIG.replace("KIND_CPU", place)).unwrap();
    fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
    let options = RepositoryOptions {
        reply_pool: 1 << 20,
        accelerators: Arc::new(StandIns::new(1, 64 << 20)),
        ..RepositoryOptions::default()
    };
    let backend = Arc::new(MockBackend::with_hook(Arc::new(hook)).with_stand_ins());
    let repository = Repository::new(backend, options, Metrics::new(true)).unwrap();
    load(&repository, &model);
    Fixture { repository, folder }
}

#[test]
fn a_run_that_panics_fails_as_any_other_and_the_next_one_is_right() {
    for place in ["KIND_CPU", "KIND_GPU"] {
        let panics = Arc::<AtomicBool>::default();
        let now = Arc::clone(&panics);
        let fixture = fixture(place, move |_| assert!(!now.swap(false, Ordering::AcqRel), "as the test wants"));
        let failure = |id, start| {
            panics.store(true, Ordering::Release);
            fixture.send(id, 100, |s| s.start = start).unwrap_err()
        };
        assert_eq!(fixture.sum(7, 40, |s| s.start = true), 40);
        let failed = failure(7, false);
        let says = matches!(&failed, Failure::Run(text) if text == "the backend has panicked: as the test wants");
        assert!(says, "{place}: {failed:?}");
        assert_eq!(fixture.sum(7, 2, |_| {}), 42, "{place}: its state is that of before");
        assert!(matches!(failure(8, true), Failure::Run(_)), "{place}");
        assert_eq!(fixture.sum(8, 1, |s| s.start = true), 1, "{place}");
        assert_eq!(fixture.sum(7, 0, |s| s.end = true), 42, "{place}");
    }
}

/// As after any failed batch, each row runs alone.
#[test]
fn a_batch_that_panics_runs_again_row_by_row() {
    let (holds, begun, panicked) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (held, running, count) = (Arc::clone(&holds), Arc::clone(&begun), Arc::clone(&panicked));
    let fixture = fixture("KIND_CPU", move |shape| {
        running.store(true, Ordering::Release);
        while held.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        if shape.0[0] > 1 {
            count.fetch_add(1, Ordering::AcqRel);
            panic!("as the test wants");
        }
    });
    for id in [1, 2, 3] {
        assert_eq!(fixture.sum(id, 40, |s| s.start = true), 40);
    }
    begun.store(false, Ordering::Release);
    holds.store(true, Ordering::Release);
    let submit = |id| fixture.repository.submit(request(id, 2, |_| {})).unwrap();
    let first = submit(1);
    while !begun.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let behind = [submit(2), submit(3)];
    holds.store(false, Ordering::Release);
    for pending in std::iter::once(first).chain(behind) {
        let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap();
        assert_eq!(answer.outputs[0].tensor.data[..], 42_i32.to_le_bytes());
    }
    assert_eq!(panicked.load(Ordering::Acquire), 1, "both were in one batch");
}

/// Panics where an instance asks it.
#[derive(Debug, Default)]
struct PanickingLimit(AtomicBool);

impl AnswerLimit for PanickingLimit {
    fn exceeded(&self) -> Option<ExceededLimit> {
        assert!(!self.0.swap(false, Ordering::AcqRel), "as the test wants");
        None
    }

    fn add_answer(&self, _: u64) {}

    fn remove_answer(&self, _: u64) {}
}

/// A fault of the server's own code, outside any run. What it has done to the states is not known.
#[test]
fn a_panic_beside_a_run_ends_the_sequences_of_its_batch_and_no_others() {
    for place in ["KIND_CPU", "KIND_GPU"] {
        let (fixture, limit) = (fixture(place, |_| {}), Arc::<PanickingLimit>::default());
        fixture.repository.limit_answers(Arc::clone(&limit) as Arc<dyn AnswerLimit>);
        assert_eq!((fixture.sum(7, 40, |s| s.start = true), fixture.sum(8, 1, |s| s.start = true)), (40, 1));
        limit.0.store(true, Ordering::Release);
        let lost = fixture.send(7, 2, |_| {}).unwrap_err();
        assert!(matches!(&lost, Failure::Internal(_)), "{place}: {lost:?}");
        let Err(Failure::Refused(refused)) = fixture.send(7, 2, |_| {}) else { panic!("its sequence has ended") };
        // It may have come before the end.
        let why = match refused.refusal {
            Refusal::Unknown(Some(stone)) => Some(stone.why),
            Refusal::Ended(why) => Some(why),
            _ => None,
        };
        assert_eq!(why, Some(EndReason::Broken), "{place}: {refused:?}");
        assert_eq!(fixture.sum(8, 1, |_| {}), 2, "{place}: another sequence goes on");
        assert_eq!(fixture.sum(7, 5, |s| s.start = true), 5, "{place}");
        for id in [7, 8] {
            fixture.sum(id, 0, |s| s.end = true);
        }
        assert_eq!(fixture.repository.live(), 0, "{place}");
    }
}

/// Its request fails, and leaves its place to the next one.
#[test]
fn a_panic_beside_a_run_fails_the_request_of_an_ensemble() {
    let whole = ensemble("whole", &["part"], "max_inflight_requests: 1");
    let rig = EnsembleRig::new(&[("whole", "", whole), ("part", "identity INT32", PLAIN.to_owned())]);
    let limit = Arc::<PanickingLimit>::default();
    rig.repository.limit_answers(Arc::clone(&limit) as Arc<dyn AnswerLimit>);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let send = |value| {
        let pending = rig.repository.submit(ensembles::request("whole", 0, value, |s| s.id = Id::None)).unwrap();
        let answered = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), pending).await });
        answered.expect("an answer")
    };
    limit.0.store(true, Ordering::Release);
    let lost = send(7).unwrap_err();
    let is_lost = matches!(&lost, Failure::Member { why, .. } if matches!(**why, Failure::Internal(_)));
    assert!(is_lost, "{lost:?}");
    assert_eq!(send(8).unwrap().outputs[0].tensor.data[..], 8_i32.to_le_bytes());
}
