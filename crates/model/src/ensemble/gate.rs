//! `max_inflight_requests`: the maximum requests in flight of each step of an ensemble, and of all steps together. Other requests wait in
//! order.
//!
//! A request passes the gate of the whole ensemble once it has all its slots, and holds its place there until it ends. The steps of
//! admitted requests can always run, so gates cannot wait for each other. The gate of the whole ensemble also bounds the number of requests
//! that wait between two steps.
//!
//! Requests that are over while they wait are removed once the queue has twice the length that it had after the last removal.

use std::collections::VecDeque;

use crate::sync::Mutex;

/// One gate of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnsembleGate {
    /// In front of all steps.
    Whole,
    /// In front of one step.
    Step(usize),
}

/// A request at a gate.
pub(crate) trait GatedRequest {
    /// Whether it needs no place any more. Called under the gate's lock, so it must call no gate.
    fn is_over(&self) -> bool;
}

/// The gates of an ensemble. `T` is a waiting request.
#[derive(Debug)]
pub(crate) struct EnsembleGates<T> {
    /// `None` without a maximum: the gates are always open.
    gates: Option<Gates<T>>,
}

#[derive(Debug)]
struct Gates<T> {
    whole: Mutex<GateState<T>>,
    steps: Vec<Mutex<GateState<T>>>,
}

#[derive(Debug)]
struct GateState<T> {
    maximum: u32,
    inside: u32,
    waiting: VecDeque<T>,
    /// At this length, a request that comes removes those that are over. Nothing else bounds their number.
    prune_at: usize,
    /// Whether a thread is admitting waiting requests. Before it stops, it looks for one more.
    is_admitting: bool,
}

/// Requests that may wait before those that are over are looked for.
const FEW: usize = 16;

impl<T: GatedRequest> GateState<T> {
    fn new(maximum: u32) -> Mutex<GateState<T>> {
        Mutex::new(GateState { maximum, inside: 0, waiting: VecDeque::new(), prune_at: FEW, is_admitting: false })
    }

    /// Queues a request. Returns those that are over.
    fn push(&mut self, request: T) -> Vec<T> {
        let mut over = Vec::new();
        if self.waiting.len() >= self.prune_at {
            for before in std::mem::take(&mut self.waiting) {
                if before.is_over() { over.push(before) } else { self.waiting.push_back(before) }
            }
            self.limit_growth();
        }
        self.waiting.push_back(request);
        over
    }

    /// Lets the queue grow to twice its length before the next look.
    fn limit_growth(&mut self) {
        self.prune_at = (2 * self.waiting.len()).max(FEW);
    }

    /// The next request to admit. If there is none, clears `is_admitting`.
    fn admit_next(&mut self) -> Option<T> {
        let next = if self.inside < self.maximum { self.waiting.pop_front() } else { None };
        if next.is_some() {
            self.inside += 1;
            if 4 * self.waiting.len() < self.prune_at {
                self.limit_growth();
            }
        } else {
            self.is_admitting = false;
        }
        next
    }
}

