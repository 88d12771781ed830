//! Threads that act at the same time: each acts on its own guest only, and none waits without need.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::Mutex;
use sequor_core::*;

use super::rig::{LOAD, Rig, plans};
use crate::scheduling::guest::{Source, Strike};
use crate::scheduling::report::BindingState;
use crate::scheduling::stand_in::{MS, StandInVersion};

fn until(what: &str, is: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(180), "{what}");
        std::thread::yield_now();
    }
}

/// A strike that ends late meets the instance that replaced its guest.
#[test]
fn a_late_strike_does_not_remove_the_new_instance() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    let active = rig.active().unwrap();
    let slow = rig.binding.last_fault.lock();
    let at = &rig.binding;
    std::thread::scope(|scope| {
        scope.spawn(|| at.strike(Some(&active), &Strike { fault: PolicyFault::Trap, what: "it fell".to_owned() }));
        until("the strike counts", || at.state() == BindingState::Recovering);
        rig.clock.0.fetch_add(100 * MS, std::sync::atomic::Ordering::Relaxed);
        at.maintain();
        drop(slow);
    });
    assert_eq!(rig.binding.state(), BindingState::Active);
    assert!(rig.active().is_some(), "it is active, so it has a guest");
    rig.turn();
    assert_eq!((rig.binding.show().calls, rig.binding.show().fallbacks), (1, 0));
}

/// A guest on trial that answers slowly.
#[test]
fn no_request_waits_for_a_guest_on_trial() {
    let mut rig = Rig::open(plans(), |_| {});
    rig.starts(1..=1);
    rig.drain();
    let new = StandInVersion::new("77b0", plans());
    let gate = Arc::new(Mutex::new(()));
    new.script.lock().gate = Some(Arc::clone(&gate));
    let held = gate.lock();
    let source: Arc<dyn Source> = new.clone();
    let at = &rig.binding;
    std::thread::scope(|scope| {
        scope.spawn(|| at.dry_run(source.as_ref()).unwrap());
        until("it is asked", || Arc::strong_count(&gate) > 2);
        let free = at.recent.try_lock().is_some();
        drop(held);
        assert!(free);
    });
}

/// While a guest starts, or saves its state.
#[test]
fn parking_waits_for_no_call_and_no_start() {
    let rig = Rig::open(plans(), |_| {});
    let making = rig.binding.making.lock();
    let active = rig.active().unwrap();
    let saving = active.wait();
    let at = &rig.binding;
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            at.park();
            let _ = done.send(());
        });
        let parked = is_done.recv_timeout(Duration::from_secs(60));
        drop((saving, making));
        assert!(parked.is_ok());
    });
    assert_eq!((rig.binding.state(), rig.active().is_none()), (BindingState::Parked, true));
    assert!(rig.desk.core.lock().consult(Time::ZERO, LOAD).is_none(), "no guest is asked any more");
}

/// Started before an operator parked the binding, put in place after that.
#[test]
fn a_plug_in_parked_while_its_successor_is_made_stays_parked() {
    let mut rig = Rig::open(plans(), |_| {});
    let source: Arc<dyn Source> = StandInVersion::new("77b0", plans());
    let ready = rig.binding.ready_for(&source, crate::scheduling::startup::Parked::Decides).unwrap();
    rig.binding.park();
    rig.binding.take_over(&source, ready);
    rig.starts(1..=2);
    assert_eq!((rig.drain(), rig.binding.state(), rig.binding.show().calls), (vec![2], BindingState::Parked, 0));
    rig.binding.unpark().unwrap();
    rig.submit(1, false, false);
    rig.drain();
    assert_eq!((rig.binding.state(), rig.binding.show().calls), (BindingState::Active, 1));
}

/// A guest that saves slowly costs the callers meanwhile the time of one call, together.
#[test]
fn a_slow_save_is_waited_for_once() {
    let mut rig = Rig::open(plans(), |options| options.limits.time = Duration::from_millis(1));
    rig.starts(1..=1);
    let gate = Arc::new(Mutex::new(()));
    rig.version.script.lock().gate = Some(Arc::clone(&gate));
    let held = gate.lock();
    let active = rig.active().unwrap();
    std::thread::scope(|scope| {
        let binding = &rig.binding;
        scope.spawn(|| binding.save());
        until("it saves", || Arc::strong_count(&gate) > 2);
        until("those who ask have waited", || active.patience(Duration::from_millis(1)).is_zero());
        let entered = active.enter(Duration::from_millis(1)).is_some();
        drop(held);
        assert!(!entered, "no thread waits for it any more");
    });
    assert!(active.patience(Duration::from_millis(1)) > Duration::from_millis(1), "of one that answers");
    rig.version.script.lock().gate = None;
    assert_eq!((rig.turn(), rig.binding.show().calls, rig.binding.show().strikes), (Some(1), 1, 0));
}
