//! Ensembles: the maximum number of requests inside, when a place becomes free, and who owns a sequence.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sequor_core::{Id, Refusal, Shape};

use super::ensembles::{EnsembleRig, LONG, both_ways, ensemble, member, request};
use crate::backend::mock::RunHook;
use crate::error::Failure;
use crate::model::*;
use crate::state::tier::{self, Tier as _};

pub(super) const PLAIN: &str = "backend: 'onnxruntime' max_batch_size: 4 input { name: 'INPUT' data_type: TYPE_INT32 dims: 1 } \
                     output { name: 'OUTPUT' data_type: TYPE_INT32 dims: 1 } instance_group { kind: KIND_CPU count: 1 }";

fn answer(pending: Pending) -> Result<InferAnswer, Failure> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pending)
}

/// A hook that stalls runs while the sender is held, and the number of runs.
fn stalled() -> (RunHook, std::sync::mpsc::SyncSender<()>, Arc<AtomicU64>) {
    let (release, gate) = std::sync::mpsc::sync_channel::<()>(1);
    let (gate, runs) = (parking_lot::Mutex::new(gate), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&runs);
    let hook: RunHook = Arc::new(move |_: &Shape| {
        count.fetch_add(1, Ordering::SeqCst);
        // Once the sender is dropped, runs no longer wait.
        let _ = gate.lock().recv();
    });
    (hook, release, runs)
}

/// Ten thousand requests are cancelled while they wait at a gate that admits one.
#[test]
fn many_requests_cancelled_at_a_gate_neither_run_nor_block_others() {
    let (hook, release, runs) = stalled();
    let models =
        [("one", "", ensemble("one", &["p"], "max_inflight_requests: 1")), ("p", "identity INT32", PLAIN.to_owned())];
    let rig = EnsembleRig::with(&models, Clock::default(), Some(hook));
    let first = rig.repository.submit(request("one", 0, 7, |s| s.id = Id::None)).unwrap();
    while runs.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let waiting: Vec<Pending> =
        (0..10_000).map(|n| rig.repository.submit(request("one", 0, n, |s| s.id = Id::None)).unwrap()).collect();
    let last = rig.repository.submit(request("one", 0, 8, |s| s.id = Id::None)).unwrap();
    drop(waiting);
    drop(release);
    assert_eq!(answer(first).unwrap().outputs[0].tensor.data[..], 7i32.to_le_bytes());
    assert_eq!(answer(last).unwrap().outputs[0].tensor.data[..], 8i32.to_le_bytes());
    assert_eq!(runs.load(Ordering::SeqCst), 2, "those that were cancelled did not run");
}

/// Nothing counts a request that was cancelled, so it must not stay at the gate until there is a place.
#[test]
fn cancelled_requests_do_not_gather_at_the_gate_of_an_ensemble() {
    let (hook, release, runs) = stalled();
    let models =
        [("one", "", ensemble("one", &["p"], "max_inflight_requests: 1")), ("p", "identity INT32", PLAIN.to_owned())];
    let rig = EnsembleRig::with(&models, Clock::default(), Some(hook));
    let send = |value: i32| rig.repository.submit(request("one", 0, value, |s| s.id = Id::None)).unwrap();
    let first = send(7);
    while runs.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let waiting: Vec<Pending> = (0..10).map(send).collect();
    (0..1000).for_each(|n| drop(send(n)));
    let model = rig.repository.0.catalog.entries.read()["one"].model.clone().unwrap();
    assert!(model.waiting_at_gate() < 50, "{} wait", model.waiting_at_gate());
    drop(release);
    for (n, pending) in (0i32..).zip(waiting) {
        assert_eq!(answer(pending).unwrap().outputs[0].tensor.data[..], n.to_le_bytes());
    }
    assert_eq!(answer(first).unwrap().outputs[0].tensor.data[..], 7i32.to_le_bytes());
}

/// The second step stalls. Meanwhile the first one must not run for all requests.
#[test]
fn requests_between_two_ensemble_steps_are_limited() {
    let (stall, release, stalled_runs) = stalled();
    let fast_runs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&fast_runs);
    // The first model's graph has one more dimension.
    let hook: RunHook = Arc::new(move |shape: &Shape| match shape.rank() {
        3 => {
            count.fetch_add(1, Ordering::SeqCst);
        }
        _ => stall(shape),
    });
    let models = [
        ("two", "", ensemble("two", &["fast", "slow"], "max_inflight_requests: 1")),
        ("fast", "identity INT32 dims=1,1", PLAIN.replace("dims: 1", "dims: 1 reshape { shape: [ 1, 1 ] }")),
        ("slow", "identity INT32", PLAIN.to_owned()),
    ];
    let rig = EnsembleRig::with(&models, Clock::default(), Some(hook));
    assert_eq!(rig.faults("two"), [""; 0]);
    let all: Vec<Pending> =
        (0..20).map(|n| rig.repository.submit(request("two", 0, n, |s| s.id = Id::None)).unwrap()).collect();
    while stalled_runs.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    // Each of these runs after the requests that are in the first model's queue by then.
    for n in 0..100 {
        let mut alone = request("fast", 0, n, |s| s.id = Id::None);
        alone.inputs[0].name = "INPUT".to_owned();
        rig.send(alone).unwrap();
    }
    let of_ensemble = fast_runs.load(Ordering::SeqCst) - 100;
    assert!(of_ensemble <= 2, "one is in the second step, one waits for it, and {of_ensemble} ran in the first one");
    drop(release);
    for (n, pending) in (0i32..).zip(all) {
        assert_eq!(answer(pending).unwrap().outputs[0].tensor.data[..], n.to_le_bytes());
    }
}

