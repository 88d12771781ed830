//! Tests of kept states: which START runs the steps, which STARTs wait, and which states are dropped to make room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use sequor_core::Shape;

use crate::initializing::{KeepPermit, KeptLookup, KeptStates, Waiting};
use crate::state::budget::Budget;
use crate::state::{StateValue, StateValues};
use crate::telemetry::KeptMetrics;

/// The results that STARTs got, in order: the number of the START, and the result.
type Given = Arc<Mutex<VecDeque<(u32, KeptLookup)>>>;

struct Start {
    n: u32,
    given: Given,
    is_over: Arc<AtomicBool>,
}

impl Waiting for Start {
    fn resume(self: Box<Self>, found: KeptLookup, _: bool) {
        self.given.lock().push_back((self.n, found));
    }

    fn is_over(&mut self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A state of this many bytes.
fn values(byte: u8, len: usize) -> StateValues {
    StateValues::new(vec![StateValue { shape: Shape::new(&[len as u64]), bytes: Bytes::from(vec![byte; len]) }])
}

struct Rig {
    kept: Arc<KeptStates>,
    metrics: KeptMetrics,
    budget: Budget,
    given: Given,
}

impl Rig {
    fn new(keep: u64, limit: u64) -> Rig {
        let (metrics, budget) = (KeptMetrics::default(), Budget::new(limit));
        Rig { kept: KeptStates::new(keep, budget.clone(), metrics.clone()), metrics, budget, given: Given::default() }
    }

    fn start(&self, n: u32, name: &str) {
        self.start_until(n, name, &Arc::default());
    }

    /// A START that is cancelled once the flag is set.
    fn start_until(&self, n: u32, name: &str, is_over: &Arc<AtomicBool>) {
        let (given, is_over) = (Arc::clone(&self.given), Arc::clone(is_over));
        self.kept.find(name, Box::new(Start { n, given, is_over }));
    }

    fn next(&self) -> Option<(u32, KeptLookup)> {
        self.given.lock().pop_front()
    }

    fn permit(&self, n: u32) -> KeepPermit {
        match self.next() {
            Some((of, KeptLookup::Missing(permit))) if of == n => permit,
            other => panic!("START {n} runs the steps, not {other:?}"),
        }
    }

    fn copy(&self, n: u32) -> StateValues {
        match self.next() {
            Some((of, KeptLookup::Kept(values))) if of == n => values,
            other => panic!("START {n} gets a copy, not {other:?}"),
        }
    }
}

#[test]
fn concurrent_starts_of_a_name_run_its_steps_once() {
    let rig = Rig::new(1 << 20, u64::MAX);
    (1..=3).for_each(|n| rig.start(n, "p"));
    let permit = rig.permit(1);
    assert!(rig.next().is_none(), "the others wait");
    rig.start(4, "q");
    let other = rig.permit(4);
    permit.keep(&values(7, 4));
    assert_eq!([rig.copy(2), rig.copy(3)], [values(7, 4), values(7, 4)]);
    rig.start(5, "p");
    assert_eq!((rig.copy(5), rig.metrics.counts()), (values(7, 4), (3, 2)));
    drop(other);
    rig.start(6, "q");
    drop(rig.permit(6));
}

#[test]
fn a_start_that_fails_leaves_the_steps_to_the_next() {
    let rig = Rig::new(1 << 20, u64::MAX);
    (1..=3).for_each(|n| rig.start(n, "p"));
    drop(rig.permit(1));
    let permit = rig.permit(2);
    assert!(rig.next().is_none());
    permit.keep(&values(1, 4));
    assert_eq!(rig.copy(3), values(1, 4));
}

#[test]
fn a_start_that_must_not_wait_runs_the_steps_itself() {
    let rig = Rig::new(1 << 20, u64::MAX);
    rig.start(1, "p");
    let first = rig.permit(1);
    let KeptLookup::Missing(own) = rig.kept.find_now("p") else { panic!("nothing is kept yet") };
    rig.start(2, "p");
    own.keep(&values(2, 4));
    assert_eq!(rig.copy(2), values(2, 4), "those who wait get what is there first");
    drop(first);
    rig.start(3, "p");
    assert_eq!(rig.copy(3), values(2, 4));
    assert!(matches!(rig.kept.find_now("p"), KeptLookup::Kept(_)));
}

#[test]
fn the_least_recently_used_kept_state_is_evicted_first() {
    // Each counts for 1000 bytes, its name and 256 bytes more.
    let rig = Rig::new(2600, u64::MAX);
    for (n, name) in [(1, "a"), (2, "b")] {
        rig.start(n, name);
        rig.permit(n).keep(&values(0, 1000));
    }
    assert_eq!((rig.kept.bytes(), rig.budget.used()), (2514, 2514));
    rig.start(3, "a");
    rig.copy(3);
    rig.start(4, "c");
    rig.permit(4).keep(&values(0, 1000));
    rig.start(5, "b");
    drop(rig.permit(5));
    rig.start(6, "a");
    rig.copy(6);
    assert_eq!(rig.kept.bytes(), 2514);
    // States above the limit are not kept, and evict nothing.
    rig.start(7, "d");
    rig.permit(7).keep(&values(0, 3000));
    rig.start(8, "d");
    drop(rig.permit(8));
    assert_eq!(rig.kept.bytes(), 2514);
    assert_eq!([(); 3].map(|()| rig.kept.take_one().is_some()), [true, true, false]);
    assert_eq!((rig.kept.bytes(), rig.budget.used()), (0, 0));
}

#[test]
fn kept_states_count_towards_the_limit_of_all_states() {
    let rig = Rig::new(1 << 20, 2000);
    let held = rig.budget.take(500).unwrap();
    rig.start(1, "a");
    rig.permit(1).keep(&values(0, 1000));
    rig.start(2, "b");
    rig.permit(2).keep(&values(0, 1000));
    assert_eq!(rig.budget.used(), 500 + 1257, "the first made room for the second");
    rig.start(3, "c");
    let Rig { kept, budget, .. } = rig;
    drop(held);
    drop(kept);
    // The START that runs the steps still holds the states.
    assert_eq!(budget.used(), 1257);
    rig.given.lock().clear();
    assert_eq!(budget.used(), 0);
}

#[test]
fn live_sequences_evict_the_least_recently_used_kept_state_of_any_model() {
    let rig = Rig::new(1 << 20, 3000);
    let other = KeptStates::new(1 << 20, rig.budget.clone(), KeptMetrics::default());
    rig.start(1, "a");
    rig.permit(1).keep(&values(0, 1000));
    let KeptLookup::Missing(permit) = other.find_now("b") else { panic!("nothing is kept yet") };
    permit.keep(&values(0, 1000));
    rig.start(2, "a");
    rig.copy(2);
    assert!(rig.budget.take(3001).is_err());
    assert_eq!((rig.kept.bytes(), other.bytes()), (1257, 1257), "nothing is dropped for what does not fit anyway");
    let live = rig.budget.take(1000).unwrap();
    assert_eq!((rig.kept.bytes(), other.bytes()), (1257, 0));
    let more = rig.budget.take(2000).unwrap();
    assert_eq!((rig.kept.bytes(), rig.budget.used()), (0, 3000));
    drop((live, more));
}

#[test]
fn states_of_steps_that_started_before_a_clear_are_not_kept() {
    let rig = Rig::new(1 << 20, u64::MAX);
    rig.start(1, "a");
    rig.permit(1).keep(&values(1, 4));
    rig.start(2, "b");
    let before = rig.permit(2);
    rig.kept.clear();
    assert_eq!((rig.kept.bytes(), rig.budget.used()), (0, 0));
    before.keep(&values(2, 4));
    (3..=4).zip(["a", "b"]).for_each(|(n, name)| rig.start(n, name));
    rig.permit(3).keep(&values(3, 4));
    rig.permit(4).keep(&values(4, 4));
    rig.start(5, "a");
    assert_eq!(rig.copy(5), values(3, 4));
}

#[test]
fn a_start_that_waits_during_a_clear_gets_no_old_states() {
    let rig = Rig::new(1 << 20, u64::MAX);
    (1..=3).for_each(|n| rig.start(n, "p"));
    let before = rig.permit(1);
    rig.kept.clear();
    rig.start(4, "p");
    before.keep(&values(1, 4));
    let own = rig.permit(2);
    assert!(rig.next().is_none(), "one of them runs the steps");
    own.keep(&values(2, 4));
    assert_eq!([rig.copy(3), rig.copy(4)], [values(2, 4), values(2, 4)]);
    rig.start(5, "p");
    assert_eq!(rig.copy(5), values(2, 4));
}

#[test]
fn states_that_cannot_be_kept_evict_nothing() {
    // The states of "a" count for 757 bytes. Those of "b" count for 2,257, which the limit of all states refuses.
    let rig = Rig::new(2600, 3000);
    let live = rig.budget.take(2000).unwrap();
    rig.start(1, "b");
    let large = rig.permit(1);
    rig.start(2, "a");
    rig.permit(2).keep(&values(0, 500));
    large.keep(&values(0, 2000));
    rig.start(3, "a");
    assert_eq!(rig.copy(3), values(0, 500));
    // States whose steps began before a drop also make no room.
    let rig = Rig::new(2600, u64::MAX);
    rig.start(1, "b");
    let large = rig.permit(1);
    rig.kept.clear();
    rig.start(2, "a");
    rig.permit(2).keep(&values(0, 500));
    large.keep(&values(0, 2000));
    rig.start(3, "a");
    assert_eq!(rig.copy(3), values(0, 500));
    drop(live);
}

#[test]
fn a_cancelled_start_does_not_wait_for_the_steps_of_another() {
    let rig = Rig::new(1 << 20, u64::MAX);
    rig.start(1, "p");
    let permit = rig.permit(1);
    let is_over = Arc::new(AtomicBool::new(true));
    let live = Arc::new(AtomicBool::new(false));
    for n in 2..100 {
        rig.start_until(n, "p", if n < 6 { &live } else { &is_over });
    }
    let waiting = Arc::strong_count(&is_over) - 1;
    assert!(waiting <= 5, "{waiting} cancelled STARTs");
    permit.keep(&values(1, 4));
    (2..6).for_each(|n| drop(rig.copy(n)));
}

/// The test model's view of one name.
#[derive(Debug, Default)]
struct Name {
    kept: bool,
    runs: Option<u32>,
    waiting: VecDeque<u32>,
}

proptest! {
    /// STARTs of three names, whose steps succeed or fail in any order. Each START is answered once, one START at a time runs the steps of
    /// a name, and nothing is held at the end.
    #[test]
    fn each_start_is_answered_once(acts in prop::collection::vec((0usize..3, 0u8..4), 1..60)) {
        let rig = Rig::new(1 << 20, u64::MAX);
        let mut names: [Name; 3] = Default::default();
        let mut permits: [Option<KeepPermit>; 3] = Default::default();
        for (n, (name, act)) in (0u32..).zip(acts) {
            let (known, text) = (&mut names[name], ["a", "b", "c"][name]);
            match (act, known.runs) {
                (0 | 1, runs) => {
                    rig.start(n, text);
                    if known.kept {
                        rig.copy(n);
                    } else if runs.is_some() {
                        known.waiting.push_back(n);
                    } else {
                        (known.runs, permits[name]) = (Some(n), Some(rig.permit(n)));
                    }
                }
                (2, Some(_)) => {
                    permits[name].take().unwrap().keep(&values(1, 4));
                    (known.kept, known.runs) = (true, None);
                    for waiting in known.waiting.drain(..) {
                        rig.copy(waiting);
                    }
                }
                (_, Some(_)) => {
                    drop(permits[name].take());
                    known.runs = known.waiting.pop_front();
                    permits[name] = known.runs.map(|next| rig.permit(next));
                }
                _ => {}
            }
            prop_assert!(rig.next().is_none());
        }
        drop(permits);
        while let Some((_, KeptLookup::Missing(permit))) = rig.next() {
            drop(permit);
        }
        while rig.kept.take_one().is_some() {}
        prop_assert_eq!(rig.budget.used(), 0);
    }
}
