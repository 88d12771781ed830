//! Replacement of one guest by another: no round is lost, a failure changes nothing, and every lost round is counted.

use std::sync::Arc;

use sequor_core::*;

use super::rig::{LOAD, Rig, admits, plans};
use crate::scheduling::Decider;
use crate::scheduling::guest::Source;
use crate::scheduling::report::BindingState;
use crate::scheduling::stand_in::{Does, StandInVersion};
use crate::scheduling::startup::Parked;

/// Hooks with one column and without events.
fn few() -> Hooks {
    Hooks { observe: false, columns: policy::columns::SEQ, window: 1, ..plans() }
}

fn who() -> Instance {
    Instance { load: LOAD, n: 0 }
}

impl Rig {
    /// A question that its instance has fetched and not asked yet, with its plug-in.
    fn fetched(&mut self) -> (Box<Round>, Decider) {
        let next = self.desk.core.lock().next(Time::ZERO, who(), &mut Vec::new());
        self.asked(next)
    }

    fn asked(&self, next: Next) -> (Box<Round>, Decider) {
        let Next::Ask(round) = next else { panic!("{next:?}") };
        (round, self.decider())
    }

    /// Asks the question. Returns whether the instance asks again.
    fn put(&mut self, (mut round, decider): (Box<Round>, Decider)) -> Next {
        let answer = decider.ask(&mut round).answer;
        let mut out = Vec::new();
        let next = self.desk.core.lock().answer(Time::ZERO, round, answer, &mut out);
        self.take(out);
        next
    }

    fn replaced(&self, hooks: Hooks) -> Arc<StandInVersion> {
        let new = StandInVersion::new("77b0", hooks);
        let source: Arc<dyn Source> = new.clone();
        self.binding.replace(&source).unwrap();
        new
    }

    fn fallbacks(&self) -> u64 {
        self.binding.show().fallbacks
    }
}

#[test]
fn an_open_question_is_rebuilt_for_the_version_that_replaces_the_old() {
    let pairs = [(plans(), few()), (few(), plans()), (plans(), admits()), (admits(), plans()), (plans(), plans())];
    for (before, after) in pairs {
        let mut rig = Rig::open(before, |_| {});
        rig.starts(1..=2);
        if before.admit {
            rig.turn();
        }
        let round = rig.fetched();
        let new = rig.replaced(after);
        let next = rig.put(round);
        let asked = rig.asked(next);
        assert_eq!(asked.0.hooks.columns, after.columns);
        assert!(matches!(rig.put(asked), Next::Run(_)));
        assert_eq!((new.script.lock().plans > 0, rig.fallbacks()), (true, 0));
    }
}

#[test]
fn a_guest_without_observe_gets_no_events_while_its_successor_starts() {
    let mut rig = Rig::open(few(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    let ready = {
        let source: Arc<dyn Source> = StandInVersion::new("77b0", plans());
        rig.binding.ready_for(&source, Parked::Stays).unwrap()
    };
    // It then decides, with the columns that it wants.
    rig.submit(1, false, false);
    assert_eq!(rig.drain(), [1]);
    assert_eq!((rig.version.script.lock().events.len(), rig.fallbacks()), (0, 0));
    drop(ready);
    rig.submit(1, false, false);
    assert!(!rig.fetched().0.hooks.observe, "no guest listens any more");
}

#[test]
fn a_successor_observes_each_event_during_its_start_once() {
    let mut rig = Rig::open(few(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    let new = StandInVersion::new("77b0", plans());
    let source: Arc<dyn Source> = new.clone();
    let ready = rig.binding.ready_for(&source, Parked::Stays).unwrap();
    rig.submit(1, false, false);
    rig.drain();
    rig.binding.take_over(&source, ready);
    rig.submit(2, false, false);
    rig.drain();
    let script = new.script.lock();
    assert_eq!((&script.events.kind[..], script.plans), (&[1, 1, 6, 3][..], 1), "two live, and one ran since");
    assert_eq!(rig.fallbacks(), 0);
}

#[test]
fn a_successor_that_fails_to_start_changes_nothing() {
    let mut rig = Rig::open(few(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    let round = {
        rig.submit(1, false, false);
        rig.fetched()
    };
    let new = StandInVersion::new("77b0", plans());
    new.does(Does::TrapInObserve);
    let source: Arc<dyn Source> = new;
    let error = rig.binding.replace(&source).unwrap_err().to_string();
    assert_eq!(error, "observe: index out of bounds, src/lib.rs:41");
    // The core reported events for a while and made the question again because of that. No other guest decided.
    let next = rig.put(round);
    let asked = rig.asked(next);
    assert!(!asked.0.hooks.observe && matches!(rig.put(asked), Next::Run(_)));
    assert_eq!((rig.binding.state(), rig.fallbacks(), rig.binding.show().strikes), (BindingState::Active, 0, 0));
}

/// A plug-in that is parked for an answer may be detached before the answer arrives.
#[test]
fn the_round_that_parks_a_plug_in_counts_once_in_any_order() {
    for keeper_first in [true, false] {
        let mut rig = Rig::open(plans(), |options| options.strikes = 1);
        rig.starts(1..=1);
        rig.version.does(Does::Trap);
        let (mut round, decider) = rig.fetched();
        let answer = decider.ask(&mut round).answer;
        if keeper_first {
            rig.keep();
        }
        let mut out = Vec::new();
        let next = rig.desk.core.lock().answer(Time::ZERO, round, answer, &mut out);
        rig.take(out);
        rig.keep();
        rig.take(Vec::new());
        assert!(matches!(next, Next::Run(_)), "{next:?}");
        assert_eq!((rig.binding.state(), rig.fallbacks()), (BindingState::Parked, 1), "{keeper_first}");
    }
}

#[test]
fn every_round_without_a_guest_is_counted_once() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.version.does(Does::Trap);
    for n in 1..=4 {
        rig.submit(n, true, false);
        assert_eq!(rig.turn(), Some(1));
    }
    // The round of the strike, and three while no guest ran.
    assert_eq!((rig.binding.state(), rig.binding.show().calls, rig.fallbacks()), (BindingState::Recovering, 1, 4));
    rig.binding.close();
    rig.starts(7..=8);
    rig.drain();
    assert_eq!(rig.fallbacks(), 4, "once it is off, nothing is its own");
}

#[test]
fn a_succeeded_binding_no_longer_affects_the_core() {
    let mut rig = Rig::open(plans(), |options| options.strikes = 1);
    let old = Rig::new(plans(), |_| {});
    let (port, binding) = (Arc::clone(&rig.binding.port), Arc::into_inner(old.binding).unwrap());
    let next = Arc::new(crate::scheduling::SchedulerBinding { port, ..binding });
    let ready = next.prepare().unwrap();
    rig.starts(1..=1);
    rig.version.does(Does::Trap);
    let (mut round, decider) = rig.fetched();
    decider.ask(&mut round);
    let before = next.succeed(ready).unwrap();
    assert!(Arc::ptr_eq(&before, &rig.binding));
    // It is parked, and would otherwise have made the core ask no guest.
    assert_eq!(rig.keep(), None);
    rig.binding.park();
    rig.binding = next;
    let next = rig.put((round, decider));
    let asked = rig.asked(next);
    assert!(matches!(rig.put(asked), Next::Run(_)));
    assert_eq!((old.version.script.lock().plans, rig.fallbacks()), (1, 0), "the one that came is asked");
}
