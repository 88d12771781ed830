//! The store across crashes, power failures and disk faults: confirmed changes are there, and nothing else is.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use redb::{Builder, StorageBackend};
use sequor_core::{EndReason, Id};

use super::disk::{DiskTier, StoreFile};
use super::*;

/// A file in memory that remembers what was done to it. It can fail, and a flush waits while the second lock is held.
#[derive(Debug, Clone, Default)]
pub(super) struct File(pub(super) Arc<Mutex<Disk>>, Arc<Mutex<()>>);

#[derive(Debug, Default)]
pub(super) struct Disk {
    bytes: Vec<u8>,
    log: Vec<Op>,
    pub(super) fails: Option<io::ErrorKind>,
    /// Whether a flush reports an error although it was done.
    pub(super) fails_late: bool,
    /// Whether the next write panics.
    pub(super) panics: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Write(usize, Vec<u8>),
    SetLen(usize),
    Flush,
}

impl Op {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Op::Write(at, data) => {
                to.resize(to.len().max(at + data.len()), 0);
                to[*at..at + data.len()].copy_from_slice(data);
            }
            Op::SetLen(len) => to.resize(*len, 0),
            Op::Flush => {}
        }
    }
}

impl File {
    fn holding(bytes: Vec<u8>) -> File {
        File(Arc::new(Mutex::new(Disk { bytes, ..Disk::default() })), Arc::default())
    }

    fn op(&self, op: Op) -> io::Result<()> {
        let mut disk = self.0.lock();
        // Once: a second panic while the first unwinds would end the process.
        assert!(!std::mem::take(&mut disk.panics), "as the test wants");
        if let Some(kind) = disk.fails {
            return Err(io::Error::from(kind));
        }
        op.apply(&mut disk.bytes);
        disk.log.push(op);
        Ok(())
    }

