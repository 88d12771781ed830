//! Plug-ins that say who gets a slot, at whole models; guests are stand-ins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::plugins::{BY, Rig, attach};
use crate::model::tests::request;
use crate::scheduling::report::PluginControl as _;
use crate::scheduling::stand_in::Meanwhile;

#[test]
fn who_gets_a_slot_is_asked_by_an_instances_thread() {
    let rig = Rig::new(&["admit"]);
    rig.fixture.repository.attach(&attach("admit"), BY).unwrap();
    (1..=3).for_each(|id| rig.sequence(id));
    let shown = rig.fixture.repository.show("admit").unwrap().attached.remove(0);
    assert_eq!((shown.fallbacks, shown.strikes, shown.calls >= 12), (0, 0, true));
}

/// Sequences that come during an admission are asked about next, but sequences with a slot run first.
#[test]
fn sequences_that_come_while_others_are_admitted_keep_nobody_from_running() {
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
