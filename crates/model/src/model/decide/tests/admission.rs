//! Schedulers that choose which sequences get slots, at whole models. Guests are stand-ins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sequor_core::{EndReason, Refusal};

use super::plugins::{BY, Rig, attach};
use crate::error::Failure;
use crate::model::runtime::Clock;
use crate::model::tests::{Fixture, request};
use crate::scheduling::report::PluginControl as _;
use crate::scheduling::stand_in::{Does, Meanwhile};

#[test]
fn the_instance_thread_asks_the_plug_in_for_admissions() {
    let rig = Rig::new(&["admit"]);
    rig.fixture.repository.attach(&attach("admit"), BY).unwrap();
    (1..=3).for_each(|id| rig.sequence(id));
    let shown = rig.fixture.repository.show("admit").unwrap().attached.remove(0);
    assert_eq!((shown.fallbacks, shown.strikes, shown.calls >= 12), (0, 0, true));
}

/// A sequence that arrives during an admission is in the next question, but sequences with a slot run first.
#[test]
fn sequences_that_arrive_during_an_admission_do_not_delay_running_sequences() {
    const COME: u64 = 20;
    let rig = Rig::new(&["admit"]);
    rig.fixture.repository.attach(&attach("admit"), BY).unwrap();
    let (come, answers) = (AtomicU64::new(0), Arc::new(Mutex::new(Vec::new())));
    let (repository, kept) = (rig.fixture.repository.clone(), Arc::clone(&answers));
    let meanwhile = move || {
        let id = 100 + come.fetch_add(1, Ordering::Relaxed);
        if id < 100 + COME {
            kept.lock().push(repository.submit(request(id, 5, |s| (s.start, s.end) = (true, true))).unwrap());
        }
    };
    let script = Arc::clone(&rig.versions.lock()["admit"].script);
    script.lock().meanwhile = Meanwhile(Some(Arc::new(meanwhile)));
    rig.fixture.sum(1, 5, |s| (s.start, s.end) = (true, true));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for n in 0..COME {
        while answers.lock().is_empty() {
            std::thread::yield_now();
        }
        let answer = answers.lock().remove(0);
        assert!(runtime.block_on(answer).is_ok(), "{n}");
    }
    script.lock().meanwhile = Meanwhile::default();
    let plans = script.lock().plans_at_admit.clone();
    assert!(plans.windows(2).all(|two| two[1] > two[0]), "between two admissions something runs: {plans:?}");
}

/// The reason why the sequence of this id ended, and the plug-in that ended it.
fn ended_by(rig: &Rig, id: u64) -> (EndReason, Option<(&'static str, String)>) {
    match rig.fixture.send(id, 1, |_| {}) {
        Err(Failure::Refused(refused)) => match refused.refusal {
            Refusal::Unknown(Some(stone)) => (stone.why, refused.ended_by.map(|by| (by.world, by.plugin))),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_end_of_a_sequence_names_the_scheduler_that_caused_it() {
    let rig = Rig::new(&["first"]);
    rig.fixture.repository.attach(&attach("first"), BY).unwrap();
    rig.fixture.sum(1, 5, |s| s.start = true);
    let version = Arc::clone(&rig.versions.lock()["first"]);
    version.does(Does::Reject);
    for (id, start) in [(1, false), (2, true)] {
        assert!(rig.fixture.send(id, 5, |s| s.start = start).is_err());
        assert_eq!(ended_by(&rig, id), (EndReason::Rejected, Some(("scheduler", "first".to_owned()))));
    }
    let ended = rig.fixture.repository.ended_sequences("sum").unwrap();
    assert!(ended.len() == 2 && ended.iter().all(|end| end.by.as_ref().is_some_and(|by| by.plugin == "first")));
}

#[test]
fn an_evicted_sequence_names_the_scheduler_that_took_its_slot() {
    let clock = Clock::manual();
    let rig = Rig::over(Fixture::by(clock.clone()), &["admit-evict"], |_| {});
    rig.write("[sequence]\nidle_soft = \"1s\"\n");
    rig.load();
    rig.fixture.repository.attach(&attach("admit-evict"), BY).unwrap();
    (1..=4).for_each(|id| assert_eq!(rig.fixture.sum(id, 5, |s| s.start = true), 5));
    clock.advance(std::time::Duration::from_secs(2));
    assert_eq!(rig.fixture.sum(5, 7, |s| s.start = true), 7);
    assert_eq!(ended_by(&rig, 1), (EndReason::Evicted, Some(("scheduler", "admit-evict".to_owned()))));
}