    fn ops(&self) -> usize {
        self.0.lock().log.len()
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        out.copy_from_slice(&self.0.lock().bytes[at..at + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.op(Op::SetLen(len as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        drop(self.1.lock());
        self.op(Op::Flush)?;
        if self.0.lock().fails_late { Err(io::Error::from(io::ErrorKind::Other)) } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.op(Op::Write(offset as usize, data.to_vec()))
    }
}

pub(super) fn opened_in_memory(file: &File) -> Result<StoreFile, TierError> {
    let len = file.len().unwrap();
    let opened = Builder::new().create_with_backend(file.clone());
    let database = opened.map_err(|e| TierError::Damaged { path: "memory".to_owned(), what: e.to_string() })?;
    Ok(StoreFile { database, len })
}

pub(super) fn tier(file: &File, limit: u64) -> Result<DiskTier, TierError> {
    let file = file.clone();
    DiskTier::open("memory".to_owned(), Box::new(move || opened_in_memory(&file)), limit)
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

pub(super) fn key(id: u64) -> TierKey {
    TierKey::new("sum", &Id::from(id))
}

pub(super) fn put(id: u64, incarnation: u64, step: u64, file: &[u8]) -> TierChange {
    let idle = Some(Duration::from_secs(5));
    let time = IdleTime { idle, left: idle, running: Duration::ZERO };
    let head = StateHead::new((1, [7; 32]), (incarnation, step), time, false, file);
    TierChange::Put { key: key(id), head: Arc::new(head), file: Bytes::copy_from_slice(file) }
}

/// The contents of a tier, by id: step and file.
pub(super) fn kept(tier: &dyn Tier) -> BTreeMap<u64, (u64, Vec<u8>)> {
    let of = |(id, head): (Id, Arc<StateHead>)| {
        let Id::Int(n) = id else { panic!("{id:?}") };
        let (read, file) = tier.get(&key(n)).unwrap().unwrap();
        assert_eq!(read, head);
        (n, (head.step, file))
    };
    tier.list("sum").into_iter().map(of).collect()
}

/// The file after a power failure at this place of the log: all flushed writes, and some of the later ones, whole or torn.
fn cut(log: &[Op], random: &mut Random) -> Vec<u8> {
    let flushed = log.iter().rposition(|op| matches!(op, Op::Flush)).map_or(0, |at| at + 1);
    let mut bytes = Vec::new();
    log[..flushed].iter().for_each(|op| op.apply(&mut bytes));
    for op in &log[flushed..] {
        match (random.below(3), op) {
            (0, _) => {}
            (1, Op::Write(at, data)) => {
                // A sector of 512 bytes is written or not.
                let from = random.below(data.len().div_ceil(512)) * 512;
                Op::Write(at + from, data[from..].to_vec()).apply(&mut bytes);
            }
            _ => op.apply(&mut bytes),
        }
    }
    bytes
}

/// One history: batches of changes, and a crash at a random place of the log.
fn crashes_once(seed: u64, power: bool) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    let mut truth = BTreeMap::new();
    // The truth after each batch, with where its writes began and where it was confirmed.
    let mut history = vec![(file.ops(), file.ops(), truth.clone())];
    for step in 1..12 {
        let began = file.ops();
        let mut changes = Vec::new();
        for _ in 0..=random.below(4) {
            let id = 1 + random.below(6) as u64;
            if random.below(4) == 0 {
                truth.remove(&id);
                changes.push(TierChange::Remove { key: key(id), incarnation: step });
            } else {
                let bytes = vec![(step * 16 + id) as u8; random.below(9000)];
                truth.insert(id, (step, bytes.clone()));
                changes.push(put(id, step, step, &bytes));
            }
        }
        assert_eq!(store.put_batch(&changes).unwrap(), Vec::<usize>::new());
        history.push((began, file.ops(), truth.clone()));
    }
    let log = file.0.lock().log.clone();
    let first = history[0].1;
    let at = first + random.below(log.len() - first + 1);
    let bytes = if power {
        cut(&log[..at], &mut random)
    } else {
        let mut bytes = Vec::new();
        log[..at].iter().for_each(|op| op.apply(&mut bytes));
        bytes
    };
    let again = tier(&File::holding(bytes), u64::MAX).unwrap_or_else(|e| panic!("seed {seed}, cut at {at}: {e}"));
    let found = kept(&again);
    let confirmed = history.iter().rposition(|(_, done, _)| *done <= at).unwrap();
    let begun = history.iter().rposition(|(began, ..)| *began <= at).unwrap();
    let fits = history[confirmed..=begun.max(confirmed)].iter().any(|(.., truth)| *truth == found);
    assert!(fits, "seed {seed}, cut at {at}: {found:?} is none of {confirmed}..={begun}");
}

#[test]
fn confirmed_writes_survive_a_power_loss_at_any_write() {
    (0..1000).for_each(|seed| crashes_once(seed, true));
}

#[test]
fn confirmed_writes_survive_a_killed_process_at_any_write() {
    (0..200).for_each(|seed| crashes_once(seed, false));
}

#[test]
fn an_earlier_sequence_of_the_same_id_changes_nothing() {
    let store = tier(&File::default(), u64::MAX).unwrap();
    store.put_batch(&[put(1, 5, 3, b"new"), put(1, 4, 9, b"old")]).unwrap();
    store.put_batch(&[put(1, 4, 10, b"old"), TierChange::Remove { key: key(1), incarnation: 4 }]).unwrap();
    assert_eq!(kept(&store)[&1], (3, b"new".to_vec()));
    store.remove(&key(1), 5).unwrap();
    assert_eq!((store.claim(&key(1)).unwrap(), store.usage().bytes), (None, 0));
}

#[test]
fn a_lookup_sees_the_pending_changes_of_its_commit() {
    let store = tier(&File::default(), u64::MAX).unwrap();
    store.put_batch(&[put(1, 5, 3, b"five")]).unwrap();
    let remove = |incarnation| TierChange::Remove { key: key(1), incarnation };
    let cases: [(&[TierChange], Option<&[u8]>); 7] = [
        (&[], Some(b"five")),
        (&[remove(4)], Some(b"five")),
        (&[remove(5)], None),
        (&[put(1, 6, 1, b"six"), remove(5)], Some(b"six")),
        (&[put(1, 4, 9, b"four"), put(2, 7, 1, b"other")], Some(b"five")),
        (&[remove(5), put(1, 4, 9, b"four")], Some(b"four")),
        (&[remove(4), put(1, 5, 4, b"next"), remove(4)], Some(b"next")),
    ];
    for (changes, wanted) in cases {
        let found = find(&store, changes, &key(1)).unwrap().map(|(_, file)| file);
        assert_eq!(found.as_deref(), wanted, "{changes:?}");
        // The tier itself gives the same result.
        let other = tier(&File::default(), u64::MAX).unwrap();
        other.put_batch(&[put(1, 5, 3, b"five")]).unwrap();
        other.put_batch(changes).unwrap();
        assert_eq!(other.get(&key(1)).unwrap().map(|(_, file)| file).as_deref(), wanted, "{changes:?}");
    }
}

#[test]
fn a_claimed_state_is_given_once() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[put(1, 1, 3, b"state")]).unwrap();
    let (head, state) = store.claim(&key(1)).unwrap().unwrap();
    assert_eq!((head.step, state), (3, b"state".to_vec()));
    assert_eq!(store.claim(&key(1)).unwrap(), None);
    drop(store);
    assert_eq!(tier(&file, u64::MAX).unwrap().claim(&key(1)).unwrap(), None);
}

#[test]
fn a_full_store_refuses_new_states_and_updates_kept_states() {
    let store = tier(&File::default(), 10).unwrap();
    assert_eq!(store.put_batch(&[put(1, 1, 1, &[1; 6]), put(2, 1, 1, &[2; 6])]).unwrap(), [1]);
    assert_eq!(store.put_batch(&[put(1, 1, 2, &[3; 6]), put(2, 1, 2, &[4; 4])]).unwrap(), Vec::<usize>::new());
    assert_eq!(store.usage(), TierUsage { states: 2, bytes: 10, limit: 10 });
}

#[test]
fn files_of_any_size_are_read_as_they_were_written_and_give_their_space_back() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    let mut random = Random(7);
    let sizes = [0, 1, 511, 3584, 3585, 4096, 8192, 30_000, 32_768, 65_536, 65_536 + 300, 200_000, 3_600_000];
    for round in 0..2 {
        for (n, size) in sizes.into_iter().enumerate() {
            let state: Vec<u8> = (0..size).map(|_| random.below(256) as u8).collect();
            store.put_batch(&[put(1, round + 1, n as u64, &state)]).unwrap();
            assert_eq!(kept(&store)[&1], (n as u64, state), "{size} bytes");
        }
        let small = [put(1, round + 1, 99, b"small")];
        store.put_batch(&small).unwrap();
    }
    store.put_batch(&[TierChange::Remove { key: key(1), incarnation: 9 }]).unwrap();
    assert!(kept(&store).is_empty());
    assert_eq!(store.pieces().unwrap(), 0, "nothing of a file is left");
}

#[test]
fn a_file_a_little_larger_than_a_page_is_not_written_twice_over() {
    for (size, most) in
        [(64 << 10, 72 << 10), ((64 << 10) + 300, 72 << 10), (100 << 10, 115 << 10), (3_617_000, 4_000_000)]
    {
        let file = File::default();
        let store = tier(&file, u64::MAX).unwrap();
        let written = || {
            let disk = file.0.lock();
            disk.log.iter().map(|op| if let Op::Write(_, data) = op { data.len() } else { 0 }).sum::<usize>()
        };
        let before = written();
        store.put_batch(&[put(1, 1, 1, &vec![7; size])]).unwrap();
        // Tables and their metadata take some more pages.
        let more = written() - before;
        assert!(more < most + (64 << 10), "{more} bytes are written for {size}");
    }
}

#[test]
fn an_id_that_is_not_kept_costs_no_read() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[put(1, 1, 1, b"state")]).unwrap();
    // The store would have to open it again, which fails.
    file.0.lock().fails = Some(io::ErrorKind::Other);
    assert!(store.put_batch(&[put(2, 1, 1, b"state")]).is_err());
    assert_eq!(store.get(&key(9)).unwrap(), None);
    assert!(store.get(&key(1)).is_err());
}

