//! Successors of a guest: a new instance with the old one's saved state, or another version.

use std::sync::Arc;

use sequor_core::*;
use sequor_wasm::room::{RoomPurpose, RoomShare};

use super::rig::{Rig, plans};
use crate::scheduling::guest::Source;
use crate::scheduling::report::BindingState;
use crate::scheduling::stand_in::{Does, MS, StandInVersion};
use crate::scheduling::startup::{Parked, Unfit};

#[test]
fn a_new_instance_restores_the_saved_bytes() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    rig.wait(10_000);
    rig.keep();
    rig.version.does(Does::Trap);
    rig.submit(1, false, false);
    rig.turn();
    rig.version.does(Does::First);
    rig.wait(100);
    rig.keep();
    assert_eq!(rig.version.script.lock().restored.as_deref(), Some(&b"2"[..]));
}

#[test]
fn a_plug_in_that_traps_during_restarts_gets_strikes_until_it_is_parked() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.drain();
    rig.version.does(Does::Trap);
    rig.submit(1, false, false);
    rig.turn();
    for (does, state) in
        [(Does::TrapInObserve, BindingState::Recovering), (Does::TrapInConfigure, BindingState::Parked)]
    {
        rig.version.does(does);
        rig.wait(400);
        rig.keep();
        assert_eq!(rig.binding.state(), state);
    }
    rig.keep();
    rig.version.does(Does::First);
    rig.submit(1, false, true);
    assert_eq!((rig.drain(), rig.all_answered()), (vec![1], true));
}

/// Takes what is left of a version's room.
fn fill(version: &StandInVersion) -> Vec<RoomShare> {
    std::iter::from_fn(|| version.room.open(1, RoomPurpose::Replacement).ok()).collect()
}

#[test]
fn a_failed_instance_restarts_in_its_own_room() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.drain();
    let _full = fill(&rig.version);
    rig.version.does(Does::Trap);
    rig.submit(1, false, false);
    rig.turn();
    rig.version.does(Does::First);
    rig.wait(150);
    rig.keep();
    assert_eq!((rig.binding.state(), rig.binding.show().strikes), (BindingState::Active, 1));
}

#[test]
fn a_binding_without_room_for_its_first_instance_waits_for_it_without_a_strike() {
    let mut rig = Rig::new(plans(), |_| {});
    let full = fill(&rig.version);
    assert!(matches!(rig.binding.open(), Err(Unfit::NoRoom(_))));
    rig.binding.succeed_without_guest();
    for _ in 0..5 {
        rig.keep();
        rig.wait(1500);
        assert_eq!((rig.binding.state(), rig.binding.show().strikes), (BindingState::Recovering, 0));
    }
    drop(full);
    rig.keep();
    assert_eq!((rig.binding.state(), rig.binding.show().strikes), (BindingState::Active, 0));
    rig.starts(1..=1);
    assert_eq!(rig.drain(), [1]);
}

#[test]
fn a_grown_instance_goes_on_until_there_is_room_for_another() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.version.script.lock().memory = 750;
    rig.drain();
    let full = fill(&rig.version);
    for _ in 0..5 {
        rig.keep();
        rig.wait(1500);
        assert_eq!((rig.version.script.lock().starts, rig.binding.state()), (1, BindingState::Active));
    }
    drop(full);
    rig.keep();
    assert_eq!(
        (rig.version.script.lock().starts, rig.binding.show().strikes),
        (2, 0),
        "tries without room do not count"
    );
}

#[test]
fn a_grown_instance_is_replaced_by_a_new_instance() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.version.script.lock().memory = 750;
    rig.drain();
    assert!(rig.rang());
    rig.version.script.lock().memory = 100;
    rig.keep();
    let script = rig.version.script.lock();
    assert_eq!((script.starts, script.restored.as_deref(), &script.events.kind[..]), (2, Some(&b"1"[..]), &[1][..]));
    drop(script);
    assert_eq!((rig.binding.state(), rig.binding.show().strikes), (BindingState::Active, 0));
}

#[test]
fn an_instance_that_is_large_from_the_start_is_not_replaced() {
    let rig = Rig::new(plans(), |_| {});
    rig.version.script.lock().memory = 900;
    rig.binding.open().unwrap();
    let mut rig = rig;
    rig.starts(1..=2);
    rig.drain();
    assert!(!rig.rang());
}

#[test]
fn a_replacement_is_tried_restored_and_activated() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=3);
    rig.drain();
    let new = StandInVersion::new("77b0", plans());
    new.does(Does::All);
    let source: Arc<dyn Source> = new.clone();
    rig.binding.replace(&source).unwrap();
    {
        let script = new.script.lock();
        // One on trial, and the one that serves, which got the saved state and the live sequences.
        assert_eq!((script.starts, script.restored.as_deref()), (2, Some(&b"3"[..])));
        assert_eq!(script.events.kind, [1, 1, 1]);
    }
    (1..=3).for_each(|id| {
        rig.submit(id, false, true);
    });
    assert_eq!(rig.drain(), [3]);
    assert_eq!((rig.all_answered(), rig.version.script.lock().plans), (true, 3));
    rig.submit(9, true, false);
    rig.drain();
    assert_eq!(
        new.script.lock().events.kind[3..10],
        [6, 3, 5, 3, 5, 3, 5],
        "what happened since, once: the runs before are in what lives already"
    );
}