impl<T: GatedRequest> EnsembleGates<T> {
    /// Creates gates that admit `maximum` requests into each step, and `steps` times as many into the whole ensemble.
    pub(crate) fn new(steps: usize, maximum: Option<u32>) -> EnsembleGates<T> {
        let gates = |maximum: u32| Gates {
            whole: GateState::new(maximum.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))),
            steps: std::iter::repeat_with(|| GateState::new(maximum)).take(steps).collect(),
        };
        EnsembleGates { gates: maximum.map(gates) }
    }

    fn find(&self, gate: EnsembleGate) -> Option<&Mutex<GateState<T>>> {
        let gates = self.gates.as_ref()?;
        match gate {
            EnsembleGate::Whole => Some(&gates.whole),
            EnsembleGate::Step(step) => gates.steps.get(step),
        }
    }

    /// Admits a request, or queues it until there is room. Returns whether it was admitted.
    pub(crate) fn enter(&self, gate: EnsembleGate, request: T) -> bool {
        let Some(gate) = self.find(gate) else { return true };
        let mut gate = gate.lock();
        let enters = gate.inside < gate.maximum && gate.waiting.is_empty();
        let over = if enters {
            gate.inside += 1;
            Vec::new()
        } else {
            gate.push(request)
        };
        drop(gate);
        drop(over);
        enters
    }

    /// Number of requests in the queue of a gate.
    #[cfg(test)]
    pub(crate) fn waiting(&self, gate: EnsembleGate) -> usize {
        self.find(gate).map_or(0, |gate| gate.lock().waiting.len())
    }

    /// Removes a request from the gate and calls `admit`, without the gate's lock, for each request that enters in its place. If a request
    /// leaves within `admit`, this same loop replaces it: the depth of calls does not grow with the number of requests.
    pub(crate) fn leave(&self, gate: EnsembleGate, mut admit: impl FnMut(T)) {
        let Some(gate) = self.find(gate) else { return };
        {
            let mut gate = gate.lock();
            gate.inside = gate.inside.saturating_sub(1);
            if std::mem::replace(&mut gate.is_admitting, true) {
                return;
            }
        }
        loop {
            let next = gate.lock().admit_next();
            match next {
                Some(next) => admit(next),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Weak};

    use super::*;

    impl GatedRequest for char {
        fn is_over(&self) -> bool {
            false
        }
    }

    impl GatedRequest for i32 {
        fn is_over(&self) -> bool {
            false
        }
    }

    impl GatedRequest for () {
        fn is_over(&self) -> bool {
            false
        }
    }

    /// Over once its client has dropped the other half.
    impl GatedRequest for Weak<char> {
        fn is_over(&self) -> bool {
            self.strong_count() == 0
        }
    }

    #[test]
    fn requests_that_are_over_do_not_gather_at_a_full_gate() {
        let gates = EnsembleGates::new(1, Some(1));
        let gate = EnsembleGate::Whole;
        let enter = |request: &Arc<char>| gates.enter(gate, Arc::downgrade(request));
        let inside = Arc::new('a');
        assert!(enter(&inside));
        let mut live = Vec::new();
        for n in 0..10_000 {
            let request = Arc::new('b');
            assert!(!enter(&request));
            if n % 100 == 0 {
                live.push(request);
            }
        }
        assert!(gates.waiting(gate) <= 2 * live.len() + FEW, "{} wait", gates.waiting(gate));
        let admitted = RefCell::new(0);
        while gates.waiting(gate) > 0 {
            gates.leave(gate, |next| *admitted.borrow_mut() += u32::from(!next.is_over()));
        }
        assert_eq!(admitted.into_inner(), 100, "those that are not over have kept their places");
        (0..1000).for_each(|_| assert!(!enter(&Arc::new('c'))));
        assert!(gates.waiting(gate) <= 2 * FEW, "a long queue before changes nothing");
    }

    #[test]
    fn a_full_step_lets_the_next_one_in_when_one_leaves() {
        let gates = EnsembleGates::new(2, Some(2));
        let step = EnsembleGate::Step(0);
        let entered = [gates.enter(step, 'a'), gates.enter(step, 'b'), gates.enter(step, 'c')];
        assert_eq!((entered, gates.enter(EnsembleGate::Step(1), 'c')), ([true, true, false], true));
        let admitted = RefCell::new(Vec::new());
        let leave = || gates.leave(step, |next| admitted.borrow_mut().push(next));
        leave();
        leave();
        assert_eq!(*admitted.borrow(), ['c']);
        assert_eq!([gates.enter(step, 'd'), gates.enter(step, 'e')], [true, false]);
        let open = EnsembleGates::new(1, None);
        assert!((0..100).all(|n| open.enter(step, n)));
        open.leave(step, |_| unreachable!());
    }

    #[test]
    fn the_gate_of_an_ensemble_admits_as_many_requests_as_all_its_steps() {
        let gates = EnsembleGates::new(3, Some(2));
        let entered: Vec<bool> = (0..8).map(|n| gates.enter(EnsembleGate::Whole, n)).collect();
        assert_eq!(entered, [true, true, true, true, true, true, false, false]);
    }

    #[test]
    fn requests_that_leave_as_soon_as_they_enter_do_not_nest() {
        let gates = EnsembleGates::new(1, Some(1));
        assert!(gates.enter(EnsembleGate::Whole, 0));
        assert!((1..100_000).all(|n| !gates.enter(EnsembleGate::Whole, n)));
        fn leave(gates: &EnsembleGates<i32>, depth: u32, seen: &RefCell<Vec<i32>>) {
            assert!(depth < 3);
            gates.leave(EnsembleGate::Whole, |next| {
                seen.borrow_mut().push(next);
                leave(gates, depth + 1, seen);
            });
        }
        let seen = RefCell::default();
        leave(&gates, 0, &seen);
        assert!(seen.borrow().iter().copied().eq(1..100_000));
        assert!(gates.enter(EnsembleGate::Whole, 0), "all have left");
    }

    /// Each request counts itself in and leaves, which admits the next one.
    #[test]
    fn threads_lose_no_request_and_never_exceed_the_maximum() {
        const THREADS: u32 = 8;
        const EACH: u32 = 2000;
        fn run(gates: &EnsembleGates<()>, inside: &AtomicU32, done: &AtomicU32) {
            assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
            inside.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            gates.leave(EnsembleGate::Whole, |()| run(gates, inside, done));
        }
        let (gates, inside, done) = (EnsembleGates::new(1, Some(3)), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        if gates.enter(EnsembleGate::Whole, ()) {
                            run(&gates, &inside, &done);
                        }
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), THREADS * EACH);
    }
}