#[test]
fn store_usage_is_available_while_a_write_is_in_progress() {
    let file = File::default();
    let store = Arc::new(tier(&file, 100).unwrap());
    store.put_batch(&[put(1, 1, 1, b"first")]).unwrap();
    let (slow, begun) = (file.1.lock(), file.ops());
    let writing = Arc::clone(&store);
    let writing = std::thread::spawn(move || writing.put_batch(&[put(2, 1, 1, b"second")]));
    while file.ops() == begun {
        std::thread::yield_now();
    }
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let asked = Arc::clone(&store);
    std::thread::spawn(move || sender.send((asked.usage(), asked.head(&key(1)).is_some(), asked.list("sum").len())));
    let known = receiver.recv_timeout(Duration::from_secs(20));
    assert_eq!(known, Ok((TierUsage { states: 1, bytes: 5, limit: 100 }, true, 1)), "it does not wait for the disk");
    drop(slow);
    assert_eq!(writing.join().unwrap(), Ok(Vec::new()));
    assert_eq!(store.usage().states, 2);
}

#[test]
fn a_commit_that_reached_the_disk_and_failed_is_found_there_by_the_next_use() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    assert_eq!(store.put_batch(&[put(2, 1, 1, b"old"), put(3, 1, 1, b"other")]), Ok(vec![]));
    file.0.lock().fails_late = true;
    assert!(store.put_batch(&[put(1, 1, 1, b"state"), put(2, 1, 2, b"newer state")]).is_err());
    file.0.lock().fails_late = false;
    // The client of sequence 1 was told that it is not stored, so it has ended.
    store.remove(&key(1), 1).unwrap();
    let after = BTreeMap::from([(2, (2, b"newer state".to_vec())), (3, (1, b"other".to_vec()))]);
    assert_eq!((store.get(&key(2)).unwrap().unwrap().0.step, kept(&store)), (2, after.clone()));
    assert_eq!((store.usage().states, store.usage().bytes), (2, 16));
    store.close();
    assert_eq!(kept(&tier(&file, u64::MAX).unwrap()), after);
}

