//! Answers that leave in order (`preserve_ordering`), later than their steps. Meanwhile their sequences go on or end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sequor_core::Shape;

use super::{CONFIG, Fixture, load, processors, request};
use crate::backend::mock::MockBackend;
use crate::model::*;
use crate::processing::PlaceRules;
use crate::processing::wat_fixture::ProcessorWat;
use crate::telemetry::Metrics;

/// It replies to values from 1000 on, and adds 10000 for each reply of the sequence. The scratch is the count of replies.
const PRE: &str = "
    (local $b i32) (local $n i32)
    (local.set $b (i32.load offset=20 (local.get 11)))
    (if (i32.lt_s (i32.load (local.get $b)) (i32.const 1000)) (then
        (return (call $run (local.get 11) (local.get 12) (i32.const 1)))))
    (local.set $n (i32.const 1))
    (if (local.get 10) (then (local.set $n (i32.add (i32.const 1) (i32.load8_u (local.get 9))))))
    (i32.store8 (i32.const 1100) (local.get $n))
    (i32.store (local.get $b) (i32.add (i32.load (local.get $b)) (i32.mul (i32.const 10000) (local.get $n))))
    (drop (call $reply (local.get 11) (local.get 12)))
    (i32.store (i32.const 1044) (i32.const 1))
    (i32.store (i32.const 1048) (i32.const 1100))
    (i32.store (i32.const 1052) (i32.const 1))
    (i32.const 1024)";

/// A model whose runs can be held up. They end in the order in which they began.
struct HeldRuns {
    fixture: Fixture,
    holds: Arc<AtomicBool>,
    begun: Arc<AtomicU64>,
    released: Arc<AtomicU64>,
}

impl HeldRuns {
    fn new() -> HeldRuns {
        let (holds, begun, released) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::default());
        let (held, count, until) = (Arc::clone(&holds), Arc::clone(&begun), Arc::<AtomicU64>::clone(&released));
        let hook = Arc::new(move |_: &Shape| {
            if held.load(Ordering::Acquire) {
                let mine = count.fetch_add(1, Ordering::AcqRel);
                while until.load(Ordering::Acquire) <= mine {
                    std::thread::yield_now();
                }
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("sum");
        fs_err::create_dir_all(model.join("1")).unwrap();
        let config = CONFIG
            .replace("max_candidate_sequences: 4", "max_candidate_sequences: 4 preserve_ordering: true")
            .replace("count: 1", "count: 2");
        fs_err::write(model.join("config.pbtxt"), config).unwrap();
        fs_err::write(model.join("1/model.onnx"), "accumulate INT32").unwrap();
        fs_err::write(model.join("sequor.toml"), "[[plugins.processor]]\nuse = \"guest\"\n").unwrap();
        let guest =
            ProcessorWat { pre: PRE, manifest: "scratch = \"8B\"\nwants = [\"pre\"]\n", ..ProcessorWat::default() };
        fs_err::write(folder.path().join("guest.wasm"), guest.component()).unwrap();
        let options = RepositoryOptions { reply_pool: 1 << 20, ..RepositoryOptions::default() };
        let repository = Repository::new(Arc::new(MockBackend::with_hook(hook)), options, Metrics::new(true)).unwrap();
        let rules = PlaceRules { dir: Some(folder.path().to_owned()), strikes: 3, ..PlaceRules::default() };
        repository.run_processors(rules, Box::new(processors::component)).unwrap();
        load(&repository, &model);
        HeldRuns { fixture: Fixture { repository, folder }, holds, begun, released }
    }

    fn submit(&self, id: u64, value: i32, change: impl FnOnce(&mut SequenceStep)) -> Pending {
        self.fixture.repository.submit(request(id, value, change)).unwrap()
    }

    /// A step of this sequence whose run is held up.
    fn held(&self, id: u64) -> Pending {
        let before = self.begun.load(Ordering::Acquire);
        self.holds.store(true, Ordering::Release);
        let step = self.submit(id, 1, |_| {});
        while self.begun.load(Ordering::Acquire) == before {
            std::thread::yield_now();
        }
        step
    }

    /// Lets the first held run end.
    fn release(&self) {
        self.released.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until this is the last step of a live sequence. `None` waits for its end.
    fn wait_for(&self, id: u64, step: Option<u64>) {
        let last = || {
            let live = self.fixture.repository.live_sequences("sum").unwrap();
            live.iter().find(|live| live.id == sequor_core::Id::from(id)).map(|live| live.step)
        };
        while last() != step {
            std::thread::yield_now();
        }
    }
}

fn start(step: &mut SequenceStep) {
    step.start = true;
}

fn value(pending: Pending) -> i32 {
    let answer = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending).unwrap();
    i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap())
}

#[test]
fn a_step_sees_the_scratch_of_a_reply_that_has_not_left() {
    let model = HeldRuns::new();
    assert_eq!(model.fixture.sum(9, 1, start), 1);
    assert_eq!(model.fixture.sum(7, 1000, start), 11_000);
    let runs = model.held(9);
    let second = model.submit(7, 1000, |_| {});
    model.wait_for(7, Some(2));
    let third = model.submit(7, 1000, |_| {});
    model.wait_for(7, Some(3));
    model.release();
    assert_eq!((value(runs), value(second), value(third)), (2, 21_000, 31_000));
    assert_eq!(model.fixture.sum(7, 1000, |_| {}), 41_000);
}

/// The data of live sequences is kept by the index of their keys, and an index is used again.
#[test]
fn a_late_answer_does_not_reach_the_sequence_that_took_the_place_of_its_own() {
    let model = HeldRuns::new();
    for id in [9, 10] {
        assert_eq!(model.fixture.sum(id, 1, start), 1);
    }
    assert_eq!(model.fixture.sum(7, 1000, start), 11_000);
    assert_eq!(model.fixture.sum(7, 1000, |_| {}), 21_000);
    let (first, end) = (model.held(9), model.submit(7, 1000, |s| s.end = true));
    model.wait_for(7, None);
    let (second, begins) = (model.held(10), model.submit(8, 1000, start));
    model.wait_for(8, Some(1));
    model.release();
    assert_eq!((value(first), value(end)), (2, 31_000));
    let next = model.submit(8, 1000, |_| {});
    model.wait_for(8, Some(2));
    model.release();
    assert_eq!((value(second), value(begins), value(next)), (2, 11_000, 21_000));
}
