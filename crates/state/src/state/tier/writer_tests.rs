//! The writer on disks that fail: which changes fail together, which are owed, and when these are made.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sequor_core::{EndReason, Id};

use super::disk::DiskTier;
use super::owed::RetryWaits;
use super::tests::{File, kept, key, put, tier};
use super::*;

/// Writes these changes. Returns those that failed.
fn written(writer: &GroupWriter, changes: Vec<TierChange>) -> FailedChanges {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    writer.write(move |_| changes.into_iter().map(Ok).collect(), move |failed| sender.send(failed).unwrap());
    receiver.recv().unwrap()
}

/// Takes the state of this id. Returns the outcome.
fn taken(writer: &GroupWriter, id: u64, then: AfterTake) -> TakenState {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    writer.take(key(id), then, move |taken| sender.send(taken).unwrap());
    receiver.recv().unwrap()
}

/// Holds the writer up until the returned sender is dropped, so that later tasks go into one commit.
fn hold_up(writer: &GroupWriter) -> std::sync::mpsc::SyncSender<()> {
    let (held, release) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = move |_: &[TierChange]| {
        let _ = release.recv();
        Vec::new()
    };
    writer.write(wait, |_| {});
    held
}

/// A store whose commits fail if `fails` says so. It records the number of changes of each commit.
#[derive(Debug)]
struct PickyTier {
    tier: DiskTier,
    fails: Mutex<fn(&[TierChange]) -> bool>,
    /// Whether each end is refused alone, as Redis may do.
    refuses_ends: AtomicBool,
    commits: Mutex<Vec<usize>>,
}

impl Tier for PickyTier {
    fn running_time(&self) -> RunningTime {
        self.tier.running_time()
    }

    fn get(&self, key: &TierKey) -> FoundState {
        self.tier.get(key)
    }

    fn put_batch(&self, changes: &[TierChange]) -> Result<Vec<usize>, TierError> {
        self.commits.lock().push(changes.len());
        match (self.fails.lock())(changes) {
            true => Err(TierError::Io { path: "memory".to_owned(), what: "no".to_owned() }),
            false => self.tier.put_batch(changes),
        }
    }

    fn put_each(&self, changes: &[TierChange]) -> Result<HashMap<usize, TierError>, TierError> {
        let refuses = self.refuses_ends.load(Ordering::Acquire);
        let is_refused = |change: &TierChange| refuses && matches!(change, TierChange::Remember { .. });
        let taken: Vec<TierChange> = changes.iter().filter(|change| !is_refused(change)).cloned().collect();
        self.put_batch(&taken)?;
        let refused = changes.iter().enumerate().filter(|(_, change)| is_refused(change));
        Ok(refused
            .map(|(place, _)| (place, TierError::Refused { address: "redis".to_owned(), what: "full".to_owned() }))
            .collect())
    }

    fn head(&self, key: &TierKey) -> Option<Arc<StateHead>> {
        self.tier.head(key)
    }

    fn may_have(&self, key: &TierKey, incarnation: u64) -> bool {
        self.tier.may_have(key, incarnation)
    }

    fn list(&self, model: &str) -> Vec<(Id, Arc<StateHead>)> {
        self.tier.list(model)
    }

    fn take_ended(&self, model: &str) -> Vec<(Id, EndedState)> {
        self.tier.take_ended(model)
    }

    fn successions(&self, model: &str) -> Successions {
        self.tier.successions(model)
    }

    fn usage(&self) -> TierUsage {
        self.tier.usage()
    }

    fn next_epoch(&self, least: u64) -> Result<u64, TierError> {
        self.tier.next_epoch(least)
    }

    fn close(&self) {
        self.tier.close();
    }
}

const AT_ONCE: RetryWaits = RetryWaits { first: Duration::ZERO, longest: Duration::ZERO };
const NOT_YET: RetryWaits = RetryWaits { first: Duration::from_secs(3600), longest: Duration::from_secs(3600) };