/// A failed commit may have changed nothing, or be in the file as a whole. The state of before it is never damaged.
#[test]
fn after_a_failed_commit_a_look_finds_the_state_of_before_or_after_it() {
    for is_done in [false, true] {
        let file = File::default();
        let tier = tier(&file, u64::MAX).unwrap();
        tier.put_batch(&[put(1, 1, 1, b"one"), put(2, 1, 1, b"two")]).unwrap();
        let known = |id| tier.known(&key(id)).map(|head| head.map(|head| head.step));
        match is_done {
            true => file.0.lock().fails_late = true,
            false => file.0.lock().fails = Some(io::ErrorKind::StorageFull),
        }
        tier.put_batch(&[put(1, 1, 2, b"one later")]).unwrap_err();
        assert_eq!((known(1), known(2), known(3)), (None, Some(Some(1)), Some(None)));
        let mut disk = file.0.lock();
        (disk.fails, disk.fails_late) = (None, false);
        drop(disk);
        let found = tier.look(&key(1)).unwrap().unwrap();
        assert_eq!((found.step, known(1)), (1 + u64::from(is_done), Some(Some(found.step))));
        let text: &[u8] = if is_done { b"one later" } else { b"one" };
        assert_eq!(tier.get(&key(1)).unwrap().unwrap(), (found, text.to_vec()));
        assert_eq!(tier.look(&key(3)).unwrap(), None);
    }
}

#[test]
fn the_store_works_again_after_a_failed_write() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[put(1, 1, 1, b"before")]).unwrap();
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::ReadOnlyFilesystem] {
        file.0.lock().fails = Some(kind);
        let refused = store.put_batch(&[put(1, 1, 2, b"lost")]).unwrap_err();
        assert!(matches!(refused, TierError::Io { .. } | TierError::Damaged { .. }), "{refused:?}");
        file.0.lock().fails = None;
        assert_eq!(kept(&store)[&1], (1, b"before".to_vec()));
    }
    store.put_batch(&[put(1, 1, 2, b"after")]).unwrap();
    assert_eq!(kept(&store)[&1], (2, b"after".to_vec()));
}

#[test]
fn a_changed_byte_of_a_state_is_found() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[put(1, 1, 4, &[0xa5; 300])]).unwrap();
    drop(store);
    let mut bytes = file.0.lock().bytes.clone();
    let at = bytes.windows(300).position(|w| w == [0xa5; 300]).unwrap();
    bytes[at + 100] ^= 1;
    // The store's own checks find it, or the checksum of the head does.
    match tier(&File::holding(bytes), u64::MAX) {
        Ok(store) => assert_eq!(store.get(&key(1)).unwrap_err(), TierError::Checksum { step: 4 }),
        Err(error) => assert!(matches!(error, TierError::Damaged { .. }), "{error:?}"),
    }
}

#[test]
fn each_start_has_a_larger_epoch() {
    let file = File::default();
    let epochs = [10, 10, 5, 40].map(|least| tier(&file, u64::MAX).unwrap().next_epoch(least).unwrap());
    assert_eq!(epochs, [10, 11, 12, 40]);
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[TierChange::UseEpochs { until: 90 }, TierChange::UseEpochs { until: 70 }]).unwrap();
    assert_eq!(tier(&file, u64::MAX).unwrap().next_epoch(41).unwrap(), 91);
}