#[test]
fn a_step_that_the_first_member_does_not_take_leaves_the_sequence_as_it_was() {
    let mut models = both_ways(8, LONG);
    models[0].2 = models[0].2.replace("TYPE_INT32 dims: 1 } output", "TYPE_INT32 dims: -1 } output");
    let rig = EnsembleRig::new(&models);
    assert_eq!(rig.faults("ab"), [""; 0]);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    let mut wide = request("ab", 1, 5, |_| {});
    wide.inputs[0].tensor.shape = Shape::new(&[1, 2]);
    wide.inputs[0].tensor.data = bytes::Bytes::from_static(&[0; 8]);
    match rig.send(wide) {
        Err(Failure::Member { member, ended, may_retry, .. }) => {
            assert_eq!((member.as_str(), ended, may_retry), ("a", false, true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "nothing of it ran");
}

/// Two ensembles, and a client of a member, that use one id.
#[test]
fn a_start_takes_no_sequence_of_another_ensemble_or_client() {
    let rig = EnsembleRig::both_ways(8);
    assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
    assert_eq!(member(rig.value("ba", 1, 7, |s| s.start = true)), ("a".to_owned(), true, true));
    let alone = |id: u64, start: bool| {
        let mut alone = request("b", id, 5, |s| s.start = start);
        alone.inputs[0].name = "INPUT".to_owned();
        rig.send(alone)
    };
    assert!(matches!(alone(1, true), Err(Failure::Refused(refused)) if refused.refusal == Refusal::Live));
    assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "it goes on");
    alone(2, true).unwrap();
    assert_eq!(member(rig.value("ab", 2, 5, |s| s.start = true)), ("b".to_owned(), true, true));
    assert_eq!(["ab", "ba", "a", "b"].map(|model| rig.live(model)), [1, 0, 1, 2]);
    let second = alone(2, false).unwrap();
    assert_eq!(second.outputs[0].tensor.data[..], 10i32.to_le_bytes(), "so does that of the client");
    // It restarts its own sequence.
    assert_eq!(rig.value("ab", 1, 7, |s| s.start = true).unwrap(), 7);
    assert!(rig.repository.drop_sequence("ab", &Id::Int(1)).unwrap());
    assert_eq!(rig.value("ba", 1, 7, |s| s.start = true).unwrap(), 7, "the id is free");
}

/// A repository over the store in this folder, with room for four states in memory.
fn over_store(folder: &Path) -> EnsembleRig {
    let opened = tier::open(folder, u64::MAX, Duration::ZERO).unwrap();
    let epoch = opened.tier.next_epoch(1).unwrap();
    let store = Some(Arc::new(SequenceStore::new(Arc::new(opened.tier), epoch, Clock::default()).unwrap()));
    EnsembleRig::empty(RepositoryOptions {
        store,
        state_limit: 16,
        reply_pool: 1 << 20,
        ..RepositoryOptions::default()
    })
}

/// A member keeps sequences on disk, and memory is full.
#[test]
fn sequences_of_an_ensemble_stay_in_memory_and_end_with_the_server() {
    for when in ["drain", "step", "every"] {
        let store = tempfile::tempdir().unwrap();
        let fill = |rig: &EnsembleRig| {
            for (model, graph, config) in both_ways(8, LONG) {
                rig.put(model, graph, &config);
            }
            let toml = format!("[durability]\nwhen = \"{when}\"\n");
            fs_err::write(rig.folder.path().join("a/sequor.toml"), toml).unwrap();
            rig.repository.load_all(rig.folder.path()).unwrap();
        };
        let rig = over_store(store.path());
        fill(&rig);
        let alone = |id: u64, start: bool| {
            let mut alone = request("a", id, 5, |s| s.start = start);
            alone.inputs[0].name = "INPUT".to_owned();
            rig.send(alone).map(|answer| i32::from_le_bytes(answer.outputs[0].tensor.data[..].try_into().unwrap()))
        };
        // Two states of the ensemble, and two of the member's own client.
        assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
        assert_eq!([11, 12, 13].map(|id| alone(id, true).unwrap()), [5; 3]);
        let kept = |rig: &EnsembleRig| rig.repository.resumable("a").unwrap().len();
        assert_eq!((rig.live("a"), kept(&rig)), (3, 1), "{when}: one of the client has left memory");
        assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "{when}");
        assert_eq!([11, 12, 13].map(|id| alone(id, false).unwrap()), [10; 3]);
        assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 18, "{when}");
        // The other member has only sequences of ensembles, and none of them leaves.
        let refused = rig.value("ab", 2, 5, |s| s.start = true);
        assert!(matches!(refused, Err(Failure::Member { member, .. }) if member == "b"), "{when}");
        assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 26, "{when}");
        drop(rig);
        let rig = over_store(store.path());
        fill(&rig);
        let ids: HashSet<Id> = rig.repository.resumable("a").unwrap().into_iter().map(|kept| kept.id).collect();
        assert_eq!(ids, HashSet::from([11u64, 12, 13].map(Id::from)), "{when}");
        assert!(matches!(rig.value("ab", 1, 1, |_| {}), Err(Failure::Refused(_))), "{when}");
    }
}

