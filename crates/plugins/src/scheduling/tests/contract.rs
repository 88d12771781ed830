//! The contract's promises beyond answers: events go with questions, a model's own `max_wait` holds, codes have texts.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{RejectionReason, RejectionStatus};
use crate::scheduling::AT_ONCE;
use crate::scheduling::guest::Source;
use crate::scheduling::stand_in::{Does, StandInVersion};
use crate::scheduling::tests::rig::{MS, Rig, plans};

#[test]
fn events_are_sent_with_the_next_question() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=4);
    rig.drain();
    rig.submit(1, false, true);
    rig.drain();
    let script = rig.version.script.lock();
    assert_eq!((script.observed, script.plans), (0, 5), "one call a question");
    assert_eq!(script.events.kind.iter().filter(|kind| **kind == 3).count(), 4);
    drop(script);
    // If more events wait than go with a question, they are reported before it.
    rig.starts(11..=10 + AT_ONCE as u64);
    rig.turn();
    let script = rig.version.script.lock();
    assert_eq!((script.observed, script.plans), (1, 6));
}

#[test]
fn a_guest_that_is_far_behind_with_its_events_makes_one_call_for_a_question() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.drain();
    let before = rig.version.script.lock().events.kind.len();
    for first in (2..=10_001).step_by(100) {
        rig.starts(first..=first + 99);
        rig.hand_over_events();
    }
    let calls = |rig: &Rig| {
        let script = rig.version.script.lock();
        script.observed + script.plans
    };
    let (asked, plans) = (calls(&rig), rig.version.script.lock().plans);
    assert!(rig.turn().is_some(), "the built-in policy decides");
    assert!(calls(&rig) <= asked + 2, "{} calls", calls(&rig) - asked);
    assert_eq!((rig.version.script.lock().plans, rig.rang()), (plans, true), "it is asked once it has caught up");
    rig.keep();
    while rig.rang() {
        rig.keep();
    }
    rig.turn();
    let script = rig.version.script.lock();
    assert_eq!(script.plans, plans + 1);
    // Each of the sequences began once, in their order.
    let kinds = script.events.kind.iter().zip(&script.events.keys).skip(before);
    let began: Vec<u64> = kinds.filter(|(kind, _)| **kind == 1).map(|(_, key)| *key).collect();
    assert_eq!(began, (2..=10_001).map(|id| id * 100).collect::<Vec<u64>>());
    assert_eq!(rig.binding.show().strikes, 0);
}

#[test]
fn a_guest_that_takes_too_much_of_a_core_is_passed_over_and_gets_no_strike() {
    let mut rig = Rig::open(plans(), |options| options.cpu_share = Some(50));
    rig.starts(1..=3);
    assert_eq!(rig.turn(), Some(1));
    rig.binding.cpu_share.add(Duration::from_millis(501));
    assert_eq!(rig.turn(), Some(2), "the built-in policy takes all that is ready");
    let passed_over = |rig: &Rig| {
        let text = rig.metrics.encode();
        let line = text.lines().find(|line| line.starts_with("sequor_plugin_passed_over_total")).map(str::to_owned);
        line.and_then(|line| line.rsplit_once(' ')?.1.parse::<u32>().ok())
    };
    let shown = rig.binding.show();
    assert_eq!((passed_over(&rig), shown.strikes, shown.fallbacks, shown.calls), (Some(1), 0, 1, 1));
    rig.wait(1000);
    rig.submit(1, false, false);
    rig.turn();
    assert_eq!((rig.binding.show().calls, passed_over(&rig)), (2, Some(1)));
}

#[test]
fn a_guest_that_is_asked_nothing_observes_events_without_a_question() {
    let only_observes = sequor_core::Hooks { observe: true, keys: 1, ..sequor_core::Hooks::default() };
    let mut rig = Rig::open(only_observes, |_| {});
    let began = rig.version.script.lock().observed;
    // The core delivers events once many wait.
    rig.starts(1..=1100);
    rig.turn();
    rig.hand_over_events();
    assert!(rig.rang(), "at first it is not known to be quick");
    rig.keep();
    let script = rig.version.script.lock();
    assert!(script.observed > began && script.events.kind.len() >= 1000, "{} events", script.events.kind.len());
    assert_eq!(script.plans, 0);
}

/// A guest that observes and gets no questions. Returns how often it has observed since the last look.
fn observer(change: impl FnOnce(&mut crate::scheduling::BindingOptions)) -> (Rig, impl FnMut(&Rig) -> u64) {
    let rig = Rig::open(sequor_core::Hooks { observe: true, keys: 1, ..sequor_core::Hooks::default() }, change);
    rig.keep();
    let mut before = rig.version.script.lock().observed;
    let since = move |rig: &Rig| {
        let now = rig.version.script.lock().observed;
        now - std::mem::replace(&mut before, now)
    };
    (rig, since)
}