/// A store in a file that has the states 1 to `states`, and its writer.
fn picky(file: &File, states: u64, waits: RetryWaits) -> (Arc<PickyTier>, GroupWriter) {
    let store = PickyTier {
        tier: tier(file, u64::MAX).unwrap(),
        fails: Mutex::new(|_| false),
        refuses_ends: AtomicBool::new(false),
        commits: Mutex::default(),
    };
    let all: Vec<TierChange> = (1..=states).map(|id| put(id, 1, 1, b"state")).collect();
    store.tier.put_batch(&all).unwrap();
    let store = Arc::new(store);
    let writer = GroupWriter::start_with(Arc::clone(&store) as Arc<dyn Tier>, waits).unwrap();
    (store, writer)
}

impl PickyTier {
    fn fail(&self, fails: fn(&[TierChange]) -> bool) {
        *self.fails.lock() = fails;
    }

    fn ids(&self) -> Vec<u64> {
        kept(&self.tier).into_keys().collect()
    }

    /// Waits until the store has exactly these states.
    fn wait_for(&self, ids: &[u64]) {
        let began = std::time::Instant::now();
        while self.list("sum").len() != ids.len() {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", self.ids());
            std::thread::yield_now();
        }
        assert_eq!(self.ids(), ids);
    }
}

fn remove(id: u64) -> TierChange {
    TierChange::Remove { key: key(id), incarnation: 1 }
}

/// Whether one of the changes is of the state whose page is bad.
fn is_of_bad_page(changes: &[TierChange]) -> bool {
    changes.iter().any(|change| matches!(change, TierChange::Remove { key: of, .. } if *of == key(1)))
}

fn successions(version: u64) -> Successions {
    let of = |version| VersionDigest { version, digest: [7; 32] };
    let mut all = Successions::default();
    all.add(of(version), of(1));
    all
}

fn succeed(version: u64) -> TierChange {
    TierChange::Succeed { model: "sum".to_owned(), successions: successions(version) }
}

#[test]
fn owed_changes_are_written_once_a_full_disk_has_room_without_another_write() {
    let file = File::default();
    let (store, writer) = picky(&file, 5, AT_ONCE);
    file.0.lock().fails = Some(io::ErrorKind::StorageFull);
    for changes in [vec![remove(1), remove(2)], vec![remove(3), succeed(2)], vec![succeed(3), put(9, 1, 1, b"new")]] {
        let count = changes.len();
        assert_eq!(written(&writer, changes).len(), count, "each writer learns of it");
    }
    let forget = AfterTake::Forget { incarnation: 1 };
    assert!(taken(&writer, 4, forget).changed.is_err());
    file.0.lock().fails = None;
    store.wait_for(&[4, 5]);
    while store.successions("sum") != successions(3) {
        std::thread::yield_now();
    }
    assert!(taken(&writer, 4, forget).changed.is_ok());
    writer.close();
    assert_eq!(kept(&tier(&file, u64::MAX).unwrap()).into_keys().collect::<Vec<_>>(), [5]);
}

#[test]
fn a_closing_writer_writes_the_owed_changes_that_it_can() {
    let file = File::default();
    let (store, writer) = picky(&file, 200, NOT_YET);
    store.fail(|_| true);
    assert_eq!(written(&writer, (1..=199).map(remove).collect()).len(), 199);
    // A later sequence of the id has begun meanwhile.
    store.fail(is_of_bad_page);
    assert!(written(&writer, vec![put(2, 2, 1, b"young")]).is_empty());
    writer.close();
    assert_eq!(kept(&tier(&file, u64::MAX).unwrap()).into_keys().collect::<Vec<_>>(), [1, 2, 200]);
}

#[test]
fn a_change_that_cannot_be_written_fails_no_other() {
    let (store, writer) = picky(&File::default(), 3, NOT_YET);
    store.fail(is_of_bad_page);
    // In one commit.
    let held = hold_up(&writer);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    for changes in [vec![remove(1)], vec![put(5, 1, 1, b"new")], vec![remove(2), put(6, 1, 1, b"new")]] {
        let sender = sender.clone();
        writer.write(move |_| changes.into_iter().map(Ok).collect(), move |failed| sender.send(failed.len()).unwrap());
    }
    let (sender, taken_with) = std::sync::mpsc::sync_channel(1);
    writer.take(key(3), AfterTake::Forget { incarnation: 1 }, move |taken| sender.send(taken).unwrap());
    drop(held);
    assert_eq!([receiver.recv(), receiver.recv(), receiver.recv()].map(Result::unwrap), [1, 0, 1]);
    assert!(taken_with.recv().unwrap().changed.is_ok());
    assert_eq!(store.ids(), [1, 2, 5, 6], "both removals are owed");
    // Later, while the owed changes are not due.
    store.commits.lock().clear();
    assert!(written(&writer, vec![put(7, 1, 1, b"new"), remove(5)]).is_empty());
    assert_eq!((store.ids(), store.commits.lock().clone()), (vec![1, 2, 6, 7], vec![2]));
    writer.close();
}

