//! The directory of a store: who has it, what is damage, and what keeps its file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, StorageError, TableDefinition};

use super::folder::{of_open, open_with, set_aside, shrink};
use super::tests::{File, kept, key, opened_in_memory, put, tier};
use super::*;

const HEADS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("heads");

fn opened(folder: &Path) -> Result<OpenedStore, TierError> {
    open(folder, u64::MAX, Duration::ZERO)
}

/// The files of a directory.
fn files(folder: &Path) -> Vec<String> {
    let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// Changes the stored head of sequence 1. The store must be closed.
fn change_head(file: &Path, change: impl Fn(&mut Vec<u8>)) {
    let database = Database::open(file).unwrap();
    let write = database.begin_write().unwrap();
    {
        let mut heads = write.open_table(HEADS).unwrap();
        let at = key(1).encode();
        let mut head = heads.get(&at[..]).unwrap().unwrap().value().to_vec();
        change(&mut head);
        heads.insert(&at[..], &head[..]).unwrap();
    }
    write.commit().unwrap();
}

fn head(file: &Path) -> Vec<u8> {
    let database = Database::open(file).unwrap();
    let heads = database.begin_read().unwrap().open_table(HEADS).unwrap();
    heads.get(&key(1).encode()[..]).unwrap().unwrap().value().to_vec()
}

/// A directory with one stored sequence, and its file.
fn stored() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path()).unwrap().tier;
    store.put_batch(&[put(1, 1, 1, b"state")]).unwrap();
    store.close();
    let file = folder.path().join("sequences.redb");
    (folder, file)
}

#[test]
fn only_corruption_of_a_file_is_damage() {
    let io = |kind: io::ErrorKind| DatabaseError::Storage(StorageError::Io(kind.into()));
    let corrupted = |what: &str| DatabaseError::Storage(StorageError::Corrupted(what.to_owned()));
    let kind = |error| match of_open(Path::new("file"), error) {
        TierError::Damaged { .. } => "damaged",
        TierError::InUse { .. } => "in use",
        TierError::OtherVersion { .. } => "other version",
        TierError::Io { .. } => "io",
        other => panic!("{other}"),
    };
    let cases = [
        (DatabaseError::DatabaseAlreadyOpen, "in use"),
        (DatabaseError::LockProtocolMismatch, "in use"),
        (DatabaseError::RepairAborted, "io"),
        (DatabaseError::UpgradeRequired(2), "other version"),
        (corrupted("Expected file format version <= 3, found 4"), "other version"),
        (DatabaseError::TransactionInProgress, "io"),
        (corrupted("a page"), "damaged"),
        (DatabaseError::Storage(StorageError::ValueTooLarge(9)), "io"),
        (io(io::ErrorKind::InvalidData), "damaged"),
        (io(io::ErrorKind::UnexpectedEof), "damaged"),
        (io(io::ErrorKind::PermissionDenied), "io"),
        (DatabaseError::Storage(StorageError::Backend("of the backend".into())), "io"),
        (DatabaseError::Storage(StorageError::Unsupported), "io"),
        (DatabaseError::Storage(StorageError::PreviousIo), "io"),
        (DatabaseError::Storage(StorageError::DatabaseClosed), "io"),
        (DatabaseError::Storage(StorageError::LockPoisoned(std::panic::Location::caller())), "io"),
    ];
    for (error, wanted) in cases {
        let shown = format!("{error:?}");
        assert_eq!(kind(error), wanted, "{shown}");
    }
}

#[test]
fn a_store_of_a_later_version_keeps_its_name_and_its_contents() {
    let (folder, file) = stored();
    let before = head(&file);
    change_head(&file, |head| head[0] = 9);
    for _ in 0..2 {
        let refused = opened(folder.path()).unwrap_err();
        assert!(matches!(refused, TierError::OtherVersion { .. }), "{refused}");
        assert!(refused.to_string().contains("layout 9"), "{refused}");
        assert_eq!(files(folder.path()), ["sequences.lock", "sequences.redb"]);
    }
    change_head(&file, |head| head[0] = before[0]);
    assert_eq!(head(&file), before);
    let OpenedStore { tier, set_aside } = opened(folder.path()).unwrap();
    assert!(set_aside.is_none());
    assert_eq!(kept(&tier)[&1], (1, b"state".to_vec()));
}

/// A later file format of the embedded store.
#[test]
fn a_file_of_a_later_format_keeps_its_name() {
    let (folder, file) = stored();
    let mut bytes = fs_err::read(&file).unwrap();
    // Both commit slots begin with the version of the format.
    for slot in [64, 192] {
        assert_eq!(bytes[slot], 3);
        bytes[slot] = 4;
    }
    fs_err::write(&file, &bytes).unwrap();
    let refused = opened(folder.path()).unwrap_err();
    assert!(matches!(refused, TierError::OtherVersion { .. }), "{refused:?}");
    assert_eq!(files(folder.path()), ["sequences.lock", "sequences.redb"]);
}