#[test]
fn the_last_ends_of_sequences_are_remembered() {
    let file = File::default();
    let remember = |id: u64, n: u64| {
        let why = if id == 2 { EndReason::Idle } else { EndReason::End };
        let ended = EndedState { why, step: n, idle: Some(Duration::from_secs(5)), at: Duration::from_secs(n) };
        TierChange::Remember { key: key(id), ended }
    };
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[remember(1, 1), remember(2, 2)]).unwrap();
    store.put_batch(&[remember(1, 3)]).unwrap();
    for _ in 0..2 {
        let again = tier(&file, u64::MAX).unwrap();
        let ended = again.take_ended("sum");
        let of: Vec<_> = ended.iter().map(|(id, ended)| (id.clone(), ended.why, ended.step)).collect();
        assert_eq!(of, [(Id::from(2), EndReason::Idle, 2), (Id::from(1), EndReason::End, 3)]);
        assert_eq!((again.take_ended("sum"), again.take_ended("other")), (vec![], vec![]));
    }
    // More ends than there are places: the oldest are forgotten.
    let ends: Vec<TierChange> = (10..17_000).map(|n| remember(n, n)).collect();
    tier(&file, u64::MAX).unwrap().put_batch(&ends).unwrap();
    let ended = tier(&file, u64::MAX).unwrap().take_ended("sum");
    assert_eq!((ended.len(), ended[0].1.step), (16_384, 17_000 - 16_384));
}

#[test]
fn keys_and_heads_are_read_as_they_were_written() {
    for id in [Id::from(7), Id::from("call-77"), Id::from(u64::MAX)] {
        let key = TierKey::new("a model", &id);
        assert_eq!(TierKey::decode(&key.encode()), Some(key));
    }
    let span = Duration::from_millis(1500);
    for (idle, left) in [(None, None), (Some(span), Some(Duration::ZERO))] {
        let running = Duration::from_secs(7);
        let head = StateHead::new((3, [9; 32]), (4, 5), IdleTime { idle, left, running }, true, b"file");
        let read = StateHead::decode(&head.encode()).unwrap();
        assert_eq!((read.idle, read.idle_left, read.running, read.step), (idle, left, running, 5));
        assert!(read == head && read.fits(b"file") && !read.fits(b"fila"));
        let behind = head.clone().behind(b"file", 2 * running);
        let read = StateHead::decode(&behind.encode()).unwrap();
        assert!(read == behind && read != head && read.behind && read.answered && read.fits(b"file"));
    }
    assert_eq!(StateHead::decode(&[9; 100]), None, "another layout");
}

/// A head as an earlier layout encoded it.
fn old_head(layout: u8, file: &[u8]) -> Vec<u8> {
    let mut head = vec![layout, 1];
    head.extend_from_slice(&[9; 32]);
    for number in [3, 4, 5, 5_000_000, 2_000_000, file.len() as u64] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    let sum = crc32fast::hash(&[&head[..], file].concat());
    head.extend_from_slice(&sum.to_le_bytes());
    head
}

#[test]
fn state_heads_of_earlier_layouts_are_read() {
    for layout in [1, 2] {
        let written = old_head(layout, b"file");
        let head = StateHead::decode(&written).unwrap();
        let spans = (head.idle, head.idle_left, head.running);
        assert_eq!(spans, (Some(Duration::from_secs(5)), Some(Duration::from_secs(2)), Duration::ZERO));
        assert_eq!((head.version, head.incarnation, head.step, head.answered, head.behind), (3, 4, 5, true, false));
        assert!(head.fits(b"file") && !head.fits(b"fila"));
        assert_eq!(head.encode(), written);
        let now = head.behind(b"file", Duration::from_secs(1));
        assert!(
            StateHead::decode(&now.encode()).unwrap() == now
                && now.fits(b"file")
                && now.running == Duration::from_secs(1)
        );
    }
    assert_eq!(StateHead::decode(&old_head(4, b"file")), None);
}

#[test]
fn a_store_of_the_first_layout_is_read() {
    const HEADS: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("heads");
    const WHOLE: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("states");
    let (file, state) = (File::default(), vec![7; 10_000]);
    let database = Builder::new().create_with_backend(file.clone()).unwrap();
    let write = database.begin_write().unwrap();
    for id in [1, 2] {
        let at = key(id).encode();
        write.open_table(HEADS).unwrap().insert(&at[..], &old_head(1, &state)[..]).unwrap();
        write.open_table(WHOLE).unwrap().insert(&at[..], &state[..]).unwrap();
    }
    write.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        let store = tier(&file, u64::MAX).unwrap();
        assert_eq!(kept(&store), [(1, (5, state.clone())), (2, (5, state.clone()))].into());
        store.close();
    }
    let store = tier(&file, u64::MAX).unwrap();
    store.remove(&key(1), 4).unwrap();
    store.put_batch(&[put(2, 5, 6, b"new")]).unwrap();
    assert_eq!((kept(&store), store.pieces().unwrap()), ([(2, (6, b"new".to_vec()))].into(), 1));
}