/// Whether one of the changes is a state of the sequence whose page is bad.
fn has_bad_state(changes: &[TierChange]) -> bool {
    changes.iter().any(|change| matches!(change, TierChange::Put { key: of, .. } if *of == key(3)))
}

#[test]
fn a_state_that_cannot_be_written_fails_no_other_state_of_its_commit() {
    for others in [0, 1] {
        let (store, writer) = picky(&File::default(), 0, NOT_YET);
        store.fail(has_bad_state);
        let first = (1..=100).map(|id| put(id, 1, 1, b"one"));
        let second = (1..=10).map(|id| put(id, 1, 2, b"two"));
        let mut changes: Vec<TierChange> = first.chain(second).collect();
        changes.extend((0..others).map(|_| succeed(2)));
        let failed: BTreeMap<usize, TierError> = written(&writer, changes).into_iter().collect();
        let expected: Vec<usize> = [2, 102].into_iter().chain((0..others).map(|_| 110)).collect();
        assert_eq!(failed.keys().copied().collect::<Vec<_>>(), expected);
        let all = kept(&store.tier);
        assert_eq!(all.len(), 99);
        assert!(
            (1..=10).filter(|id| *id != 3).all(|id| all[&id].1 == b"two"),
            "the changes of a sequence in their order"
        );
        writer.close();
    }
}

#[test]
fn a_store_that_takes_nothing_is_not_asked_for_each_state() {
    let (store, writer) = picky(&File::default(), 0, NOT_YET);
    let states = || (1..=64).map(|id| put(id, 1, 1, b"one")).collect::<Vec<_>>();
    let commits = || std::mem::take(&mut *store.commits.lock()).len();
    store.fail(|_| true);
    assert_eq!((written(&writer, states()).len(), commits()), (64, 7));
    assert_eq!((written(&writer, states()).len(), commits()), (64, 1), "once it is known");
    store.fail(has_bad_state);
    assert!(written(&writer, vec![put(7, 1, 1, b"one")]).is_empty());
    assert_eq!(written(&writer, states()).len(), 1, "and until it takes something");
    writer.close();
}

#[test]
fn owed_changes_behind_an_unwritable_one_are_written() {
    let (store, writer) = picky(&File::default(), 300, AT_ONCE);
    store.fail(|_| true);
    written(&writer, (1..=300).map(remove).collect());
    store.fail(is_of_bad_page);
    store.wait_for(&[1]);
    store.fail(|_| false);
    store.wait_for(&[]);
    writer.close();
}

#[test]
fn owed_changes_are_written_in_small_portions_on_a_nearly_full_disk() {
    let (store, writer) = picky(&File::default(), 300, AT_ONCE);
    store.fail(|changes| changes.len() > 3);
    written(&writer, (1..=300).map(remove).collect());
    store.wait_for(&[]);
    writer.close();
    assert!(store.commits.lock()[1..].iter().all(|changes| *changes <= 64), "none needs much room");
}

#[test]
fn a_succession_that_was_withdrawn_is_not_written_later() {
    for is_durable in [true, false] {
        let file = File::default();
        let (store, writer) = picky(&file, 1, NOT_YET);
        assert!(written(&writer, vec![succeed(2)]).is_empty());
        store.fail(|_| true);
        assert_eq!(written(&writer, vec![succeed(3)]).len(), 1);
        if is_durable {
            store.fail(|_| false);
        }
        assert_eq!(written(&writer, vec![succeed(2)]).is_empty(), is_durable);
        store.fail(|_| false);
        writer.close();
        assert_eq!(tier(&file, u64::MAX).unwrap().successions("sum"), successions(2), "{is_durable}");
    }
}