#[test]
fn heads_that_name_more_bytes_than_the_file_has_are_damage() {
    // The field of the bytes precedes the running time and the checksum.
    let bytes_field = |head: &mut Vec<u8>, bytes: u64| {
        let at = head.len() - 20;
        head[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
    };
    for bytes in [1 << 45, u64::MAX] {
        let (folder, file) = stored();
        let other = opened(folder.path()).unwrap().tier;
        other.put_batch(&[put(2, 1, 1, b"other")]).unwrap();
        other.close();
        change_head(&file, |head| bytes_field(head, bytes));
        let OpenedStore { tier, set_aside } = opened(folder.path()).unwrap();
        let (why, aside) = set_aside.unwrap();
        assert!(why.to_string().contains("more bytes than it has"), "{why}");
        assert_eq!((tier.usage().states, tier.usage().bytes, aside.exists()), (0, 0, true));
    }
}

#[test]
fn a_file_that_is_set_aside_overwrites_no_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sequences.redb");
    for n in 0..50 {
        fs_err::write(&file, n.to_string()).unwrap();
        let aside = set_aside(&file).unwrap();
        assert!(aside.to_str().unwrap().contains("sequences.redb.damaged-"), "{aside:?}");
        assert_eq!(fs_err::read_to_string(aside).unwrap(), n.to_string());
    }
    assert_eq!(files(folder.path()).len(), 50);
}

/// A failed write closes the file, and with it the lock of the embedded store.
#[test]
fn a_store_whose_write_failed_is_still_refused_to_a_second_server() {
    let (folder, file) = (tempfile::tempdir().unwrap(), File::default());
    let open_again = || {
        let file = file.clone();
        open_with(folder.path(), u64::MAX, Duration::ZERO, move |_| opened_in_memory(&file))
    };
    let first = open_again().unwrap().tier;
    first.put_batch(&[put(1, 1, 1, b"state")]).unwrap();
    file.0.lock().fails = Some(io::ErrorKind::StorageFull);
    assert!(first.put_batch(&[put(1, 1, 2, b"lost")]).is_err());
    file.0.lock().fails = None;
    let refused = open_again().unwrap_err();
    assert!(matches!(&refused, TierError::InUse { path, .. } if path.ends_with("sequences.redb")), "{refused}");
    assert_eq!(kept(&first)[&1], (1, b"state".to_vec()), "the first goes on");
    first.close();
    let second = open_again().unwrap().tier;
    assert_eq!(kept(&second)[&1], (1, b"state".to_vec()));
    // The file belongs to the second server now.
    assert_eq!(first.get(&key(1)).unwrap_err(), TierError::Closed);
    drop(second);
    open_again().unwrap();
}

#[test]
fn a_server_waits_for_the_one_before_it() {
    let (folder, _) = stored();
    let first = opened(folder.path()).unwrap().tier;
    let next = {
        let folder = folder.path().to_owned();
        std::thread::spawn(move || open(&folder, u64::MAX, Duration::from_secs(60)).map(|opened| kept(&opened.tier)))
    };
    // Whether the other thread waits already or does not even run: it gets the store after this.
    first.put_batch(&[put(1, 1, 2, b"later")]).unwrap();
    first.close();
    assert_eq!(next.join().unwrap().unwrap()[&1], (2, b"later".to_vec()));
}

#[test]
fn a_server_waits_for_one_that_knows_no_lock_file() {
    let (folder, file) = stored();
    let first = Database::open(&file).unwrap();
    assert!(matches!(opened(folder.path()).unwrap_err(), TierError::InUse { .. }));
    assert_eq!(files(folder.path()), ["sequences.lock", "sequences.redb"]);
    drop(first);
    assert!(opened(folder.path()).is_ok());
}

#[test]
fn a_store_that_is_not_compacted_goes_on() {
    let file = File::default();
    let store = tier(&file, u64::MAX).unwrap();
    store.put_batch(&[put(1, 1, 1, b"state")]).unwrap();
    let whole = 1 << 30;
    for step in 2..4 {
        {
            let mut disk = file.0.lock();
            (disk.fails, disk.panics) = ((step == 2).then_some(io::ErrorKind::StorageFull), step == 3);
        }
        shrink(&store, whole);
        {
            let mut disk = file.0.lock();
            assert!(!disk.panics, "the compaction has written");
            (disk.fails, disk.panics) = (None, false);
        }
        assert_eq!(store.put_batch(&[put(1, 1, step, b"state")]), Ok(vec![]), "the next write succeeds");
        assert_eq!(kept(&store)[&1], (step, b"state".to_vec()));
    }
    shrink(&store, whole);
    assert_eq!(kept(&store).len(), 1);
}

#[test]
fn a_store_in_use_names_its_user_and_what_to_do() {
    let (folder, _) = stored();
    let held = opened(folder.path()).unwrap();
    let error = opened(folder.path()).unwrap_err().to_string();
    assert!(error.contains("sequences.redb is in use by ") && error.contains("--state-dir of its own"), "{error}");
    #[cfg(target_os = "linux")]
    assert!(error.contains(&format!("pid {} (", std::process::id())), "{error}");
    drop(held);
}

#[test]
fn an_error_of_the_system_has_no_number() {
    let full = io::Error::from_raw_os_error(28);
    let TierError::Io { what, .. } = TierError::io("st".to_owned(), &full) else { panic!("it is of the disk") };
    assert_eq!(what, "No space left on device");
}