#[test]
fn the_running_time_adds_up_over_servers_and_a_crash_is_detected() {
    let (file, secs) = (File::default(), Duration::from_secs);
    let whole = |time: RunningTime| (time.at_open.as_secs(), time.last_began.as_secs(), time.last_closed);
    let store = tier(&file, u64::MAX).unwrap();
    assert_eq!(whole(store.running_time()), (0, 0, false));
    store.put_batch(&[TierChange::NoteRunning { until: secs(5), closes: true }]).unwrap();
    store.close();
    let store = tier(&file, u64::MAX).unwrap();
    assert_eq!(whole(store.running_time()), (5, 0, true));
    let time = |n| IdleTime { idle: Some(secs(60)), left: Some(secs(60)), running: secs(n) };
    let head = |n| StateHead::new((1, [7; 32]), (1, 1), time(n), false, b"state");
    let put = |id, n| TierChange::Put { key: key(id), head: Arc::new(head(n)), file: Bytes::from_static(b"state") };
    store.put_batch(&[put(1, 3), put(2, 9)]).unwrap();
    store.close();
    let crashed = tier(&file, u64::MAX).unwrap().running_time();
    assert_eq!(whole(crashed), (9, 5, false), "the last head says how long it ran at least");
    let idle = |time: RunningTime, head: StateHead| time.idle_since(&head).as_secs();
    assert_eq!(
        [3, 5, 7].map(|n| idle(crashed, head(n))),
        [6, 4, 0],
        "what was written before the last server waited on"
    );
    let behind = |n: u64| head(n).behind(b"state", secs(n));
    assert_eq!([3, 7].map(|n| idle(crashed, behind(n))), [4, 0]);
    let stopped = RunningTime { last_closed: true, ..crashed };
    assert_eq!((idle(stopped, head(7)), idle(stopped, behind(7))), (2, 0));
}

// === a real file ===

fn opened(folder: &std::path::Path) -> Result<OpenedStore, TierError> {
    open(folder, u64::MAX, Duration::ZERO)
}

#[test]
fn only_the_servers_user_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("state");
    drop(opened(&at).unwrap());
    let mode = |path: &std::path::Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&at), mode(&at.join("sequences.redb"))), (0o700, 0o600));
    fs_err::set_permissions(at.join("sequences.redb"), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(opened(&at).unwrap());
    assert_eq!(mode(&at.join("sequences.redb")), 0o600);
}

#[test]
fn a_store_in_use_is_refused_to_a_second_server() {
    let folder = tempfile::tempdir().unwrap();
    let first = opened(folder.path()).unwrap();
    assert!(matches!(opened(folder.path()).unwrap_err(), TierError::InUse { .. }));
    first.tier.close();
    assert!(opened(folder.path()).is_ok());
}

#[test]
fn a_damaged_file_is_moved_aside_and_nothing_of_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sequences.redb");
    let store = opened(folder.path()).unwrap().tier;
    store.put_batch(&[put(1, 1, 1, b"state")]).unwrap();
    store.close();
    let whole = fs_err::read(&file).unwrap();
    let damaged = [b"no store at all".repeat(1000), whole[..whole.len() / 2].to_vec(), vec![0; whole.len()]];
    for bytes in damaged {
        fs_err::write(&file, &bytes).unwrap();
        let OpenedStore { tier, set_aside } = opened(folder.path()).unwrap();
        let (why, aside) = set_aside.unwrap();
        assert!(matches!(why, TierError::Damaged { .. }), "{why}");
        assert_eq!((tier.list("sum").len(), fs_err::read(&aside).unwrap() == bytes), (0, true));
        tier.close();
        fs_err::remove_file(aside).unwrap();
    }
}

#[test]
fn a_store_directory_that_cannot_be_created_is_reported_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "").unwrap();
    let refused = opened(&file.join("state")).unwrap_err();
    assert!(refused.to_string().starts_with(&file.join("state").display().to_string()), "{refused}");
}