#[test]
fn a_taker_fails_only_if_its_own_removal_failed() {
    let (store, writer) = picky(&File::default(), 3, NOT_YET);
    assert_eq!(written(&writer, vec![put(4, 2, 1, b"young")]), []);
    let outcomes = |fails: fn(&[TierChange]) -> bool| {
        store.fail(fails);
        let held = hold_up(&writer);
        let (sender, receiver) = std::sync::mpsc::sync_channel(8);
        // The commit fails for all of them.
        writer.write(|_| vec![Ok(put(9, 1, 1, b"new"))], |_| {});
        let (forget, outdate) = (AfterTake::Forget { incarnation: 1 }, AfterTake::Outdate { running: Duration::ZERO });
        for (id, then) in [(1, AfterTake::Keep), (2, forget), (3, outdate), (4, forget), (8, forget), (9, forget)] {
            let sender = sender.clone();
            writer.take(key(id), then, move |taken| sender.send(taken).unwrap());
        }
        drop(held);
        let all: Vec<TakenState> = (0..6).map(|_| receiver.recv().unwrap()).collect();
        assert!(all.iter().all(|taken| taken.found.is_ok()));
        all.iter().map(|taken| taken.changed.is_ok()).collect::<Vec<_>>()
    };
    // The last one is of the state that could not be written, so there is nothing to remove.
    assert_eq!(outcomes(|_| true), [true, false, false, true, true, true]);
    assert_eq!(store.ids(), [1, 2, 3, 4], "nothing of it is owed");
    assert_eq!(outcomes(|_| false), [true; 6]);
    assert_eq!(store.ids(), [1, 3, 4]);
    // Its removal is owed already, and a START waits for it.
    store.fail(|_| true);
    assert_eq!(written(&writer, vec![remove(1)]).len(), 1);
    assert!(taken(&writer, 1, AfterTake::Forget { incarnation: 1 }).changed.is_err());
    store.fail(|_| false);
    let last = taken(&writer, 1, AfterTake::Forget { incarnation: 1 });
    assert_eq!((last.found, last.changed), (Ok(None), Ok(())));
    assert_eq!(store.ids(), [3, 4]);
    // It is outdated already.
    store.fail(|_| true);
    assert!(taken(&writer, 3, AfterTake::Outdate { running: Duration::ZERO }).changed.is_ok());
    writer.close();
    let closed = taken(&writer, 3, AfterTake::Forget { incarnation: 1 });
    assert_eq!((closed.found, closed.changed), (Err(TierError::Closed), Err(TierError::Closed)));
}