/// A member is replaced, and the sequences of its clients move to the new load.
#[test]
fn a_members_new_load_takes_no_sequence_from_an_ensemble() {
    for when in ["drain", "step"] {
        let store = tempfile::tempdir().unwrap();
        let rig = over_store(store.path());
        for (model, graph, config) in both_ways(8, LONG) {
            rig.put(model, graph, &config);
        }
        let toml = format!("[durability]\nwhen = \"{when}\"\n[reload]\ndrain = \"0s\"\nthen = \"carry\"\n");
        fs_err::write(rig.folder.path().join("a/sequor.toml"), toml).unwrap();
        rig.repository.load_all(rig.folder.path()).unwrap();
        assert_eq!(rig.value("ab", 1, 5, |s| s.start = true).unwrap(), 5);
        rig.put("a", "accumulate INT32 poison=99", &both_ways(8, LONG)[2].2);
        rig.repository.load_all(rig.folder.path()).unwrap();
        (0..20).for_each(|_| rig.repository.tick());
        assert_eq!(rig.repository.resumable("a").unwrap().len(), 0, "{when}");
        let mut alone = request("a", 1, 5, |s| s.start = true);
        alone.inputs[0].name = "INPUT".to_owned();
        assert!(matches!(rig.send(alone), Err(Failure::Refused(_))), "{when}: the ensemble has it");
        assert_eq!(rig.value("ab", 1, 1, |_| {}).unwrap(), 11, "{when}");
    }
}

/// A step that waited too long behind a batch of its member never ran, so the sequence is as it was.
#[test]
fn a_step_that_expires_in_a_members_queue_leaves_the_sequence_as_it_was() {
    let blocked = Arc::new((parking_lot::Mutex::new(false), parking_lot::Condvar::new()));
    let (seen, runs) = (Arc::clone(&blocked), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&runs);
    let hook: RunHook = Arc::new(move |_: &Shape| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut is_blocked = seen.0.lock();
        while *is_blocked {
            seen.1.wait(&mut is_blocked);
        }
    });
    let models = [("one", "", ensemble("one", &["a"], "")), ("a", "accumulate INT32", both_ways(4, LONG)[2].2.clone())];
    let clock = Clock::manual();
    let rig = EnsembleRig::with(&models, clock.clone(), Some(hook));
    let toml = "[sequence]\nidle = \"never\"\non_cancel = \"keep\"\n[queue]\nexpire = \"reject\"\n";
    fs_err::write(rig.folder.path().join("a/sequor.toml"), toml).unwrap();
    rig.repository.load(&rig.folder.path().join("a"));
    assert_eq!(rig.value("one", 1, 5, |s| s.start = true).unwrap(), 5);
    *blocked.0.lock() = true;
    let mut alone = request("a", 9, 1, |s| s.start = true);
    alone.inputs[0].name = "INPUT".to_owned();
    let before = runs.load(Ordering::SeqCst);
    let alone = rig.repository.submit(alone).unwrap();
    while runs.load(Ordering::SeqCst) == before {
        std::thread::yield_now();
    }
    let mut step = request("one", 1, 7, |_| {});
    step.timeout = Some(Duration::from_secs(1));
    let late = rig.repository.submit(step).unwrap();
    let late = std::thread::scope(|scope| {
        let late = scope.spawn(move || answer(late));
        while !late.is_finished() {
            clock.advance(Duration::from_secs(2));
            rig.repository.tick();
            std::thread::yield_now();
        }
        late.join().unwrap()
    });
    *blocked.0.lock() = false;
    blocked.1.notify_all();
    match late {
        Err(Failure::Member { member, ended, may_retry, why, .. }) => {
            assert_eq!((member.as_str(), ended, may_retry), ("a", false, true));
            assert!(matches!(*why, Failure::Refused(of) if matches!(of.refusal, Refusal::QueueTimeout { .. })));
        }
        other => panic!("{other:?}"),
    }
    answer(alone).unwrap();
    assert_eq!(rig.value("one", 1, 7, |_| {}).unwrap(), 12, "sent again, it succeeds");
}