#[test]
fn events_are_observed_on_the_maintenance_thread_unless_that_is_quick() {
    let (mut rig, mut observed) = observer(|_| {});
    rig.starts(1..=2);
    rig.turn();
    rig.hand_over_events();
    assert_eq!((observed(&rig), rig.rang()), (0, true), "nothing is known of it");
    rig.keep();
    assert_eq!((observed(&rig), rig.binding.show().calls), (1, 1));
    rig.starts(3..=4);
    rig.turn();
    rig.hand_over_events();
    assert_eq!((observed(&rig), rig.binding.show().calls), (1, 2), "it is quick");
    // A call that may take long is left to the maintenance thread.
    let (mut rig, mut observed) = observer(|options| options.limits.time = Duration::from_millis(50));
    for _ in 0..2 {
        rig.starts(1..=2);
        rig.turn();
        rig.hand_over_events();
        assert_eq!(observed(&rig), 0);
        rig.keep();
        assert_eq!(observed(&rig), 1);
    }
}

#[test]
fn many_events_are_observed_in_parts_and_other_guests_get_their_turn() {
    let (mut rig, mut observed) = observer(|_| {});
    for n in 0..10 {
        rig.starts(n * AT_ONCE as u64 + 1..=(n + 1) * AT_ONCE as u64);
        rig.hand_over_events();
    }
    assert!(rig.rang());
    rig.keep();
    assert_eq!((observed(&rig), rig.rang()), (8, true));
    rig.keep();
    assert_eq!((observed(&rig), rig.rang()), (2, false));
    assert!(rig.version.script.lock().events.kind.len() >= 10 * AT_ONCE);
}

#[test]
fn a_guest_without_a_share_of_a_core_observes_later() {
    let (mut rig, mut observed) = observer(|options| options.cpu_share = Some(50));
    rig.binding.cpu_share.add(Duration::from_millis(501));
    rig.starts(1..=2);
    rig.turn();
    rig.hand_over_events();
    assert_eq!(rig.keep(), Some(sequor_core::Time(1000 * MS)));
    assert_eq!(observed(&rig), 0);
    rig.wait(1000);
    rig.keep();
    assert_eq!(observed(&rig), 1);
}

#[test]
fn a_failed_observe_counts_as_time_of_the_guest() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.version.does(Does::TrapInObserve);
    rig.starts(1..=2 * AT_ONCE as u64);
    assert!(!rig.binding.inline_gate.is_open(sequor_core::Time(0)), "nothing is known of it");
    rig.turn();
    assert_eq!((rig.version.script.lock().observed, rig.binding.show().strikes), (1, 1));
    assert!(rig.binding.inline_gate.is_open(sequor_core::Time(0)));
}

#[test]
fn loads_of_a_model_add_up_in_the_gauge_of_memory() {
    let rig = Rig::open(plans(), |_| {});
    let gauge = rig.metrics.plugin("puppet").memory_at("encoder");
    rig.binding.shows_memory(70);
    // The same plug-in at another load of the model.
    let other = rig.binding_of_another_load();
    other.shows_memory(5);
    assert_eq!(gauge.get(), 75);
    rig.binding.close();
    assert_eq!(gauge.get(), 5);
    drop(other);
    assert_eq!(gauge.get(), 0);
}

#[test]
fn a_models_own_max_wait_takes_the_place_of_the_default() {
    let mut rig = Rig::open(plans(), |options| options.max_wait = Some(Duration::from_secs(5)));
    rig.version.does(Does::Starve);
    rig.starts(1..=2);
    assert_eq!(rig.drain(), [1]);
    rig.wait(4999);
    assert_eq!(rig.turn(), None);
    rig.wait(1);
    assert_eq!((rig.turn(), rig.binding.show().fallbacks), (Some(1), 1));
}

#[test]
fn clients_get_the_rejection_reasons_of_the_deciding_version() {
    let text = "this tenant is over its quota".to_owned();
    let reason = RejectionReason { text, status: RejectionStatus::ResourceExhausted, retry_after: None };
    let version = StandInVersion::names_code("3f2a", plans(), reason.clone());
    let rig = Rig::around(version.clone(), version, |_| {});
    assert_eq!(rig.binding.port.rejection(7), None, "it decides nothing yet");
    rig.binding.open().unwrap();
    assert_eq!((rig.binding.port.rejection(7), rig.binding.port.rejection(8)), (Some(reason), None));
    let source: Arc<dyn Source> = StandInVersion::new("77b0", plans());
    rig.binding.replace(&source).unwrap();
    assert_eq!(rig.binding.port.rejection(7), None);
}