#[test]
fn waiting_writes_share_a_commit_and_each_gets_its_own_outcome() {
    let store: Arc<dyn Tier> = Arc::new(tier(&File::default(), 10).unwrap());
    let writer = GroupWriter::start(Arc::clone(&store)).unwrap();
    let (held, release) = std::sync::mpsc::sync_channel::<()>(1);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    let write = |id: u64, size: usize| {
        let sender = sender.clone();
        let states = move |_: &[TierChange]| vec![Ok(put(id, 1, 1, &vec![1; size])), Ok(put(10 + id, 1, 1, b""))];
        writer.write(states, move |failed| sender.send((id, failed)).unwrap());
    };
    let (first_sender, first) = std::sync::mpsc::sync_channel(1);
    // The writer's thread is held up, so the other tasks are combined.
    writer.write(
        move |_| {
            let _ = release.recv();
            vec![Err(TierError::Checksum { step: 1 })]
        },
        move |failed| first_sender.send(failed).unwrap(),
    );
    write(1, 6);
    write(2, 6);
    write(3, 4);
    drop(held);
    assert_eq!(first.recv().unwrap(), [(0, TierError::Checksum { step: 1 })]);
    let failed: BTreeMap<u64, FailedChanges> = (0..3).map(|_| receiver.recv().unwrap()).collect();
    assert_eq!(failed[&2], [(0, TierError::Full { needed: 6, used: 10, limit: 10 })], "the other one is durable");
    assert!(failed[&1].is_empty() && failed[&3].is_empty());
    assert_eq!(kept(&*store).keys().copied().collect::<Vec<_>>(), [1, 3, 11, 12, 13]);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    writer.take(key(1), AfterTake::Forget { incarnation: 1 }, move |taken| sender.send(taken).unwrap());
    assert_eq!(receiver.recv().unwrap().found.unwrap().unwrap().1, [1; 6]);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    for _ in 0..2 {
        let sender = sender.clone();
        writer.take(key(3), AfterTake::Outdate { running: Duration::ZERO }, move |taken| sender.send(taken).unwrap());
    }
    let behind = || receiver.recv().unwrap().found.unwrap().unwrap().0.behind;
    assert_eq!((behind(), behind()), (false, true));
    // A state that is written and read in one commit.
    let (held, release) = std::sync::mpsc::sync_channel::<()>(1);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    writer.write(
        move |_| {
            let _ = release.recv();
            Vec::new()
        },
        |_| {},
    );
    writer.write(|_| vec![Ok(put(4, 1, 1, b""))], |_| {});
    for _ in 0..2 {
        let sender = sender.clone();
        writer.take(key(4), AfterTake::Forget { incarnation: 1 }, move |taken| sender.send(taken).unwrap());
    }
    drop(held);
    let is_there = || receiver.recv().unwrap().found.unwrap().is_some();
    assert_eq!((is_there(), is_there()), (true, false));
    // A state of a sequence that began later stays.
    writer.write(|_| vec![Ok(put(5, 2, 1, b""))], |_| {});
    for _ in 0..2 {
        let sender = sender.clone();
        writer.take(key(5), AfterTake::Forget { incarnation: 1 }, move |taken| sender.send(taken).unwrap());
    }
    assert_eq!((is_there(), is_there()), (true, true));
    writer.close();
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    writer.take(key(3), AfterTake::Keep, move |taken| sender.send(taken).unwrap());
    assert_eq!(receiver.recv().unwrap().found, Err(TierError::Closed));
}

#[test]
fn a_callback_that_panics_costs_no_other_task() {
    let (_, writer) = picky(&File::default(), 2, NOT_YET);
    let held = hold_up(&writer);
    writer.write(|_| vec![Ok(put(3, 1, 1, b"state"))], |_| panic!("as the test wants"));
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    writer.write(|_| panic!("as the test wants"), move |failed| sender.send(failed).unwrap());
    writer.take(key(1), AfterTake::Keep, |_| panic!("as the test wants"));
    drop(held);
    assert_eq!(written(&writer, vec![put(4, 1, 1, b"state")]), []);
    assert_eq!(receiver.recv().unwrap().len(), 1, "its changes were not made");
    assert!(taken(&writer, 3, AfterTake::Keep).found.unwrap().is_some());
}

/// A fault of the store's own code, outside any callback.
#[test]
fn a_writer_whose_thread_has_panicked_is_closed_and_fails_the_waiting_tasks() {
    let (store, writer) = picky(&File::default(), 2, AT_ONCE);
    store.fail(|changes| changes.iter().any(|change| matches!(change, TierChange::Remove { .. })));
    let (held, release) = std::sync::mpsc::sync_channel::<()>(1);
    let (sender, receiver) = std::sync::mpsc::sync_channel(8);
    let of_removal = sender.clone();
    writer.write(
        |_| vec![Ok(remove(1))],
        move |failed| {
            of_removal.send(failed).unwrap();
            // The next attempt of the removal panics, and a task waits by then.
            let _ = release.recv();
        },
    );
    assert_eq!(receiver.recv().unwrap().len(), 1);
    store.fail(|_| panic!("as the test wants"));
    writer.write(|_| vec![Ok(put(3, 1, 1, b"state"))], move |failed| sender.send(failed).unwrap());
    drop(held);
    assert_eq!(receiver.recv().unwrap(), [(0, TierError::Closed)]);
    assert_eq!(written(&writer, vec![put(4, 1, 1, b"state")]), [(0, TierError::Closed)]);
    writer.close();
}

