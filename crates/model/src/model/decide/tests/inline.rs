//! Plug-in calls on a connection's thread, for whole models. Guests are stand-ins.

use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

use super::plugins::{BY, Rig, attach};
use crate::executor::{AfterTurn, ConnectionExecutor};
use crate::model::runtime::Clock;
use crate::model::sequences::RequestOrigin;
use crate::model::tests::{Fixture, request};
use crate::scheduling::report::PluginControl as _;

/// Maximum number of tries to send a request while the instance sleeps.
const TRIES: u64 = 500;
/// Maximum number of models that are tried. On a busy machine, a round may time out while it waits for its guest.
const RIGS: u64 = 100;

/// A model with a plug-in whose time limit is short enough for a connection's thread.
fn quick(plugin: &str) -> Rig {
    // By this clock no step takes any time, even on a slow machine.
    let rig =
        Rig::over(Fixture::by(Clock::manual_for_work()), &[plugin], |rules| rules.time = Duration::from_millis(10));
    rig.load();
    rig
}

/// A model with this plug-in on which this thread did a step and `and` then holds.
fn rig_done_here(make: impl Fn() -> Rig, and: impl Fn(&Rig) -> bool) -> Option<Rig> {
    (0..RIGS).map(|_| make()).find(|rig| done_here(rig, || and(rig)))
}

/// Sends whole sequences of one step, as a connection's thread does, until this thread has done a step and `and` holds. Several tries are
/// needed, because the instance's thread may be faster.
fn done_here(rig: &Rig, and: impl Fn() -> bool) -> bool {
    for id in 1..TRIES {
        let mut connection = ConnectionExecutor::default();
        connection.turn();
        let whole = request(id, 5, |step| (step.start, step.end) = (true, true));
        let served = rig.fixture.repository.find("sum", "").unwrap();
        let mut pending = served
            .submit_from(RequestOrigin { connection: Some(&connection.handle()), ..RequestOrigin::default() }, whole)
            .unwrap();
        let here = connection.next(Waker::noop()) == AfterTurn::Turn;
        drop(connection);
        let answer = match (&mut pending).now_or_never() {
            Some(answer) if here && and() => {
                assert!(answer.is_ok());
                return true;
            }
            Some(answer) => answer,
            None => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending),
        };
        assert!(answer.is_ok());
        // Lets the instance's thread go to sleep.
        thread::yield_now();
    }
    false
}

#[test]
fn a_plug_in_that_answers_quickly_is_asked_by_the_thread_of_the_socket() {
    for plugin in ["all", "admit"] {
        let attached = || {
            let rig = quick(plugin);
            rig.fixture.repository.attach(&attach(plugin), BY).unwrap();
            rig
        };
        let shown = |rig: &Rig| rig.fixture.repository.show(plugin).unwrap().attached.remove(0);
        let asked_here = |rig: &Rig| {
            let script = Arc::clone(&rig.versions.lock()[plugin].script);
            let asked_by = script.lock().asked_by;
            // No round may have waited for the guest in vain. A slow moment of the machine can cause that.
            asked_by == Some(thread::current().id()) && shown(rig).fallbacks == 0
        };
        let rig = rig_done_here(attached, asked_here).unwrap_or_else(|| panic!("{plugin}"));
        assert_eq!(shown(&rig).strikes, 0, "{plugin}");
    }
}

#[test]
fn a_parked_plug_in_does_not_prevent_inline_steps() {
    let parked = || {
        let rig = quick("all");
        rig.fixture.repository.attach(&attach("all"), BY).unwrap();
        rig.fixture.repository.park("all", BY).unwrap();
        rig
    };
    let rig = rig_done_here(parked, |_| true).unwrap();
    assert_eq!(rig.plans("all"), 0);
}
