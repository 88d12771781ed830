//! `max_inflight_requests`: how many requests of an ensemble may be in flight of each step. The others wait in front of it, in order.
//!
//! A request in a step waits for no other gate, so gates cannot wait for each other.

use std::collections::VecDeque;

use crate::sync::Mutex;

/// The gates of an ensemble's steps. `T` is a request that waits.
#[derive(Debug)]
pub(crate) struct StepGates<T> {
    maximum: Option<u32>,
    gates: Vec<Mutex<StepGate<T>>>,
}

#[derive(Debug)]
struct StepGate<T> {
    inside: u32,
    waiting: VecDeque<T>,
}

impl<T> StepGates<T> {
    /// Gates that let so many requests in; without a maximum they are always open.
    pub(crate) fn new(steps: usize, maximum: Option<u32>) -> StepGates<T> {
        let gate = || Mutex::new(StepGate { inside: 0, waiting: VecDeque::new() });
        StepGates { maximum, gates: std::iter::repeat_with(gate).take(steps).collect() }
    }

    /// Lets a request into a step, or keeps it until there is room. Whether it is in.
    pub(crate) fn enter(&self, step: usize, request: T) -> bool {
        let (Some(maximum), Some(gate)) = (self.maximum, self.gates.get(step)) else { return true };
        let mut gate = gate.lock();
        let enters = gate.inside < maximum && gate.waiting.is_empty();
        if enters {
            gate.inside += 1;
        } else {
            gate.waiting.push_back(request);
        }
        enters
    }

    /// A request leaves a step. Returns the one that enters in its place.
    pub(crate) fn leave(&self, step: usize) -> Option<T> {
        let (Some(_), Some(gate)) = (self.maximum, self.gates.get(step)) else { return None };
        let mut gate = gate.lock();
        let next = gate.waiting.pop_front();
        if next.is_none() {
            gate.inside = gate.inside.saturating_sub(1);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_step_lets_the_next_one_in_when_one_leaves() {
        let gates = StepGates::new(2, Some(2));
        assert_eq!(
            [gates.enter(0, 'a'), gates.enter(0, 'b'), gates.enter(0, 'c'), gates.enter(1, 'c')],
            [true, true, false, true]
        );
        assert_eq!((gates.leave(0), gates.leave(0)), (Some('c'), None));
        assert_eq!([gates.enter(0, 'd'), gates.enter(0, 'e')], [true, false]);
        let open = StepGates::new(1, None);
        assert!((0..100).all(|n| open.enter(0, n)) && open.leave(0).is_none());
    }
}