/// The disk reports an error for a write that it has done, and then fails altogether. Meanwhile the sequence has ended.
#[test]
fn the_removal_of_a_state_whose_commit_failed_is_owed() {
    let file = File::default();
    let (store, writer) = picky(&file, 0, AT_ONCE);
    file.0.lock().fails_late = true;
    assert_eq!(written(&writer, vec![put(1, 1, 1, b"state")]).len(), 1);
    (file.0.lock().fails_late, file.0.lock().fails) = (false, Some(io::ErrorKind::Other));
    assert_eq!(written(&writer, vec![remove(1)]).len(), 1);
    file.0.lock().fails = None;
    writer.close();
    assert_eq!(store.ids(), [0; 0]);
    assert_eq!(kept(&tier(&file, u64::MAX).unwrap()), BTreeMap::new());
}

#[test]
fn a_failed_removal_whose_writer_does_not_want_it_to_be_owed_is_not_tried_again() {
    for owes in [true, false] {
        let file = File::default();
        let (store, writer) = picky(&file, 2, AT_ONCE);
        store.fail(|changes| changes.iter().any(|change| matches!(change, TierChange::Remove { .. })));
        let (sender, failed) = std::sync::mpsc::sync_channel(1);
        let make = |_: &[TierChange]| vec![Ok(TierChange::Remove { key: key(1), incarnation: 1 })];
        let done = move |failed: FailedChanges| sender.send(failed.len()).unwrap();
        let closed = if owes { writer.queue_write(make, done) } else { writer.queue_write_once(make, done) };
        assert!(closed.is_none());
        writer.wake();
        assert_eq!(failed.recv().unwrap(), 1);
        store.fail(|_| false);
        // An owed change is tried after each commit.
        written(&writer, vec![put(3, 1, 1, b"state")]);
        written(&writer, vec![put(3, 1, 2, b"state")]);
        writer.close();
        let left: Vec<u64> = kept(&tier(&file, u64::MAX).unwrap()).into_keys().collect();
        assert_eq!(left, if owes { vec![2, 3] } else { vec![1, 2, 3] });
    }
}

/// Nothing else would tell the next server how the sequence ended.
#[test]
fn the_end_of_a_removed_state_is_owed_even_if_its_writer_does_not_want_that() {
    let file = File::default();
    let (store, writer) = picky(&file, 1, NOT_YET);
    store.refuses_ends.store(true, Ordering::Release);
    let (sender, failed) = std::sync::mpsc::sync_channel(1);
    let ended = EndedState { why: EndReason::End, step: 2, idle: None, at: Duration::ZERO };
    let make = move |_: &[TierChange]| vec![Ok(remove(1)), Ok(TierChange::Remember { key: key(1), ended })];
    let done = move |failed: FailedChanges| {
        sender.send(failed.into_iter().map(|(place, _)| place).collect::<Vec<_>>()).unwrap();
    };
    assert!(writer.queue_write_once(make, done).is_none());
    writer.wake();
    assert_eq!(failed.recv().unwrap(), [1]);
    store.refuses_ends.store(false, Ordering::Release);
    writer.close();
    let next = tier(&file, u64::MAX).unwrap();
    assert_eq!(kept(&next), BTreeMap::new());
    let ended: Vec<Id> = next.take_ended("sum").into_iter().map(|(id, _)| id).collect();
    assert_eq!(ended, [Id::from(1)]);
}

#[test]
fn a_look_finds_what_the_changes_before_it_left() {
    let file = File::default();
    let (_store, writer) = picky(&file, 1, NOT_YET);
    let held = hold_up(&writer);
    writer.write(|_| vec![Ok(put(1, 1, 5, b"later"))], |_| {});
    let (sender, found) = std::sync::mpsc::sync_channel(1);
    assert!(writer.queue_look(key(1), move |found| sender.send(found).unwrap()).is_none());
    drop(held);
    writer.wake();
    assert_eq!(found.recv().unwrap().unwrap().map(|head| head.step), Some(5));
    writer.close();
    let (sender, late) = std::sync::mpsc::sync_channel(1);
    let closed = writer.queue_look(key(1), move |found| sender.send(found).unwrap()).unwrap();
    closed.fail();
    assert_eq!(late.recv().unwrap(), Err(TierError::Closed));
}