#[test]
fn a_version_that_fails_its_trial_changes_nothing() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    let bad: [(Does, &str); 3] = [
        (Does::Beyond, "on a recorded round its plan answered index"),
        (Does::Trap, "plan: index out of bounds"),
        (Does::TrapInConfigure, "configure: index out of bounds"),
    ];
    for (does, what) in bad {
        let new = StandInVersion::new("77b0", plans());
        new.does(does);
        let source: Arc<dyn Source> = new;
        let error = rig.binding.replace(&source).unwrap_err().to_string();
        assert!(error.starts_with(what), "{error}");
    }
    let new = StandInVersion::new("77b0", plans());
    new.script.lock().configure = Some("weights.gold must be a number".to_owned());
    let source: Arc<dyn Source> = new;
    assert_eq!(rig.binding.replace(&source).unwrap_err().to_string(), "configure: weights.gold must be a number");
    rig.submit(1, false, false);
    rig.drain();
    assert_eq!((rig.version.script.lock().plans, rig.binding.show().strikes), (3, 0), "the old one goes on");
}

#[test]
fn a_version_that_needs_other_columns_can_replace_the_active_version() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=2);
    rig.drain();
    let new = StandInVersion::new("77b0", Hooks { columns: policy::columns::SEQ, window: 1, ..plans() });
    let source: Arc<dyn Source> = new.clone();
    rig.binding.replace(&source).unwrap();
    rig.submit(1, false, false);
    rig.submit(2, false, false);
    assert_eq!((rig.drain(), new.script.lock().plans > 2), (vec![1, 1], true));
    assert_eq!(new.script.lock().events.kind, [1, 1, 6, 3]);
}

#[test]
fn a_save_that_cannot_be_restored_is_dropped_and_the_guest_starts_fresh() {
    for restore in [Ok(()), Err("another format".to_owned())] {
        for unparks in [false, true] {
            let mut rig = Rig::open(plans(), |_| {});
            rig.starts(1..=1);
            rig.drain();
            rig.wait(10_000);
            rig.keep();
            assert!(rig.binding.saved.lock().bytes.is_some());
            rig.version.script.lock().restore = Some(restore.clone());
            if unparks {
                rig.binding.park();
                rig.binding.unpark().unwrap();
            } else {
                rig.version.does(Does::Trap);
                rig.submit(1, false, false);
                rig.turn();
                rig.version.does(Does::First);
                rig.wait(100);
                rig.keep();
            }
            let shown = rig.binding.show();
            assert_eq!((shown.state, shown.strikes), (BindingState::Active, u32::from(!unparks)), "{restore:?}");
            assert_eq!(rig.binding.saved.lock().bytes, None);
            let lines = rig.binding.journal.after(0);
            assert!(lines.last().unwrap().message.contains("it starts from nothing"), "{lines:?}");
            rig.submit(1, false, true);
            assert_eq!((rig.drain(), rig.version.script.lock().events.kind.first()), (vec![1], Some(&1)));
        }
    }
}

#[test]
fn a_version_that_traps_on_a_save_does_not_replace_the_active_version() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.drain();
    let new = StandInVersion::new("77b0", plans());
    new.script.lock().restore = Some(Ok(()));
    let source: Arc<dyn Source> = new;
    let error = rig.binding.replace(&source).unwrap_err().to_string();
    assert!(error.starts_with("restore: "), "{error}");
}

#[test]
fn a_growing_plug_in_is_replaced_at_most_three_times_a_minute() {
    let mut rig = Rig::open(plans(), |_| {});
    for n in 0..6 {
        rig.version.script.lock().memory = 900;
        rig.submit(n + 1, true, false);
        rig.drain();
        rig.version.script.lock().memory = 100;
        rig.wait(1_000);
        rig.keep();
    }
    assert_eq!((rig.version.script.lock().starts, rig.binding.state()), (4, BindingState::Active));
    // It may grow up to its limit, meanwhile.
    let due = rig.keep().unwrap();
    assert!(due <= Time(61_000 * MS), "{due:?}");
    rig.wait(55_000);
    rig.keep();
    assert_eq!(rig.version.script.lock().starts, 5);
}

#[test]
fn only_an_operators_replacement_of_a_parked_plug_in_decides() {
    for (parked, state) in [(Parked::Decides, BindingState::Active), (Parked::Stays, BindingState::Parked)] {
        let mut rig = Rig::open(plans(), |options| options.strikes = 1);
        rig.starts(1..=1);
        rig.version.does(Does::Trap);
        rig.drain();
        rig.keep();
        assert_eq!(rig.binding.state(), BindingState::Parked);
        let source: Arc<dyn Source> = StandInVersion::new("77b0", plans());
        let ready = rig.binding.ready_for(&source, parked).unwrap();
        rig.binding.take_over(&source, ready);
        let shown = rig.binding.show();
        assert_eq!(
            (shown.state, shown.last_fault.is_some(), shown.strikes > 0),
            (state, parked == Parked::Stays, parked == Parked::Stays)
        );
        rig.submit(2, true, false);
        rig.drain();
        assert_eq!(rig.binding.show().calls, if state == BindingState::Active { 2 } else { 1 });
    }
}
